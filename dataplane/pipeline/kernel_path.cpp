#include "pipeline/kernel_path.hpp"

#include <cstring>

#include "wire/ethernet.hpp"
#include "wire/ip.hpp"

namespace nbx::pipeline {

std::optional<KernelPacket> describe_kernel_packet(ConstBytes packet) noexcept {
  if (const auto* v6 = overlay<wire::Ipv6Header>(packet); v6 != nullptr && v6->version() == 6) {
    return KernelPacket{v6->source, v6->destination, true};
  }
  if (const auto* v4 = overlay<wire::Ipv4Header>(packet); v4 != nullptr && v4->version_ihl >> 4U == 4) {
    return KernelPacket{IpAddress::v4(v4->source.value()), IpAddress::v4(v4->destination.value()), false};
  }
  return std::nullopt;
}

Frame* frame_from_kernel(ConstBytes packet, const KernelPacket& about, const ghost::Identity& self, const Mac& next_hop,
                         FramePool& pool) noexcept {
  const bool tagged = self.vlan_tci != 0;
  const std::size_t link_size = sizeof(wire::EthernetHeader) + (tagged ? sizeof(wire::VlanTag) : 0);
  Frame* frame = pool.alloc(link_size + packet.size());
  if (frame == nullptr) {
    return nullptr;
  }
  const std::uint16_t type = about.ipv6 ? wire::ether_type::ipv6 : wire::ether_type::ipv4;
  auto* link = mutable_overlay<wire::EthernetHeader>(frame->bytes());
  link->destination = next_hop;
  link->source = self.mac;
  link->ether_type = tagged ? wire::ether_type::c_vlan : type;
  if (tagged) {
    auto* tag = mutable_overlay<wire::VlanTag>(frame->bytes().subspan(sizeof(wire::EthernetHeader)));
    tag->tci = self.vlan_tci;
    tag->ether_type = type;
  }
  std::memcpy(frame->data + link_size, packet.data(), packet.size());
  const wire::ParsePolicy trusting{.verify_icrc = false, .verify_ipv4_checksum = false, .verify_udp_checksum = false};
  if (wire::parse(frame->bytes(), trusting, frame->parsed) != Drop::none) {
    pool.free(*frame);
    return nullptr;
  }
  return frame;
}

bool is_tcp_of(const Frame& frame, std::uint16_t port) noexcept {
  const wire::Parsed& p = frame.parsed;
  if (p.kind != wire::FrameKind::ip_other || p.l4_offset == 0) {
    return false;
  }
  const ConstBytes bytes = frame.bytes();
  const std::uint8_t protocol = p.ipv6 ? overlay<wire::Ipv6Header>(bytes.subspan(p.l3_offset))->next_header
                                       : overlay<wire::Ipv4Header>(bytes.subspan(p.l3_offset))->protocol;
  const auto* ports = overlay<wire::UdpHeader>(bytes.subspan(p.l4_offset));  // the same place in TCP (RFC 9293 3.1)
  return protocol == wire::ip_protocol::tcp && ports != nullptr &&
         (ports->source_port.value() == port || ports->destination_port.value() == port);
}

void strip_to_ip_packet(Frame& frame) noexcept {
  const wire::Parsed& p = frame.parsed;
  frame.size = p.end_offset - p.l3_offset;
  std::memmove(frame.data, frame.data + p.l3_offset, frame.size);
}

}  // namespace nbx::pipeline
