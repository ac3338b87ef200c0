#include "nccl-glue/net-plugin/connection.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.hpp"
#include "nccl-glue/wire/little.hpp"

namespace nbx::nccl::plugin {

namespace {

constexpr std::size_t requests_max = 128;       // of a connection; the FIFO's 256 slots are never lapped
constexpr std::uint32_t send_queue_max = 2048;  // work requests: every message, in parts, with its group
constexpr std::size_t sizes_row = ib::grouped_max * ib::size_entry;

std::uint64_t address_of(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

std::string_view text(rdma::WcStatus status) {
  switch (status) {
    case rdma::WcStatus::success:
      return "IBV_WC_SUCCESS";
    case rdma::WcStatus::loc_len_err:
      return "IBV_WC_LOC_LEN_ERR";
    case rdma::WcStatus::loc_qp_op_err:
      return "IBV_WC_LOC_QP_OP_ERR";
    case rdma::WcStatus::loc_prot_err:
      return "IBV_WC_LOC_PROT_ERR";
    case rdma::WcStatus::wr_flush_err:
      return "IBV_WC_WR_FLUSH_ERR";
    case rdma::WcStatus::bad_resp_err:
      return "IBV_WC_BAD_RESP_ERR";
    case rdma::WcStatus::loc_access_err:
      return "IBV_WC_LOC_ACCESS_ERR";
    case rdma::WcStatus::rem_inv_req_err:
      return "IBV_WC_REM_INV_REQ_ERR";
    case rdma::WcStatus::rem_access_err:
      return "IBV_WC_REM_ACCESS_ERR";
    case rdma::WcStatus::rem_op_err:
      return "IBV_WC_REM_OP_ERR";
    case rdma::WcStatus::retry_exc_err:
      return "IBV_WC_RETRY_EXC_ERR";
    case rdma::WcStatus::rnr_retry_exc_err:
      return "IBV_WC_RNR_RETRY_EXC_ERR";
    case rdma::WcStatus::rem_abort_err:
      return "IBV_WC_REM_ABORT_ERR";
    case rdma::WcStatus::fatal_err:
      return "IBV_WC_FATAL_ERR";
  }
  return "unknown";
}

}  // namespace

// ---- both ends

std::atomic<int> Connection::closing_count{0};

Connection::Connection(Device& device, const Settings& settings, Complaint complain)
    : device_(device), settings_(settings), complain_(complain) {}

Request* Connection::make_request() {
  if (free_.empty()) {
    if (requests_.size() == requests_max) {
      return nullptr;
    }
    free_.push_back(&requests_.emplace_back());
  }
  Request* request = free_.back();
  free_.pop_back();
  request->connection = this;
  request->state.store(Request::State::pending);
  return request;
}

void Connection::free_request(Request& request) { free_.push_back(&request); }

std::uint32_t Connection::add_memory(void* data, std::size_t size) {
  std::uint32_t key = 0;
  device_.call([&](Instant) {
    key = add_region({static_cast<std::byte*>(data), size},
                     rdma::access::local_write | rdma::access::remote_write | rdma::access::remote_read)
              .spec()
              .key;
  });
  return key;
}

void Connection::remove_memory(std::uint32_t key) {
  device_.call([&](Instant) {
    device_.memory().remove(key);
    std::erase(regions_, key);
  });
}

rdma::Region& Connection::add_region(MutableBytes bytes, std::uint8_t access) {
  rdma::Region* region = device_.memory().add({.addr = address_of(bytes.data()),
                                               .length = bytes.size(),
                                               .access = access,
                                               .backing = rdma::Backing::external,
                                               .external = bytes.data(),
                                               .polled = true});
  NBX_CHECK(region != nullptr);
  regions_.push_back(region->spec().key);
  return *region;
}

void Connection::submit(Request& request) {
  device_.post([this, r = &request](Instant now) {
    if (failed_) {
      finish(*r, Request::State::failed);
    } else {
      start(*r, now);
      fail_without_peer();
    }
  });
}

ib::Metadata Connection::introduce(std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    rdma::QpAttr attr;
    attr.access = rdma::access::remote_write;
    attr.max_send_wr = send_queue_max;
    attr.max_recv_wr = ib::slots;
    attr.report_writes = report_writes_;
    qps_.push_back(device_.transport().create_qp(self, attr, *this));
    NBX_CHECK(qps_.back() != nullptr);
  }
  ib::Metadata own;
  for (const rdma::Qp* qp : qps_) {
    own.qps.push_back({.qpn = qp->qpn().value});
  }
  own.devices.push_back({.mtu_code = ib::mtu_code(device_.path_mtu()), .gid = device_.interface().address});
  own.name = device_.interface().name;
  own.ndevs = 1;
  return own;
}

void Connection::establish(const ib::Metadata& peer, std::uint8_t traffic_class) {
  peer_ = peer;
  for (std::size_t i = 0; i < qps_.size(); ++i) {
    const ib::DeviceRecord& theirs = peer_.devices[peer_device(*qps_[i])];
    rdma::QpAttr attr = qps_[i]->attr();
    attr.dest_qpn = Qpn{peer_.qps[i].qpn};
    attr.path_mtu = std::min(device_.path_mtu(), *ib::mtu_bytes(theirs.mtu_code));
    attr.path.source_ip = device_.interface().address;
    attr.path.destination_ip = theirs.gid;
    attr.path.udp_source_port = device_.source_port(qps_[i]->qpn().value);
    attr.path.traffic_class = traffic_class;
    attr.path.hop_limit = 255;
    attr.timeout = settings_.timeout;
    attr.retry_cnt = settings_.retry_cnt;
    attr.max_rd_atomic = 1;
    attr.max_dest_rd_atomic = 1;
    attr.max_outstanding_packets = settings_.window != 0 ? settings_.window : device_.window(attr.path_mtu);
    device_.transport().connect_qp(*qps_[i], attr);
  }
}

void Connection::watch_side(UniqueFd side) {
  side_ = std::move(side);
  device_.watch(side_.get(), *this);
}

std::uint32_t Connection::parts() const noexcept {
  const auto devices = static_cast<std::uint32_t>(std::max(peer_.ndevs, 1));
  const auto all = static_cast<std::uint32_t>(qps_.size());
  return settings_.split_data_on_qps ? all : std::min(devices, all);
}

rdma::Qp& Connection::part_qp(std::uint64_t k, std::uint32_t i) const noexcept {
  const std::uint64_t first = version().qp_by_request_number ? k : k * parts();
  return *qps_[(first + i) % qps_.size()];
}

std::size_t Connection::peer_device(const rdma::Qp& qp) const noexcept {
  const auto at = static_cast<std::size_t>(std::find(qps_.begin(), qps_.end(), &qp) - qps_.begin());
  return static_cast<std::size_t>(peer_.qps[at].device);
}

void Connection::on_error(rdma::Qp& qp, rdma::WcStatus cause, Instant) noexcept {
  if (failed_ || closed_) {
    return;
  }
  const IpAddress& gid = peer_.devices.empty() ? IpAddress{} : qp.attr().path.destination_ip;
  fail("completion from peer " + nbx::to_string(gid) + " with status=" + std::string{text(cause)} + "(" +
       std::to_string(static_cast<int>(cause)) + ") on QP " + std::to_string(qp.qpn().value) + " to QP " +
       std::to_string(qp.attr().dest_qpn.value) + " after " + std::to_string(qp.stats().timeouts) + " timeouts and " +
       std::to_string(qp.stats().data_frames_retransmitted) + " packets sent again; localGid " +
       nbx::to_string(device_.interface().address));
}

void Connection::on_readable(Instant) noexcept {
  std::array<std::byte, 64> bytes{};
  const ssize_t got = read(side_.get(), bytes.data(), bytes.size());
  if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) {
    return;  // nothing is said on it after the hand-shake
  }
  device_.unwatch(side_.get());
  peer_closed_ = true;
  if (closed_) {
    release();
  } else {
    fail_without_peer();
  }
}

