// What a capture of NCCL holds, for tests that play one of its sides: TCP byte streams put together again, and RoCE
// packets by what they say.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "support/pcap_file.hpp"
#include "support/rdma_harness.hpp"
#include "wire/ip.hpp"

namespace nbx::test {

struct TcpStream {
  IpAddress client;
  IpAddress server;
  std::uint16_t port = 0;  // of the server
  Bytes up;                // from the client
  Bytes down;
};

struct RocePacket {
  IpAddress source;
  IpAddress destination;
  Qpn qpn;  // of the destination
  std::uint8_t traffic_class = 0;
  Packet packet;
};

struct NcclCapture {
  std::vector<TcpStream> streams;  // in the order of their first data
  std::vector<RocePacket> roce;

  /// Of NET/IB: hello of type 4.
  [[nodiscard]] std::vector<TcpStream> side_connections() const {
    std::vector<TcpStream> found;
    for (const TcpStream& s : streams) {
      if (s.up.size() >= 12 && s.up[8] == std::byte{4}) {
        found.push_back(s);
      }
    }
    return found;
  }
};

inline NcclCapture read_nccl_capture(const std::string& name) {
  constexpr std::size_t l3 = 14;
  constexpr std::byte tcp{6};
  constexpr unsigned syn = 2;
  using End = std::pair<IpAddress, std::uint16_t>;
  NcclCapture capture;
  std::map<std::pair<End, End>, std::size_t> known;          // client, server
  std::map<std::pair<End, End>, std::uint32_t> next_number;  // source, destination
  for (const PcapRecord& record : read_pcap(std::string(NBX_CAPTURES) + "/" + name)) {
    const Bytes& b = record.bytes;
    const auto get16 = [&b](std::size_t at) {
      return static_cast<std::uint16_t>((std::to_integer<unsigned>(b.at(at)) << 8U) |
                                        std::to_integer<unsigned>(b.at(at + 1)));
    };
    wire::Parsed parsed;
    if (wire::parse(b, {}, parsed) == Drop::none && parsed.kind == wire::FrameKind::roce_v2) {
      capture.roce.push_back({wire::source_ip(b, parsed), wire::destination_ip(b, parsed), parsed.dest_qpn,
                              parsed.traffic_class, decode(b, parsed)});
      continue;
    }
    if (b.size() < l3 + 40 || get16(12) != 0x0800 || b[l3 + 9] != tcp) {
      continue;
    }
    const auto get32 = [&get16](std::size_t at) { return (std::uint32_t{get16(at)} << 16U) | get16(at + 2); };
    const std::size_t l4 = l3 + 4 * (std::to_integer<std::size_t>(b[l3]) & 15U);
    const std::size_t data = l4 + 4 * (std::to_integer<std::size_t>(b[l4 + 12]) >> 4U);
    const End from{IpAddress::v4(get32(l3 + 12)), get16(l4)};
    const End to{IpAddress::v4(get32(l3 + 16)), get16(l4 + 2)};
    const std::uint32_t number = get32(l4 + 4);
    const unsigned flags = std::to_integer<unsigned>(b[l4 + 13]);
    if ((flags & syn) != 0) {
      next_number[{from, to}] = number + 1;
      if (!known.contains({to, from})) {
        known[{from, to}] = capture.streams.size();
        capture.streams.push_back({from.first, to.first, to.second, {}, {}});
      }
      continue;
    }
    const std::size_t end = l3 + get16(l3 + 2);
    if (data >= end || next_number[{from, to}] != number) {
      continue;  // no data, or sent again
    }
    next_number[{from, to}] += static_cast<std::uint32_t>(end - data);
    const bool upwards = known.contains({from, to});
    TcpStream& stream = capture.streams.at(upwards ? known.at({from, to}) : known.at({to, from}));
    append(upwards ? stream.up : stream.down, ConstBytes{b}.subspan(data, end - data));
  }
  return capture;
}

}  // namespace nbx::test
