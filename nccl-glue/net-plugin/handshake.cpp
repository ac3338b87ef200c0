#include "nccl-glue/net-plugin/handshake.hpp"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "nccl-glue/net-plugin/socket_address.hpp"
#include "nccl-glue/wire/little.hpp"

namespace nbx::nccl::plugin {

namespace {

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

UniqueFd tcp_socket(const IpAddress& address) {
  return UniqueFd{socket(address.is_v4() ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
}

void set_no_delay(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

}  // namespace

// ---- the side connection

SideConnection::Progress SideConnection::flush() {
  while (!out_.empty()) {
    const ssize_t sent = send(fd_.get(), out_.data(), out_.size(), MSG_NOSIGNAL);
    if (sent < 0) {
      return would_block() || errno == ENOTCONN ? Progress::waiting : Progress::closed;
    }
    out_.erase(out_.begin(), out_.begin() + sent);
  }
  return Progress::done;
}

SideConnection::Progress SideConnection::hear(std::size_t size) {
  while (in_.size() < size) {
    std::array<std::byte, 4096> bytes;
    const ssize_t got = recv(fd_.get(), bytes.data(), std::min(bytes.size(), size - in_.size()), 0);
    if (got == 0 || (got < 0 && !would_block() && errno != ENOTCONN)) {
      return Progress::closed;
    }
    if (got < 0) {
      return Progress::waiting;
    }
    in_.insert(in_.end(), bytes.begin(), bytes.begin() + got);
  }
  heard_ = std::move(in_);
  in_.clear();
  return Progress::done;
}

// ---- both ends

Handshake::~Handshake() {
  if (connection_ != nullptr) {
    Connection::close(std::move(connection_));
  }
}

std::unique_ptr<Connection> Handshake::take() {
  device_.call([this](Instant) { connection_->watch_side(side_.release()); });
  return std::move(connection_);
}

Handshake::Progress Handshake::fail(const std::string& why) {
  complain_("connection set-up failed: " + why);
  return Progress::failed;
}

Handshake::Progress Handshake::advance() {
  for (;;) {
    switch (side_.flush()) {
      case SideConnection::Progress::waiting:
        return Progress::waiting;
      case SideConnection::Progress::closed:
        return fail(std::string{"side connection: "} + std::strerror(errno));
      case SideConnection::Progress::done:
        break;
    }
    if (step_ == Step::over) {
      return Progress::done;
    }
    switch (side_.hear(size_)) {
      case SideConnection::Progress::waiting:
        return Progress::waiting;
      case SideConnection::Progress::closed:
        return fail("the peer closed the side connection");
      case SideConnection::Progress::done:
        break;
    }
    if (on_heard(step_, side_.heard()) == Progress::failed) {
      return Progress::failed;
    }
  }
}

Result<ib::Metadata> Handshake::read_metadata(ConstBytes bytes, std::size_t qps) const {
  const auto metadata = ib::decode_metadata(*settings_.version, bytes);
  const auto usable = [&](const ib::QpRecord& record) {
    const auto device = static_cast<std::size_t>(record.device);
    return device < metadata->devices.size() && ib::mtu_bytes(metadata->devices[device].mtu_code);
  };
  if (!metadata || metadata->devices.empty() || !std::all_of(metadata->qps.begin(), metadata->qps.end(), usable)) {
    return Error{"the peer's metadata is not that of NCCL " + version_text(settings_.version->code)};
  }
  if (metadata->qps.size() != qps) {
    return Error{"the peer has " + std::to_string(metadata->qps.size()) + " queue pairs and not " +
                 std::to_string(qps) + ": NCCL_IB_QPS_PER_CONNECTION must be equal"};
  }
  if (metadata->devices.front().link_layer != ib::LinkLayer::ethernet) {
    return Error{"the peer is on InfiniBand"};
  }
  return *metadata;
}

// ---- sender

std::unique_ptr<SendHandshake> SendHandshake::start(const ib::ListenHandle& handle, Device& device,
                                                    const Settings& settings, Complaint complain) {
  UniqueFd fd = tcp_socket(handle.address);
  set_no_delay(fd.get());
  const SocketAddress own = socket_address(device.interface().address, 0);
  const SocketAddress peer = socket_address(handle.address, handle.port);
  const bool connecting = bind(fd.get(), own.get(), own.size) == 0 &&
                          (connect(fd.get(), peer.get(), peer.size) == 0 || errno == EINPROGRESS);
  if (!connecting) {
    complain("cannot connect to " + nbx::to_string(handle.address) + " port " + std::to_string(handle.port) + ": " +
             std::strerror(errno));
    return nullptr;
  }
  auto handshake = std::make_unique<SendHandshake>(SideConnection{std::move(fd)}, device, settings, complain);
  handshake->side_.say(ib::encode(ib::Hello{.magic = handle.magic}));
  const Version& version = *settings.version;
  if (version.ib_device_list) {
    handshake->side_.say(ib::encode(version, ib::DeviceList{}));
    handshake->expect(Step::device_list, ib::device_list_size(version));
  } else {
    handshake->introduce(1);
  }
  return handshake;
}

void SendHandshake::introduce(std::size_t peer_devices) {
  qps_ = std::min(settings_.qps_per_connection * peer_devices, ib::qps_max);
  auto connection = std::make_unique<SendConnection>(device_, settings_, complain_);
  ib::Metadata own;
  device_.call([&](Instant) { own = connection->introduce_sender(qps_); });
  traffic_class_ = settings_.traffic_class.value_or(0);
  own.traffic_class = traffic_class_;
  own.service_level = settings_.service_level.value_or(0);
  connection_ = std::move(connection);
  side_.say(ib::encode(*settings_.version, own));
  expect(Step::metadata, settings_.version->ib_metadata_size);
}

Handshake::Progress SendHandshake::on_heard(Step step, ConstBytes bytes) {
  if (step == Step::device_list) {
    const auto list = ib::decode_device_list(*settings_.version, bytes);
    if (!list || list->ndevs < 1 || list->ndevs > settings_.version->ib_devices_max) {
      return fail("the peer's device list is damaged");
    }
    introduce(static_cast<std::size_t>(list->ndevs));
    return Progress::waiting;
  }
  const auto peer = read_metadata(bytes, qps_);
  if (!peer) {
    return fail(peer.error().message);
  }
  // Both ends send with the sender's traffic class, which the receiver repeats; releases before it was in the metadata
  // take each end's own.
  const bool told = settings_.version->ib_traffic_class != absent;
  const auto traffic_class = told ? static_cast<std::uint8_t>((*peer).traffic_class) : traffic_class_;
  device_.call([&](Instant) { connection_->establish(*peer, traffic_class); });
  std::array<std::byte, ib::ready_size> ready{};
  store(MutableBytes{ready}, 0, std::int32_t{1});
  side_.say(ready);
  end();
  return Progress::done;
}

// ---- receiver

ReceiveHandshake::ReceiveHandshake(SideConnection side, Device& device, const Settings& settings, Complaint complain)
    : Handshake(std::move(side), device, settings, complain) {
  expect(Step::hello, ib::hello_size);
}

Handshake::Progress ReceiveHandshake::on_heard(Step step, ConstBytes bytes) {
  const Version& version = *settings_.version;
  switch (step) {
    case Step::hello: {
      const auto hello = ib::decode_hello(bytes);
      if (!hello || *hello != ib::Hello{}) {
        return fail("what connected is not NET/IB");
      }
      if (version.ib_device_list) {
        expect(Step::device_list, ib::device_list_size(version));
      } else {
        expect(Step::metadata, version.ib_metadata_size);
      }
      return Progress::waiting;
    }
    case Step::device_list:
      side_.say(ib::encode(version, ib::DeviceList{}));
      expect(Step::metadata, version.ib_metadata_size);
      return Progress::waiting;
    case Step::metadata: {
      const auto decoded = ib::decode_metadata(version, bytes);
      const auto peer = read_metadata(bytes, decoded ? decoded->qps.size() : 0);
      return peer ? answer(*peer) : fail(peer.error().message);
    }
    case Step::ready:
      end();
      return Progress::done;
    case Step::over:
      break;
  }
  return fail("the exchange is over already");
}

Handshake::Progress ReceiveHandshake::answer(const ib::Metadata& peer) {
  auto connection = std::make_unique<ReceiveConnection>(device_, settings_, complain_);
  const bool told = settings_.version->ib_traffic_class != absent;
  const auto agreed = told ? static_cast<std::uint8_t>(peer.traffic_class) : settings_.traffic_class.value_or(0);
  ib::Metadata own;
  device_.call([&](Instant) {
    own = connection->introduce_receiver(peer.qps.size());
    connection->establish(peer, settings_.fifo_traffic_class.value_or(agreed));
  });
  connection_ = std::move(connection);
  own.traffic_class = peer.traffic_class;
  own.service_level = peer.service_level;
  side_.say(ib::encode(*settings_.version, own));
  expect(Step::ready, ib::ready_size);
  return Progress::waiting;
}

// ---- listener

Result<std::unique_ptr<Listener>> Listener::open(Device& device, const Settings& settings, Complaint complain) {
  std::unique_ptr<Listener> listener(new Listener(device, settings, complain));
  const IpAddress& address = device.interface().address;
  listener->socket_ = tcp_socket(address);
  SocketAddress name = socket_address(address, 0);
  const int fd = listener->socket_.get();
  if (fd < 0 || bind(fd, name.get(), name.size) != 0 || listen(fd, SOMAXCONN) != 0 ||
      getsockname(fd, name.get(), &name.size) != 0) {
    return Error{"cannot listen at " + nbx::to_string(address) + ": " + std::strerror(errno)};
  }
  listener->handle_ = {.address = address, .port = split_address(name).port};
  return listener;
}

Handshake::Progress Listener::advance() {
  if (handshake_ == nullptr) {
    UniqueFd fd{accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (!fd) {
      return Handshake::Progress::waiting;
    }
    set_no_delay(fd.get());
    handshake_ = std::make_unique<ReceiveHandshake>(SideConnection{std::move(fd)}, device_, settings_, complain_);
  }
  return handshake_->advance();
}

std::unique_ptr<Connection> Listener::take() {
  auto connection = handshake_->take();
  handshake_.reset();
  return connection;
}

}  // namespace nbx::nccl::plugin