void Connection::fail_without_peer() {
  if (peer_closed_ && !failed_ && waits_for_peer()) {
    fail("peer " + nbx::to_string(peer_.devices.front().gid) + " has closed the connection with requests outstanding");
  }
}

void Connection::fail(const std::string& why) {
  failed_ = true;
  complain_(why);
  fail_requests();
}

void Connection::close(std::unique_ptr<Connection> connection) {
  Connection* c = connection.release();
  ++closing_count;
  c->device_.call([c](Instant) {
    c->closed_ = true;
    if (c->side_) {
      shutdown(c->side_.get(), SHUT_WR);
    }
    if (c->peer_closed_ || c->failed_ || !c->side_) {
      c->release();
    }
  });
}

void Connection::release() {
  for (rdma::Qp* qp : qps_) {
    device_.transport().destroy_qp(*qp);
  }
  for (const std::uint32_t key : regions_) {
    device_.memory().remove(key);
  }
  if (!peer_closed_ && side_) {
    device_.unwatch(side_.get());
  }
  --closing_count;
  delete this;
}

// ---- sender

SendConnection::SendConnection(Device& device, const Settings& settings, Complaint complain)
    : Connection(device, settings, complain), fifo_(ib::cts_fifo_size), sizes_(ib::slots * sizes_row) {
  report_writes_ = true;
}

