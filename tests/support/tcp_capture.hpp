// The TCP connections of a capture: what each side said, in order, each octet once. Ethernet and IPv4 only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "base/net.hpp"
#include "support/pcap_file.hpp"

namespace nbx::test {

struct TcpEnd {
  IpAddress ip;
  std::uint16_t port = 0;
  friend auto operator<=>(const TcpEnd&, const TcpEnd&) = default;
};

/// Something happened on a connection.
struct TcpEvent {
  enum class What : std::uint8_t { open, bytes, close };
  What what{};
  std::size_t connection = 0;
  bool by_client = true;
  Bytes bytes{};
};

struct TcpConnection {
  TcpEnd client;
  TcpEnd server;
  Bytes from_client;
  Bytes from_server;
};

struct TcpCapture {
  std::vector<TcpConnection> connections;  // in order of their SYN
  std::vector<TcpEvent> events;
};

inline TcpCapture read_tcp(const std::string& path) {
  TcpCapture capture;
  struct Side {
    std::uint32_t next = 0;
    bool closed = false;
  };
  struct Sides {
    std::size_t connection = 0;
    std::array<Side, 2> side{};  // client, server
  };
  std::map<std::pair<TcpEnd, TcpEnd>, Sides> open;
  for (const PcapRecord& record : read_pcap(path)) {
    const Bytes& b = record.bytes;
    const auto octet = [&b](std::size_t at) { return at < b.size() ? std::to_integer<std::uint32_t>(b[at]) : 0U; };
    const auto big16 = [&](std::size_t at) { return static_cast<std::uint16_t>(octet(at) << 8U | octet(at + 1)); };
    const auto big32 = [&](std::size_t at) { return std::uint32_t{big16(at)} << 16U | big16(at + 2); };
    constexpr std::size_t ip = 14;
    if (big16(12) != 0x0800 || octet(ip + 9) != 6) {
      continue;
    }
    const std::size_t tcp = ip + (octet(ip) & 15U) * 4;
    const std::size_t data = tcp + (octet(tcp + 12) >> 4U) * 4;
    const std::size_t end = std::min<std::size_t>(b.size(), ip + big16(ip + 2));
    const TcpEnd from{IpAddress::v4(big32(ip + 12)), big16(tcp)};
    const TcpEnd to{IpAddress::v4(big32(ip + 16)), big16(tcp + 2)};
    const std::uint32_t flags = octet(tcp + 13);
    constexpr std::uint32_t fin = 1;
    constexpr std::uint32_t syn = 2;
    constexpr std::uint32_t ack = 16;
    if ((flags & (syn | ack)) == syn) {
      if (!open.contains({from, to})) {
        open[{from, to}] = {capture.connections.size(), {Side{big32(tcp + 4) + 1}, Side{}}};
        capture.connections.push_back({from, to, {}, {}});
        capture.events.push_back({TcpEvent::What::open, capture.connections.size() - 1, true, {}});
      }
      continue;
    }
    const bool by_client = open.contains({from, to});
    const auto found = open.find(by_client ? std::pair(from, to) : std::pair(to, from));
    if (found == open.end()) {
      continue;
    }
    const std::size_t connection = found->second.connection;
    Side& side = found->second.side[by_client ? 0 : 1];
    if ((flags & syn) != 0) {
      side.next = big32(tcp + 4) + 1;
      continue;
    }
    const std::uint32_t seen = side.next - big32(tcp + 4);  // octets at the front that came before
    if (data + seen < end) {
      const Bytes fresh(b.begin() + static_cast<std::ptrdiff_t>(data + seen),
                        b.begin() + static_cast<std::ptrdiff_t>(end));
      side.next += static_cast<std::uint32_t>(fresh.size());
      TcpConnection& c = capture.connections[connection];
      Bytes& all = by_client ? c.from_client : c.from_server;
      all.insert(all.end(), fresh.begin(), fresh.end());
      capture.events.push_back({TcpEvent::What::bytes, connection, by_client, fresh});
    }
    if ((flags & fin) != 0 && !side.closed) {
      side.closed = true;
      capture.events.push_back({TcpEvent::What::close, connection, by_client, {}});
    }
  }
  return capture;
}

}  // namespace nbx::test
