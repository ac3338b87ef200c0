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

}  // namespace nbx::wire
