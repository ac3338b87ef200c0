// The images of NET/IB against recorded NCCL: what is read is written again byte for byte, and says what
// tests/captures/README.md and the switches of the recorded run say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "nccl-glue/wire/ib.hpp"
#include "support/ib_capture.hpp"

namespace nbx::nccl {
namespace {

using test::Bytes;

struct Recording {
  std::string name;
  int version = 22809;
  std::int32_t ndevs = 1;
  std::size_t qps = 1;
  std::int32_t traffic_class = 0;
  std::int32_t service_level = 0;
  std::size_t clear_to_sends = 0;           // in both directions
  std::vector<std::uint32_t> immediates{};  // sizes that occur
};

void PrintTo(const Recording& recording, std::ostream* os) { *os << recording.name; }

class Images : public testing::TestWithParam<Recording> {
 protected:
  const Recording& recording = GetParam();
  const Version& version = **find_version(recording.version);
  test::IbCapture capture = test::read_ib_capture(recording.name);
};

template <class T>
Bytes bytes_of(const T& encoded) {
  return {encoded.begin(), encoded.end()};
}

TEST_P(Images, SideConnectionsAreReadAndWrittenAgain) {
  const auto connections = capture.side_connections();
  ASSERT_EQ(connections.size(), 2U);
  const std::size_t list = ib::device_list_size(version);
  const std::size_t metadata = version.ib_metadata_size;
  for (const test::TcpConnection& s : connections) {
    ASSERT_EQ(s.from_client.size(), ib::hello_size + list + metadata + ib::ready_size);
    ASSERT_EQ(s.from_server.size(), list + metadata);
    const auto hello = ib::decode_hello(s.from_client);
    ASSERT_TRUE(hello);
    EXPECT_EQ(*hello, ib::Hello{}) << "NCCL's constant magic, and type 4";
    Bytes up = bytes_of(ib::encode(*hello));
    Bytes down;
    const ConstBytes from_sender = ConstBytes{s.from_client}.subspan(ib::hello_size);
    for (const auto& [from, to, owner] :
         {std::tuple{from_sender, &up, s.client.ip}, {ConstBytes{s.from_server}, &down, s.server.ip}}) {
      const auto devices = ib::decode_device_list(version, from.first(list));
      ASSERT_TRUE(devices);
      EXPECT_EQ(devices->ndevs, recording.ndevs);
      test::append(*to, ib::encode(version, *devices));
      const auto end = ib::decode_metadata(version, from.subspan(list, metadata));
      ASSERT_TRUE(end);
      EXPECT_EQ(end->ndevs, recording.ndevs);
      EXPECT_EQ(end->qps.size(), recording.qps);
      EXPECT_EQ(end->devices.at(0).gid, owner);
      EXPECT_EQ(end->devices.at(0).mtu_code, 5U);
      EXPECT_EQ(end->traffic_class, recording.traffic_class);
      EXPECT_EQ(end->service_level, recording.service_level);
      EXPECT_EQ(end->name, recording.ndevs == 2 ? "rxe0+rxe1" : "rxe0");
      test::append(*to, ib::encode(version, *end));
    }
    up.resize(up.size() + ib::ready_size);
    up[up.size() - ib::ready_size] = std::byte{1};
    EXPECT_EQ(test::to_hex(up), test::to_hex(s.from_client));
    EXPECT_EQ(test::to_hex(down), test::to_hex(s.from_server));
  }
}

TEST_P(Images, ClearToSendsAreReadAndWrittenAgain) {
  std::size_t seen = 0;
  std::map<IpAddress, std::uint64_t> fifo;     // where sequence 1 went
  std::map<std::uint8_t, std::uint64_t> last;  // by host
  for (const test::RocePacket& p : capture.roce) {
    if (p.packet.opcode != wire::Opcode::rc_rdma_write_only || p.packet.length != ib::cts_element_size) {
      continue;
    }
    const auto element = ib::decode_clear_to_send(version, p.packet.payload);
    ASSERT_TRUE(element);
    EXPECT_EQ(test::to_hex(ib::encode(version, *element)), test::to_hex(p.packet.payload));
    EXPECT_EQ(element->sequence, ++last[p.source.octets[15]]) << "whichever of the host's addresses";
    EXPECT_EQ(element->grouped, 1U);
    EXPECT_EQ(element->tag, p.destination.octets[15] - 1U) << "the rank that sends";
    EXPECT_EQ(element->size, 1048576U) << "a slot of NCCL's buffer of 4 MiB and 4 slots in flight";
    EXPECT_NE(element->address, 0U);
    EXPECT_NE(element->rkeys[0], 0U);
    EXPECT_EQ(element->rkeys[1] != 0, recording.ndevs == 2);
    const std::uint64_t start = p.packet.address - (element->sequence - 1) % ib::slots * ib::cts_slot_size;
    EXPECT_EQ(fifo.try_emplace(p.destination, start).first->second, start) << "256 slots of 512 bytes";
    ++seen;
  }
  EXPECT_EQ(seen, recording.clear_to_sends);
}

TEST_P(Images, ImmediatesAreTheSizeInTheByteOrderOfTheRelease) {
  std::set<std::uint32_t> seen;
  for (const test::RocePacket& p : capture.roce) {
    if (!wire::traits(p.packet.opcode).has(wire::ext::immdt)) {
      continue;
    }
    const std::uint32_t size = ib::size_of_immediate(version, p.packet.imm);
    EXPECT_EQ(ib::immediate_of(version, size), p.packet.imm);
    seen.insert(size);
    if (recording.qps == 1 && p.packet.opcode == wire::Opcode::rc_rdma_write_only_with_immediate &&
        p.packet.address != 0) {
      EXPECT_EQ(size, p.packet.length);
    }
  }
  EXPECT_THAT(seen, testing::ElementsAreArray(recording.immediates));
}

INSTANTIATE_TEST_SUITE_P(
    Recorded, Images,
    testing::Values(
        Recording{.name = "nccl-simple.pcap", .clear_to_sends = 8, .immediates = {229376}},
        Recording{.name = "nccl-qps2.pcap", .qps = 2, .clear_to_sends = 16, .immediates = {0, 2000, 65536}},
        Recording{.name = "nccl-qps2-split.pcap", .qps = 2, .clear_to_sends = 16, .immediates = {0, 2000, 65536}},
        Recording{
            .name = "nccl-2nics.pcap", .ndevs = 2, .qps = 2, .clear_to_sends = 16, .immediates = {0, 2000, 65536}},
        Recording{.name = "nccl-ar.pcap", .clear_to_sends = 16, .immediates = {0, 2000, 16384}},
        Recording{.name = "nccl-tc.pcap",
                  .traffic_class = 106,
                  .service_level = 3,
                  .clear_to_sends = 8,
                  .immediates = {0, 2000}},
        Recording{.name = "nccl-fifo-wrap.pcap", .clear_to_sends = 560, .immediates = {0, 8}},
        Recording{.name = "nccl-2.29.7-simple.pcap",
                  .version = 22907,
                  .clear_to_sends = 24,
                  .immediates = {0, 8, 2000, 65536}}),
    [](const auto& row) {
      std::string name = row.param.name.substr(0, row.param.name.rfind('.'));
      std::ranges::replace_if(
          name, [](char c) { return c == '-' || c == '.'; }, '_');
      return name;
    });

// The handles of nccl-simple.pcap, as the bootstrap carries them.
TEST(Images, HandlesAreReadAndWrittenAgain) {
  const test::IbCapture capture = test::read_ib_capture("nccl-simple.pcap");
  const Bytes magic = test::from_hex("6c9d4bfc f2b94a56");
  std::size_t seen = 0;
  for (const test::TcpConnection& s : capture.connections) {
    for (const Bytes* data : {&s.from_client, &s.from_server}) {
      for (auto at = std::search(data->begin(), data->end(), magic.begin(), magic.end()); at != data->end();
           at = std::search(at + 1, data->end(), magic.begin(), magic.end())) {
        const auto offset = at - data->begin() - 32;
        if (offset < 0 || data->end() - at < 96) {
          continue;  // a hello
        }
        const ConstBytes handle = ConstBytes{*data}.subspan(static_cast<std::size_t>(offset), ib::handle_size);
        const auto decoded = ib::decode_handle(handle);
        ASSERT_TRUE(decoded);
        EXPECT_EQ(test::to_hex(ib::encode(*decoded)).substr(0, 128), test::to_hex(handle.first(64)));
        const auto sides = capture.side_connections();
        EXPECT_TRUE(std::ranges::any_of(sides, [&](const auto& c) {
          return c.server == test::TcpEnd{decoded->address, decoded->port};
        }));
        ++seen;
      }
    }
  }
  EXPECT_EQ(seen, 2U) << "each rank's receiver";
}

TEST(Images, ShortInputIsNoValue) {
  for (const Version& v : versions()) {
    const auto short_of = [](std::size_t size) { return Bytes(size - 1); };
    EXPECT_FALSE(ib::decode_handle(short_of(ib::handle_size)));
    EXPECT_FALSE(ib::decode_hello(short_of(ib::hello_size)));
    EXPECT_FALSE(ib::decode_metadata(v, short_of(v.ib_metadata_size)));
    EXPECT_FALSE(ib::decode_clear_to_send(v, short_of(ib::cts_element_size)));
    if (v.ib_device_list) {
      EXPECT_FALSE(ib::decode_device_list(v, short_of(ib::device_list_size(v))));
    }
  }
}

TEST(Images, AbsurdCountsStayWithinTheLayout) {
  for (const Version& v : versions()) {
    const Bytes all(v.ib_metadata_size, std::byte{0xff});
    const auto metadata = ib::decode_metadata(v, all);
    ASSERT_TRUE(metadata);
    EXPECT_EQ(metadata->ndevs, -1);
    EXPECT_TRUE(metadata->devices.empty());
    EXPECT_EQ(metadata->qps.size(), ib::qps_max);
    EXPECT_EQ(metadata->name.size(), v.ib_name_size);
    Bytes many = all;
    std::fill_n(many.begin() + v.ib_ndevs, 3, std::byte{0});
    EXPECT_EQ(ib::decode_metadata(v, many)->devices.size(), 0U) << "a negative number";
    many[v.ib_ndevs] = std::byte{99};
    many[v.ib_ndevs + 3U] = std::byte{0};
    EXPECT_EQ(ib::decode_metadata(v, many)->devices.size(), v.ib_devices_max);
  }
}

// NCCL's rule: ceil(ceil(size / parts) / 128) * 128 each, the last what is left.
TEST(Images, PartsAreMultiplesOf128AndMakeTheWhole) {
  const auto parts_of = [](std::uint32_t size, std::uint32_t parts) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> all;
    for (std::uint32_t i = 0; i < parts; ++i) {
      const ib::Part part = ib::split_part(size, parts, i);
      all.emplace_back(part.offset, part.size);
    }
    return all;
  };
  using testing::ElementsAre;
  using testing::Pair;
  EXPECT_THAT(parts_of(2000, 2), ElementsAre(Pair(0, 1024), Pair(1024, 976))) << "as recorded";
  EXPECT_THAT(parts_of(65536, 2), ElementsAre(Pair(0, 32768), Pair(32768, 32768))) << "as recorded";
  EXPECT_THAT(parts_of(0, 2), ElementsAre(Pair(0, 0), Pair(0, 0)));
  EXPECT_THAT(parts_of(129, 3), ElementsAre(Pair(0, 128), Pair(128, 1), Pair(129, 0)));
  EXPECT_THAT(parts_of(100, 1), ElementsAre(Pair(0, 100)));
}

TEST(Images, MtuCodesAreThoseOfVerbs) {
  for (std::uint32_t code = 1; code <= 5; ++code) {
    ASSERT_TRUE(ib::mtu_bytes(code));
    EXPECT_EQ(*ib::mtu_bytes(code), 128U << code);
    EXPECT_EQ(ib::mtu_code(128U << code), code);
  }
  EXPECT_FALSE(ib::mtu_bytes(0));
  EXPECT_FALSE(ib::mtu_bytes(6));
}

}  // namespace
}  // namespace nbx::nccl
