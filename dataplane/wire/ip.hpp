// IPv4 (RFC 791), IPv6 (RFC 8200), UDP (RFC 768), ARP (RFC 826), ICMP (RFC 792, RFC 4443) and neighbour discovery
// (RFC 4861). Images over the bytes of a frame, and the checksum that they share (RFC 1071).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/net.hpp"

namespace nbx::wire {

namespace ip_protocol {
inline constexpr std::uint8_t icmp = 1;
inline constexpr std::uint8_t tcp = 6;
inline constexpr std::uint8_t udp = 17;
inline constexpr std::uint8_t icmpv6 = 58;
}  // namespace ip_protocol

/// The ECN field of both headers' traffic class (RFC 3168).
namespace ecn {
inline constexpr std::uint8_t mask = 3;
inline constexpr std::uint8_t not_ect = 0;
inline constexpr std::uint8_t ect1 = 1;
inline constexpr std::uint8_t ect0 = 2;
inline constexpr std::uint8_t ce = 3;
}  // namespace ecn

struct Ipv4Header {
  std::uint8_t version_ihl;
  std::uint8_t tos;
  Be16 total_length;
  Be16 identification;
  Be16 fragment;  // reserved, DF, MF, offset(13)
  std::uint8_t ttl;
  std::uint8_t protocol;
  Be16 checksum;
  Be32 source;
  Be32 destination;

  static constexpr std::uint16_t dont_fragment = 0x4000;
  static constexpr std::uint16_t more_fragments_and_offset = 0x3fff;
  static constexpr std::uint16_t offset_mask = 0x1fff;

  [[nodiscard]] constexpr unsigned version() const { return version_ihl >> 4U; }
  [[nodiscard]] constexpr unsigned header_size() const { return (version_ihl & 0x0fU) * 4U; }
  [[nodiscard]] constexpr bool is_fragment() const { return (fragment.value() & more_fragments_and_offset) != 0; }
  [[nodiscard]] constexpr unsigned fragment_offset() const { return fragment.value() & offset_mask; }
};
static_assert(WireImage<Ipv4Header> && sizeof(Ipv4Header) == 20);

struct Ipv6Header {
  Be32 version_class_flow;  // version(4), traffic class(8), flow label(20)
  Be16 payload_length;
  std::uint8_t next_header;
  std::uint8_t hop_limit;
  IpAddress source;
  IpAddress destination;

  [[nodiscard]] constexpr unsigned version() const { return version_class_flow.value() >> 28U; }
  [[nodiscard]] constexpr std::uint8_t traffic_class() const {
    return static_cast<std::uint8_t>(version_class_flow.value() >> 20U);
  }
  [[nodiscard]] constexpr std::uint32_t flow_label() const { return version_class_flow.value() & 0x000f'ffffU; }
};
static_assert(WireImage<Ipv6Header> && sizeof(Ipv6Header) == 40);

struct UdpHeader {
  Be16 source_port;
  Be16 destination_port;
  Be16 length;
  Be16 checksum;
};
static_assert(WireImage<UdpHeader> && sizeof(UdpHeader) == 8);

/// ARP for IPv4 over Ethernet, at Parsed::l3_offset of a frame of kind `arp`.
struct ArpPacket {
  Be16 hardware_type;
  Be16 protocol_type;
  std::uint8_t hardware_size;
  std::uint8_t protocol_size;
  Be16 operation;
  Mac sender_mac;
  Be32 sender_ip;
  Mac target_mac;
  Be32 target_ip;

