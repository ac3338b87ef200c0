// The addresses that a packet carries below the BTH: what IBTA calls the address vector, as RoCE has it (A17).
#pragma once

#include <cstdint>

#include "base/net.hpp"

namespace nbx::wire {

inline constexpr std::uint16_t roce_v2_udp_port = 4791;  // IBTA A17.3.1, IANA

struct Path {
  Mac source_mac;
  Mac destination_mac;
  IpAddress source_ip;  // both IPv4 (mapped) or both IPv6
  IpAddress destination_ip;
  std::uint16_t vlan_tci = 0;  // PCP, DEI and VID; 0: untagged
  std::uint16_t udp_source_port = 0xc000;
  std::uint8_t traffic_class = 0;  // DSCP in the upper six bits, ECN in the lower two
  std::uint8_t hop_limit = 64;
  std::uint32_t flow_label = 0;  // IPv6 only

  friend bool operator==(const Path&, const Path&) = default;
};

/// The UDP source port by which a flow label spreads over paths, as Linux and mlx5 derive it: the label's upper six
/// bits folded onto the lower fourteen, in the dynamic port range that A17.9.2 asks for.
[[nodiscard]] constexpr std::uint16_t udp_source_port_of(std::uint32_t flow_label) {
  return static_cast<std::uint16_t>(0xc000U | ((flow_label ^ (flow_label >> 14U)) & 0x3fffU));
}

}  // namespace nbx::wire
