// The parser against a table of its own: every opcode at every length up to a little beyond its headers, forged pad
// counts, lengths that disagree, truncation at every byte, and every single bit flipped.
#include <gtest/gtest.h>

#include <map>

#include "support/raw_roce.hpp"
#include "wire/ethernet.hpp"
#include "wire/format.hpp"
#include "wire/parse.hpp"

namespace nbx::wire {
namespace {

using test::Bytes;
using test::make;
using test::RawRoce;

struct Shape {
  std::size_t extension_bytes;
  bool payload;
};

// IBTA table 38 (and A17.9.3 for the CNP) as sizes: RETH 16, AETH 4, ImmDt 4, AtomicETH 28, AtomicAckETH 8, IETH 4,
// DETH 8.
const std::map<unsigned, Shape>& shapes() {
  static const std::map<unsigned, Shape> table = [] {
    const std::map<unsigned, Shape> reliable_and_unreliable = {
        {0x00, {0, true}}, {0x01, {0, true}}, {0x02, {0, true}},  {0x03, {4, true}},
        {0x04, {0, true}}, {0x05, {4, true}}, {0x06, {16, true}}, {0x07, {0, true}},
        {0x08, {0, true}}, {0x09, {4, true}}, {0x0a, {16, true}}, {0x0b, {20, true}}};
    std::map<unsigned, Shape> t = {{0x0c, {16, false}}, {0x0d, {4, true}},  {0x0e, {0, true}},   {0x0f, {4, true}},
                                   {0x10, {4, true}},   {0x11, {4, false}}, {0x12, {12, false}}, {0x13, {28, false}},
                                   {0x14, {28, false}}, {0x16, {4, true}},  {0x17, {4, true}},   {0x64, {8, true}},
                                   {0x65, {12, true}},  {0x81, {16, false}}};
    for (const auto& [opcode, shape] : reliable_and_unreliable) {
      t[opcode] = shape;
      t[opcode + 0x20] = shape;
    }
    return t;
  }();
  return table;
}

Drop expected(const RawRoce& r) {
  constexpr std::size_t bth_and_icrc = 16;
  if (r.udp_payload < bth_and_icrc) {
    return Drop::bth_truncated;
  }
  if ((r.flags & 0x0fU) != 0) {
    return Drop::bth_version;
  }
  const auto shape = shapes().find(r.opcode);
  if (shape == shapes().end()) {
    return Drop::opcode_unknown;
  }
  if (r.udp_payload < bth_and_icrc + shape->second.extension_bytes) {
    return Drop::headers_truncated;
  }
  const std::size_t padded = r.udp_payload - bth_and_icrc - shape->second.extension_bytes;
  const std::size_t pad = (r.flags >> 4U) & 3U;
  if (padded % 4 != 0 || pad > padded) {
    return Drop::pad_error;
  }
  if (padded != pad && !shape->second.payload) {
    return Drop::payload_unexpected;
  }
  return r.right_icrc ? Drop::none : Drop::icrc_mismatch;
}

void expect_as_table(const RawRoce& r) {
  const Bytes frame = make(r);
  Parsed p;
  ASSERT_EQ(name(parse(frame, {}, p)), name(expected(r))) << format(frame) << " udp payload " << r.udp_payload;
  if (expected(r) == Drop::none) {
    const std::size_t extension_bytes = shapes().at(r.opcode).extension_bytes;
    EXPECT_EQ(p.payload_size, r.udp_payload - 16 - extension_bytes - ((r.flags >> 4U) & 3U));
    EXPECT_EQ(p.end_offset, frame.size() - r.trailing);
  }
}

TEST(ParseProperty, EveryOpcodeAtEveryLength) {
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    const auto shape = shapes().find(opcode);
    const std::size_t extension_bytes = shape == shapes().end() ? 28 : shape->second.extension_bytes;
    for (std::size_t size = 0; size <= 12 + extension_bytes + 4 + 8; ++size) {
      for (unsigned pad = 0; pad < 4; ++pad) {
        for (const bool right_icrc : {true, false}) {
          RawRoce r;
          r.ipv6 = ((opcode + size) & 1U) != 0;
          r.vlan_tags = static_cast<unsigned>(size % 3);
          r.opcode = static_cast<std::uint8_t>(opcode);
          r.flags = static_cast<std::uint8_t>(pad << 4U);
          r.udp_payload = size;
          r.right_icrc = right_icrc;
          r.trailing = size % 5;
          expect_as_table(r);
        }
      }
    }
  }
}

TEST(ParseProperty, EveryTransportHeaderVersionButZeroIsDropped) {
  for (unsigned flags = 0; flags < 256; ++flags) {
    RawRoce r;
    r.opcode = 0x04;
    r.flags = static_cast<std::uint8_t>(flags);
    r.udp_payload = 16 + 8;
    expect_as_table(r);
  }
}

TEST(ParseProperty, UdpLengthMustFillTheIpPacket) {
  for (const bool ipv6 : {false, true}) {
    for (std::int64_t delta = -40; delta <= 40; ++delta) {
      RawRoce r;
      r.ipv6 = ipv6;
      r.opcode = 0x04;
      r.udp_payload = 16 + 16;
      r.udp_length_delta = delta;
      r.trailing = 64;
      Parsed p;
      EXPECT_EQ(parse(make(r), {}, p), delta == 0 ? Drop::none : Drop::udp_length_error) << delta;
    }
  }
}

TEST(ParseProperty, IpLengthMustLieInTheFrameAndFitUdp) {
  for (const bool ipv6 : {false, true}) {
    const Drop malformed = ipv6 ? Drop::ipv6_header_malformed : Drop::ipv4_header_malformed;
    for (std::int64_t delta = -60; delta <= 60; ++delta) {
      RawRoce r;
      r.ipv6 = ipv6;
      r.opcode = 0x04;
      r.udp_payload = 16 + 16;
      r.ip_length_delta = delta;
      r.trailing = 20;
      // The UDP datagram has 40 bytes. Shorter than an IPv4 header: malformed; an IPv6 length below zero is huge.
      const bool beyond_frame = delta > 20 || (delta < -40 && ipv6) || delta < -60;
      const bool within_ipv4_header = !ipv6 && delta < -40;
      const Drop drop = beyond_frame || within_ipv4_header ? malformed
                        : delta == 0                       ? Drop::none
                                                           : Drop::udp_length_error;
      Parsed p;
      EXPECT_EQ(name(parse(make(r), {}, p)), name(drop)) << "ipv6 " << ipv6 << " delta " << delta;
    }
  }
}

TEST(ParseProperty, TruncationAtEveryByteHasItsReason) {
  for (const bool ipv6 : {false, true}) {
    for (unsigned tags = 0; tags <= 2; ++tags) {
      RawRoce r;
      r.ipv6 = ipv6;
      r.vlan_tags = tags;
      r.opcode = 0x0a;
      r.udp_payload = 16 + 16 + 64;
      const Bytes whole = make(r);
      const std::size_t l3 = 14 + 4 * tags;
      for (std::size_t size = 0; size < whole.size(); ++size) {
        const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
        const Drop drop = size < 14   ? Drop::runt
                          : size < l3 ? Drop::vlan_truncated
                          : ipv6      ? Drop::ipv6_header_malformed
                                      : Drop::ipv4_header_malformed;
        Parsed p;
        EXPECT_EQ(name(parse(cut, {}, p)), name(drop)) << size;
        EXPECT_NE(format(cut).find(name(drop)), std::string::npos);
      }
    }
  }
}

TEST(ParseProperty, AThirdTagIsDropped) {
  Bytes frame = make({.vlan_tags = 2, .opcode = 0x04});
  const Bytes tag = test::from_hex("91000001");
  frame.insert(frame.begin() + 12, tag.begin(), tag.end());
  Parsed p;
  EXPECT_EQ(parse(frame, {}, p), Drop::vlan_truncated);
}

/// Bits that may change on the way without anybody being able to tell, as (offset from l3, mask).
bool is_variant(std::size_t from_l3, unsigned mask, bool ipv6) {
  if (ipv6) {
    const bool class_and_flow = (from_l3 == 0 && mask < 0x10) || (from_l3 >= 1 && from_l3 <= 3);
    return class_and_flow || from_l3 == 7 || from_l3 == 40 + 8 + 4;
  }
  return from_l3 == 20 + 8 + 4;  // IPv4's other variant fields are under the header checksum
}

TEST(ParseProperty, NoFlippedBitGoesUnnoticed) {
  for (const bool ipv6 : {false, true}) {
    const Bytes whole = make({.ipv6 = ipv6, .opcode = 0x0a, .udp_payload = 16 + 16 + 12});
    for (std::size_t at = 14; at < whole.size(); ++at) {
      for (unsigned mask = 1; mask < 256; mask <<= 1U) {
        Bytes flipped = whole;
        flipped[at] ^= static_cast<std::byte>(mask);
        Parsed p;
        const Drop drop = parse(flipped, {}, p);
        const bool noticed = drop != Drop::none || p.kind != FrameKind::roce_v2;
        EXPECT_EQ(noticed, !is_variant(at - 14, mask, ipv6)) << "offset " << at << " mask " << mask << format(flipped);
      }
    }
  }
}

TEST(ParseProperty, PolicyTurnsEachCheckOff) {
  Parsed p;
  const Bytes bad_icrc = make({.opcode = 0x04, .right_icrc = false});
  EXPECT_EQ(parse(bad_icrc, {}, p), Drop::icrc_mismatch);
  EXPECT_EQ(parse(bad_icrc, {.verify_icrc = false}, p), Drop::none);

  Bytes bad_ipv4 = make({.opcode = 0x04});
  bad_ipv4[14 + 10] ^= std::byte{1};
  EXPECT_EQ(parse(bad_ipv4, {}, p), Drop::ipv4_checksum_error);
  EXPECT_EQ(parse(bad_ipv4, {.verify_ipv4_checksum = false}, p), Drop::none);

  Bytes bad_udp = make({.ipv6 = true, .opcode = 0x04});
  bad_udp[14 + 40 + 7] = std::byte{1};
  EXPECT_EQ(parse(bad_udp, {}, p), Drop::udp_checksum_error);
  EXPECT_EQ(parse(bad_udp, {.verify_udp_checksum = false}, p), Drop::none);
}

TEST(ParseProperty, ARightUdpChecksumIsAccepted) {
  for (const bool ipv6 : {false, true}) {
    Bytes frame = make({.ipv6 = ipv6, .opcode = 0x04, .udp_payload = 16 + 8});
    const std::size_t udp = ipv6 ? 14 + 40 : 14 + 20;
    std::uint32_t sum = 17 + static_cast<std::uint32_t>(frame.size() - udp);
    for (std::size_t i = udp - (ipv6 ? 32 : 8); i < frame.size(); i += 2) {
      sum += test::get16(frame, i);
    }
    sum = (sum & 0xffffU) + (sum >> 16U);
    sum = (sum & 0xffffU) + (sum >> 16U);
    test::put16(frame, udp + 6, static_cast<std::uint16_t>(~sum));  // outside the ICRC
    Parsed p;
    EXPECT_EQ(name(parse(frame, {}, p)), name(Drop::none));
    frame[udp + 6] ^= std::byte{1};
    EXPECT_EQ(name(parse(frame, {}, p)), name(Drop::udp_checksum_error));
  }
}

TEST(ParseProperty, Ipv4OptionsAreSteppedOver) {
  for (std::size_t options = 4; options <= 40; options += 4) {
    Bytes frame = make({.opcode = 0x04, .udp_payload = 16 + 8});
    const Bytes no_operation(options, std::byte{1});
    frame.insert(frame.begin() + 14 + 20, no_operation.begin(), no_operation.end());
    frame[14] = static_cast<std::byte>(0x45 + options / 4);
    test::put16(frame, 14 + 2, static_cast<std::uint16_t>(frame.size() - 14));
    test::put_ipv4_checksum(frame, 14, 20 + options);
    test::put_icrc(frame, 14, frame.size() - 4, false);
    Parsed p;
    EXPECT_EQ(name(parse(frame, {}, p)), name(Drop::none)) << options;
    EXPECT_EQ(p.bth_offset, 14 + 20 + options + 8);
    EXPECT_EQ(p.payload_size, 8);
  }
}

}  // namespace
}  // namespace nbx::wire