  static constexpr std::uint16_t request = 1;
  static constexpr std::uint16_t reply = 2;
};
static_assert(WireImage<ArpPacket> && sizeof(ArpPacket) == 28);

struct IcmpHeader {
  std::uint8_t type;
  std::uint8_t code;
  Be16 checksum;
};
static_assert(WireImage<IcmpHeader> && sizeof(IcmpHeader) == 4);

struct IcmpEcho {
  IcmpHeader header;
  Be16 identifier;
  Be16 sequence;
};
static_assert(WireImage<IcmpEcho> && sizeof(IcmpEcho) == 8);

namespace icmp_type {
inline constexpr std::uint8_t echo_reply = 0;
inline constexpr std::uint8_t echo_request = 8;
inline constexpr std::uint8_t v6_echo_request = 128;
inline constexpr std::uint8_t v6_echo_reply = 129;
inline constexpr std::uint8_t neighbor_solicitation = 135;
inline constexpr std::uint8_t neighbor_advertisement = 136;
}  // namespace icmp_type

/// Neighbour solicitation and advertisement (RFC 4861 4.3, 4.4), at Parsed::l4_offset; options follow.
struct NeighborMessage {
  IcmpHeader header;
  Be32 flags;  // of an advertisement; reserved in a solicitation
  IpAddress target;

  static constexpr std::uint32_t router = 0x8000'0000;
  static constexpr std::uint32_t solicited = 0x4000'0000;
  static constexpr std::uint32_t override_entry = 0x2000'0000;
};
static_assert(WireImage<NeighborMessage> && sizeof(NeighborMessage) == 24);

/// Source or target link-layer address option for Ethernet (RFC 4861 4.6.1).
struct LinkLayerOption {
  std::uint8_t type;
  std::uint8_t length;  // in units of eight octets: 1
  Mac address;

  static constexpr std::uint8_t source = 1;
  static constexpr std::uint8_t target = 2;
};
static_assert(WireImage<LinkLayerOption> && sizeof(LinkLayerOption) == 8);

/// The hop limit that proves a neighbour discovery message to be of this link (RFC 4861 7.1).
inline constexpr std::uint8_t nd_hop_limit = 255;

/// One's complement sum of big-endian 16-bit words, continued from `sum`; an odd last octet is padded with zero.
/// Not folded: 64 bits hold the sum of any frame.
[[nodiscard]] constexpr std::uint64_t checksum_add(std::uint64_t sum, ConstBytes data) {
  std::size_t i = 0;
  for (; i + 1 < data.size(); i += 2) {
    sum += (std::to_integer<std::uint64_t>(data[i]) << 8U) | std::to_integer<std::uint64_t>(data[i + 1]);
  }
  if (i < data.size()) {
    sum += std::to_integer<std::uint64_t>(data[i]) << 8U;
  }
  return sum;
}

/// The checksum field for a sum taken with that field as zero; a sum that includes a right field gives 0.
[[nodiscard]] constexpr std::uint16_t checksum_finish(std::uint64_t sum) {
  while ((sum >> 16U) != 0) {
    sum = (sum & 0xffffU) + (sum >> 16U);
  }
  return static_cast<std::uint16_t>(~sum);
}

/// `checksum` after one 16-bit word that it covers changed (RFC 1624, equation 3).
[[nodiscard]] constexpr std::uint16_t checksum_replace(std::uint16_t checksum, std::uint16_t before,
                                                       std::uint16_t after) {
  return checksum_finish(std::uint64_t{static_cast<std::uint16_t>(~checksum)} + static_cast<std::uint16_t>(~before) +
                         after);
}

/// The sum over the pseudo-header of UDP and ICMPv6; `addresses` are source and destination as they lie in the header.
[[nodiscard]] constexpr std::uint64_t pseudo_header_sum(ConstBytes addresses, std::uint8_t protocol,
                                                        std::size_t length) {
  return checksum_add(protocol + length, addresses);
}
/// The two addresses of the IP header at the start of `l3`.
[[nodiscard]] inline ConstBytes ip_addresses(ConstBytes l3, bool ipv6) {
  return ipv6 ? l3.subspan(offsetof(Ipv6Header, source), 32) : l3.subspan(offsetof(Ipv4Header, source), 8);
}

}  // namespace nbx::wire
