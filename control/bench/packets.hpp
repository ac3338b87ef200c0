// The bench's two ends: a real node that is only a maker of packets, and the ghost that they are for.
#pragma once

#include "wire/build.hpp"

namespace nbx::bench {

inline const Mac node_mac = *parse_mac("52:54:00:00:00:01");
inline const Mac ghost_mac = *parse_mac("02:00:00:00:00:09");
inline const IpAddress node_ip = *parse_ip("10.77.0.1");
inline const IpAddress ghost_ip = *parse_ip("10.77.0.9");

/// UDP source ports spread the flows.
inline wire::Path node_to_ghost(unsigned flow = 0) {
  return {.source_mac = node_mac,
          .destination_mac = ghost_mac,
          .source_ip = node_ip,
          .destination_ip = ghost_ip,
          .udp_source_port = static_cast<std::uint16_t>(0xc000U | (flow & 0x3fffU))};
}
inline wire::Path ghost_to_node() {
  return {.source_mac = ghost_mac, .destination_mac = node_mac, .source_ip = ghost_ip, .destination_ip = node_ip};
}

/// Of a packet with so much payload and no extension header: what its link carries, preamble, FCS and gap included.
inline unsigned wire_bytes(unsigned payload) {
  constexpr unsigned preamble_fcs_gap = 24;
  return static_cast<unsigned>(wire::Encapsulation{node_to_ghost()}.frame_size(payload)) + preamble_fcs_gap;
}

}  // namespace nbx::bench
