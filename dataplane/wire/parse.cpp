// One function per layer, outermost first; each checks its own lengths and hands on the bytes that it vouches for.
#include "wire/parse.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "wire/ethernet.hpp"
#include "wire/icrc.hpp"
#include "wire/ip.hpp"
#include "wire/mac_control.hpp"
#include "wire/path.hpp"

namespace nbx::wire {
namespace {

// Offsets are 16 bits wide. What lies beyond is cut off, so that a length field which reaches it is in error.
constexpr std::size_t frame_size_max = std::numeric_limits<std::uint16_t>::max();

constexpr std::uint16_t narrow(std::size_t offset) { return static_cast<std::uint16_t>(offset); }

/// Requests, responses with data, and atomics in both directions are data; ack and nak are the packets whose only
/// purpose is to acknowledge.
OpcodeClass classify(const Parsed& p) noexcept {
  if (p.opcode == static_cast<std::uint8_t>(Opcode::cnp)) {
    return OpcodeClass::cnp;
  }
  if (transport_of(p.opcode) == Transport::ud && p.dest_qpn == gsi_qpn) {
    return OpcodeClass::cm;
  }
  if (p.op().operation == Operation::acknowledge) {
    return (p.syndrome & syndrome::type_mask) == syndrome::ack ? OpcodeClass::ack : OpcodeClass::nak;
  }
  return OpcodeClass::data;
}

/// The lengths behind the BTH (9.2.4 for the pad count): extension headers, payload, pad and ICRC fill the packet.
Drop parse_extensions(ConstBytes frame, Parsed& out) noexcept {
  const OpcodeTraits& op = out.op();
  const std::size_t extensions = out.bth_offset + sizeof(Bth);
  out.payload_offset = narrow(extensions + op.header_size);
  const std::size_t end = out.end_offset - icrc_size;
  if (end < out.payload_offset) {
    return Drop::headers_truncated;
  }
  if (op.has(ext::aeth)) {
    out.syndrome = extension<Aeth>(frame, out, ext::aeth).syndrome;
  }
  out.op_class = classify(out);
  const std::size_t padded = end - out.payload_offset;
  if (padded % 4 != 0 || out.pad > padded) {
    return Drop::pad_error;
  }
  out.payload_size = narrow(padded - out.pad);
  if (out.payload_size != 0 && !op.payload) {
    return Drop::payload_unexpected;
  }
  return Drop::none;
}

Drop parse_roce(ConstBytes frame, const ParsePolicy& policy, Parsed& out) noexcept {
  const ConstBytes packet = frame.first(out.end_offset).subspan(out.bth_offset);
  if (packet.size() < sizeof(Bth) + icrc_size) {
    return Drop::bth_truncated;
  }
  const Bth& bth = *overlay<Bth>(packet);
  out.opcode = bth.opcode;
  out.solicited = bth.solicited();
  out.pad = static_cast<std::uint8_t>(bth.pad_count());
  out.pkey = bth.pkey.value();
  out.becn = (bth.ecn & Bth::becn_bit) != 0;
  out.dest_qpn = {bth.dest_qp.value()};
  out.ack_requested = bth.ack_requested();
  out.selective_repeat = (bth.ack_req & Bth::selective_repeat_bit) != 0;
  out.psn = {bth.psn.value()};
  if (bth.version() != 0) {  // 9.6.1.1
    return Drop::bth_version;
  }
  if (!out.op().known()) {
    return Drop::opcode_unknown;
  }
  if (const Drop drop = parse_extensions(frame, out); drop != Drop::none) {
    return drop;
  }
  const std::size_t end = out.end_offset - icrc_size;
  if (policy.verify_icrc && load_icrc(frame, end) != icrc(frame, out.l3_offset, out.bth_offset, end, out.ipv6)) {
    return Drop::icrc_mismatch;
  }
  return Drop::none;
}

/// The checksum of a UDP datagram or ICMPv6 message that lies in l4_offset..end_offset.
bool transport_checksum_right(ConstBytes frame, const Parsed& p, std::uint8_t protocol) noexcept {
  const ConstBytes l4 = frame.first(p.end_offset).subspan(p.l4_offset);
  const std::uint64_t sum = pseudo_header_sum(ip_addresses(frame.subspan(p.l3_offset), p.ipv6), protocol, l4.size());
  return checksum_finish(checksum_add(sum, l4)) == 0;
}

/// Only RoCE's datagrams are checked to the end; the others are the exception path's.
Drop parse_udp(ConstBytes frame, const ParsePolicy& policy, Parsed& out) noexcept {
  const ConstBytes l4 = frame.first(out.end_offset).subspan(out.l4_offset);
  const auto* udp = overlay<UdpHeader>(l4);
  if (udp == nullptr) {
    return Drop::udp_length_error;
  }
  if (udp->destination_port.value() != roce_v2_udp_port) {
    return Drop::none;
  }
  out.kind = FrameKind::roce_v2;
  out.udp_source_port = udp->source_port.value();
  if (udp->length.value() != l4.size()) {
    return Drop::udp_length_error;
  }
  if (policy.verify_udp_checksum && udp->checksum.value() != 0 &&
      !transport_checksum_right(frame, out, ip_protocol::udp)) {
    return Drop::udp_checksum_error;
  }
  out.bth_offset = narrow(out.l4_offset + sizeof(UdpHeader));
  return parse_roce(frame, policy, out);
}

Drop parse_icmp_v4(ConstBytes frame, Parsed& out) noexcept {
  const ConstBytes l4 = frame.first(out.end_offset).subspan(out.l4_offset);
  const auto* icmp = overlay<IcmpHeader>(l4);
  if (icmp == nullptr) {
    return Drop::icmp_malformed;
  }
  if (icmp->type != icmp_type::echo_request) {
    return Drop::none;
  }
  if (l4.size() < sizeof(IcmpEcho) || checksum_finish(checksum_add(0, l4)) != 0) {
    return Drop::icmp_malformed;
  }
  out.kind = FrameKind::icmp_echo;
  return Drop::none;
}

/// The link-layer address option of the wanted type behind a neighbour message. `valid` becomes false when the
/// options do not fill the message exactly (RFC 4861 4.6, 7.1.1: an option of length zero makes it invalid).
const LinkLayerOption* find_link_layer_option(ConstBytes options, std::uint8_t type, bool& valid) noexcept {
  const LinkLayerOption* found = nullptr;
  while (!options.empty()) {
    const std::size_t size = options.size() < 2 ? 0 : std::to_integer<std::size_t>(options[1]) * 8;
    if (size == 0 || size > options.size()) {
      valid = false;
      return nullptr;
    }
    const auto* option = overlay<LinkLayerOption>(options);
    if (found == nullptr && option->type == type && option->length == 1) {
      found = option;
    }
    options = options.subspan(size);
  }
  return found;
}

bool is_multicast(const IpAddress& a) noexcept { return a.octets[0] == 0xff; }

/// RFC 4861 7.1.1 and 7.1.2; the checksum was verified before.
bool neighbor_message_valid(const Ipv6Header& ip, ConstBytes l4) noexcept {
  const auto* message = overlay<NeighborMessage>(l4);
  if (message == nullptr || ip.hop_limit != nd_hop_limit || message->header.code != 0 ||
      is_multicast(message->target)) {
    return false;
  }
  bool valid = true;
  const auto* source = find_link_layer_option(l4.subspan(sizeof(NeighborMessage)), LinkLayerOption::source, valid);
  if (message->header.type == icmp_type::neighbor_advertisement) {
    const bool solicited = (message->flags.value() & NeighborMessage::solicited) != 0;
    return valid && !(solicited && is_multicast(ip.destination));
  }
  if (ip.source.is_unspecified()) {  // duplicate address detection
    return valid && source == nullptr && ip.destination == solicited_node(message->target);
  }
  return valid;
}

Drop parse_icmp_v6(ConstBytes frame, Parsed& out) noexcept {
  const ConstBytes l4 = frame.first(out.end_offset).subspan(out.l4_offset);
  const auto* icmp = overlay<IcmpHeader>(l4);
  if (icmp == nullptr) {
    return Drop::icmp_malformed;
  }
  const bool echo = icmp->type == icmp_type::v6_echo_request;
  const bool solicit = icmp->type == icmp_type::neighbor_solicitation;
  const bool advert = icmp->type == icmp_type::neighbor_advertisement;
  if (!echo && !solicit && !advert) {
    return Drop::none;
  }
  const auto& ip = *overlay<Ipv6Header>(frame.subspan(out.l3_offset));
  const bool complete = echo ? l4.size() >= sizeof(IcmpEcho) : neighbor_message_valid(ip, l4);
  if (!complete || !transport_checksum_right(frame, out, ip_protocol::icmpv6)) {
    return Drop::icmp_malformed;
  }
  out.kind = echo ? FrameKind::icmp_echo : solicit ? FrameKind::nd_solicit : FrameKind::nd_advert;
  return Drop::none;
}

/// A fragment is RoCE's only if its first part shows the UDP port; the rest cannot be told from other traffic.
Drop parse_fragment(ConstBytes frame, const Ipv4Header& ip, Parsed& out) noexcept {
  const auto* udp = overlay<UdpHeader>(frame.first(out.end_offset).subspan(out.l4_offset));
  if (ip.fragment_offset() == 0 && ip.protocol == ip_protocol::udp && udp != nullptr &&
      udp->destination_port.value() == roce_v2_udp_port) {
    out.kind = FrameKind::roce_v2;
    return Drop::ipv4_fragment;
  }
  return Drop::none;
}

Drop parse_ipv4(ConstBytes frame, const ParsePolicy& policy, Parsed& out) noexcept {
  const ConstBytes l3 = frame.subspan(out.l3_offset);
  const auto* ip = overlay<Ipv4Header>(l3);
  if (ip == nullptr || ip->version() != 4) {
    return Drop::ipv4_header_malformed;
  }
  const std::size_t header_size = ip->header_size();
  const std::size_t total = ip->total_length.value();
  if (header_size < sizeof(Ipv4Header) || header_size > total || total > l3.size()) {
    return Drop::ipv4_header_malformed;
  }
  if (policy.verify_ipv4_checksum && checksum_finish(checksum_add(0, l3.first(header_size))) != 0) {
    return Drop::ipv4_checksum_error;
  }
  out.kind = FrameKind::ip_other;
  out.traffic_class = ip->tos;
  out.l4_offset = narrow(out.l3_offset + header_size);
  out.end_offset = narrow(out.l3_offset + total);
  if (ip->is_fragment()) {
    return parse_fragment(frame, *ip, out);
  }
  switch (ip->protocol) {
    case ip_protocol::udp:
      return parse_udp(frame, policy, out);
    case ip_protocol::icmp:
      return parse_icmp_v4(frame, out);
    default:
      return Drop::none;
  }
}

/// Extension headers are not followed: RoCE and neighbour discovery have none here.
Drop parse_ipv6(ConstBytes frame, const ParsePolicy& policy, Parsed& out) noexcept {
  const ConstBytes l3 = frame.subspan(out.l3_offset);
  const auto* ip = overlay<Ipv6Header>(l3);
  if (ip == nullptr || ip->version() != 6 || sizeof(Ipv6Header) + ip->payload_length.value() > l3.size()) {
    return Drop::ipv6_header_malformed;
  }
  out.kind = FrameKind::ip_other;
  out.ipv6 = true;
  out.traffic_class = ip->traffic_class();
  out.l4_offset = narrow(out.l3_offset + sizeof(Ipv6Header));
  out.end_offset = narrow(out.l4_offset + ip->payload_length.value());
  switch (ip->next_header) {
    case ip_protocol::udp:
      return parse_udp(frame, policy, out);
    case ip_protocol::icmpv6:
      return parse_icmp_v6(frame, out);
    default:
      return Drop::none;
  }
}

Drop parse_arp(ConstBytes frame, Parsed& out) noexcept {
  constexpr std::uint16_t hardware_ethernet = 1;
  const auto* arp = overlay<ArpPacket>(frame.subspan(out.l3_offset));
  if (arp == nullptr || arp->hardware_type.value() != hardware_ethernet ||
      arp->protocol_type.value() != ether_type::ipv4 || arp->hardware_size != sizeof(Mac) ||
      arp->protocol_size != sizeof(Be32)) {
    return Drop::arp_malformed;
  }
  out.kind = FrameKind::arp;
  out.end_offset = narrow(out.l3_offset + sizeof(ArpPacket));
  return Drop::none;
}

Drop parse_mac_control(ConstBytes frame, Parsed& out) noexcept {
  const ConstBytes l3 = frame.subspan(out.l3_offset);
  const auto* opcode = overlay<Be16>(l3);
  if (opcode == nullptr) {
    return Drop::mac_control_malformed;
  }
  FrameKind kind{};
  std::size_t size = 0;
  switch (opcode->value()) {
    case pause_opcode:
      kind = FrameKind::pause;
      size = sizeof(PauseControl);
      break;
    case pfc_opcode:
      kind = FrameKind::pfc;
      size = sizeof(PfcControl);
      break;
    default:
      out.kind = FrameKind::ether_other;
      return Drop::none;
  }
  if (l3.size() < size) {
    return Drop::mac_control_malformed;
  }
  out.kind = kind;
  out.end_offset = narrow(out.l3_offset + size);
  return Drop::none;
}

}  // namespace

Drop parse(ConstBytes frame, const ParsePolicy& policy, Parsed& out) noexcept {
  out = {};
  frame = frame.first(std::min(frame.size(), frame_size_max));
  const auto* ethernet = overlay<EthernetHeader>(frame);
  if (ethernet == nullptr) {
    return Drop::runt;
  }
  std::size_t offset = sizeof(EthernetHeader);
  std::uint16_t type = ethernet->ether_type.value();
  for (unsigned tags = 0; is_vlan_tpid(type); ++tags) {
    const auto* tag = overlay<VlanTag>(frame.subspan(offset));
    if (tag == nullptr || tags == vlan_tags_max) {
      return Drop::vlan_truncated;
    }
    out.vlan_tci = tag->tci.value();
    type = tag->ether_type.value();
    offset += sizeof(VlanTag);
  }
  out.l3_offset = narrow(offset);
  out.end_offset = narrow(frame.size());
  switch (type) {
    case ether_type::ipv4:
      return parse_ipv4(frame, policy, out);
    case ether_type::ipv6:
      return parse_ipv6(frame, policy, out);
    case ether_type::arp:
      return parse_arp(frame, out);
    case ether_type::mac_control:
      return parse_mac_control(frame, out);
    case ether_type::roce_v1:
      out.kind = FrameKind::roce_v1;
      return Drop::none;
    default:
      out.kind = FrameKind::ether_other;
      return Drop::none;
  }
}

// The layer above IP has an offset only when the IP header is whole.
IpAddress source_ip(ConstBytes frame, const Parsed& p) noexcept {
  if (p.l4_offset == 0) {
    return {};
  }
  const ConstBytes l3 = frame.subspan(p.l3_offset);
  return p.ipv6 ? overlay<Ipv6Header>(l3)->source : IpAddress::v4(overlay<Ipv4Header>(l3)->source.value());
}

IpAddress destination_ip(ConstBytes frame, const Parsed& p) noexcept {
  if (p.l4_offset == 0) {
    return {};
  }
  const ConstBytes l3 = frame.subspan(p.l3_offset);
  return p.ipv6 ? overlay<Ipv6Header>(l3)->destination : IpAddress::v4(overlay<Ipv4Header>(l3)->destination.value());
}

Mac source_mac(ConstBytes frame) noexcept { return overlay<EthernetHeader>(frame)->source; }
Mac destination_mac(ConstBytes frame) noexcept { return overlay<EthernetHeader>(frame)->destination; }

std::optional<Mac> neighbor_mac(ConstBytes frame, const Parsed& p) noexcept {
  const std::uint8_t type = p.kind == FrameKind::nd_solicit ? LinkLayerOption::source : LinkLayerOption::target;
  bool valid = true;
  const auto* option =
      find_link_layer_option(frame.first(p.end_offset).subspan(p.l4_offset + sizeof(NeighborMessage)), type, valid);
  return option == nullptr ? std::nullopt : std::optional{option->address};
}

}  // namespace nbx::wire
