// NCCL's bootstrap messages against recorded ones of 2.28.9 and 2.29.7, and against input that no NCCL sends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "nccl-glue/wire/bootstrap.hpp"
#include "nccl-glue/wire/little.hpp"
#include "nccl-glue/wire/peer.hpp"
#include "support/hex.hpp"
#include "support/nccl_capture.hpp"

namespace nbx::nccl {
namespace {

using test::BootstrapStream;
using test::from_hex;
using test::to_hex;
using ::testing::HasSubstr;

const Version& version_of(int code) { return **find_version(code, true); }

TEST(NcclVersions, FoundByExactNumberOnly) {
  ASSERT_TRUE(find_version(22907));
  EXPECT_EQ((*find_version(22907))->tested, Tested::live);
  ASSERT_TRUE(find_version(22809));
  EXPECT_EQ((*find_version(22809))->tested, Tested::captures);

  const auto unknown = find_version(22906, true);
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("2.29.6"));
  EXPECT_THAT(unknown.error().message, HasSubstr("2.28.9"));
  EXPECT_THAT(unknown.error().message, HasSubstr("2.22.3 (untested)"));
}

TEST(NcclVersions, UntestedOnesMustBeAllowed) {
  for (const int code : {22203, 22707}) {
    EXPECT_FALSE(find_version(code));
    ASSERT_TRUE(find_version(code, true));
    EXPECT_EQ((*find_version(code, true))->code, code);
  }
}

// Where a release's last field ends is where its structure ends.
TEST(NcclVersions, FieldsLieWithinTheirStructures) {
  for (const Version& v : versions()) {
    SCOPED_TRACE(version_text(v.code));
    EXPECT_LE(v.check_in_reply_address + 28, v.check_in_ring_info);
    EXPECT_LE(v.check_in_ring_info + 28, v.check_in_size);
    EXPECT_LT(v.peer_cu_mem_support, v.peer_info_size);
    const int arrays = v.graph_topology + (v.graph_cross_nic_ring ? 4 : 0) + 8 * 4 * v.channels_max;
    EXPECT_LE(arrays + 12, v.graph_size);
    EXPECT_GE(arrays + 28, v.graph_size);
    EXPECT_EQ(v.graph_records * 32, v.graph_topology);
    EXPECT_EQ(v.ib_devices + v.ib_devices_max * 56, v.ib_name);
    EXPECT_LE(v.ib_name + v.ib_name_size, v.ib_address);
    EXPECT_EQ(v.ib_address + 8, v.ib_ndevs);
    EXPECT_LE(v.ib_ndevs + 4, v.ib_metadata_size);
  }
}

// The unique ID of nccl-simple, as its README had it: magic, 10.77.0.1, port 46169.
TEST(NcclBootstrap, ReadsTheRootOutOfTheUniqueId) {
  UniqueId id{};
  std::ranges::copy(from_hex("d088f488c2870856 0200b4590a4d0001"), id.begin());
  const auto root = root_of(id);
  ASSERT_TRUE(root);
  EXPECT_EQ(root->magic, 0x560887c288f488d0U);
  EXPECT_EQ(root->address.ip, *parse_ip("10.77.0.1"));
  EXPECT_EQ(root->address.port, 46169);
  EXPECT_FALSE(root_of(UniqueId{}));
}

TEST(NcclBootstrap, AddressesOfBothFamilies) {
  for (const char* text : {"10.1.2.3", "2001:db8::5"}) {
    const SocketAddress address{*parse_ip(text), 4711};
    Bytes bytes(socket_address_size, std::byte{0xff});
    put_address(bytes, address);
    EXPECT_EQ(get_address(bytes), address);
  }
  EXPECT_FALSE(get_address(Bytes(socket_address_size)));
  EXPECT_FALSE(get_address(Bytes(socket_address_size - 1, std::byte{2})));
}

// Printed by NCCL 2.29.7 itself: the commId that its log has for this ID.
TEST(NcclBootstrap, HashesAsNcclDoes) {
  UniqueId id{};
  std::ranges::copy(from_hex("931edf24c4f5b3b50200b1757f000001"), id.begin());
  EXPECT_EQ(comm_hash(id), 0xdfc30c8ea1dbf927U);
}

struct Recorded {
  const char* name;
  const char* file;
  int version;
  std::int32_t ranks;
};
void PrintTo(const Recorded& r, std::ostream* os) { *os << r.name; }

class NcclCapture : public ::testing::TestWithParam<Recorded> {
 protected:
  const Version& v_ = version_of(GetParam().version);
  const test::TcpCapture capture_ = test::read_tcp(std::string(NBX_CAPTURES) + "/" + GetParam().file);
  const std::vector<BootstrapStream> streams_ = test::bootstrap_streams(capture_, v_);

