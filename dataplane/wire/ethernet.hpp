// Ethernet II and VLAN tags: IEEE 802.3 clause 3, IEEE 802.1Q clause 9. Images over the bytes of a frame.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"
#include "base/net.hpp"

namespace nbx::wire {

struct EthernetHeader {
  Mac destination;
  Mac source;
  Be16 ether_type;
};
static_assert(WireImage<EthernetHeader> && sizeof(EthernetHeader) == 14);

/// What follows an EtherType that is a tag protocol identifier.
struct VlanTag {
  Be16 tci;  // PCP(3), DEI, VID(12)
  Be16 ether_type;
};
static_assert(WireImage<VlanTag> && sizeof(VlanTag) == 4);

namespace ether_type {
inline constexpr std::uint16_t ipv4 = 0x0800;
inline constexpr std::uint16_t arp = 0x0806;
inline constexpr std::uint16_t c_vlan = 0x8100;
inline constexpr std::uint16_t ipv6 = 0x86dd;
inline constexpr std::uint16_t mac_control = 0x8808;
inline constexpr std::uint16_t s_vlan = 0x88a8;
inline constexpr std::uint16_t roce_v1 = 0x8915;
inline constexpr std::uint16_t legacy_s_vlan = 0x9100;  // QinQ before 802.1ad
}  // namespace ether_type

[[nodiscard]] constexpr bool is_vlan_tpid(std::uint16_t type) {
  return type == ether_type::c_vlan || type == ether_type::s_vlan || type == ether_type::legacy_s_vlan;
}

inline constexpr unsigned vlan_tags_max = 2;
inline constexpr std::size_t ethernet_frame_min = 60;  // without the FCS

}  // namespace nbx::wire
