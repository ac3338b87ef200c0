// Encapsulation prepares everything that packets of a path share; what is left per packet is a copy, two lengths, the
// IPv4 checksum of one changed word, the BTH and the ICRC.
#include "wire/build.hpp"

#include <cstddef>
#include <cstring>

#include "wire/ethernet.hpp"
#include "wire/icrc.hpp"
#include "wire/ip.hpp"
#include "wire/roce.hpp"

namespace nbx::wire {
namespace {

constexpr std::size_t padded(std::size_t size) { return (size + 3U) & ~std::size_t{3}; }

/// Bytes of the UDP datagram that carries `ext_and_payload` bytes behind the BTH.
constexpr std::uint16_t udp_length(std::size_t ext_and_payload) {
  return static_cast<std::uint16_t>(sizeof(UdpHeader) + sizeof(Bth) + padded(ext_and_payload) + icrc_size);
}

/// With a total length of zero, which begin() replaces.
void write_ipv4(MutableBytes l3, const Path& path) noexcept {
  auto& ip = *mutable_overlay<Ipv4Header>(l3);
  ip.version_ihl = 0x45;
  ip.tos = path.traffic_class;
  ip.fragment = Ipv4Header::dont_fragment;  // an atomic datagram: its identification says nothing (RFC 6864)
  ip.ttl = path.hop_limit;
  ip.protocol = ip_protocol::udp;
  ip.source = path.source_ip.v4_value();
  ip.destination = path.destination_ip.v4_value();
  ip.checksum = checksum_finish(checksum_add(0, l3.first(sizeof(Ipv4Header))));
}

void write_ipv6(MutableBytes l3, const Path& path) noexcept {
  auto& ip = *mutable_overlay<Ipv6Header>(l3);
  ip.version_class_flow = (6U << 28U) | (std::uint32_t{path.traffic_class} << 20U) | (path.flow_label & 0x000f'ffffU);
  ip.next_header = ip_protocol::udp;
  ip.hop_limit = path.hop_limit;
  ip.source = path.source_ip;
  ip.destination = path.destination_ip;
}

}  // namespace

Encapsulation::Encapsulation(const Path& path) noexcept : ipv6_(!path.source_ip.is_v4()) {
  const MutableBytes bytes{bytes_};
  auto& ethernet = *mutable_overlay<EthernetHeader>(bytes);
  ethernet.destination = path.destination_mac;
  ethernet.source = path.source_mac;
  const std::uint16_t type = ipv6_ ? ether_type::ipv6 : ether_type::ipv4;
  std::size_t offset = sizeof(EthernetHeader);
  if (path.vlan_tci != 0) {
    ethernet.ether_type = ether_type::c_vlan;
    auto& tag = *mutable_overlay<VlanTag>(bytes.subspan(offset));
    tag.tci = path.vlan_tci;
    tag.ether_type = type;
    offset += sizeof(VlanTag);
  } else {
    ethernet.ether_type = type;
  }
  l3_offset_ = static_cast<std::uint8_t>(offset);
  if (ipv6_) {
    write_ipv6(bytes.subspan(offset), path);
    offset += sizeof(Ipv6Header);
  } else {
    write_ipv4(bytes.subspan(offset), path);
    offset += sizeof(Ipv4Header);
  }
  auto& udp = *mutable_overlay<UdpHeader>(bytes.subspan(offset));
  udp.source_port = path.udp_source_port;
  udp.destination_port = roce_v2_udp_port;
  size_ = static_cast<std::uint8_t>(offset + sizeof(UdpHeader));
}

std::size_t Encapsulation::begin(MutableBytes frame, const BthFields& fields,
                                 std::size_t ext_and_payload) const noexcept {
  std::memcpy(frame.data(), bytes_.data(), size_);
  const std::uint16_t length = udp_length(ext_and_payload);
  mutable_overlay<UdpHeader>(frame.subspan(size_ - sizeof(UdpHeader)))->length = length;
  if (ipv6_) {
    mutable_overlay<Ipv6Header>(frame.subspan(l3_offset_))->payload_length = length;
  } else {
    auto& ip = *mutable_overlay<Ipv4Header>(frame.subspan(l3_offset_));
    ip.total_length = static_cast<std::uint16_t>(sizeof(Ipv4Header) + length);
    ip.checksum = checksum_replace(ip.checksum.value(), 0, ip.total_length.value());
  }
  const std::size_t pad = padded(ext_and_payload) - ext_and_payload;
  auto& bth = *mutable_overlay<Bth>(frame.subspan(size_));
  bth.opcode = static_cast<std::uint8_t>(fields.opcode);
  bth.flags = static_cast<std::uint8_t>((fields.solicited ? Bth::solicited_bit : 0U) |
                                        (fields.mig_req ? Bth::mig_req_bit : 0U) | (pad << 4U));
  bth.pkey = fields.pkey;
  bth.ecn = fields.becn ? Bth::becn_bit : 0;
  bth.dest_qp = fields.dest_qpn.value;
  bth.ack_req = static_cast<std::uint8_t>((fields.ack_request ? Bth::ack_req_bit : 0U) |
                                          (fields.selective_repeat ? Bth::selective_repeat_bit : 0U));
  bth.psn = fields.psn.value;
  const std::size_t behind_bth = size_ + sizeof(Bth);
  std::memset(frame.data() + behind_bth + ext_and_payload, 0, pad);
  return behind_bth;
}

void Encapsulation::seal(MutableBytes frame, std::size_t ext_and_payload) const noexcept {
  repair_icrc(frame, l3_offset_, size_, size_ + sizeof(Bth) + padded(ext_and_payload), ipv6_);
}

std::size_t build_cnp(MutableBytes out, const Encapsulation& encapsulation, Qpn dest_qpn, std::uint16_t pkey) noexcept {
  const BthFields bth{
      .opcode = Opcode::cnp, .dest_qpn = dest_qpn, .psn = {0}, .pkey = pkey, .mig_req = false, .becn = true};
  const std::size_t reserved = encapsulation.begin(out, bth, cnp_reserved_size);
  std::memset(out.data() + reserved, 0, cnp_reserved_size);
  encapsulation.seal(out, cnp_reserved_size);
  return encapsulation.frame_size(cnp_reserved_size);
}

void mark_congestion(MutableBytes frame, std::size_t l3_offset, bool ipv6) noexcept {
  if (ipv6) {
    auto& ip = *mutable_overlay<Ipv6Header>(frame.subspan(l3_offset));
    ip.version_class_flow = ip.version_class_flow.value() | (std::uint32_t{ecn::ce} << 20U);
    return;
  }
  auto& ip = *mutable_overlay<Ipv4Header>(frame.subspan(l3_offset));
  const auto first_word = [&ip] { return static_cast<std::uint16_t>((ip.version_ihl << 8U) | ip.tos); };
  const std::uint16_t before = first_word();
  ip.tos |= ecn::ce;
  ip.checksum = checksum_replace(ip.checksum.value(), before, first_word());
}

void repair_icrc(MutableBytes frame, std::size_t l3_offset, std::size_t bth_offset, std::size_t end,
                 bool ipv6) noexcept {
  store_icrc(frame, end, icrc(frame, l3_offset, bth_offset, end, ipv6));
}

}  // namespace nbx::wire
