#include "nccl-glue/net/connection.hpp"

#include <algorithm>

namespace nbx::nccl {

namespace {

/// Queue depths and timers that NCCL gives its queue pairs.
constexpr std::uint32_t send_queue_depth = 512;
constexpr std::uint32_t receive_queue_depth = 256;
constexpr std::uint8_t min_rnr_timer = 12;
constexpr std::uint8_t rnr_retry_forever = 7;

/// Ghosts invent their addresses: each connection has a range of its own.
constexpr std::uint64_t address_base = 0x4000'0000'0000;
constexpr unsigned address_bits_per_connection = 20;
constexpr unsigned address_bits_per_region = 18;

/// As Linux spreads RoCE flows: a hash of both queue pair numbers.
std::uint16_t source_port_of(Qpn a, Qpn b) {
  std::uint64_t v = std::uint64_t{a.value} * b.value;
  v ^= v >> 20U;
  v ^= v >> 40U;
  return wire::udp_source_port_of(static_cast<std::uint32_t>(v & 0xf'ffffU));
}

}  // namespace

std::string to_string(rdma::WcStatus status) {
  using enum rdma::WcStatus;
  std::string_view name = "IBV_WC_GENERAL_ERR";
  switch (status) {
    case success:
      name = "IBV_WC_SUCCESS";
      break;
    case loc_len_err:
      name = "IBV_WC_LOC_LEN_ERR";
      break;
    case loc_qp_op_err:
      name = "IBV_WC_LOC_QP_OP_ERR";
      break;
    case loc_prot_err:
      name = "IBV_WC_LOC_PROT_ERR";
      break;
    case wr_flush_err:
      name = "IBV_WC_WR_FLUSH_ERR";
      break;
    case bad_resp_err:
      name = "IBV_WC_BAD_RESP_ERR";
      break;
    case loc_access_err:
      name = "IBV_WC_LOC_ACCESS_ERR";
      break;
    case rem_inv_req_err:
      name = "IBV_WC_REM_INV_REQ_ERR";
      break;
    case rem_access_err:
      name = "IBV_WC_REM_ACCESS_ERR";
      break;
    case rem_op_err:
      name = "IBV_WC_REM_OP_ERR";
      break;
    case retry_exc_err:
      name = "IBV_WC_RETRY_EXC_ERR";
      break;
    case rnr_retry_exc_err:
      name = "IBV_WC_RNR_RETRY_EXC_ERR";
      break;
    case rem_abort_err:
      name = "IBV_WC_REM_ABORT_ERR";
      break;
    case fatal_err:
      name = "IBV_WC_FATAL_ERR";
      break;
  }
  return std::string{name} + "(" + std::to_string(static_cast<unsigned>(status)) + ")";
}

// ---- the registry

Registry::Registry() : alive_(std::make_shared<char>()) {}
Registry::~Registry() = default;

Registry::Turn::~Turn() {
  if (--registry_.depth_ == 0) {
    registry_.removed_.clear();
  }
}

void Registry::add(std::unique_ptr<Connection> connection) {
  const NetId id = connection->id();
  connections_[id] = std::move(connection);
}

void Registry::remove(NetId id) noexcept {
  const auto found = connections_.find(id);
  if (found != connections_.end()) {
    removed_.push_back(std::move(found->second));
    connections_.erase(found);
  }
}

void Registry::close_all() noexcept {
  const Turn turn{*this};
  while (!connections_.empty()) {
    connections_.begin()->second->close();
  }
}

Connection* Registry::find(NetId id) const noexcept {
  const auto found = connections_.find(id);
  return found == connections_.end() ? nullptr : found->second.get();
}

// ---- life

Connection::Connection(Registry& registry, const ghost::Context& context, const NetConfig& config, NetUser& user)
    : registry_(registry), context_(context), config_(config), user_(user), id_(registry.next_id()) {}

Connection::~Connection() = default;

void Connection::close() noexcept {
  if (closed_) {
    return;
  }
  closed_ = true;
  ready_ = false;
  release();
  for (rdma::Qp* each : qps_) {
    if (account_ != nullptr) {
      context_.ledger.close(both_ends(*each));
    }
    context_.transport.destroy_qp(*each);
  }
  for (const std::uint32_t key : keys_) {
    context_.transport.memory(context_.ghost).remove(key);
  }
  if (stream_ != ghost::StreamId::none) {
    context_.streams.close(stream_);
  }
  registry_.remove(id_);
}

Ledger::QueuePairs Connection::both_ends(const rdma::Qp& qp) {
  return {.ghost = qp.ghost(), .qpn = qp.qpn(), .peer = qp.attr().path.destination_ip, .peer_qpn = qp.attr().dest_qpn};
}

void Connection::book(Account& account) {
  account_ = &account;
  for (const rdma::Qp* each : qps_) {
    if (each->state() == rdma::QpState::rts) {
      context_.ledger.open(both_ends(*each), account);
    }
  }
}

void Connection::fail(const std::string& why, Instant now) noexcept {
  if (closed_) {
    return;
  }
  const Registry::Turn turn{registry_};
  close();
  user_.on_closed(id_, why, now);
}

void Connection::set_ready(Instant now) {
  ready_ = true;
  expected_ = {};
  user_.on_ready(id_, now);
}

// ---- the side connection

void Connection::receive(ConstBytes bytes, Instant now) noexcept {
  const Registry::Turn turn{registry_};
  input_.insert(input_.end(), bytes.begin(), bytes.end());
  while (!closed_ && expected_.size != 0 && input_.size() >= expected_.size) {
    const auto end = input_.begin() + static_cast<std::ptrdiff_t>(expected_.size);
    const std::vector<std::byte> item{input_.begin(), end};
    input_.erase(input_.begin(), end);
    on_item(item, now);
  }
  if (!closed_ && expected_.size == 0 && !input_.empty()) {
    fail(std::to_string(input_.size()) + " bytes on the side connection that NET/IB does not send", now);
  }
}

void Connection::peer_closed(Instant now) noexcept {
  stream_ = ghost::StreamId::none;
  if (ready_) {
    fail("", now);
  } else if (expected_.size != 0) {
    fail("the peer closed the side connection with " + std::to_string(input_.size()) + " of " +
             std::to_string(expected_.size) + " bytes of its " + std::string{expected_.what} + " sent",
         now);
  } else {
    fail("the peer closed the side connection before its turn", now);
  }
}

bool Connection::take_device_list(ConstBytes bytes, Instant now) {
  peer_devices_ = ib::decode_device_list(version(), bytes).value_or(ib::DeviceList{.ndevs = 0, .devs = {}});
  if (peer_devices_.ndevs < 1 || peer_devices_.ndevs > version().ib_devices_max) {
    fail("the peer's device list has " + std::to_string(peer_devices_.ndevs) + " devices", now);
    return false;
  }
  return true;
}

bool Connection::take_metadata(ConstBytes bytes, Instant now) {
  peer_ = ib::decode_metadata(version(), bytes).value_or(ib::Metadata{});
  const std::string wrong = wrong_with_peer();
  if (!wrong.empty()) {
    fail(wrong, now);
    return false;
  }
  return true;
}

std::string Connection::wrong_with_peer() const {
  if (peer_.ndevs < 1 || peer_.ndevs > version().ib_devices_max) {
    return "the peer's metadata has " + std::to_string(peer_.ndevs) + " devices";
  }
  if (version().ib_device_list && peer_.ndevs != peer_devices_.ndevs) {
    return "the peer's metadata has " + std::to_string(peer_.ndevs) + " devices, its device list " +
           std::to_string(peer_devices_.ndevs);
  }
  if (peer_.qps.empty()) {
    return "the peer's metadata has no queue pair";
  }
  if (peer_.address == 0) {
    return "the peer's metadata has no address to write to";
  }
  for (const ib::QpRecord& record : peer_.qps) {
    if (record.qpn <= gsi_qpn.value || record.qpn > mask24) {
      return "the peer's queue pair number " + std::to_string(record.qpn) + " is none";
    }
    if (record.device < 0 || record.device >= peer_.ndevs) {
      return "the peer's queue pair " + std::to_string(record.qpn) + " is on device " + std::to_string(record.device) +
             " of " + std::to_string(peer_.ndevs);
    }
    const std::string wrong = wrong_with_device(static_cast<std::size_t>(record.device));
    if (!wrong.empty()) {
      return wrong;
    }
  }
  return {};
}

std::string Connection::wrong_with_device(std::size_t index) const {
  const ib::DeviceRecord& device = peer_.devices[index];
  const std::string name = "the peer's device " + std::to_string(index);
  if (device.link_layer != ib::LinkLayer::ethernet) {
    return name + " has link layer " + std::to_string(static_cast<unsigned>(device.link_layer)) +
           ", the ghost's is Ethernet (2)";
  }
  if (!ib::mtu_bytes(device.mtu_code)) {
    return name + " has MTU code " + std::to_string(device.mtu_code);
  }
  if (context_.identity().source_for(device.gid) == nullptr) {
    return name + " has GID " + nbx::to_string(device.gid) + ", and the ghost no address of its family";
  }
  return {};
}

// ---- queue pairs

bool Connection::create_qps(std::size_t count, std::uint8_t access, bool report_writes, Instant now) {
  rdma::QpAttr attr;
  attr.access = access;
  attr.report_writes = report_writes;
  attr.timeout = config_.timeout;
  attr.retry_cnt = config_.retry_cnt;
  attr.rnr_retry = rnr_retry_forever;
  attr.min_rnr_timer = min_rnr_timer;
  attr.max_rd_atomic = 1;
  attr.max_dest_rd_atomic = 1;
  attr.max_send_wr = send_queue_depth;
  attr.max_recv_wr = receive_queue_depth;
  attr.edge = config_.edge;
  for (std::size_t i = 0; i < count; ++i) {
    rdma::Qp* made = context_.transport.create_qp(context_.ghost, attr, *this);
    if (made == nullptr) {
      fail("no queue pair can be made", now);
      return false;
    }
    qps_.push_back(made);
  }
  return true;
}

ib::Metadata Connection::own_metadata(const IpAddress& gid, const rdma::Region& own) const {
  ib::Metadata metadata;
  for (const rdma::Qp* each : qps_) {
    metadata.qps.push_back({.qpn = each->qpn().value});
  }
  metadata.devices.push_back({.mtu_code = ib::mtu_code(config_.path_mtu), .gid = gid, .rkey = own.spec().key});
  metadata.name = context_.identity().name;
  metadata.address = own.spec().addr;
  metadata.ndevs = 1;
  return metadata;
}

void Connection::connect_qps(Instant now) {
  expected_ = {};
  unresolved_ = peer_.qps.size();
  for (std::size_t i = 0; i < peer_.qps.size() && !closed_; ++i) {
    resolve(peer_.devices[peer_device(i)].gid, now);
  }
}

void Connection::resolve(const IpAddress& gid, Instant now) {
  const std::optional<Mac> mac = context_.neighbours.lookup(gid);
  if (mac) {
    resolved(gid, mac, now);
    return;
  }
  context_.neighbours.resolve(
      context_.ghost, gid,
      [alive = registry_.alive(), registry = &registry_, id = id_, gid](std::optional<Mac> found, Instant then) {
        Connection* connection = alive.expired() ? nullptr : registry->find(id);
        if (connection != nullptr) {
          const Registry::Turn turn{*registry};
          connection->resolved(gid, found, then);
        }
      },
      now);
}

void Connection::resolved(const IpAddress& gid, std::optional<Mac> mac, Instant now) {
  if (!mac) {
    fail("no neighbour has the peer's address " + nbx::to_string(gid), now);
    return;
  }
  macs_[gid] = *mac;
  if (--unresolved_ != 0) {
    return;
  }
  for (std::size_t i = 0; i < qps_.size(); ++i) {
    bring_up(i);
  }
  on_connected(now);
}

void Connection::bring_up(std::size_t index) {
  rdma::Qp& own = *qps_[index];
  const ib::DeviceRecord& device = peer_.devices[peer_device(index)];
  rdma::QpAttr attr = own.attr();
  attr.dest_qpn = Qpn{peer_.qps[index].qpn};
  attr.path = *context_.path_to(device.gid, macs_[device.gid]);
  attr.path.traffic_class = traffic_class();
  attr.path.udp_source_port = source_port_of(own.qpn(), attr.dest_qpn);
  attr.path_mtu = path_mtu(*ib::mtu_bytes(device.mtu_code));
  context_.transport.connect_qp(own, attr);
  if (account_ != nullptr) {
    context_.ledger.open(both_ends(own), *account_);
  }
}

void Connection::on_error(rdma::Qp& failed, rdma::WcStatus cause, Instant now) noexcept {
  fail("queue pair " + std::to_string(failed.qpn().value) + " to " + nbx::to_string(failed.attr().path.destination_ip) +
           ": " + to_string(cause),
       now);
}

// Message k takes all queue pairs when NCCL splits, else as many as the end with more devices has devices. From 2.29 on
// it starts at queue pair k, before that where message k - 1 ended.
Connection::Choice Connection::choose_qps(std::uint64_t k) const noexcept {
  const std::size_t all = qps_.size();
  const std::size_t parts =
      config_.split_data_on_qps ? all : std::min(all, static_cast<std::size_t>(std::max(peer_.ndevs, 1)));
  const std::uint64_t first = version().qp_by_request_number ? k : k * parts;
  return {.first = static_cast<std::size_t>(first % all), .parts = static_cast<std::uint32_t>(parts)};
}

rdma::Region& Connection::add_region(std::uint64_t length, std::uint8_t access, rdma::Backing backing,
                                     std::byte* external) {
  const std::uint64_t base =
      address_base + (std::uint64_t{static_cast<std::uint32_t>(id_)} << address_bits_per_connection);
  rdma::Region* region = context_.transport.memory(context_.ghost)
                             .add({.addr = base + (keys_.size() << address_bits_per_region),
                                   .length = length,
                                   .access = access,
                                   .backing = backing,
                                   .external = external});
  keys_.push_back(region->spec().key);
  return *region;
}

}  // namespace nbx::nccl
