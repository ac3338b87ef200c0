#include "nccl-glue/net-plugin/udp_link.hpp"

#include <linux/udp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "nccl-glue/net-plugin/socket_address.hpp"
#include "wire/ethernet.hpp"
#include "wire/ip.hpp"
#include "wire/path.hpp"

namespace nbx::nccl::plugin {

namespace {

constexpr std::size_t batch = 64;
constexpr std::size_t source_ports = 8;
constexpr int buffer_bytes = 32 << 20;

/// Ancillary data of one packet: the traffic class.
union Control {
  cmsghdr header;
  std::array<std::byte, CMSG_SPACE(sizeof(int))> bytes;
};

Error system_error(const std::string& what) { return Error{what + ": " + std::strerror(errno)}; }

void set_buffer(int fd, int forced, int plain) {
  if (setsockopt(fd, SOL_SOCKET, forced, &buffer_bytes, sizeof buffer_bytes) != 0) {
    setsockopt(fd, SOL_SOCKET, plain, &buffer_bytes, sizeof buffer_bytes);
  }
}

Result<UniqueFd> open_socket(const IpAddress& address, std::uint16_t port) {
  const int family = address.is_v4() ? AF_INET : AF_INET6;
  UniqueFd fd{socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  const SocketAddress name = socket_address(address, port);
  if (!fd || bind(fd.get(), name.get(), name.size) != 0) {
    Error error = system_error("cannot bind UDP " + nbx::to_string(address) + " port " + std::to_string(port));
    if (errno == EADDRINUSE && port == wire::roce_v2_udp_port) {
      error.message += " (RoCEv2 has one port: one process per address, and no soft-RoCE device beside it)";
    }
    return error;
  }
  // No UDP checksums, as RNICs send none (A17.9.2): a virtual interface would leave them to hardware that is not there.
  const int one = 1;
  if (family == AF_INET) {
    const int discover = IP_PMTUDISC_DO;
    setsockopt(fd.get(), IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover);
    setsockopt(fd.get(), IPPROTO_IP, IP_RECVTOS, &one, sizeof one);
    setsockopt(fd.get(), SOL_SOCKET, SO_NO_CHECK, &one, sizeof one);
  } else {
    const int discover = IPV6_PMTUDISC_DO;
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, &discover, sizeof discover);
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_RECVTCLASS, &one, sizeof one);
    setsockopt(fd.get(), IPPROTO_UDP, UDP_NO_CHECK6_TX, &one, sizeof one);
    setsockopt(fd.get(), IPPROTO_UDP, UDP_NO_CHECK6_RX, &one, sizeof one);
  }
  return fd;
}

std::uint16_t bound_port(int fd) {
  SocketAddress name;
  name.size = sizeof name.storage;
  getsockname(fd, name.get(), &name.size);
  return split_address(name).port;
}

std::uint8_t traffic_class_of(msghdr& message) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    const bool v4 = c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS;
    const bool v6 = c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS;
    if (v4 || v6) {
      return std::to_integer<std::uint8_t>(*reinterpret_cast<const std::byte*>(CMSG_DATA(c)));
    }
  }
  return 0;
}

void set_traffic_class(msghdr& message, Control& control, bool v4, std::uint8_t traffic_class) {
  message.msg_control = &control;
  message.msg_controllen = sizeof control.bytes;
  cmsghdr* c = CMSG_FIRSTHDR(&message);
  c->cmsg_level = v4 ? IPPROTO_IP : IPPROTO_IPV6;
  c->cmsg_type = v4 ? IP_TOS : IPV6_TCLASS;
  c->cmsg_len = CMSG_LEN(sizeof(int));
  const int value = traffic_class;
  std::memcpy(CMSG_DATA(c), &value, sizeof value);
}

}  // namespace

Result<std::unique_ptr<UdpLink>> UdpLink::open(const IpAddress& address) {
  std::unique_ptr<UdpLink> link(new UdpLink(address));
  auto receive = open_socket(address, wire::roce_v2_udp_port);
  if (!receive) {
    return receive.error();
  }
  link->receive_ = std::move(*receive);
  set_buffer(link->receive_.get(), SO_RCVBUFFORCE, SO_RCVBUF);
  int granted = 0;
  socklen_t size = sizeof granted;
  getsockopt(link->receive_.get(), SOL_SOCKET, SO_RCVBUF, &granted, &size);
  link->receive_buffer_ = static_cast<std::size_t>(granted);
  for (std::size_t i = 0; i < source_ports; ++i) {
    auto sender = open_socket(address, 0);
    if (!sender) {
      return sender.error();
    }
    set_buffer((*sender).get(), SO_SNDBUFFORCE, SO_SNDBUF);
    const std::uint16_t port = bound_port((*sender).get());
    link->senders_.push_back({.socket = std::move(*sender), .port = port});
  }
  return link;
}

std::size_t UdpLink::header_room() const noexcept {
  return sizeof(wire::EthernetHeader) + (address_.is_v4() ? sizeof(wire::Ipv4Header) : sizeof(wire::Ipv6Header)) +
         sizeof(wire::UdpHeader);
}

