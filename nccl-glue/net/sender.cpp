#include "nccl-glue/net/sender.hpp"

#include <algorithm>

#include "nccl-glue/wire/little.hpp"

namespace nbx::nccl {

namespace {

constexpr std::uint32_t requests_max = 512;  // of a send queue
constexpr std::uint64_t message_size_max = 1U << 30U;
constexpr std::size_t sizes_row = ib::grouped_max * ib::size_entry;

}  // namespace

Sender::Sender(Registry& registry, const ghost::Context& context, const NetConfig& config, const Handle& handle,
               NetUser& user, Instant now)
    : Connection(registry, context, config, user), handle_(handle) {
  start_.client = this;
  context_.wheel.arm(start_, now);  // so that the caller knows the id before anything can fail
}

// ---- the hand-shake

void Sender::on_timer(TimerNode&, Instant now) noexcept {
  const Registry::Turn turn{registry_};
  const auto handle = ib::decode_handle(handle_);
  if (!handle) {
    fail("the handle has no address", now);
    return;
  }
  if (context_.identity().source_for(handle->address) == nullptr) {
    fail("the ghost has no address of the family of " + nbx::to_string(handle->address), now);
    return;
  }
  stream_ = context_.streams.connect(context_.ghost, handle->address, handle->port, *this);
  if (stream_ == ghost::StreamId::none) {
    on_close(stream_, now);
  }
}

void Sender::on_open(ghost::StreamId, GhostId, std::uint16_t, const IpAddress&, Instant now) noexcept {
  const Registry::Turn turn{registry_};
  say(ib::encode(ib::Hello{.magic = ib::decode_handle(handle_)->magic}));
  opened_ = true;
  if (version().ib_device_list) {
    say(ib::encode(version(), ib::DeviceList{}));
    expected_ = {"device list", ib::device_list_size(version())};
  } else {
    introduce(1, now);
  }
}

void Sender::on_bytes(ghost::StreamId, ConstBytes bytes, Instant now) noexcept { receive(bytes, now); }

void Sender::on_close(ghost::StreamId, Instant now) noexcept {
  if (opened_) {
    peer_closed(now);
    return;
  }
  stream_ = ghost::StreamId::none;
  const auto handle = ib::decode_handle(handle_);
  fail("no connection to " + nbx::to_string(handle->address) + " port " + std::to_string(handle->port), now);
}

void Sender::on_item(ConstBytes item, Instant now) {
  if (step_ == Step::device_list) {
    if (take_device_list(item, now)) {
      introduce(static_cast<std::uint32_t>(peer_devices_.ndevs), now);
    }
  } else if (take_metadata(item, now)) {
    if (peer_.qps.size() != own_qps_) {
      fail("the receiver has " + std::to_string(peer_.qps.size()) + " queue pairs, the sender " +
               std::to_string(own_qps_) + ": NCCL_IB_QPS_PER_CONNECTION must be equal",
           now);
      return;
    }
    connect_qps(now);
  }
}

void Sender::introduce(std::uint32_t peer_devices, Instant now) {
  own_qps_ = std::min<std::size_t>(config_.qps_per_connection * std::size_t{peer_devices}, ib::qps_max);
  if (!create_qps(own_qps_, rdma::access::remote_write, true, now)) {
    return;
  }
  fifo_memory_.reset(static_cast<std::byte*>(std::calloc(ib::cts_fifo_size, 1)));
  if (fifo_memory_ == nullptr) {
    fail("no memory", now);
    return;
  }
  fifo_ = &add_region(ib::cts_fifo_size, rdma::access::remote_write, rdma::Backing::external, fifo_memory_.get());
  const IpAddress& gid = *context_.identity().source_for(ib::decode_handle(handle_)->address);
  ib::Metadata metadata = own_metadata(gid, *fifo_);
  metadata.traffic_class = config_.traffic_class;
  metadata.service_level = config_.service_level;
  say(ib::encode(version(), metadata));
  step_ = Step::metadata;
  expected_ = {"metadata", version().ib_metadata_size};
}

void Sender::on_connected(Instant now) {
  std::array<std::byte, ib::ready_size> ready{};
  store(MutableBytes{ready}, 0, std::int32_t{1});
  say(ready);
  set_ready(now);
}

// ---- the clear-to-send FIFO

MutableBytes Sender::element_at(std::uint64_t slot, std::size_t i) const {
  return fifo_->storage().subspan(slot * ib::cts_slot_size + i * ib::cts_element_size, ib::cts_element_size);
}

ib::ClearToSend Sender::read(std::uint64_t slot, std::size_t i) const {
  return *ib::decode_clear_to_send(version(), element_at(slot, i));
}

void Sender::on_write(rdma::Qp&, std::uint64_t addr, std::uint32_t, Instant now) noexcept {
  if (closed_ || !fifo_->contains(addr, 1)) {
    return;
  }
  const Registry::Turn turn{registry_};
  const std::uint64_t offset = addr - fifo_->spec().addr;
  const std::uint64_t slot = offset / ib::cts_slot_size;
  const std::uint64_t before = slots_taken_;
  while (take_slot(now)) {
  }
  const bool taken = (slot - before) % ib::slots < slots_taken_ - before;
  if (!closed_ && !taken && offset % ib::cts_slot_size == 0) {
    check_order(slot, now);
  }
}

bool Sender::take_slot(Instant now) {
  if (closed_) {
    return false;
  }
  const std::uint64_t slot = slots_taken_ % ib::slots;
  const ib::ClearToSend first = read(slot, 0);
  if (first.sequence != slots_taken_ + 1) {
    return false;
  }
  if (first.grouped == 0 || first.grouped > ib::grouped_max) {
    fail("clear-to-send " + std::to_string(first.sequence) + " has " + std::to_string(first.grouped) + " elements",
         now);
    return false;
  }
  if (slots_taken_ - slots_used_ == ib::slots) {
    fail("more than " + std::to_string(ib::slots) + " clear-to-sends without a message", now);
    return false;
  }
  std::array<ib::ClearToSend, ib::grouped_max> elements;
  const std::span slot_elements = std::span{elements}.first(first.grouped);
  for (std::size_t i = 0; i < first.grouped; ++i) {
    elements[i] = read(slot, i);
    if (elements[i].sequence != first.sequence) {
      return false;  // the rest is still on its way
    }
    const auto keys = std::span{elements[i].rkeys}.first(static_cast<std::size_t>(peer_.ndevs));
    if (elements[i].address == 0 || std::ranges::count(keys, 0U) != 0) {
      fail("clear-to-send " + std::to_string(first.sequence) + " has address or key 0", now);
      return false;
    }
    elements[i].grouped = first.grouped;
  }
  ++slots_taken_;
  std::ranges::fill(element_at(slot, 0), std::byte{0});
  clear_.insert(clear_.end(), slot_elements.begin(), slot_elements.end());
  for (const ib::ClearToSend& element : slot_elements) {
    if (!closed_) {
      user_.on_clear_to_send(id(), element.size, element.tag, now);
    }
  }
  return !closed_;
}

// On one queue pair clear-to-sends come in order. A peer with several devices takes turns, so some may be ahead.
void Sender::check_order(std::uint64_t slot, Instant now) {
  const std::uint64_t sequence = read(slot, 0).sequence;
  const std::uint64_t ahead = sequence - slots_taken_ - 1;
  const std::uint64_t ahead_max = peer_.ndevs > 1 ? ib::slots - 1 : 0;
  if (ahead > ahead_max || (sequence - 1) % ib::slots != slot) {
    fail("clear-to-send " + std::to_string(sequence) + " in slot " + std::to_string(slot) + ", where " +
             std::to_string(slots_taken_ + 1) + " is next",
         now);
  }
}

// ---- messages

bool Sender::send(const NetBuffer& buffer, Instant now) noexcept {
  if (!ready_ || clear_.empty()) {
    return false;
  }
  NetBuffer cut = buffer;
  cut.size = std::min({buffer.size, clear_.front().size, message_size_max});
  unsent_.push_back({clear_.front(), cut});
  clear_.pop_front();
  pump(now);
  return true;
}

bool Sender::data_apart(std::uint32_t count) const {
  return count > 1 || (config_.adaptive_routing && unsent_.front().buffer.size > config_.adaptive_routing_threshold);
}

/// Sends what is complete and has room.
void Sender::pump(Instant now) noexcept {
  while (!closed_ && !unsent_.empty() && unsent_.size() >= unsent_.front().element.grouped) {
    const std::uint32_t count = unsent_.front().element.grouped;
    const std::uint32_t requests = count + (data_apart(count) ? 1 : 0);
    if (requests_ + requests > requests_max) {
      return;
    }
    requests_ += requests;
    const std::uint64_t k = slots_used_++;
    const Choice choice = choose_qps(k);
    flights_.push_back({.missing = choice.parts, .requests = requests, .messages = count});
    if (count > 1) {
      write_sizes(k, count);
    }
    for (std::uint32_t part = 0; part < choice.parts; ++part) {
      launch_part(k, count, choice, part, now);
    }
    unsent_.erase(unsent_.begin(), unsent_.begin() + count);
  }
}

// On each queue pair the data of every message, then one immediate, which alone is signaled. A single message carries
// it with its data, unless packets may be reordered; a group's carries the sizes.
void Sender::launch_part(std::uint64_t k, std::uint32_t count, const Choice& choice, std::uint32_t part,
                         Instant now) noexcept {
  const std::size_t index = qp_index(choice, part);
  const std::size_t device = peer_device(index);
  const bool apart = data_apart(count);
  const auto first_size = static_cast<std::uint32_t>(unsent_.front().buffer.size);
  rdma::SendWr last{.wr_id = k, .opcode = rdma::WrOpcode::rdma_write_with_imm};
  // Up to 2.28 a group's immediate is 0. Receivers look at neither.
  last.imm_data = ib::immediate_of(version(), count == 1 || version().imm_network_order ? first_size : 0);
  for (std::uint32_t i = 0; i < count; ++i) {
    const Message& message = unsent_[i];
    const ib::Part piece = ib::split_part(static_cast<std::uint32_t>(message.buffer.size), choice.parts, part);
    rdma::SendWr data{.wr_id = k, .opcode = rdma::WrOpcode::rdma_write, .signaled = false};
    rdma::SendWr& carrier = apart ? data : last;
    carrier.local = {.addr = message.buffer.addr + piece.offset, .length = piece.size, .lkey = message.buffer.key};
    carrier.remote_addr = message.element.address + piece.offset;
    carrier.rkey = message.element.rkeys[device];
    if (apart) {
      context_.transport.post_send(qp(index), data, now);
    }
  }
  if (count > 1) {
    const std::uint64_t slot = k % ib::slots;
    last.local = {.addr = sizes_->spec().addr + slot * sizes_row,
                  .length = static_cast<std::uint32_t>(count * ib::size_entry),
                  .lkey = sizes_->spec().key};
    last.remote_addr = peer_.address + slot * version().completion_row;
    last.rkey = peer_.devices[device].rkey;
  }
  context_.transport.post_send(qp(index), last, now);
}

void Sender::write_sizes(std::uint64_t k, std::uint32_t count) {
  if (sizes_ == nullptr) {
    sizes_ = &add_region(ib::slots * sizes_row, 0, rdma::Backing::memory);
  }
  const MutableBytes row = sizes_->storage().subspan(k % ib::slots * sizes_row, sizes_row);
  for (std::uint32_t i = 0; i < count; ++i) {
    store(row, i * ib::size_entry, static_cast<std::uint32_t>(unsent_[i].buffer.size));
  }
}

void Sender::on_completion(rdma::Qp&, const rdma::Completion& completion, Instant now) noexcept {
  if (closed_ || completion.status != rdma::WcStatus::success) {
    return;  // on_error() says why
  }
  const Registry::Turn turn{registry_};
  const std::uint64_t oldest = slots_used_ - flights_.size();
  --flights_[completion.wr_id - oldest].missing;
  while (!closed_ && !flights_.empty() && flights_.front().missing == 0) {
    const Flight flight = flights_.front();
    flights_.pop_front();
    requests_ -= flight.requests;
    for (std::uint32_t i = 0; i < flight.messages && !closed_; ++i) {
      user_.on_sent(id(), now);
    }
  }
  pump(now);
}

}  // namespace nbx::nccl
