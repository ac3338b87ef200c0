// What a capture of NCCL holds of NET/IB, for tests that play one of its ends: side connections, and RoCE packets by
// what they say.
#pragma once

#include <string>
#include <vector>

#include "support/rdma_harness.hpp"
#include "support/tcp_capture.hpp"
#include "wire/ip.hpp"

namespace nbx::test {

struct RocePacket {
  IpAddress source;
  IpAddress destination;
  Qpn qpn;  // of the destination
  std::uint8_t traffic_class = 0;
  Packet packet;
};

struct IbCapture {
  std::vector<TcpConnection> connections;
  std::vector<RocePacket> roce;

  /// Of NET/IB: hello of type 4.
  [[nodiscard]] std::vector<TcpConnection> side_connections() const {
    std::vector<TcpConnection> found;
    for (const TcpConnection& c : connections) {
      if (c.from_client.size() >= 12 && c.from_client[8] == std::byte{4}) {
        found.push_back(c);
      }
    }
    return found;
  }
};

inline IbCapture read_ib_capture(const std::string& name) {
  const std::string path = std::string(NBX_CAPTURES) + "/" + name;
  IbCapture capture{.connections = read_tcp(path).connections, .roce = {}};
  for (const PcapRecord& record : read_pcap(path)) {
    const Bytes& b = record.bytes;
    wire::Parsed parsed;
    if (wire::parse(b, {}, parsed) == Drop::none && parsed.kind == wire::FrameKind::roce_v2) {
      capture.roce.push_back({wire::source_ip(b, parsed), wire::destination_ip(b, parsed), parsed.dest_qpn,
                              parsed.traffic_class, decode(b, parsed)});
    }
  }
  return capture;
}

}  // namespace nbx::test