  enum Gathered : std::size_t { ring_data, peer_info, graph };
  /// All blocks of one all-gather. The streams of the ring are those that go on after it, and each side says as many
  /// messages per gather.
  [[nodiscard]] std::vector<Bytes> blocks(Gathered gathered) const {
    std::vector<Bytes> found;
    const auto take = [&](const std::vector<Bytes>& messages, std::size_t steps) {
      for (std::size_t i = 0; i < steps; ++i) {
        found.push_back(messages.at(gathered * steps + i));
      }
    };
    const auto ranks = static_cast<std::size_t>(GetParam().ranks);
    for (const BootstrapStream& stream : streams_) {
      if (stream.by_client.size() >= 4) {
        take(stream.by_client, ranks / 2);
        take(stream.by_server, (ranks - 1) / 2);
      }
    }
    return found;
  }
};

/// Octets [from, to) are the sender's own affair.
void clear(Bytes& bytes, std::size_t from, std::size_t to) {
  std::ranges::fill(MutableBytes(bytes).subspan(from, to - from), std::byte{0});
}

TEST_P(NcclCapture, CheckInsAndAnswersAreTheirOwnImages) {
  std::map<std::int32_t, CheckIn> check_ins;
  int answers = 0;
  for (const BootstrapStream& stream : streams_) {
    if (stream.by_client.size() != 1) {
      continue;
    }
    const Bytes& message = stream.by_client[0];
    if (const auto check_in = decode_check_in(v_, message)) {
      EXPECT_EQ(to_hex(encode(v_, *check_in)), to_hex(message));
      EXPECT_EQ(check_in->ranks, GetParam().ranks);
      EXPECT_EQ(check_in->ring.ip, stream.client.ip);
      EXPECT_EQ(check_in->reply.ip, stream.client.ip);
      check_ins[check_in->rank] = *check_in;
    } else {
      const auto ring = decode_ring_address(v_, message);
      ASSERT_TRUE(ring);
      EXPECT_EQ(to_hex(encode_ring_address(v_, *ring)), to_hex(message));
      ++answers;
    }
  }
  // Rank 0's own are on its loopback.
  EXPECT_EQ(check_ins.size(), static_cast<std::size_t>(GetParam().ranks - 1));
  EXPECT_EQ(answers, GetParam().ranks - 1);
}

TEST_P(NcclCapture, RingData) {
  const std::vector<Bytes> found = blocks(ring_data);
  ASSERT_FALSE(found.empty());
  for (Bytes block : found) {
    const auto data = decode_ring_data(v_, block);
    ASSERT_TRUE(data);
    EXPECT_NE(data->p2p.port, 0);
    EXPECT_EQ(data->p2p.ip, data->proxy.ip);
    clear(block, 64, 120);  // RAS
    EXPECT_EQ(to_hex(encode(v_, *data)), to_hex(block));
  }
}

TEST_P(NcclCapture, PeerInfo) {
  std::set<std::int32_t> ranks;
  for (Bytes block : blocks(peer_info)) {
    const auto info = decode_peer_info(v_, block);
    ASSERT_TRUE(info);
    EXPECT_EQ(info->version, v_.code);
    ranks.insert(info->rank);
    EXPECT_FALSE(info->cu_mem);
    clear(block, 32, 40);                                          // device number of /dev/shm
    clear(block, 48, 56);                                          // a pointer
    clear(block, v_.peer_total_memory, v_.peer_total_memory + 8);  // largest wins
    clear(block, v_.peer_fabric_info, v_.peer_fabric_info + 4);    // of a structure that says "no fabric"
    if (block.size() > 120) {
      clear(block, 120, 123);  // crossNicSupport and what else only counts if all ranks have it
    }
    EXPECT_EQ(to_hex(encode(v_, *info)), to_hex(block));
  }
  EXPECT_EQ(ranks.size(), static_cast<std::size_t>(GetParam().ranks));
}

TEST_P(NcclCapture, GraphsOfOneRankPerNode) {
  std::set<std::int32_t> ranks;
  for (const Bytes& block : blocks(graph)) {
    const auto real = decode_graph(v_, block);
    ASSERT_TRUE(real);
    ASSERT_GE(real->channels, 1);
    ASSERT_LT(real->channels, 64);
    const std::int32_t rank = real->ring_recv[0];
    ranks.insert(rank);
    const std::vector<std::int32_t> node{rank};
    const GhostGraph ghost{.node = node, .self = 0, .cpu_arch = real->cpu_arch, .cpu_vendor = real->cpu_vendor};
    const Bytes ours = encode(v_, ghost);
    ASSERT_EQ(ours.size(), block.size());
    EXPECT_EQ(real->cpu_arch, 1);
    // What a ghost says about each channel that there is, and behind the channels, is what a real rank says.
    const std::size_t arrays = v_.graph_topology + 4U;
    for (std::size_t array = 0; array < 7; ++array) {
      for (std::size_t c = 0; c < static_cast<std::size_t>(real->channels); ++c) {
        const std::size_t at = arrays + array * 256 + c * 4;
        EXPECT_EQ(load<std::int32_t>(ours, at), load<std::int32_t>(block, at)) << "array " << array;
      }
    }
    const std::size_t heads = arrays + 8 * 256;
    EXPECT_EQ(to_hex(ConstBytes(ours).subspan(heads, 16)), to_hex(ConstBytes(block).subspan(heads, 16)));
    // And what it says about bandwidths and paths never wins.
    for (const std::size_t record : {0U, 1U}) {
      const std::size_t at = record * 32U;
      EXPECT_LE(load<std::int32_t>(ours, at), load<std::int32_t>(block, at)) << "pattern";
      EXPECT_GE(load<std::int32_t>(ours, at + 4), load<std::int32_t>(block, at + 4));
      EXPECT_LE(load<std::int32_t>(ours, at + 20), load<std::int32_t>(block, at + 20));
      EXPECT_LE(load<std::int32_t>(ours, at + 24), load<std::int32_t>(block, at + 24));
    }
  }
  EXPECT_EQ(ranks.size(), static_cast<std::size_t>(GetParam().ranks));
}

TEST_P(NcclCapture, MessagesAndConnectionRecords) {
  int handles = 0;
  int senders = 0;
  int handshakes = 0;
  for (const BootstrapStream& stream : streams_) {
    if (stream.by_client.size() != 2 || stream.by_client[0].size() != 8) {
      continue;
    }
    Bytes start;
    append_message(start, stream.by_client[0]);
    const auto header = decode_send_header(v_, start);
    ASSERT_TRUE(header);
    EXPECT_EQ(to_hex(encode(v_, *header)), to_hex(start));
    EXPECT_EQ(header->rank, static_cast<std::int32_t>(stream.client.ip.v4_value() & 0xffU) - 1);
    const Bytes& body = stream.by_client[1];
    if ((header->tag & handshake_bit) != 0) {
      EXPECT_TRUE(body.empty());
      ++handshakes;
      continue;
    }
    ASSERT_EQ(body.size() % connect_record_size, 0U);
    for (std::size_t at = 0; at < body.size(); at += connect_record_size) {
      const ConstBytes record = ConstBytes(body).subspan(at, connect_record_size);
      if (const auto handle = handle_in(record)) {
        EXPECT_EQ(to_hex(receive_record(*handle)), to_hex(record));
        EXPECT_EQ(get_address(record)->ip, stream.client.ip);
        ++handles;
      } else {
        EXPECT_EQ(to_hex(send_record(header->rank)), to_hex(record));
        ++senders;
      }
    }
  }
  EXPECT_GT(handles, 0);
  EXPECT_EQ(handles, senders);
  EXPECT_GT(handshakes, 0);
}

INSTANTIATE_TEST_SUITE_P(Recorded, NcclCapture,
                         ::testing::Values(Recorded{"v2_28_9", "nccl-simple.pcap", 22809, 2},
                                           Recorded{"v2_28_9_three", "nccl-3ranks.pcap", 22809, 3},
                                           Recorded{"v2_28_9_comm_id", "nccl-commid.pcap", 22809, 2},
                                           Recorded{"v2_29_7", "nccl-2.29.7-simple.pcap", 22907, 2},
                                           Recorded{"v2_29_7_three", "nccl-2.29.7-3ranks.pcap", 22907, 3}),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(NcclBootstrap, ShortOrForeignInputIsNoValue) {
  for (const Version& v : versions()) {
    SCOPED_TRACE(version_text(v.code));
    for (const std::size_t size : {std::size_t{0}, std::size_t{3}, std::size_t{11}, std::size_t{27}}) {
      const Bytes bytes(size, std::byte{2});
      EXPECT_FALSE(decode_hello(bytes).has_value() && size < hello_size);
      EXPECT_FALSE(decode_check_in(v, bytes));
      EXPECT_FALSE(decode_ring_address(v, bytes));
      EXPECT_FALSE(decode_ring_data(v, bytes));
      EXPECT_FALSE(decode_peer_info(v, bytes));
      EXPECT_FALSE(decode_graph(v, bytes));
      EXPECT_FALSE(handle_in(bytes));
      EXPECT_FALSE(decode_send_header(v, bytes));
    }
    EXPECT_FALSE(decode_check_in(v, Bytes(v.check_in_size)));
    EXPECT_FALSE(decode_ring_address(v, Bytes(v.root_reply_size)));
    EXPECT_FALSE(handle_in(send_record(2)));  // looks like an address family
    EXPECT_FALSE(handle_in(send_record(10)));
    const SendHeader header{7, 0x181};
    EXPECT_EQ(decode_send_header(v, encode(v, header)), header);
  }
}

TEST(NcclBootstrap, UntestedReleasesReadWhatTheyWrite) {
  const SocketAddress a{*parse_ip("10.0.0.1"), 1};
  const SocketAddress b{*parse_ip("10.0.0.1"), 2};
  for (const Version& v : versions()) {
    SCOPED_TRACE(version_text(v.code));
    const CheckIn check_in{3, 8, a, b};
    EXPECT_EQ(decode_check_in(v, encode(v, check_in)), check_in);
    EXPECT_EQ(decode_ring_address(v, encode_ring_address(v, b)), b);
    const PeerInfo info{.rank = 5,
                        .device = 3,
                        .host_hash = 7,
                        .process_hash = 8,
                        .bus_id = 9,
                        .compute_capability = 90,
                        .cu_mem = true,
                        .version = v.code};
    EXPECT_EQ(decode_peer_info(v, encode(v, info)), info);
  }
}

// Eight ranks per node: every rank names the same first rank on channel 0, and the parts of a channel join up.
TEST(NcclGraph, RanksOfAGhostNodeAgree) {
  const Version& v = version_of(22907);
  const std::vector<std::int32_t> node{16, 17, 18, 19, 20, 21, 22, 23};
  std::vector<Graph> graphs;
  for (std::size_t self = 0; self < node.size(); ++self) {
    graphs.push_back(
        *decode_graph(v, encode(v, GhostGraph{.node = node, .self = self, .cpu_arch = 1, .cpu_vendor = 2})));
  }
  for (std::size_t c = 0; c < channels_max; ++c) {
    std::int32_t rank = graphs[0].ring_recv[c];
    EXPECT_EQ(rank, 16 + static_cast<std::int32_t>(c % 8));
    std::set<std::int32_t> visited;
    for (std::int32_t before = -1; rank != -1; before = std::exchange(rank, graphs.at(rank - 16U).ring_next[c])) {
      EXPECT_EQ(graphs.at(rank - 16U).ring_prev[c], before);
      ASSERT_TRUE(visited.insert(rank).second);
    }
    EXPECT_EQ(visited.size(), 8U);
    for (const Graph& graph : graphs) {
      EXPECT_EQ(graph.ring_recv[c], graphs[0].ring_recv[c]);
      EXPECT_EQ(graph.ring_send[c], graphs[0].ring_send[c]);
      EXPECT_EQ(graph.to_parent[c], graphs[0].ring_recv[c]);
    }
  }
}

}  // namespace
}  // namespace nbx::nccl
