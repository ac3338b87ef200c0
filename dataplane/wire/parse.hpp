// A frame's bytes are checked here, once, and described by a Parsed for every later stage.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/net.hpp"
#include "stats/counters.hpp"
#include "wire/opcode.hpp"

namespace nbx::wire {

enum class FrameKind : std::uint8_t {
  unparsed,
  roce_v2,
  roce_v1,      // recognised by its EtherType, counted, never answered
  arp,          // a well-formed Ethernet/IPv4 ARP packet
  icmp_echo,    // ICMP or ICMPv6 echo request
  nd_solicit,   // ICMPv6 neighbour solicitation
  nd_advert,    // ICMPv6 neighbour advertisement
  pfc,          // MAC control, opcode 0x0101 (IEEE 802.1Q clause 36)
  pause,        // MAC control, opcode 0x0001 (IEEE 802.3 annex 31B)
  ip_other,     // any other IPv4 or IPv6: the exception path's business
  ether_other,  // any other EtherType
};

/// Offsets are from the first byte of the Ethernet header. Fields of a kind that the frame is not are zero.
struct Parsed {
  FrameKind kind = FrameKind::unparsed;
  std::uint8_t opcode = 0;         // BTH opcode
  std::uint8_t traffic_class = 0;  // of the IP header
  bool ipv6 = false;
  bool ack_requested = false;
  bool solicited = false;
  bool becn = false;
  bool selective_repeat = false;  // Bth::selective_repeat_bit
  std::uint8_t pad = 0;
  std::uint8_t syndrome = 0;  // of the AETH, when the opcode has one
  OpcodeClass op_class = OpcodeClass::other;
  std::uint16_t vlan_tci = 0;  // innermost tag; 0: none
  std::uint16_t l3_offset = 0;
  std::uint16_t l4_offset = 0;
  std::uint16_t bth_offset = 0;
  std::uint16_t payload_offset = 0;  // behind the extension headers
  std::uint16_t payload_size = 0;    // without pad and ICRC
  std::uint16_t pkey = 0;
  std::uint16_t udp_source_port = 0;
  Qpn dest_qpn{};
  Psn psn{};
  std::uint16_t end_offset = 0;  // one behind the ICRC, or behind the IP packet: trailing bytes lie beyond

  [[nodiscard]] const OpcodeTraits& op() const { return traits(opcode); }
};
static_assert(sizeof(Parsed) <= 48);

/// Whether frames of this kind have an IP header, which was understood.
[[nodiscard]] constexpr bool has_ip(FrameKind kind) {
  using enum FrameKind;
  return kind == roce_v2 || kind == icmp_echo || kind == nd_solicit || kind == nd_advert || kind == ip_other;
}

/// How much of a frame's integrity to check: a NIC, a simulator and a fuzzer differ.
struct ParsePolicy {
  bool verify_icrc = true;
  bool verify_ipv4_checksum = true;
  bool verify_udp_checksum = true;  // zero over IPv4 and IPv6 means "none" (A17.9.2)
};

/// Checks and describes `frame`. Answers Drop::none, or why the frame must not reach a ghost; in that case `out`
/// holds what was understood so far. Never reads outside `frame`, never throws. Frames that are not RoCE are
/// described, not dropped; only malformed ones are.
[[nodiscard]] Drop parse(ConstBytes frame, const ParsePolicy& policy, Parsed& out) noexcept;

[[nodiscard]] IpAddress source_ip(ConstBytes frame, const Parsed& p) noexcept;
[[nodiscard]] IpAddress destination_ip(ConstBytes frame, const Parsed& p) noexcept;
[[nodiscard]] Mac source_mac(ConstBytes frame) noexcept;
[[nodiscard]] Mac destination_mac(ConstBytes frame) noexcept;

[[nodiscard]] inline ConstBytes payload(ConstBytes frame, const Parsed& p) noexcept {
  return frame.subspan(p.payload_offset, p.payload_size);
}

/// The link-layer address that a neighbour solicitation or advertisement carries (RFC 4861 4.6.1).
[[nodiscard]] std::optional<Mac> neighbor_mac(ConstBytes frame, const Parsed& p) noexcept;

/// The extension header `T` whose ext:: bit is `header`. The opcode must have it, and parse() must have accepted it.
template <WireImage T>
[[nodiscard]] const T& extension(ConstBytes frame, const Parsed& p, std::uint8_t header) noexcept {
  const std::uint8_t in_front = p.op().headers & static_cast<std::uint8_t>(header - 1U);
  return *overlay<T>(frame.subspan(p.bth_offset + sizeof(Bth) + detail::header_bytes(in_front)));
}

}  // namespace nbx::wire
