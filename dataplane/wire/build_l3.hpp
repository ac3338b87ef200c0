// The emit side below RoCE: what a ghost says on its link. Every function writes one whole frame without FCS, padded
// to Ethernet's minimum, and answers its size; 0 when `out` is too small or the request cannot be answered.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/net.hpp"
#include "wire/mac_control.hpp"
#include "wire/parse.hpp"

namespace nbx::wire {

/// Enough for any frame made here except echo replies, which are as long as their request.
inline constexpr std::size_t l3_frame_max = 128;

/// Who sends, and on which VLAN (0: untagged).
struct LinkIdentity {
  Mac mac;
  IpAddress ip;
  std::uint16_t vlan_tci = 0;
};

/// Broadcast request; with `target` == self.ip it is the announcement of RFC 5227.
std::size_t build_arp_request(MutableBytes out, const LinkIdentity& self, const IpAddress& target) noexcept;
/// Answers a request for self.ip. `p` describes `request`, of kind arp.
std::size_t build_arp_reply(MutableBytes out, ConstBytes request, const Parsed& p, const LinkIdentity& self) noexcept;

/// Solicitation to the solicited-node multicast address, with our link-layer address (RFC 4861 4.3).
std::size_t build_nd_solicit(MutableBytes out, const LinkIdentity& self, const IpAddress& target) noexcept;
/// Answers a solicitation for self.ip, duplicate address detection included (RFC 4861 7.2.4). `p` describes
/// `solicit`, of kind nd_solicit.
std::size_t build_nd_advert(MutableBytes out, ConstBytes solicit, const Parsed& p, const LinkIdentity& self) noexcept;

/// Unsolicited, to all nodes, overriding what they know of self.ip (RFC 4861 7.2.6).
std::size_t build_nd_announcement(MutableBytes out, const LinkIdentity& self) noexcept;

/// Answers a unicast ICMP or ICMPv6 echo request by turning its addresses round; `p` describes `request`, of kind
/// icmp_echo. `out` may be the request's own bytes.
std::size_t build_echo_reply(MutableBytes out, ConstBytes request, const Parsed& p) noexcept;

std::size_t build_pause(MutableBytes out, const Mac& source, std::uint16_t quanta) noexcept;
/// Bit p of `class_enable` says that quanta[p] counts.
std::size_t build_pfc(MutableBytes out, const Mac& source, std::uint8_t class_enable,
                      const std::array<std::uint16_t, priorities>& quanta) noexcept;

}  // namespace nbx::wire