ib::Metadata SendConnection::introduce_sender(std::size_t n) {
  ib::Metadata own = introduce(n);
  own.devices.front().rkey = add_region(fifo_, rdma::access::remote_write).spec().key;
  own.address = address_of(fifo_.data());
  sizes_key_ = add_region(sizes_, rdma::access::local_write).spec().key;
  return own;
}

MutableBytes SendConnection::element(std::uint64_t slot, std::size_t i) noexcept {
  return MutableBytes{fifo_}.subspan(slot * ib::cts_slot_size + i * ib::cts_element_size, ib::cts_element_size);
}

void SendConnection::start(Request& request, Instant now) {
  waiting_.push_back(&request);
  while (take_slot(now)) {
  }
}

void SendConnection::on_write(rdma::Qp&, std::uint64_t, std::uint32_t, Instant now) noexcept {
  while (!failed_ && take_slot(now)) {
  }
}

bool SendConnection::take_slot(Instant now) {
  const std::uint64_t index = head_ % ib::slots;
  std::array<ib::ClearToSend, ib::grouped_max> elements{};
  elements[0] = *ib::decode_clear_to_send(version(), element(index, 0));
  const std::uint32_t n = elements[0].grouped;
  if (waiting_.empty() || elements[0].sequence != head_ + 1) {
    return false;
  }
  if (n == 0 || n > ib::grouped_max || elements[0].address == 0) {
    fail("clear-to-send " + std::to_string(head_ + 1) + " is damaged: " + std::to_string(n) + " messages at address " +
         std::to_string(elements[0].address));
    return false;
  }
  Slot& slot = slots_[index];
  std::uint32_t matched = 0;
  for (std::uint32_t i = 0; i < n; ++i) {
    elements[i] = *ib::decode_clear_to_send(version(), element(index, i));
    if (elements[i].sequence != head_ + 1) {
      return false;
    }
    if (slot.requests[i] == nullptr) {
      const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                      [&](const Request* r) { return r->buffers[0].tag == elements[i].tag; });
      if (found != waiting_.end()) {
        slot.requests[i] = *found;
        waiting_.erase(found);
      }
    }
    matched += slot.requests[i] != nullptr ? 1U : 0U;
  }
  if (matched < n) {
    return false;
  }
  slot.n = n;
  transmit(slot, elements, now);
  std::ranges::fill(element(index, 0), std::byte{});
  ++head_;
  return true;
}

void SendConnection::transmit(Slot& slot, const std::array<ib::ClearToSend, ib::grouped_max>& elements, Instant now) {
  const std::uint64_t index = head_ % ib::slots;
  const MutableBytes row = MutableBytes{sizes_}.subspan(index * sizes_row, sizes_row);
  std::array<std::uint32_t, ib::grouped_max> sizes{};
  for (std::uint32_t j = 0; j < slot.n; ++j) {
    sizes[j] = static_cast<std::uint32_t>(std::min<std::uint64_t>(slot.requests[j]->buffers[0].size, elements[j].size));
    slot.requests[j]->sizes[0] = static_cast<int>(sizes[j]);
    store(row, j * ib::size_entry, sizes[j]);
  }
  slot.outstanding = parts();
  for (std::uint32_t i = 0; i < parts(); ++i) {
    rdma::Qp& qp = part_qp(head_, i);
    const std::size_t device = peer_device(qp);
    rdma::SendWr wr{.wr_id = index, .opcode = rdma::WrOpcode::rdma_write, .signaled = slot.n == 1};
    for (std::uint32_t j = 0; j < slot.n; ++j) {
      const Buffer& buffer = slot.requests[j]->buffers[0];
      const ib::Part part = ib::split_part(sizes[j], parts(), i);
      wr.local = {.addr = address_of(buffer.data) + part.offset, .length = part.size, .lkey = buffer.key};
      wr.remote_addr = elements[j].address + part.offset;
      wr.rkey = elements[j].rkeys[device];
      if (slot.n > 1 && part.size != 0) {
        NBX_CHECK(device_.transport().post_send(qp, wr, now));
      }
    }
    wr.opcode = rdma::WrOpcode::rdma_write_with_imm;
    wr.signaled = true;
    // Of a group the receiver ignores it; 2.29 fills in the first size, earlier releases none.
    wr.imm_data = ib::immediate_of(version(), slot.n == 1 || version().imm_network_order ? sizes[0] : 0);
    if (slot.n > 1) {
      const auto length = static_cast<std::uint32_t>(slot.n * ib::size_entry);
      wr.local = {.addr = address_of(row.data()), .length = length, .lkey = sizes_key_};
      wr.remote_addr = peer_.address + index * version().completion_row;
      wr.rkey = peer_.devices[device].rkey;
    }
    NBX_CHECK(device_.transport().post_send(qp, wr, now));
  }
}

