// The wire room below and beside RoCE. The frames in hexadecimal were made with scapy 2.5.
#include <gtest/gtest.h>

#include "support/hex.hpp"
#include "wire/build.hpp"
#include "wire/build_l3.hpp"
#include "wire/ethernet.hpp"
#include "wire/format.hpp"
#include "wire/ip.hpp"
#include "wire/mac_control.hpp"
#include "wire/parse.hpp"

namespace nbx::wire {
namespace {

using test::Bytes;
using test::from_hex;
using test::to_hex;

const LinkIdentity node_1{{{2, 0, 0, 0, 0, 1}}, IpAddress::v4(0x0a000001)};
const LinkIdentity node_9{{{2, 0, 0, 0, 0, 9}}, IpAddress::v4(0x0a000009)};
const LinkIdentity node_1_v6{node_1.mac, *parse_ip("fd00::1")};
const LinkIdentity node_9_v6{node_9.mac, *parse_ip("fd00::9")};

constexpr std::string_view arp_request =
    "ffffffffffff020000000001080600010800060400010200000000010a0000010000000000000a000009";
constexpr std::string_view arp_reply =
    "020000000001020000000009080600010800060400020200000000090a0000090200000000010a000001";
constexpr std::string_view solicit =
    "3333ff00000902000000000186dd6000000000203afffd000000000000000000000000000001ff0200000000000000000001ff000009"
    "87007d8900000000fd0000000000000000000000000000090101020000000001";
constexpr std::string_view advert =
    "02000000000102000000000986dd6000000000203afffd000000000000000000000000000009fd000000000000000000000000000001"
    "88001c8560000000fd0000000000000000000000000000090201020000000009";
constexpr std::string_view probe =
    "3333ff00000902000000000186dd6000000000183aff00000000000000000000000000000000ff0200000000000000000001ff000009"
    "87007d9500000000fd000000000000000000000000000009";
constexpr std::string_view probe_answer =
    "33330000000102000000000986dd6000000000203afffd000000000000000000000000000009ff020000000000000000000000000001"
    "88005a8320000000fd0000000000000000000000000000090201020000000009";
constexpr std::string_view echo_v4 =  // with four IPv4 option bytes
    "02000000000902000000000108004600002700074000210142c40a0000010a00000901010101080066c70005000661626364656667";
constexpr std::string_view echo_v4_reply =
    "02000000000102000000000908004600002700074000400123c40a0000090a0000010101010100006ec70005000661626364656667";
constexpr std::string_view echo_v6 =  // in VLAN 5
    "0200000000090200000000018100000586dd60000000000f3a07fd000000000000000000000000000001"
    "fd0000000000000000000000000000098000f4710005000661626364656667";
constexpr std::string_view echo_v6_reply =
    "0200000000010200000000098100000586dd60000000000f3a40fd000000000000000000000000000009"
    "fd0000000000000000000000000000018100f3710005000661626364656667";
constexpr std::string_view pause_frame =
    "0180c2000001020000000001880800011234000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "000000";
constexpr std::string_view pfc_frame =
    "0180c2000001020000000001880801010088000000000000ffff0000000000001234000000000000000000000000000000000000000000"
    "0000000000";
constexpr std::string_view cnp_frame =
    "020000000009020000000001080045c0003c00004000401125e80a0000010a000009c12312b7002800008100ffff400000d2"
    "0000000000000000000000000000000000000000"
    "2c4f1b9c";
constexpr std::string_view ack_frame =
    "02000000000902000000000108004502003000004000401126b20a0000010a000009c12312b7001c00001140ffff0012345600abcdef"
    "1f00004d41e42306";

struct Answer {
  Drop drop;
  Parsed p;
};

Answer parsed(ConstBytes frame) {
  Answer a{};
  a.drop = parse(frame, {}, a.p);
  return a;
}

/// Accepted as `kind`; dropped for `reason` when any of its last bytes is missing.
void expect_whole_only(const Bytes& frame, FrameKind kind, Drop reason) {
  const Answer whole = parsed(frame);
  EXPECT_EQ(name(whole.drop), name(Drop::none));
  EXPECT_EQ(whole.p.kind, kind);
  const Bytes cut(frame.begin(), frame.end() - 1);
  EXPECT_EQ(name(parsed(cut).drop), name(reason));
}

Bytes padded(std::string_view hex) {
  Bytes frame = from_hex(hex);
  frame.resize(std::max(frame.size(), ethernet_frame_min));
  return frame;
}

template <class Build>
Bytes built(const Build& build) {
  Bytes out(l3_frame_max, std::byte{0xee});
  out.resize(build(MutableBytes{out}));
  return out;
}

TEST(Opcode, HeaderSizesFollowTable38) {
  EXPECT_EQ(traits(Opcode::rc_rdma_write_only_with_immediate).header_size, 16 + 4);
  EXPECT_EQ(traits(Opcode::rc_atomic_acknowledge).header_size, 4 + 8);
  EXPECT_EQ(traits(Opcode::rc_compare_swap).header_size, 28);
  EXPECT_EQ(traits(Opcode::ud_send_only_with_immediate).header_size, 8 + 4);
  EXPECT_EQ(traits(Opcode::cnp).header_size, 16);
  EXPECT_FALSE(traits(std::uint8_t{0x15}).known());
}

TEST(Parse, Arp) {
  expect_whole_only(from_hex(arp_request), FrameKind::arp, Drop::arp_malformed);
  for (const std::size_t at : {14, 16, 18, 19}) {  // hardware and protocol, type and size
    Bytes foreign = from_hex(arp_request);
    foreign[at] ^= std::byte{0x20};
    EXPECT_EQ(parsed(foreign).drop, Drop::arp_malformed) << at;
  }
}

TEST(Parse, NeighbourDiscovery) {
  expect_whole_only(from_hex(solicit), FrameKind::nd_solicit, Drop::ipv6_header_malformed);
  expect_whole_only(from_hex(advert), FrameKind::nd_advert, Drop::ipv6_header_malformed);
  expect_whole_only(from_hex(probe), FrameKind::nd_solicit, Drop::ipv6_header_malformed);
  EXPECT_EQ(neighbor_mac(from_hex(solicit), parsed(from_hex(solicit)).p), node_1.mac);
  EXPECT_EQ(neighbor_mac(from_hex(probe), parsed(from_hex(probe)).p), std::nullopt);
}

/// `frame`, an ICMPv6 message without tags, with a right checksum again.
Bytes with_icmpv6_checksum(Bytes frame) {
  constexpr std::size_t l4 = 14 + 40;
  frame[l4 + 2] = frame[l4 + 3] = std::byte{0};
  std::uint32_t sum = static_cast<std::uint32_t>(frame.size() - l4) + 58;
  for (std::size_t i = 14 + 8; i < frame.size(); i += 2) {
    sum += (std::to_integer<std::uint32_t>(frame[i]) << 8U) + std::to_integer<std::uint32_t>(frame[i + 1]);
  }
  while (sum > 0xffff) {
    sum = (sum & 0xffffU) + (sum >> 16U);
  }
  frame[l4 + 2] = static_cast<std::byte>(~sum >> 8U);
  frame[l4 + 3] = static_cast<std::byte>(~sum);
  return frame;
}

// RFC 4861 7.1.1 and 7.1.2, one rule each.
TEST(Parse, NeighbourDiscoveryRules) {
  constexpr std::size_t ip = 14;
  constexpr std::size_t icmp = 14 + 40;
  struct Case {
    const char* rule;
    std::string_view frame;
    std::size_t at;
    std::uint8_t value;
  };
  for (const Case& c : {Case{"hop limit is 255", solicit, ip + 7, 254}, Case{"code is 0", solicit, icmp + 1, 1},
                        Case{"target is no multicast", solicit, icmp + 8, 0xff},
                        Case{"no option of length zero", solicit, icmp + 25, 0},
                        Case{"options end with the message", solicit, icmp + 25, 2},
                        Case{"a probe goes to the solicited-node address", probe, ip + 39, 8},
                        Case{"a multicast advertisement is not solicited", probe_answer, icmp + 4, 0x60}}) {
    const Bytes good = from_hex(c.frame);
    ASSERT_EQ(to_hex(with_icmpv6_checksum(good)), to_hex(good));
    Bytes bad = good;
    bad[c.at] = std::byte{c.value};
    EXPECT_EQ(name(parsed(with_icmpv6_checksum(bad)).drop), name(Drop::icmp_malformed)) << c.rule;
    EXPECT_EQ(name(parsed(bad).drop), name(Drop::icmp_malformed)) << c.rule;
  }
  Bytes with_option = from_hex(solicit);  // a probe must not say who asks
  std::fill_n(with_option.begin() + ip + 8, 16, std::byte{0});
  EXPECT_EQ(parsed(with_icmpv6_checksum(with_option)).drop, Drop::icmp_malformed);
}

TEST(Parse, Echo) {
  expect_whole_only(from_hex(echo_v4), FrameKind::icmp_echo, Drop::ipv4_header_malformed);
  expect_whole_only(from_hex(echo_v6), FrameKind::icmp_echo, Drop::ipv6_header_malformed);
  EXPECT_EQ(parsed(from_hex(echo_v6)).p.vlan_tci, 5);
  EXPECT_EQ(parsed(from_hex(echo_v4_reply)).p.kind, FrameKind::ip_other);
  for (const std::string_view hex : {echo_v4, echo_v6}) {
    Bytes corrupt = from_hex(hex);
    corrupt.back() ^= std::byte{1};
    EXPECT_EQ(parsed(corrupt).drop, Drop::icmp_malformed);
  }
}

TEST(Parse, MacControl) {
  const Bytes pause = from_hex(pause_frame);
  const Bytes pfc = from_hex(pfc_frame);
  expect_whole_only({pause.begin(), pause.begin() + 18}, FrameKind::pause, Drop::mac_control_malformed);
  expect_whole_only({pfc.begin(), pfc.begin() + 34}, FrameKind::pfc, Drop::mac_control_malformed);
  const auto& image = *overlay<PfcControl>(ConstBytes{pfc}.subspan(parsed(pfc).p.l3_offset));
  EXPECT_TRUE(image.enabled(3) && image.enabled(7));
  EXPECT_FALSE(image.enabled(0));
  EXPECT_EQ(image.quanta[3].value(), 0xffff);
  EXPECT_EQ(image.quanta[7].value(), 0x1234);
  EXPECT_EQ(parsed(from_hex("0180c200000102000000000188080002")).p.kind, FrameKind::ether_other);
  EXPECT_EQ(parsed(from_hex("0180c2000001020000000001880800")).drop, Drop::mac_control_malformed);
}

TEST(Parse, WhatIsNotOurs) {
  EXPECT_EQ(parsed(from_hex("02000000000902000000000188cc0207")).p.kind, FrameKind::ether_other);
  EXPECT_EQ(parsed(from_hex("0200000000090200000000018915")).p.kind, FrameKind::roce_v1);
  EXPECT_EQ(parsed(from_hex("0200000000090200000000018915")).drop, Drop::none);
  Bytes other_port = from_hex(ack_frame);
  other_port[14 + 20 + 3] ^= std::byte{1};  // UDP destination 4790
  EXPECT_EQ(parsed(other_port).drop, Drop::none);
  EXPECT_EQ(parsed(other_port).p.kind, FrameKind::ip_other);
}

TEST(Parse, Ipv4HeaderRules) {
  Bytes version = from_hex(ack_frame);
  version[14] = std::byte{0x55};
  EXPECT_EQ(parsed(version).drop, Drop::ipv4_header_malformed);
  Bytes short_header = from_hex(ack_frame);
  short_header[14] = std::byte{0x44};
  EXPECT_EQ(parsed(short_header).drop, Drop::ipv4_header_malformed);
}

/// An IPv4 frame whose flags and fragment offset are `field`.
Bytes fragment(std::uint16_t field) {
  Bytes frame = from_hex(ack_frame);
  auto& ip = *mutable_overlay<Ipv4Header>(MutableBytes{frame}.subspan(14));
  ip.checksum = checksum_replace(ip.checksum.value(), ip.fragment.value(), field);
  ip.fragment = field;
  return frame;
}

TEST(Parse, FragmentsOfRoce) {
  EXPECT_EQ(parsed(fragment(0x4000)).drop, Drop::none);
  EXPECT_EQ(parsed(fragment(0x2000)).drop, Drop::ipv4_fragment);
  EXPECT_EQ(parsed(fragment(0x0001)).drop, Drop::none);  // the second part of whatever it is
  EXPECT_EQ(parsed(fragment(0x0001)).p.kind, FrameKind::ip_other);
}

TEST(Parse, LengthsBeyond16BitOffsetsAreMalformed) {
  Bytes huge = from_hex(ack_frame);
  huge.resize(70'000);
  auto& ip = *mutable_overlay<Ipv4Header>(MutableBytes{huge}.subspan(14));
  ip.checksum = checksum_replace(ip.checksum.value(), ip.total_length.value(), 0xffff);
  ip.total_length = std::uint16_t{0xffff};
  EXPECT_EQ(parsed(huge).drop, Drop::ipv4_header_malformed);
}

TEST(Parse, OpcodeClasses) {
  const auto class_of = [](Opcode opcode, Qpn qpn, std::uint8_t first_extension_byte) {
    Path path;
    path.source_ip = node_1.ip;
    path.destination_ip = node_9.ip;
    const Encapsulation encapsulation{path};
    const std::size_t size = traits(opcode).header_size;
    Bytes frame(encapsulation.frame_size(size));
    const std::size_t at = encapsulation.begin(frame, {.opcode = opcode, .dest_qpn = qpn}, size);
    frame[at] = std::byte{first_extension_byte};
    encapsulation.seal(frame, size);
    const Answer a = parsed(frame);
    EXPECT_EQ(a.drop, Drop::none);
    return a.p.op_class;
  };
  EXPECT_EQ(class_of(Opcode::rc_acknowledge, {5}, 0x1f), OpcodeClass::ack);
  EXPECT_EQ(class_of(Opcode::rc_acknowledge, {5}, syndrome::rnr_nak | 4), OpcodeClass::nak);
  EXPECT_EQ(class_of(Opcode::rc_acknowledge, {5}, syndrome::nak_remote_access_error), OpcodeClass::nak);
  EXPECT_EQ(class_of(Opcode::rc_atomic_acknowledge, {5}, 0), OpcodeClass::data);
  EXPECT_EQ(class_of(Opcode::rc_rdma_read_response_only, {5}, 0), OpcodeClass::data);
  EXPECT_EQ(class_of(Opcode::rc_rdma_read_request, {5}, 0), OpcodeClass::data);
  EXPECT_EQ(class_of(Opcode::ud_send_only, {1}, 0), OpcodeClass::cm);
  EXPECT_EQ(class_of(Opcode::ud_send_only, {5}, 0), OpcodeClass::data);
  EXPECT_EQ(class_of(Opcode::cnp, {5}, 0), OpcodeClass::cnp);
}

TEST(Build, Arp) {
  const Bytes request = built([](MutableBytes out) { return build_arp_request(out, node_1, node_9.ip); });
  EXPECT_EQ(to_hex(request), to_hex(padded(arp_request)));
  const Parsed p = parsed(request).p;
  EXPECT_EQ(to_hex(built([&](MutableBytes out) { return build_arp_reply(out, request, p, node_9); })),
            to_hex(padded(arp_reply)));
  EXPECT_TRUE(built([&](MutableBytes out) { return build_arp_reply(out, request, p, node_1); }).empty());
  const Bytes reply = padded(arp_reply);
  EXPECT_TRUE(built([&](MutableBytes out) { return build_arp_reply(out, reply, parsed(reply).p, node_1); }).empty());
  EXPECT_TRUE(built([&](MutableBytes out) { return build_arp_request(out.first(40), node_1, node_9.ip); }).empty());
}

TEST(Build, RepliesKeepTheTagsOfTheRequest) {
  Bytes request = padded(arp_request);
  const Bytes tags = from_hex("88a80003 8100a005");
  request.insert(request.begin() + 12, tags.begin(), tags.end());
  const Bytes reply = built([&](MutableBytes out) { return build_arp_reply(out, request, parsed(request).p, node_9); });
  Bytes wanted = from_hex(arp_reply);
  wanted.insert(wanted.begin() + 12, tags.begin(), tags.end());
  wanted.resize(ethernet_frame_min);
  EXPECT_EQ(to_hex(reply), to_hex(wanted));
}

TEST(Build, RequestsAreTagged) {
  LinkIdentity self = node_1_v6;
  self.vlan_tci = 5;
  Bytes wanted = from_hex(solicit);
  const Bytes tag = from_hex("81000005");
  wanted.insert(wanted.begin() + 12, tag.begin(), tag.end());
  EXPECT_EQ(to_hex(built([&](MutableBytes out) { return build_nd_solicit(out, self, node_9_v6.ip); })), to_hex(wanted));
}

TEST(Build, NeighbourDiscovery) {
  EXPECT_EQ(to_hex(built([](MutableBytes out) { return build_nd_solicit(out, node_1_v6, node_9_v6.ip); })), solicit);
  const auto answer = [](std::string_view question, const LinkIdentity& self) {
    const Bytes asked = from_hex(question);
    return built([&](MutableBytes out) { return build_nd_advert(out, asked, parsed(asked).p, self); });
  };
  EXPECT_EQ(to_hex(answer(solicit, node_9_v6)), advert);
  EXPECT_EQ(to_hex(answer(probe, node_9_v6)), probe_answer);
  EXPECT_TRUE(answer(solicit, node_1_v6).empty());
  EXPECT_TRUE(answer(advert, node_9_v6).empty());
}

TEST(Build, EchoReply) {
  for (const auto& [request, reply] : {std::pair{echo_v4, echo_v4_reply}, std::pair{echo_v6, echo_v6_reply}}) {
    Bytes frame = from_hex(request);
    const Parsed p = parsed(frame).p;
    EXPECT_EQ(to_hex(built([&](MutableBytes out) { return build_echo_reply(out, frame, p); })), reply);
    EXPECT_EQ(build_echo_reply(frame, frame, p), frame.size());
    EXPECT_EQ(to_hex(frame), reply);
  }
  Bytes multicast = from_hex(echo_v4);
  multicast[0] = std::byte{1};
  EXPECT_EQ(build_echo_reply(multicast, multicast, parsed(multicast).p), 0U);
}

TEST(Build, MacControl) {
  EXPECT_EQ(to_hex(built([](MutableBytes out) { return build_pause(out, node_1.mac, 0x1234); })), pause_frame);
  EXPECT_EQ(to_hex(built([](MutableBytes out) {
              return build_pfc(out, node_1.mac, 0x88, {0, 0, 0, 0xffff, 0, 0, 0, 0x1234});
            })),
            pfc_frame);
}

Path scapy_path(std::uint8_t traffic_class) {
  Path path;
  path.source_mac = node_1.mac;
  path.destination_mac = node_9.mac;
  path.source_ip = node_1.ip;
  path.destination_ip = node_9.ip;
  path.udp_source_port = 0xc123;
  path.traffic_class = traffic_class;
  return path;
}

TEST(Build, Cnp) {
  const Encapsulation encapsulation{scapy_path(0xc0)};
  EXPECT_EQ(to_hex(built([&](MutableBytes out) { return build_cnp(out, encapsulation, {0xd2}); })), cnp_frame);
}

TEST(Build, Acknowledge) {
  const Encapsulation encapsulation{scapy_path(ecn::ect0)};
  Bytes frame(encapsulation.frame_size(sizeof(Aeth)));
  const std::size_t at = encapsulation.begin(
      frame, {.opcode = Opcode::rc_acknowledge, .dest_qpn = {0x123456}, .psn = {0xabcdef}}, sizeof(Aeth));
  auto& aeth = *mutable_overlay<Aeth>(MutableBytes{frame}.subspan(at));
  aeth.syndrome = syndrome::no_credit_count;
  aeth.msn = 77;
  encapsulation.seal(frame, sizeof(Aeth));
  EXPECT_EQ(to_hex(frame), ack_frame);
}

TEST(Format, OneLinePerFrame) {
  EXPECT_EQ(format(from_hex(ack_frame)),
            "02:00:00:00:00:01 > 02:00:00:00:00:09 RoCEv2 10.0.0.1 > 10.0.0.9 tc 0x02 rc_acknowledge qp 0x123456 "
            "psn 11259375 ack credits 31 msn 77 size 62");
  EXPECT_EQ(format(from_hex(pfc_frame)), "02:00:00:00:00:01 > 01:80:c2:00:00:01 PFC 3:65535 7:4660 size 60");
  EXPECT_EQ(format(from_hex(echo_v6)),
            "02:00:00:00:00:01 > 02:00:00:00:00:09 vlan 5 priority 0 echo request fd00::1 > fd00::9 size 73");
  EXPECT_EQ(format(from_hex(arp_request)),
            "02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff ARP operation 1 02:00:00:00:00:01 10.0.0.1 > 10.0.0.9 size 42");
  EXPECT_EQ(format(from_hex("0102")), "unparsed size 2 ! runt");
  Bytes corrupt = from_hex(ack_frame);
  corrupt.back() ^= std::byte{1};
  EXPECT_TRUE(format(corrupt).ends_with("msn 77 size 62 ! icrc_mismatch"));
}

}  // namespace
}  // namespace nbx::wire
