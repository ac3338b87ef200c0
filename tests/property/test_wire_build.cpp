// What the builders make, the parser describes; both CRCs are zlib's.
#include <gtest/gtest.h>
#include <zlib.h>

#include "base/rng.hpp"
#include "support/raw_roce.hpp"
#include "wire/build.hpp"
#include "wire/crc32.hpp"
#include "wire/format.hpp"
#include "wire/icrc.hpp"
#include "wire/parse.hpp"

namespace nbx::wire {
namespace {

using test::Bytes;

Bytes random_bytes(Rng& rng, std::size_t size) {
  Bytes out(size);
  for (auto& b : out) {
    b = static_cast<std::byte>(rng.next());
  }
  return out;
}

Path path_of(bool ipv6, std::uint16_t vlan_tci) {
  Path path;
  path.source_mac = *parse_mac("02:00:00:00:00:01");
  path.destination_mac = *parse_mac("02:00:00:00:00:09");
  path.source_ip = *parse_ip(ipv6 ? "fd00::1" : "10.0.0.1");
  path.destination_ip = *parse_ip(ipv6 ? "fd00::9" : "10.0.0.9");
  path.vlan_tci = vlan_tci;
  path.udp_source_port = 0xc123;
  path.traffic_class = 0x6a;
  path.flow_label = ipv6 ? 0xabcde : 0;
  return path;
}

TEST(CrcProperty, EveryWayIsZlibs) {
  Rng rng{1};
  const Bytes data = random_bytes(rng, 9000);
  for (const Crc32Way& way : crc32_ways()) {
    if (!way.usable()) {
      continue;
    }
    for (std::size_t size = 0; size < data.size(); size += size < 700 ? 1 : 77) {
      for (std::size_t offset = 0; offset < 3; ++offset) {
        const ConstBytes part = ConstBytes{data}.subspan(offset, std::min(size, data.size() - offset));
        const auto oracle = static_cast<std::uint32_t>(
            crc32(0, reinterpret_cast<const Bytef*>(part.data()), static_cast<uInt>(part.size())));
        ASSERT_EQ(~crc32_update(way, 0xffff'ffff, part), oracle) << way.name << ", " << size << " bytes";
      }
    }
  }
}

TEST(CrcProperty, ContinuesAtAnyPoint) {
  Rng rng{2};
  const Bytes data = random_bytes(rng, 600);
  const std::uint32_t whole = crc32_update(0xffff'ffff, data);
  for (std::size_t cut = 0; cut <= data.size(); ++cut) {
    const std::uint32_t head = crc32_update(0xffff'ffff, ConstBytes{data}.first(cut));
    ASSERT_EQ(crc32_update(head, ConstBytes{data}.subspan(cut)), whole) << cut;
  }
}

void expect_round_trip(Rng& rng, const Path& path, std::uint8_t opcode, std::size_t payload_size) {
  const Encapsulation encapsulation{path};
  BthFields bth;
  bth.opcode = static_cast<Opcode>(opcode);
  bth.dest_qpn = {static_cast<std::uint32_t>(rng.below(1U << 24U))};
  bth.psn = {static_cast<std::uint32_t>(rng.below(1U << 24U))};
  bth.pkey = static_cast<std::uint16_t>(rng.next());
  bth.solicited = rng.below(2) != 0;
  bth.ack_request = rng.below(2) != 0;
  bth.becn = rng.below(2) != 0;
  bth.selective_repeat = rng.below(2) != 0;
  const Bytes content = random_bytes(rng, traits(opcode).header_size + payload_size);

  Bytes frame(encapsulation.frame_size(content.size()), std::byte{0xee});
  const std::size_t at = encapsulation.begin(frame, bth, content.size());
  std::copy(content.begin(), content.end(), frame.begin() + static_cast<std::ptrdiff_t>(at));
  encapsulation.seal(frame, content.size());

  Parsed p;
  ASSERT_EQ(name(parse(frame, {}, p)), name(Drop::none)) << format(frame);
  EXPECT_EQ(p.kind, FrameKind::roce_v2);
  EXPECT_EQ(p.opcode, opcode);
  EXPECT_EQ(p.dest_qpn, bth.dest_qpn);
  EXPECT_EQ(p.psn, bth.psn);
  EXPECT_EQ(p.pkey, bth.pkey);
  EXPECT_EQ(p.solicited, bth.solicited);
  EXPECT_EQ(p.ack_requested, bth.ack_request);
  EXPECT_EQ(p.becn, bth.becn);
  EXPECT_EQ(p.selective_repeat, bth.selective_repeat);
  EXPECT_EQ(p.payload_size, payload_size);
  EXPECT_EQ(p.end_offset, frame.size());
  EXPECT_EQ(p.traffic_class, path.traffic_class);
  EXPECT_EQ(p.vlan_tci, path.vlan_tci);
  EXPECT_EQ(p.udp_source_port, path.udp_source_port);
  EXPECT_EQ(source_ip(frame, p), path.source_ip);
  EXPECT_EQ(destination_ip(frame, p), path.destination_ip);
  EXPECT_EQ(source_mac(frame), path.source_mac);
  EXPECT_EQ(destination_mac(frame), path.destination_mac);
  EXPECT_TRUE(std::ranges::equal(payload(frame, p), ConstBytes{content}.last(payload_size)));
  EXPECT_EQ(load_icrc(frame, frame.size() - 4), test::zlib_icrc(frame, p.l3_offset, frame.size() - 4, p.ipv6));
}

TEST(BuildProperty, ParseDescribesWhatWasBuilt) {
  Rng rng{3};
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    const OpcodeTraits& op = traits(static_cast<std::uint8_t>(opcode));
    if (!op.known()) {
      continue;
    }
    for (const bool ipv6 : {false, true}) {
      for (const std::uint16_t vlan_tci : {0, 0xa005}) {
        for (const std::size_t size : {0, 1, 2, 3, 4, 5, 255, 1024, 4096}) {
          if (size == 0 || op.payload) {
            expect_round_trip(rng, path_of(ipv6, vlan_tci), static_cast<std::uint8_t>(opcode), size);
          }
        }
      }
    }
  }
}

TEST(BuildProperty, MarkingLeavesEveryChecksumRight) {
  for (const bool ipv6 : {false, true}) {
    for (unsigned traffic_class = 0; traffic_class < 256; ++traffic_class) {
      Path path = path_of(ipv6, 0);
      path.traffic_class = static_cast<std::uint8_t>(traffic_class);
      const Encapsulation encapsulation{path};
      Bytes frame(encapsulation.frame_size(0));
      encapsulation.begin(frame, {.opcode = Opcode::rc_send_only}, 0);
      encapsulation.seal(frame, 0);
      mark_congestion(frame, 14, ipv6);
      Parsed p;
      ASSERT_EQ(name(parse(frame, {}, p)), name(Drop::none));
      EXPECT_EQ(p.traffic_class, traffic_class | 3U);
    }
  }
}

TEST(BuildProperty, RepairMakesAChangedFrameWhole) {
  for (const bool ipv6 : {false, true}) {
    Bytes frame = test::make({.ipv6 = ipv6, .vlan_tags = 1, .opcode = 0x04, .udp_payload = 16 + 64});
    Parsed p;
    ASSERT_EQ(parse(frame, {}, p), Drop::none);
    frame[p.payload_offset] ^= std::byte{1};
    ASSERT_EQ(parse(frame, {}, p), Drop::icrc_mismatch);
    repair_icrc(frame, p.l3_offset, p.bth_offset, p.end_offset - 4U, ipv6);
    EXPECT_EQ(parse(frame, {}, p), Drop::none);
  }
}

}  // namespace
}  // namespace nbx::wire