void UdpLink::write_headers(Frame& frame, std::size_t udp_payload, const IpAddress& source, std::uint16_t source_port,
                            std::uint8_t traffic_class) const noexcept {
  MutableBytes rest = frame.bytes();
  std::memset(rest.data(), 0, header_room());
  auto& ethernet = *mutable_overlay<wire::EthernetHeader>(rest);
  rest = rest.subspan(sizeof ethernet);
  const std::size_t udp_size = sizeof(wire::UdpHeader) + udp_payload;
  if (address_.is_v4()) {
    ethernet.ether_type = wire::ether_type::ipv4;
    auto& ip = *mutable_overlay<wire::Ipv4Header>(rest);
    rest = rest.subspan(sizeof ip);
    ip.version_ihl = 0x45;
    ip.tos = traffic_class;
    ip.total_length = static_cast<std::uint16_t>(sizeof ip + udp_size);
    ip.fragment = wire::Ipv4Header::dont_fragment;
    ip.protocol = wire::ip_protocol::udp;
    ip.source = source.v4_value();
    ip.destination = address_.v4_value();
  } else {
    ethernet.ether_type = wire::ether_type::ipv6;
    auto& ip = *mutable_overlay<wire::Ipv6Header>(rest);
    rest = rest.subspan(sizeof ip);
    ip.version_class_flow = (6U << 28U) | (std::uint32_t{traffic_class} << 20U);
    ip.payload_length = static_cast<std::uint16_t>(udp_size);
    ip.next_header = wire::ip_protocol::udp;
    ip.source = source;
    ip.destination = address_;
  }
  auto& udp = *mutable_overlay<wire::UdpHeader>(rest);
  udp.source_port = source_port;
  udp.destination_port = wire::roce_v2_udp_port;
  udp.length = static_cast<std::uint16_t>(udp_size);
}

std::size_t UdpLink::receive(FramePool& pool, Counters& counters, Instant now, FrameList& out) noexcept {
  std::array<Frame*, batch> frames{};
  std::array<mmsghdr, batch> messages{};
  std::array<iovec, batch> buffers{};
  std::array<SocketAddress, batch> sources;
  std::array<Control, batch> controls;
  const std::size_t room = header_room();
  std::size_t n = 0;
  for (; n < batch; ++n) {
    frames[n] = pool.alloc(room);
    if (frames[n] == nullptr) {
      break;
    }
    buffers[n] = {.iov_base = frames[n]->data + room, .iov_len = frames[n]->capacity - room};
    msghdr& m = messages[n].msg_hdr;
    m.msg_name = sources[n].get();
    m.msg_namelen = sizeof sources[n].storage;
    m.msg_iov = &buffers[n];
    m.msg_iovlen = 1;
    m.msg_control = &controls[n];
    m.msg_controllen = sizeof controls[n].bytes;
  }
  const int got = recvmmsg(receive_.get(), messages.data(), static_cast<unsigned>(n), 0, nullptr);
  const std::size_t taken = got > 0 ? static_cast<std::size_t>(got) : 0;
  // The kernel has checked these, and of the IP header it hands over only what the ICRC needs.
  constexpr wire::ParsePolicy policy{.verify_icrc = true, .verify_ipv4_checksum = false, .verify_udp_checksum = false};
  for (std::size_t i = 0; i < n; ++i) {
    Frame& frame = *frames[i];
    if (i >= taken) {
      pool.free(frame);
      continue;
    }
    const PeerAddress source = split_address(sources[i]);
    frame.size = static_cast<std::uint32_t>(room + messages[i].msg_len);
    frame.arrival = now;
    write_headers(frame, messages[i].msg_len, source.address, source.port, traffic_class_of(messages[i].msg_hdr));
    const Drop drop = wire::parse(frame.bytes(), policy, frame.parsed);
    if (drop != Drop::none) {
      counters.count(drop);
      pool.free(frame);
      continue;
    }
    out.push_back(frame);
  }
  return taken;
}

int UdpLink::socket_of(std::uint16_t source_port) const noexcept {
  const auto found = std::find_if(senders_.begin(), senders_.end(),
                                  [source_port](const Sender& sender) { return sender.port == source_port; });
  return found == senders_.end() ? senders_.front().socket.get() : found->socket.get();
}

bool UdpLink::send(FrameList& frames, FramePool& pool, Counters& counters) noexcept {
  while (!frames.empty()) {
    std::array<Frame*, batch> taken{};
    std::array<mmsghdr, batch> messages{};
    std::array<iovec, batch> buffers{};
    std::array<SocketAddress, batch> destinations;
    std::array<Control, batch> controls{};
    const std::uint16_t source_port = frames.front()->parsed.udp_source_port;
    std::size_t n = 0;
    while (n < batch && !frames.empty() && frames.front()->parsed.udp_source_port == source_port) {
      Frame& frame = *frames.pop_front();
      taken[n] = &frame;
      const wire::Parsed& p = frame.parsed;
      destinations[n] = socket_address(wire::destination_ip(frame.bytes(), p), wire::roce_v2_udp_port);
      buffers[n] = {.iov_base = frame.data + p.bth_offset, .iov_len = std::size_t{p.end_offset} - p.bth_offset};
      msghdr& m = messages[n].msg_hdr;
      m.msg_name = destinations[n].get();
      m.msg_namelen = destinations[n].size;
      m.msg_iov = &buffers[n];
      m.msg_iovlen = 1;
      set_traffic_class(m, controls[n], address_.is_v4(), p.traffic_class);
      ++n;
    }
    const int got = sendmmsg(socket_of(source_port), messages.data(), static_cast<unsigned>(n), 0);
    const bool full = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS);
    // Any other error is of the first packet: no route, no neighbour. It is lost, as on any link.
    const std::size_t gone = got > 0 ? static_cast<std::size_t>(got) : (full ? 0 : 1);
    if (got < 0 && !full) {
      counters.count(Drop::port_tx_full);
    }
    for (std::size_t i = n; i-- > gone;) {
      frames.push_front(*taken[i]);
    }
    for (std::size_t i = 0; i < gone; ++i) {
      pool.free(*taken[i]);
    }
    if (full) {
      blocked_fd_ = socket_of(source_port);
      return false;
    }
  }
  return true;
}

}  // namespace nbx::nccl::plugin