void SendConnection::on_completion(rdma::Qp&, const rdma::Completion& completion, Instant) noexcept {
  if (completion.status != rdma::WcStatus::success) {
    return;  // on_error() follows
  }
  Slot& slot = slots_[completion.wr_id];
  if (--slot.outstanding == 0) {
    for (std::uint32_t j = 0; j < slot.n; ++j) {
      finish(*slot.requests[j], Request::State::done);
    }
    slot = {};
  }
}

void SendConnection::fail_requests() {
  for (Request* request : waiting_) {
    finish(*request, Request::State::failed);
  }
  waiting_.clear();
  for (Slot& slot : slots_) {
    for (Request* request : slot.requests) {
      if (request != nullptr) {
        finish(*request, Request::State::failed);
      }
    }
    slot = {};
  }
}

// ---- receiver

ReceiveConnection::ReceiveConnection(Device& device, const Settings& settings, Complaint complain)
    : Connection(device, settings, complain),
      sizes_(ib::sizes_area_size(*settings.version)),
      announcements_(ib::cts_fifo_size) {}

ib::Metadata ReceiveConnection::introduce_receiver(std::size_t n) {
  ib::Metadata own = introduce(n);
  own.devices.front().rkey = add_region(sizes_, rdma::access::remote_write).spec().key;
  own.address = address_of(sizes_.data());
  announcements_key_ = add_region(announcements_, rdma::access::local_write).spec().key;
  return own;
}

void ReceiveConnection::start(Request& request, Instant now) {
  const std::uint64_t k = posted_++;
  const std::uint64_t index = k % ib::slots;
  slots_[index] = {.request = &request, .outstanding = parts()};
  ++outstanding_;
  for (std::uint32_t i = 0; i < parts(); ++i) {
    NBX_CHECK(device_.transport().post_recv(part_qp(k, i), {.wr_id = index}));
  }
  const std::size_t size = request.n * ib::cts_element_size;
  const MutableBytes slot = MutableBytes{announcements_}.subspan(index * ib::cts_slot_size, size);
  for (std::uint32_t j = 0; j < request.n; ++j) {
    ib::ClearToSend element{.address = address_of(request.buffers[j].data),
                            .size = request.buffers[j].size,
                            .grouped = request.n,
                            .tag = request.buffers[j].tag,
                            .sequence = k + 1};
    element.rkeys[0] = request.buffers[j].key;
    std::ranges::copy(ib::encode(version(), element), slot.subspan(j * ib::cts_element_size).begin());
  }
  rdma::Qp& qp = *qps_.front();  // of device k mod 1
  const rdma::SendWr wr{.wr_id = index,
                        .opcode = rdma::WrOpcode::rdma_write,
                        .signaled = false,
                        .local = {.addr = address_of(slot.data()),
                                  .length = static_cast<std::uint32_t>(size),
                                  .lkey = announcements_key_},
                        .remote_addr = peer_.address + index * ib::cts_slot_size,
                        .rkey = peer_.devices[peer_device(qp)].rkey};
  NBX_CHECK(device_.transport().post_send(qp, wr, now));
}

void ReceiveConnection::on_completion(rdma::Qp&, const rdma::Completion& completion, Instant) noexcept {
  if (completion.status != rdma::WcStatus::success || completion.opcode != rdma::WcOpcode::recv_rdma_with_imm) {
    return;
  }
  Slot& slot = slots_[completion.wr_id];
  if (slot.request == nullptr || --slot.outstanding != 0) {
    return;
  }
  Request& request = *slot.request;
  if (request.n == 1) {
    request.sizes[0] = static_cast<int>(ib::size_of_immediate(version(), completion.imm_data));
  } else {
    for (std::uint32_t j = 0; j < request.n; ++j) {
      const std::size_t at = completion.wr_id * version().completion_row + j * ib::size_entry;
      request.sizes[j] = load<std::int32_t>(sizes_, at);
    }
  }
  slot = {};
  --outstanding_;
  finish(request, Request::State::done);
}

void ReceiveConnection::fail_requests() {
  for (Slot& slot : slots_) {
    if (slot.request != nullptr) {
      finish(*slot.request, Request::State::failed);
      slot = {};
    }
  }
}

}  // namespace nbx::nccl::plugin
