#include "nccl-glue/net/receiver.hpp"

#include <algorithm>

#include "nccl-glue/wire/little.hpp"

namespace nbx::nccl {

Receiver::Receiver(Registry& registry, Acceptor& acceptor, const ghost::Context& context, const NetConfig& config,
                   NetUser& user)
    : Connection(registry, context, config, user), acceptor_(acceptor), magic_(acceptor.expect(*this)) {}

void Receiver::release() noexcept { acceptor_.forget(magic_, stream_); }

// ---- the hand-shake

void Receiver::accept(ghost::StreamId stream) {
  stream_ = stream;
  if (version().ib_device_list) {
    expected_ = {"device list", ib::device_list_size(version())};
  } else {
    expect_metadata();
  }
}

void Receiver::expect_metadata() {
  step_ = Step::metadata;
  expected_ = {"metadata", version().ib_metadata_size};
}

void Receiver::on_item(ConstBytes item, Instant now) {
  switch (step_) {
    case Step::device_list:
      if (take_device_list(item, now)) {
        say(ib::encode(version(), ib::DeviceList{}));
        expect_metadata();
      }
      return;
    case Step::metadata:
      if (take_metadata(item, now) &&
          create_qps(peer_.qps.size(), rdma::access::remote_write | rdma::access::remote_atomic, false, now)) {
        sizes_ = &add_region(ib::sizes_area_size(version()), rdma::access::remote_write, rdma::Backing::sink);
        elements_ = &add_region(ib::slots * ib::cts_element_size, 0, rdma::Backing::memory);
        connect_qps(now);
      }
      return;
    case Step::ready:
      if (load<std::int32_t>(item, 0) != 1) {
        fail("the sender is not ready: " + std::to_string(load<std::int32_t>(item, 0)), now);
        return;
      }
      set_ready(now);
      return;
  }
}

// The sender's traffic class and service level rule the connection: it takes them from this answer.
void Receiver::on_connected(Instant) {
  const IpAddress& gid = *context_.identity().source_for(peer_.devices[peer_device(0)].gid);
  ib::Metadata metadata = own_metadata(gid, *sizes_);
  metadata.devices[0].mtu_code = std::min(metadata.devices[0].mtu_code, peer_.devices[peer_device(0)].mtu_code);
  metadata.traffic_class = peer_.traffic_class;
  metadata.service_level = peer_.service_level;
  say(ib::encode(version(), metadata));
  step_ = Step::ready;
  expected_ = {"readiness", ib::ready_size};
}

std::uint8_t Receiver::traffic_class() const {
  return config_.fifo_traffic_class.value_or(static_cast<std::uint8_t>(peer_.traffic_class));
}

// ---- messages

bool Receiver::post(const NetBuffer& buffer, std::uint32_t tag, Instant now) noexcept {
  if (!ready_ || receives_.size() >= ib::slots) {
    return false;
  }
  const std::uint64_t k = completed_ + receives_.size();
  const std::size_t slot = k % ib::slots;
  const ib::ClearToSend element{
      .address = buffer.addr, .size = buffer.size, .rkeys = {buffer.key}, .tag = tag, .sequence = k + 1};
  std::ranges::copy(ib::encode(version(), element), elements_->storage().subspan(slot * ib::cts_element_size).begin());
  const rdma::SendWr write{.wr_id = k,
                           .opcode = rdma::WrOpcode::rdma_write,
                           .signaled = false,
                           .local = {.addr = elements_->spec().addr + slot * ib::cts_element_size,
                                     .length = ib::cts_element_size,
                                     .lkey = elements_->spec().key},
                           .remote_addr = peer_.address + slot * ib::cts_slot_size,
                           .rkey = peer_.devices[peer_device(0)].rkey};
  if (!context_.transport.post_send(qp(0), write, now)) {
    return false;
  }
  const Choice choice = choose_qps(k);
  for (std::uint32_t part = 0; part < choice.parts; ++part) {
    context_.transport.post_recv(qp(qp_index(choice, part)), {.wr_id = k, .local = {}});
  }
  receives_.push_back({.missing = choice.parts, .offered = static_cast<std::uint32_t>(buffer.size)});
  return true;
}

// An immediate says the size of the whole message, on each of its queue pairs.
void Receiver::on_completion(rdma::Qp& from, const rdma::Completion& completion, Instant now) noexcept {
  if (closed_ || completion.status != rdma::WcStatus::success) {
    return;  // on_error() says why
  }
  const Registry::Turn turn{registry_};
  const std::uint64_t index = completion.wr_id - completed_;
  if (completion.opcode != rdma::WcOpcode::recv_rdma_with_imm || index >= receives_.size()) {
    fail("a message on queue pair " + std::to_string(from.qpn().value) + " that is no RDMA write with immediate", now);
    return;
  }
  Receive& receive = receives_[index];
  const std::uint32_t size = ib::size_of_immediate(version(), completion.imm_data);
  if (size > receive.offered || (receive.sized && size != receive.size)) {
    fail("message " + std::to_string(completion.wr_id) + " has " + std::to_string(size) + " bytes, where " +
             std::to_string(receive.sized ? receive.size : receive.offered) +
             (receive.sized ? " were said on another queue pair" : " were offered"),
         now);
    return;
  }
  receive.size = size;
  receive.sized = true;
  --receive.missing;
  report_complete(now);
}

void Receiver::report_complete(Instant now) {
  while (!closed_ && !receives_.empty() && receives_.front().missing == 0) {
    const std::uint32_t size = receives_.front().size;
    receives_.pop_front();
    ++completed_;
    user_.on_received(id(), size, now);
  }
}

}  // namespace nbx::nccl
