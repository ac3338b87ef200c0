// Frames of ARP (RFC 826), neighbour discovery (RFC 4861), echo (RFC 792, RFC 4443) and MAC control.
#include "wire/build_l3.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "wire/ethernet.hpp"
#include "wire/ip.hpp"

namespace nbx::wire {
namespace {

constexpr std::uint8_t echo_hop_limit = 64;

/// Zeroes what Ethernet's minimum demands behind `size`; the frame's size.
std::size_t pad_to_minimum(MutableBytes out, std::size_t size) noexcept {
  if (size >= ethernet_frame_min) {
    return size;
  }
  std::memset(out.data() + size, 0, ethernet_frame_min - size);
  return ethernet_frame_min;
}

/// Ethernet header and, if wanted, a tag; the offset behind them.
std::size_t write_link(MutableBytes out, const Mac& destination, const Mac& source, std::uint16_t vlan_tci,
                       std::uint16_t type) noexcept {
  auto& ethernet = *mutable_overlay<EthernetHeader>(out);
  ethernet.destination = destination;
  ethernet.source = source;
  if (vlan_tci == 0) {
    ethernet.ether_type = type;
    return sizeof(EthernetHeader);
  }
  ethernet.ether_type = ether_type::c_vlan;
  auto& tag = *mutable_overlay<VlanTag>(out.subspan(sizeof(EthernetHeader)));
  tag.tci = vlan_tci;
  tag.ether_type = type;
  return sizeof(EthernetHeader) + sizeof(VlanTag);
}

/// The request's own link header, tags and all, turned round; the offset behind it.
std::size_t answer_link(MutableBytes out, ConstBytes request, const Parsed& p, const Mac& destination,
                        const Mac& source) noexcept {
  std::memcpy(out.data(), request.data(), p.l3_offset);
  auto& ethernet = *mutable_overlay<EthernetHeader>(out);
  ethernet.destination = destination;
  ethernet.source = source;
  return p.l3_offset;
}

void write_arp(MutableBytes l3, std::uint16_t operation, const LinkIdentity& sender, const Mac& target_mac,
               std::uint32_t target_ip) noexcept {
  auto& arp = *mutable_overlay<ArpPacket>(l3);
  arp.hardware_type = 1;
  arp.protocol_type = ether_type::ipv4;
  arp.hardware_size = sizeof(Mac);
  arp.protocol_size = sizeof(Be32);
  arp.operation = operation;
  arp.sender_mac = sender.mac;
  arp.sender_ip = sender.ip.v4_value();
  arp.target_mac = target_mac;
  arp.target_ip = target_ip;
}

struct NeighborFields {
  std::uint8_t type;
  std::uint32_t flags;
  IpAddress target;
  std::uint8_t option;
};

constexpr std::size_t neighbor_size = sizeof(NeighborMessage) + sizeof(LinkLayerOption);

/// IPv6 header, neighbour message and our link-layer address as its option; the bytes written.
std::size_t write_neighbor(MutableBytes l3, const LinkIdentity& self, const IpAddress& destination,
                           const NeighborFields& fields) noexcept {
  auto& ip = *mutable_overlay<Ipv6Header>(l3);
  ip.version_class_flow = 6U << 28U;
  ip.payload_length = neighbor_size;
  ip.next_header = ip_protocol::icmpv6;
  ip.hop_limit = nd_hop_limit;
  ip.source = self.ip;
  ip.destination = destination;
  const MutableBytes l4 = l3.subspan(sizeof(Ipv6Header), neighbor_size);
  auto& message = *mutable_overlay<NeighborMessage>(l4);
  message.header.type = fields.type;
  message.header.code = 0;
  message.header.checksum = 0;
  message.flags = fields.flags;
  message.target = fields.target;
  auto& option = *mutable_overlay<LinkLayerOption>(l4.subspan(sizeof(NeighborMessage)));
  option.type = fields.option;
  option.length = 1;
  option.address = self.mac;
  const std::uint64_t pseudo = pseudo_header_sum(ip_addresses(l3, true), ip_protocol::icmpv6, neighbor_size);
  message.header.checksum = checksum_finish(checksum_add(pseudo, l4));
  return sizeof(Ipv6Header) + neighbor_size;
}

/// The Ethernet address of an IPv6 multicast address (RFC 2464 section 7).
Mac multicast_mac(const IpAddress& ip) noexcept {
  return {{0x33, 0x33, ip.octets[12], ip.octets[13], ip.octets[14], ip.octets[15]}};
}

constexpr IpAddress all_nodes{{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};

}  // namespace

std::size_t build_arp_request(MutableBytes out, const LinkIdentity& self, const IpAddress& target) noexcept {
  if (out.size() < l3_frame_max) {
    return 0;
  }
  const std::size_t l3 = write_link(out, broadcast_mac, self.mac, self.vlan_tci, ether_type::arp);
  write_arp(out.subspan(l3), ArpPacket::request, self, Mac{}, target.v4_value());
  return pad_to_minimum(out, l3 + sizeof(ArpPacket));
}

std::size_t build_arp_reply(MutableBytes out, ConstBytes request, const Parsed& p, const LinkIdentity& self) noexcept {
  if (out.size() < l3_frame_max || p.kind != FrameKind::arp) {
    return 0;
  }
  const auto& asked = *overlay<ArpPacket>(request.subspan(p.l3_offset));
  if (asked.operation.value() != ArpPacket::request || asked.target_ip.value() != self.ip.v4_value()) {
    return 0;
  }
  const std::size_t l3 = answer_link(out, request, p, asked.sender_mac, self.mac);
  write_arp(out.subspan(l3), ArpPacket::reply, self, asked.sender_mac, asked.sender_ip.value());
  return pad_to_minimum(out, l3 + sizeof(ArpPacket));
}

std::size_t build_nd_solicit(MutableBytes out, const LinkIdentity& self, const IpAddress& target) noexcept {
  if (out.size() < l3_frame_max) {
    return 0;
  }
  const IpAddress group = solicited_node(target);
  const std::size_t l3 = write_link(out, multicast_mac(group), self.mac, self.vlan_tci, ether_type::ipv6);
  return l3 + write_neighbor(out.subspan(l3), self, group,
                             {icmp_type::neighbor_solicitation, 0, target, LinkLayerOption::source});
}

std::size_t build_nd_advert(MutableBytes out, ConstBytes solicit, const Parsed& p, const LinkIdentity& self) noexcept {
  if (out.size() < l3_frame_max || p.kind != FrameKind::nd_solicit ||
      overlay<NeighborMessage>(solicit.subspan(p.l4_offset))->target != self.ip) {
    return 0;
  }
  const IpAddress asker = source_ip(solicit, p);
  const bool probe = asker.is_unspecified();  // nobody to send to: all hear that the address is taken
  const IpAddress destination = probe ? all_nodes : asker;
  const Mac mac = probe ? multicast_mac(all_nodes) : neighbor_mac(solicit, p).value_or(source_mac(solicit));
  const std::uint32_t flags = NeighborMessage::override_entry | (probe ? 0 : NeighborMessage::solicited);
  const std::size_t l3 = answer_link(out, solicit, p, mac, self.mac);
  return l3 + write_neighbor(out.subspan(l3), self, destination,
                             {icmp_type::neighbor_advertisement, flags, self.ip, LinkLayerOption::target});
}

std::size_t build_nd_announcement(MutableBytes out, const LinkIdentity& self) noexcept {
  if (out.size() < l3_frame_max) {
    return 0;
  }
  const std::size_t l3 = write_link(out, multicast_mac(all_nodes), self.mac, self.vlan_tci, ether_type::ipv6);
  return l3 + write_neighbor(out.subspan(l3), self, all_nodes,
                             {icmp_type::neighbor_advertisement, NeighborMessage::override_entry, self.ip,
                              LinkLayerOption::target});
}

std::size_t build_echo_reply(MutableBytes out, ConstBytes request, const Parsed& p) noexcept {
  if (out.size() < request.size() || p.kind != FrameKind::icmp_echo || destination_mac(request).is_multicast()) {
    return 0;
  }
  if (out.data() != request.data()) {
    std::memcpy(out.data(), request.data(), request.size());
  }
  auto& ethernet = *mutable_overlay<EthernetHeader>(out);
  std::swap(ethernet.destination, ethernet.source);
  auto& icmp = *mutable_overlay<IcmpHeader>(out.subspan(p.l4_offset));
  const auto first_word = [&icmp] { return static_cast<std::uint16_t>((icmp.type << 8U) | icmp.code); };
  const std::uint16_t before = first_word();
  if (p.ipv6) {
    auto& ip = *mutable_overlay<Ipv6Header>(out.subspan(p.l3_offset));
    std::swap(ip.source, ip.destination);
    ip.hop_limit = echo_hop_limit;
    icmp.type = icmp_type::v6_echo_reply;
  } else {
    auto& ip = *mutable_overlay<Ipv4Header>(out.subspan(p.l3_offset));
    std::swap(ip.source, ip.destination);
    ip.ttl = echo_hop_limit;
    ip.checksum = 0;
    ip.checksum = checksum_finish(checksum_add(0, out.subspan(p.l3_offset, p.l4_offset - p.l3_offset)));
    icmp.type = icmp_type::echo_reply;
  }
  icmp.checksum = checksum_replace(icmp.checksum.value(), before, first_word());
  return request.size();
}

std::size_t build_pause(MutableBytes out, const Mac& source, std::uint16_t quanta) noexcept {
  if (out.size() < l3_frame_max) {
    return 0;
  }
  const std::size_t l3 = write_link(out, mac_control_address, source, 0, ether_type::mac_control);
  auto& pause = *mutable_overlay<PauseControl>(out.subspan(l3));
  pause.opcode = pause_opcode;
  pause.quanta = quanta;
  return pad_to_minimum(out, l3 + sizeof(PauseControl));
}

std::size_t build_pfc(MutableBytes out, const Mac& source, std::uint8_t class_enable,
                      const std::array<std::uint16_t, priorities>& quanta) noexcept {
  if (out.size() < l3_frame_max) {
    return 0;
  }
  const std::size_t l3 = write_link(out, mac_control_address, source, 0, ether_type::mac_control);
  auto& pfc = *mutable_overlay<PfcControl>(out.subspan(l3));
  pfc.opcode = pfc_opcode;
  pfc.class_enable = class_enable;
  for (std::size_t i = 0; i < priorities; ++i) {
    pfc.quanta[i] = quanta[i];
  }
  return pad_to_minimum(out, l3 + sizeof(PfcControl));
}

}  // namespace nbx::wire
