// Communicators of ghosts: the rings and trees they compute, and how they come up with real ranks, once against
// recorded traffic of NCCL, once against real ranks that the test plays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <deque>
#include <map>
#include <set>

#include "nccl-glue/comm/comm.hpp"
#include "nccl-glue/comm/topology.hpp"
#include "nccl-glue/wire/little.hpp"
#include "support/ghost_context.hpp"
#include "support/nccl_capture.hpp"

namespace nbx::nccl {

// The room `net` as these tests have it: handles of the ghost's address, nothing behind them.
class Net::State {
 public:
  explicit State(const ghost::Context& any) : directory(any.directory) {}
  const ghost::Directory& directory;
  std::uint32_t last = 0;
};
Net::Net(const ghost::Context& any) : state_(std::make_unique<State>(any)) {}
Net::~Net() = default;
NetId Net::listen(GhostId ghost, const NetConfig& config, NetUser&, Handle& handle) {
  handle = {};
  put_address(handle, {state_->directory[ghost].addresses[0].ip, config.port});
  store(handle, 32, std::uint64_t{0x564ab9f2fc4b9d6c});
  return static_cast<NetId>(++state_->last);
}
NetId Net::connect(GhostId, const NetConfig&, const Handle&, NetUser&, Instant) {
  return static_cast<NetId>(++state_->last);
}

namespace {

using test::BootstrapStream;
using test::to_hex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Version& version_of(int code) { return **find_version(code, true); }

// ---- rings and trees

Graph one_rank_node(std::int32_t rank, std::int32_t channels) {
  Graph graph;
  graph.channels = channels;
  for (PerChannel* array : {&graph.ring_recv, &graph.ring_send, &graph.to_parent, &graph.to_child0, &graph.to_child1}) {
    array->fill(rank);
  }
  graph.ring_prev.fill(-1);
  graph.ring_next.fill(-1);
  return graph;
}

TopologyPattern pattern_of(std::int32_t ranks, int capability, std::function<Graph(std::int32_t)> graph) {
  auto pattern = TopologyPattern::from(
      {.ranks = ranks, .channels_limit = 64, .compute_capability_min = capability, .graph = std::move(graph)});
  EXPECT_TRUE(pattern);
  return std::move(*pattern);
}

void expect_rings_and_trees(const Topology& topology, std::int32_t ranks, std::int32_t nodes) {
  ASSERT_EQ(topology.ring.size(), static_cast<std::size_t>(topology.channels));
  ASSERT_EQ(topology.tree.size(), static_cast<std::size_t>(topology.channels));
  for (const std::vector<std::int32_t>& ring : topology.ring) {
    EXPECT_EQ(ring[0], 0);
    EXPECT_EQ(std::set(ring.begin(), ring.end()).size(), static_cast<std::size_t>(ranks));
    EXPECT_EQ(ring.size(), static_cast<std::size_t>(ranks));
  }
  const int deepest = (ranks / nodes) * (static_cast<int>(std::bit_width(static_cast<unsigned>(nodes - 1))) + 1);
  for (const auto& tree : topology.tree) {
    int roots = 0;
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      const Topology::TreeNode& node = tree[static_cast<std::size_t>(rank)];
      roots += node.parent < 0 ? 1 : 0;
      for (const std::int32_t child : node.children) {
        if (child >= 0) {
          EXPECT_EQ(tree[static_cast<std::size_t>(child)].parent, rank);
        }
      }
      int depth = 0;
      for (std::int32_t up = rank; tree[static_cast<std::size_t>(up)].parent >= 0; ++depth) {
        const std::int32_t parent = tree[static_cast<std::size_t>(up)].parent;
        const auto& children = tree[static_cast<std::size_t>(parent)].children;
        ASSERT_NE(std::ranges::find(children, up), children.end());
        ASSERT_LE(depth, deepest);
        up = parent;
      }
    }
    EXPECT_EQ(roots, 1);
  }
}

class Topologies : public ::testing::TestWithParam<std::int32_t> {};

TEST_P(Topologies, RingsVisitAllRanksAndTreesAreShallow) {
  const std::int32_t ranks = GetParam();
  const TopologyPattern pattern = pattern_of(ranks, 80, [](std::int32_t rank) { return one_rank_node(rank, 2); });
  EXPECT_EQ(pattern.usual_channels(), 4);
  expect_rings_and_trees(pattern.with_channels(4), ranks, ranks);
  expect_rings_and_trees(pattern.with_channels(7), ranks, ranks);
}

TEST_P(Topologies, EightRanksPerNode) {
  const Version& v = version_of(22907);
  const std::int32_t nodes = GetParam();
  std::vector<std::vector<std::int32_t>> members(static_cast<std::size_t>(nodes));
  for (std::int32_t rank = 0; rank < nodes * 8; ++rank) {
    members[static_cast<std::size_t>(rank / 8)].push_back(rank);
  }
  const TopologyPattern pattern = pattern_of(nodes * 8, 80, [&](std::int32_t rank) {
    Graph graph = graph_of(v, {.node = members[static_cast<std::size_t>(rank / 8)],
                               .self = static_cast<std::size_t>(rank % 8),
                               .cpu_arch = 1,
                               .cpu_vendor = 1});
    graph.channels = 8;
    return graph;
  });
  const Topology topology = pattern.with_channels(16);
  expect_rings_and_trees(topology, nodes * 8, nodes);
  for (std::int32_t rank = 0; rank < nodes * 8; ++rank) {
    EXPECT_EQ(topology.node[static_cast<std::size_t>(rank)], static_cast<std::uint32_t>(rank / 8));
  }
  // Rail-aligned: channel c crosses from node to node at local ranks c-1 and c.
  EXPECT_EQ(pattern.ring_edges(7, 8, 16), 0x0101U);
  EXPECT_EQ(pattern.ring_edges(0, 9, 16), nodes == 1 ? 0U : 0x0202U);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Topologies, ::testing::Values(2, 3, 4, 5, 6, 7, 8, 9, 16, 64, 1024));

// Five nodes: the pictures that NCCL's source has for its trees, drawn for this number.
TEST(NcclTrees, FirstIsByPowersOfTwoAndSecondIsShiftedWhenOdd) {
  EXPECT_EQ(first_tree(0, 5).children[1], 4);
  EXPECT_EQ(first_tree(4, 5).parent, 0);
  EXPECT_EQ(first_tree(2, 5).parent, 4);
  EXPECT_EQ(first_tree(1, 5).parent, 2);
  EXPECT_EQ(first_tree(3, 5).parent, 2);
  EXPECT_TRUE(first_tree(1, 5).first_child);
  EXPECT_FALSE(first_tree(3, 5).first_child);
  EXPECT_EQ(second_tree(1, 5).parent, -1);
  EXPECT_EQ(second_tree(0, 5).parent, 1);
  EXPECT_EQ(second_tree(3, 5).parent, 0);
}

TEST(NcclTrees, SecondIsMirroredWhenEven) {
  EXPECT_EQ(second_tree(3, 4).parent, -1);
  EXPECT_EQ(second_tree(1, 4).parent, 3);
  EXPECT_EQ(second_tree(0, 4).parent, 1);
  EXPECT_EQ(second_tree(2, 4).parent, 1);
}

// Nine ranks, three per node, one channel found: what NCCL 2.29.7 printed of the trees of ranks 0 to 2 when the other
// six were ghosts ("Trees [0] 1/6/-1->0->-1 [1] 1/-1/-1->0->3" and so on).
TEST(NcclTrees, NodesOfSeveralRanks) {
  const Version& v = version_of(22907);
  const std::vector<std::vector<std::int32_t>> members{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}};
  const TopologyPattern pattern = pattern_of(9, 80, [&](std::int32_t rank) {
    Graph graph = graph_of(v, {.node = members[static_cast<std::size_t>(rank / 3)],
                               .self = static_cast<std::size_t>(rank % 3),
                               .cpu_arch = 1,
                               .cpu_vendor = 1});
    graph.channels = 1;
    return graph;
  });
  const Topology topology = pattern.with_channels(2);
  using Children = std::array<std::int32_t, 3>;
  EXPECT_EQ(topology.tree[0][0].parent, -1);
  EXPECT_EQ(topology.tree[0][0].children, (Children{1, 6, -1}));
  EXPECT_EQ(topology.tree[0][1].parent, 0);
  EXPECT_EQ(topology.tree[0][1].children, (Children{2, -1, -1}));
  EXPECT_EQ(topology.tree[1][0].parent, 3);
  EXPECT_EQ(topology.tree[1][0].children, (Children{1, -1, -1}));
  EXPECT_EQ(topology.tree[1][1].parent, 0);
  EXPECT_EQ(topology.tree[1][1].children, (Children{2, 6, -1}));
  EXPECT_EQ(topology.tree[1][2].children, (Children{-1, -1, -1}));
}

TEST(NcclTopology, ChannelsDoubleOnHopperWithFastRings) {
  const auto fast = [](std::int32_t rank) {
    Graph graph = one_rank_node(rank, 2);
    graph.ring_bandwidth = 46;
    return graph;
  };
  EXPECT_EQ(pattern_of(4, 90, fast).usual_channels(), 8);
  EXPECT_EQ(pattern_of(4, 89, fast).usual_channels(), 4);
}

// Two nodes of two ranks, each with its channels on two rails: with crossNic 2, odd nodes swap them.
TEST(NcclTopology, OddNodesSwapTheirRailsWhenRingsCross) {
  const Version& v = version_of(22907);
  const std::vector<std::vector<std::int32_t>> members{{0, 1}, {2, 3}};
  const auto rings = [&](std::int32_t cross_nic) {
    return pattern_of(4, 80,
                      [&](std::int32_t rank) {
                        Graph graph = graph_of(v, {.node = members[static_cast<std::size_t>(rank / 2)],
                                                   .self = static_cast<std::size_t>(rank % 2),
                                                   .cpu_arch = 1,
                                                   .cpu_vendor = 1});
                        graph.channels = 2;
                        graph.cross_nic_ring = cross_nic;
                        return graph;
                      })
        .with_channels(2)
        .ring;
  };
  using Rings = std::vector<std::vector<std::int32_t>>;
  EXPECT_EQ(rings(0), (Rings{{0, 1, 2, 3}, {0, 3, 2, 1}}));
  EXPECT_EQ(rings(2), (Rings{{0, 1, 3, 2}, {0, 2, 3, 1}}));
}

TEST(NcclTopology, NonsenseIsRefused) {
  const auto topology = [](const std::function<void(Graph&)>& spoil) {
    return TopologyPattern::from(
        {.ranks = 4, .channels_limit = 64, .compute_capability_min = 80, .graph = [&](std::int32_t rank) {
           Graph graph = one_rank_node(rank, 1);
           if (rank == 2) {
             spoil(graph);
           }
           return graph;
         }});
  };
  EXPECT_TRUE(topology([](Graph&) {}));
  EXPECT_THAT(topology([](Graph& g) { g.ring_send[0] = 3; }).error().message, HasSubstr("does not close"));
  EXPECT_THAT(topology([](Graph& g) { g.to_child1[0] = 4; }).error().message, HasSubstr("rank 4"));
  EXPECT_THAT(topology([](Graph& g) { g.ring_recv[0] = -7; }).error().message, HasSubstr("rank -7"));
  EXPECT_THAT(topology([](Graph& g) { g.channels = 0; }).error().message, HasSubstr("no channels"));
  EXPECT_TRUE(topology([](Graph& g) { g.to_child0[0] = g.to_child1[0] = 1; }));  // two nodes claim rank 1
}

// ---- communicators

/// Streams whose other ends are the test's. What a ghost connects opens when the test says so.
class ScriptedStreams final : public ghost::Streams {
 public:
  struct Stream {
    GhostId ghost{};
    IpAddress peer;
    std::uint16_t port = 0;
    ghost::StreamUser* user = nullptr;
    bool by_ghost = false;
    bool open = false;
    bool closed = false;
    Bytes sent{};  // by the ghost
  };

  void listen(GhostId ghost, std::uint16_t port, ghost::StreamUser& user) override { users_[{ghost, port}] = &user; }
  ghost::StreamId connect(GhostId ghost, const IpAddress& peer, std::uint16_t port, ghost::StreamUser& user) override {
    streams.push_back({ghost, peer, port, &user, true});
    return id(streams.size() - 1);
  }
  void send(ghost::StreamId stream, ConstBytes bytes) override {
    Stream& s = at(stream);
    EXPECT_TRUE(s.open && !s.closed);
    s.sent.insert(s.sent.end(), bytes.begin(), bytes.end());
  }
  void close(ghost::StreamId stream) override { at(stream).closed = true; }

  /// Opens all that wait for it, and what they lead to.
  void open_all() {
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if (streams[i].by_ghost && !streams[i].open && !streams[i].closed) {
        streams[i].open = true;
        streams[i].user->on_open(id(i), streams[i].ghost, streams[i].port, streams[i].peer, {});
      }
    }
  }
  /// A peer connects; nothing if nobody listens.
  std::optional<std::size_t> accept(GhostId ghost, std::uint16_t port, const IpAddress& peer) {
    const auto user = users_.find({ghost, port});
    if (user == users_.end()) {
      return std::nullopt;
    }
    streams.push_back({ghost, peer, port, user->second, false, true});
    user->second->on_open(id(streams.size() - 1), ghost, port, peer, {});
    return streams.size() - 1;
  }
  void say(std::size_t stream, ConstBytes bytes) {
    if (!streams[stream].closed) {
      streams[stream].user->on_bytes(id(stream), bytes, {});
    }
  }
  void end(std::size_t stream) {
    if (!std::exchange(streams[stream].closed, true)) {
      streams[stream].user->on_close(id(stream), {});
    }
  }
  void refuse(std::size_t stream) { end(stream); }

  std::deque<Stream> streams;

 private:
  static ghost::StreamId id(std::size_t index) { return static_cast<ghost::StreamId>(index + 1); }
  Stream& at(ghost::StreamId stream) { return streams.at(static_cast<std::size_t>(stream) - 1); }
  std::map<std::pair<GhostId, std::uint16_t>, ghost::StreamUser*> users_;
};

class User final : public CommUser, public NetUser {
 public:
  void on_topology(Comm&, Instant) noexcept override { ++topologies; }
  void on_edge(Comm&, const Edge& edge, Instant) noexcept override { edges.push_back(edge); }
  NetUser& net_user(Comm&) noexcept override { return *this; }
  void on_connected(Comm&, Instant) noexcept override { ++connected; }
  void on_split(Comm&, std::unique_ptr<Comm> child, Instant) noexcept override { children.push_back(std::move(child)); }
  void on_closed(Comm&, std::string_view why, Instant) noexcept override { closed = std::string(why); }

  void on_ready(NetId, Instant) noexcept override {}
  void on_received(NetId, std::uint64_t, Instant) noexcept override {}
  void on_clear_to_send(NetId, std::uint64_t, std::uint32_t, Instant) noexcept override {}
  void on_sent(NetId, Instant) noexcept override {}
  void on_closed(NetId, std::string_view, Instant) noexcept override {}

  int topologies = 0;
  int connected = 0;
  std::vector<Edge> edges;
  std::vector<std::unique_ptr<Comm>> children;
  std::optional<std::string> closed;
};

constexpr std::uint16_t base = 20000;

ghost::Directory directory_of(std::int32_t ranks) {
  std::vector<ghost::Identity> ghosts;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    ghosts.push_back({.name = "rank" + std::to_string(rank),
                      .mac = {},
                      .addresses = {{IpAddress::v4(0x0a4d0001U + static_cast<std::uint32_t>(rank)), 24}}});
  }
  return ghost::Directory(std::move(ghosts));
}

CommSpec spec_of(const Version& version, std::int32_t ranks, const std::set<std::int32_t>& real) {
  CommSpec spec;
  spec.version = &version;
  spec.port_base = base;
  spec.net.version = &version;
  spec.net.port = base + 1;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    if (real.contains(rank)) {
      spec.ranks.push_back({.real = true});
    } else {
      spec.ranks.push_back({.ghost = static_cast<GhostId>(rank), .node = static_cast<std::uint32_t>(rank)});
    }
  }
  return spec;
}

struct Rig {
  explicit Rig(CommSpec spec)
      : directory(directory_of(static_cast<std::int32_t>(spec.ranks.size()))),
        comm(std::make_unique<Comm>(context.context, lobby, net, std::move(spec), user)) {}

  ghost::Directory directory;
  ScriptedStreams streams;
  test::GhostContext context{streams, directory};
  Lobby lobby{context.ports};
  Net net{context.context};
  User user;
  std::unique_ptr<Comm> comm;
};

// ---- against recorded traffic

struct Recorded {
  const char* name;
  const char* file;
  int version;
  std::int32_t ranks;
  std::set<std::int32_t> ghosts;
};
void PrintTo(const Recorded& r, std::ostream* os) { *os << r.name; }

class RecordedPeers : public ::testing::TestWithParam<Recorded> {
 protected:
  void SetUp() override {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      by_connection_[streams_[i].connection] = i;
    }
    learn_ports();
    UniqueId id{};
    store(id, 0, streams_.front().hello.magic);
    put_address(MutableBytes(id).subspan(8), {streams_.front().server.ip, streams_.front().server.port});
    std::set<std::int32_t> real;
    for (std::int32_t rank = 0; rank < GetParam().ranks; ++rank) {
      if (!GetParam().ghosts.contains(rank)) {
        real.insert(rank);
      }
    }
    CommSpec spec = spec_of(v_, GetParam().ranks, real);
    spec.id = id;
    rig_ = std::make_unique<Rig>(std::move(spec));
  }

  static std::int32_t rank_of(const IpAddress& ip) { return static_cast<std::int32_t>(ip.v4_value() & 0xffU) - 1; }
  static bool is_ghost(std::int32_t rank) { return GetParam().ghosts.contains(rank); }
  /// Between a ghost and a real rank: what the ghost has to deal with.
  static bool matters(const BootstrapStream& stream) {
    return is_ghost(rank_of(stream.client.ip)) != is_ghost(rank_of(stream.server.ip));
  }

  /// Which of its ports a recorded rank listened at for what.
  void learn_ports() {
    for (const BootstrapStream& stream : streams_) {
      const std::int32_t rank = rank_of(stream.client.ip);
      if (stream.by_client.size() == 1) {
        if (const auto check_in = decode_check_in(v_, stream.by_client[0])) {
          ports_[{rank, check_in->ring.port}] = base + 16;
          ports_[{rank, check_in->reply.port}] = base + 17;
        }
      } else if (stream.by_client.size() >= 4) {
        const auto data = decode_ring_data(v_, stream.by_client[0]);
        ports_[{rank_of(data->p2p.ip), data->p2p.port}] = base + 18;
      }
    }
  }

  void play() {
    rig_->comm->start({});
    rig_->streams.open_all();
    for (const test::TcpEvent& event : capture_.events) {
      const auto found = by_connection_.find(event.connection);
      if (found == by_connection_.end() || !matters(streams_[found->second])) {
        continue;
      }
      const BootstrapStream& stream = streams_[found->second];
      const bool ghost_connected = is_ghost(rank_of(stream.client.ip));
      if (event.what == test::TcpEvent::What::open && !ghost_connected) {
        const std::int32_t rank = rank_of(stream.server.ip);
        const auto accepted =
            rig_->streams.accept(static_cast<GhostId>(rank), ports_.at({rank, stream.server.port}), stream.client.ip);
        ASSERT_TRUE(accepted);
        ours_[found->second] = *accepted;
      } else if (event.what == test::TcpEvent::What::bytes && event.by_client != ghost_connected) {
        rig_->streams.say(ours(found->second), event.bytes);
      } else if (event.what == test::TcpEvent::What::close && event.by_client != ghost_connected) {
        rig_->streams.end(ours(found->second));
      }
      rig_->streams.open_all();
    }
  }

  /// Our stream for a recorded one: what a ghost connects, it connects to the same address, in the same order.
  std::size_t ours(std::size_t index) {
    if (const auto known = ours_.find(index); known != ours_.end()) {
      return known->second;
    }
    const BootstrapStream& stream = streams_[index];
    for (std::size_t i = 0; i < rig_->streams.streams.size(); ++i) {
      const ScriptedStreams::Stream& s = rig_->streams.streams[i];
      const bool taken = std::ranges::any_of(ours_, [i](const auto& pair) { return pair.second == i; });
      if (s.by_ghost && !taken && s.peer == stream.server.ip && s.port == stream.server.port &&
          static_cast<std::int32_t>(s.ghost) == rank_of(stream.client.ip)) {
        return ours_[index] = i;
      }
    }
    ADD_FAILURE() << "the ghost did not connect to port " << stream.server.port;
    return 0;
  }

  const Version& v_ = version_of(GetParam().version);
  const test::TcpCapture capture_ = test::read_tcp(std::string(NBX_CAPTURES) + "/" + GetParam().file);
  const std::vector<BootstrapStream> streams_ = test::bootstrap_streams(capture_, v_);
  std::map<std::size_t, std::size_t> by_connection_;
  std::map<std::pair<std::int32_t, std::uint16_t>, std::uint16_t> ports_;
  std::map<std::size_t, std::size_t> ours_;
  std::unique_ptr<Rig> rig_;
};

/// A message without what is its sender's own: ports, hashes, what only the smallest or largest counts of.
Bytes common(const Version& v, Bytes message, std::size_t position) {
  const auto clear = [&](std::size_t from, std::size_t to) {
    std::ranges::fill(MutableBytes(message).subspan(from, to - from), std::byte{0});
  };
  if (message.size() == v.check_in_size) {
    clear(v.check_in_reply_address + 2U, v.check_in_reply_address + 4U);
    clear(v.check_in_ring_info + 2U, v.check_in_ring_info + 4U);
  } else if (message.size() == v.graph_size) {
    const std::int32_t rank = load<std::int32_t>(message, v.graph_topology + 4U);
    clear(0, v.graph_topology);
    constexpr std::size_t recorded_channels = 1;
    for (std::size_t array = 0; array < 8; ++array) {
      const std::size_t at = v.graph_topology + 4U + array * 256;
      clear(at + recorded_channels * 4, at + 256);
    }
    EXPECT_GE(rank, 0);
    if (v.graph_p2p_channels != absent) {
      clear(v.graph_p2p_channels, v.graph_p2p_channels + 4U);
    }
  } else if (position == 0 && message.size() == v.ring_data_size) {
    clear(2, 4);
    clear(30, 32);
    clear(56, 120);  // seed, RAS
  } else if (position > 0 && message.size() == v.peer_info_size) {
    clear(16, 56);  // hashes, devices, pointers
    clear(64, 76);
    clear(120, message.size());
  } else if (message.size() % connect_record_size == 0) {
    for (std::size_t at = 0; at < message.size(); at += connect_record_size) {
      if (handle_in(ConstBytes(message).subspan(at, connect_record_size))) {
        clear(at + 2, at + 4);
        clear(at + 64, at + 128);
      }
    }
  }
  return message;
}

TEST_P(RecordedPeers, GhostsSayWhatTheRecordedRanksSaid) {
  play();
  EXPECT_EQ(rig_->user.closed, "") << "in order, at the end";
  EXPECT_EQ(rig_->user.topologies, 1);
  EXPECT_GT(rig_->user.connected, 0);
  std::size_t compared = 0;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const BootstrapStream& stream = streams_[i];
    if (!matters(stream)) {
      continue;
    }
    const bool ghost_connected = is_ghost(rank_of(stream.client.ip));
    ConstBytes sent(rig_->streams.streams[ours(i)].sent);
    if (ghost_connected) {
      ASSERT_EQ(decode_hello(sent), stream.hello);
      sent = sent.subspan(hello_size);
    }
    const std::vector<Bytes> said = test::cut_messages(sent);
    const std::vector<Bytes>& expected = ghost_connected ? stream.by_client : stream.by_server;
    ASSERT_EQ(said.size(), expected.size()) << "stream " << i;
    for (std::size_t m = 0; m < said.size(); ++m) {
      EXPECT_EQ(to_hex(common(v_, said[m], m)), to_hex(common(v_, expected[m], m)))
          << "stream " << i << " message " << m;
      ++compared;
    }
  }
  EXPECT_GE(compared, 8U);
  // Every connection of the ghosts is one of the recorded ones.
  const auto by_ghosts = std::ranges::count_if(rig_->streams.streams, &ScriptedStreams::Stream::by_ghost);
  const auto recorded = std::ranges::count_if(
      streams_, [](const BootstrapStream& stream) { return is_ghost(rank_of(stream.client.ip)) && matters(stream); });
  EXPECT_EQ(by_ghosts, recorded);
}

TEST_P(RecordedPeers, EveryEdgeOfTheRingIsConnectedOnItsChannel) {
  play();
  const Topology& topology = rig_->comm->topology();
  std::set<std::tuple<int, std::int32_t, std::int32_t>> connected;  // channel, from, to
  for (const Edge& edge : rig_->user.edges) {
    EXPECT_TRUE(edge.collective);
    EXPECT_TRUE(connected
                    .insert(edge.to_real ? std::tuple(edge.channel, edge.ghost_rank, edge.real_rank)
                                         : std::tuple(edge.channel, edge.real_rank, edge.ghost_rank))
                    .second);
  }
  for (int channel = 0; channel < topology.channels; ++channel) {
    const std::vector<std::int32_t>& ring = topology.ring[static_cast<std::size_t>(channel)];
    for (std::size_t i = 0; i < ring.size(); ++i) {
      const std::int32_t from = ring[i];
      const std::int32_t to = ring[(i + 1) % ring.size()];
      if (is_ghost(from) != is_ghost(to)) {
        EXPECT_TRUE(connected.contains({channel, from, to})) << from << " -> " << to;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Captures, RecordedPeers,
                         ::testing::Values(Recorded{"v2_28_9", "nccl-simple.pcap", 22809, 2, {1}},
                                           Recorded{"v2_28_9_comm_id", "nccl-commid.pcap", 22809, 2, {1}},
                                           Recorded{"v2_28_9_two_channels", "nccl-2channels.pcap", 22809, 2, {1}},
                                           Recorded{"v2_28_9_three", "nccl-3ranks.pcap", 22809, 3, {1}},
                                           Recorded{"v2_28_9_three_last", "nccl-3ranks.pcap", 22809, 3, {2}},
                                           Recorded{"v2_28_9_three_both", "nccl-3ranks.pcap", 22809, 3, {1, 2}},
                                           Recorded{"v2_29_7", "nccl-2.29.7-simple.pcap", 22907, 2, {1}},
                                           Recorded{"v2_29_7_three", "nccl-2.29.7-3ranks.pcap", 22907, 3, {1}},
                                           Recorded{"v2_29_7_three_both", "nccl-2.29.7-3ranks.pcap", 22907, 3, {1, 2}}),
                         [](const auto& row) { return std::string(row.param.name); });

// ---- with real ranks that the test plays

constexpr std::uint64_t magic = 0x1122'3344'5566'7788;
const SocketAddress real_ring{*parse_ip("10.99.0.1"), 700};
const SocketAddress real_p2p{*parse_ip("10.99.0.1"), 701};

CommSpec played_spec(std::int32_t ranks, const std::set<std::int32_t>& real = {0}, std::uint64_t id_magic = magic) {
  CommSpec spec = spec_of(version_of(22907), ranks, real);
  store(spec.id, 0, id_magic);
  put_address(MutableBytes(spec.id).subspan(8), {*parse_ip("10.99.0.1"), 600});
  return spec;
}

Bytes hello_and(ConstBytes bytes, std::uint64_t said = magic) {
  const auto hello = encode(Hello{.magic = said});
  Bytes out(hello.begin(), hello.end());
  out.insert(out.end(), bytes.begin(), bytes.end());
  return out;
}

Bytes message(ConstBytes body) {
  Bytes out;
  append_message(out, body);
  return out;
}

/// Rank 0, real, with ranks 1 to n-1 ghosts of 2.29.7.
class PlayedRank : public ::testing::Test {
 protected:
  void begin(std::int32_t ranks) {
    ranks_ = ranks;
    rig_ = std::make_unique<Rig>(played_spec(ranks));
    rig_->comm->start({});
  }
  ScriptedStreams& streams() { return rig_->streams; }
  User& user() { return rig_->user; }
  std::string waiting_for() { return rig_->comm->waiting_for(); }

  /// Plays the root, which answers a rank as soon as it knows the next one.
  void check_in() {
    std::set<std::int32_t> known;
    std::set<std::int32_t> answered;
    std::size_t seen = 0;
    for (std::size_t before = 0; before != known.size() || known.empty();) {
      before = known.size();
      streams().open_all();
      for (; seen < streams().streams.size(); ++seen) {
        if (streams().streams[seen].by_ghost) {
          known.insert(static_cast<std::int32_t>(streams().streams[seen].ghost));
        }
      }
      for (const std::int32_t rank : known) {
        if (known.contains(rank + 1) && answered.insert(rank).second) {
          const auto reply = streams().accept(static_cast<GhostId>(rank), base + 17, real_ring.ip);
          streams().say(*reply, hello_and(message(encode_ring_address(v_, real_ring))));
        }
      }
    }
  }
  void make_ring() {
    const auto reply = streams().accept(static_cast<GhostId>(ranks_ - 1), base + 17, real_ring.ip);
    ASSERT_TRUE(reply);
    streams().say(*reply, hello_and(message(encode_ring_address(v_, real_ring))));
    streams().open_all();
    for (std::size_t i = 0; i < streams().streams.size(); ++i) {
      if (streams().streams[i].port == real_ring.port) {
        to_real_ = i;
      }
    }
    const auto ring = streams().accept(GhostId{1}, base + 16, real_ring.ip);
    ASSERT_TRUE(ring);
    from_real_ = *ring;
    streams().say(from_real_, hello_and({}));
  }
  /// What the real rank says in one gather. Blocks of ghosts come back to them: any bytes will do.
  void gather(ConstBytes own, std::size_t first_messages = 1000000) {
    const auto said = [&](std::size_t steps) {
      Bytes out;
      for (std::size_t step = 0; step < std::min(steps, first_messages); ++step) {
        append_message(out, step == 0 ? own : ConstBytes(Bytes(own.size(), std::byte{0xee})));
      }
      return out;
    };
    streams().say(from_real_, said(static_cast<std::size_t>(ranks_) / 2));
    streams().say(to_real_, said(static_cast<std::size_t>(ranks_ - 1) / 2));
  }
  Bytes ring_data() { return encode(v_, RingData{real_p2p, real_p2p, 1}); }
  Bytes peer_info(std::int32_t version = 22907) {
    return encode(v_, PeerInfo{.host_hash = 5, .compute_capability = 80, .version = version});
  }
  Bytes graph(std::int32_t channels) {
    const std::vector<std::int32_t> node{0};
    Bytes bytes = encode(v_, GhostGraph{.node = node, .self = 0, .cpu_arch = 1, .cpu_vendor = 2});
    store(bytes, 4, channels);
    store(bytes, 32 + 4, channels);
    return bytes;
  }
  void come_up(std::int32_t ranks, std::int32_t channels = 1) {
    begin(ranks);
    check_in();
    make_ring();
    gather(ring_data());
    gather(peer_info());
    gather(graph(channels));
    ASSERT_FALSE(user().closed) << *user().closed;
  }
  /// A message of the real rank; what the ghost sends back.
  std::vector<Bytes> send(std::int32_t ghost, std::int32_t tag, ConstBytes payload) {
    const std::size_t before = streams().streams.size();
    const auto stream = streams().accept(static_cast<GhostId>(ghost), base + 18, real_p2p.ip);
    Bytes said = encode(v_, SendHeader{0, tag});
    append_message(said, payload);
    // In two pieces that fit nothing.
    streams().say(*stream, hello_and(ConstBytes(said).first(5)));
    streams().say(*stream, ConstBytes(said).subspan(5));
    streams().open_all();
    std::vector<Bytes> answers;
    for (std::size_t i = before; i < streams().streams.size(); ++i) {
      const ScriptedStreams::Stream& s = streams().streams[i];
      if (s.by_ghost) {
        EXPECT_EQ(s.port, real_p2p.port);
        EXPECT_TRUE(s.closed) << "the receiver waits for the end of the stream";
        const std::vector<Bytes> messages = test::cut_messages(ConstBytes(s.sent).subspan(hello_size));
        EXPECT_EQ(messages.size(), 2U);
        EXPECT_EQ(to_hex(message(messages[0])), to_hex(encode(v_, SendHeader{ghost, tag})));
        answers.push_back(messages[1]);
      }
    }
    return answers;
  }
  static Bytes records(int handles, int senders) {
    Bytes out;
    NetHandle handle{};
    put_address(handle, real_p2p);
    store(handle, 32, std::uint64_t{0x564ab9f2fc4b9d6c});
    const auto add = [&](const ConnectRecord& record) { out.insert(out.end(), record.begin(), record.end()); };
    for (int i = 0; i < handles; ++i) {
      add(receive_record(handle));
    }
    for (int i = 0; i < senders; ++i) {
      add(send_record(0));
    }
    return out;
  }

  const Version& v_ = version_of(22907);
  std::int32_t ranks_ = 0;
  std::unique_ptr<Rig> rig_;
  std::size_t to_real_ = 0;    // the last ghost's stream of the ring
  std::size_t from_real_ = 0;  // the first ghost's
};

class PlayedSizes : public PlayedRank, public ::testing::WithParamInterface<std::int32_t> {};

TEST_P(PlayedSizes, TheRealRankGetsEveryGhostsBlock) {
  const std::int32_t ranks = GetParam();
  come_up(ranks);
  const auto n = static_cast<std::size_t>(ranks);
  std::map<std::int32_t, Bytes> graphs;
  std::set<std::uint64_t> hosts;
  std::set<std::uint64_t> processes;
  const auto read = [&](ConstBytes sent, std::size_t steps, auto rank_of_step) {
    const std::vector<Bytes> messages = test::cut_messages(sent);
    ASSERT_EQ(messages.size(), 3 * steps);
    for (std::size_t step = 0; step < steps; ++step) {
      const std::int32_t rank = rank_of_step(static_cast<std::int32_t>(step));
      if (rank == 0) {
        continue;
      }
      const auto data = decode_ring_data(v_, messages[step]);
      ASSERT_TRUE(data);
      EXPECT_EQ(data->p2p, (SocketAddress{IpAddress::v4(0x0a4d0001U + static_cast<std::uint32_t>(rank)), base + 18}));
      const auto info = decode_peer_info(v_, messages[steps + step]);
      ASSERT_TRUE(info);
      EXPECT_EQ(info->rank, rank);
      hosts.insert(info->host_hash);
      processes.insert(info->process_hash);
      graphs[rank] = messages[2 * steps + step];
    }
  };
  read(ConstBytes(streams().streams[to_real_].sent).subspan(hello_size), n / 2,
       [&](std::int32_t step) { return ranks - 1 - step; });
  read(streams().streams[from_real_].sent, (n - 1) / 2, [&](std::int32_t step) { return 1 + step; });
  EXPECT_EQ(graphs.size(), n - 1);
  EXPECT_EQ(hosts.size(), n - 1);
  EXPECT_EQ(processes.size(), n - 1);
  for (const auto& [rank, block] : graphs) {
    const auto graph = decode_graph(v_, block);
    EXPECT_EQ(graph->ring_recv[0], rank);
    EXPECT_EQ(graph->cpu_arch, 1);
    EXPECT_EQ(graph->cpu_vendor, 2) << "the real rank's";
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, PlayedSizes, ::testing::Values(2, 3, 4, 5, 64, 1024));

TEST_F(PlayedRank, ChecksInWithFewConnectionsAtATime) {
  begin(1000);
  const auto waiting = [&] {
    return std::ranges::count_if(streams().streams, [](const auto& s) { return !s.open && !s.closed; });
  };
  EXPECT_EQ(waiting(), 64);
  EXPECT_THAT(waiting_for(), HasSubstr("root at 10.99.0.1 port 600 to take the check-in of rank 65 of 1000"));
  streams().open_all();
  EXPECT_EQ(streams().streams.size(), 64U) << "open is not yet taken";
  check_in();
  std::set<std::int32_t> ranks;
  for (const ScriptedStreams::Stream& s : streams().streams) {
    if (!s.by_ghost) {
      continue;
    }
    const auto check_in = decode_check_in(v_, ConstBytes(s.sent).subspan(hello_size + prefix_size));
    ASSERT_TRUE(check_in);
    EXPECT_EQ(check_in->ranks, 1000);
    EXPECT_TRUE(s.closed);
    ranks.insert(check_in->rank);
  }
  EXPECT_EQ(ranks.size(), 999U);
  EXPECT_EQ(waiting_for(), "the bootstrap ring from rank 0, from rank 0 (its address)");
}

TEST_F(PlayedRank, ARefusedCheckInIsTriedAgainButNotForEver) {
  begin(2);
  for (int attempt = 0; attempt < 299; ++attempt) {
    streams().refuse(streams().streams.size() - 1);
    ASSERT_FALSE(user().closed);
    rig_->context.wheel.run(rig_->context.wheel.next_deadline());
    ASSERT_EQ(streams().streams.size(), static_cast<std::size_t>(attempt) + 2);
  }
  streams().refuse(streams().streams.size() - 1);
  EXPECT_EQ(user().closed, "rank 1 cannot reach 10.99.0.1 port 600");
}

TEST_F(PlayedRank, SaysWhoLeftAndWhatWasAwaited) {
  begin(3);
  check_in();
  make_ring();
  gather(ring_data());
  EXPECT_EQ(waiting_for(), "peer info from rank 0, rank 0");
  streams().end(from_real_);
  EXPECT_EQ(user().closed, "rank 0 has left; waited for peer info from rank 0, rank 0");
}

TEST_F(PlayedRank, LeavesInOrderWhenBothEndsAreClosed) {
  come_up(3);
  streams().end(to_real_);
  EXPECT_FALSE(user().closed);
  streams().end(from_real_);
  EXPECT_EQ(user().closed, "");
}

TEST_F(PlayedRank, AnotherReleaseShowsInSizesOrInItsNumber) {
  begin(2);
  check_in();
  make_ring();
  gather(ring_data());
  gather(Bytes(120));
  EXPECT_EQ(user().closed, "rank 0 sends 120 bytes as its peer info, expected are 128: another version than 2.29.7?");

  begin(2);
  check_in();
  make_ring();
  gather(ring_data());
  gather(peer_info(22906));
  EXPECT_EQ(user().closed, "rank 0 has NCCL 2.29.6, its ghosts play 2.29.7");
}

TEST_F(PlayedRank, ABlockMayArriveInAnyPieces) {
  begin(2);
  check_in();
  make_ring();
  Bytes all = message(ring_data());
  for (const Bytes& next : {message(peer_info()), message(graph(1))}) {
    all.insert(all.end(), next.begin(), next.end());
  }
  for (std::size_t at = 0; at < all.size(); at += 7) {
    streams().say(from_real_, ConstBytes(all).subspan(at, std::min<std::size_t>(7, all.size() - at)));
  }
  EXPECT_EQ(test::cut_messages(ConstBytes(streams().streams[to_real_].sent).subspan(hello_size)).size(), 3U);
  EXPECT_EQ(waiting_for(), "");
}

// The size of a ghost's graph goes out before the block, which needs the real rank's first: both would wait for ever.
TEST_F(PlayedRank, SizesDoNotWaitForBlocks) {
  begin(2);
  check_in();
  make_ring();
  gather(ring_data());
  gather(peer_info());
  const ConstBytes sent(streams().streams[to_real_].sent);
  EXPECT_EQ(prefix_of(sent.last(prefix_size)), v_.graph_size);
}

TEST_F(PlayedRank, AnswersRecordsWithItsOwnAndThenTheHandshake) {
  come_up(2);
  const std::vector<Bytes> answers = send(1, 0x101, records(2, 2));
  ASSERT_EQ(answers.size(), 1U);
  ASSERT_EQ(answers[0].size(), 4 * connect_record_size);
  EXPECT_TRUE(handle_in(ConstBytes(answers[0]).subspan(256, 256)));
  EXPECT_EQ(load<std::int32_t>(answers[0], 512), 1);
  EXPECT_EQ(user().topologies, 1);
  EXPECT_EQ(rig_->comm->topology().channels, 2);
  ASSERT_EQ(user().edges.size(), 4U);
  EXPECT_EQ(waiting_for(), "rank 0 to connect to rank 1");
  EXPECT_EQ(user().connected, 0);
  EXPECT_EQ(send(1, 0x181, {}), std::vector<Bytes>(1));
  EXPECT_EQ(user().connected, 1);

  gather(Bytes(2));  // ring connection info
  const std::vector<Bytes> said = test::cut_messages(ConstBytes(streams().streams[to_real_].sent).subspan(hello_size));
  EXPECT_EQ(to_hex(said.back()), "0000");
}

TEST_F(PlayedRank, TheNumberOfRecordsTellsTheNumberOfChannels) {
  come_up(2);
  send(1, 0x101, records(5, 5));  // NCCL_MIN_NCHANNELS=5
  EXPECT_EQ(rig_->comm->topology().channels, 5);
  EXPECT_EQ(user().edges.back().channel, 4);
}

TEST_F(PlayedRank, LazyTreesMayComeBeforeRings) {
  come_up(4);
  // Tree 0: 0 - 2 - {1, 3}. Tree 1: 3 - 1 - {0, 2}. Distance 2 is the same rank both ways, distance 1 is not.
  send(2, 0x202, records(1, 1));
  ASSERT_EQ(user().edges.size(), 2U);
  EXPECT_EQ(user().edges[0].channel, 0);
  send(1, 0x102, records(0, 1));
  EXPECT_EQ(user().edges.back().channel, 1);
  send(1, 0x302, records(1, 0));
  EXPECT_EQ(user().edges.back().channel, 1);
  EXPECT_TRUE(user().edges.back().to_real);
  send(1, 0x182, {});
  send(1, 0x382, {});
  EXPECT_EQ(user().connected, 0);
  send(2, 0x282, {});
  EXPECT_EQ(user().connected, 1);
  // The ring has channel 1 of 0 -> 1 already.
  send(1, 0x101, records(0, 1));
  EXPECT_EQ(user().edges.back().channel, 0);
  EXPECT_FALSE(user().closed);
}

TEST_F(PlayedRank, SendAndReceiveNeedNoTopology) {
  come_up(3);
  send(2, 0x200, records(0, 2));
  send(2, 0x100, records(1, 0));
  ASSERT_EQ(user().edges.size(), 3U);
  EXPECT_FALSE(user().edges[1].collective);
  EXPECT_EQ(user().edges[1].channel, 1);
  EXPECT_TRUE(user().edges[2].to_real);
  EXPECT_EQ(user().topologies, 0);
}

TEST_F(PlayedRank, WhatItDoesNotPlayEndsIt) {
  const auto closed = [&](std::int32_t tag, ConstBytes payload) {
    come_up(3);
    send(1, tag, payload);
    return user().closed.value_or("");
  };
  EXPECT_THAT(closed(0xbeef, {}), HasSubstr("tag 48879"));
  EXPECT_THAT(closed(0x103, records(1, 0)), HasSubstr("graph 2, which ghosts do not play"));
  EXPECT_THAT(closed(0x101, Bytes(100)), HasSubstr("100 bytes of connection records"));
  EXPECT_THAT(closed(0x181, {}), HasSubstr("was not begun"));
  EXPECT_THAT(closed(0x101, records(2, 0)), HasSubstr("no number of channels explains"));
  come_up(3);
  gather(Bytes(12));
  EXPECT_EQ(user().closed, "rank 0 gathers 12 bytes per rank, which ghosts do not play");
}

TEST_F(PlayedRank, StrangersAreIgnored) {
  come_up(3);
  const auto stranger = [&](ConstBytes bytes, std::uint16_t port) {
    const auto stream = streams().accept(GhostId{1}, port, real_p2p.ip);
    streams().say(*stream, bytes);
    return streams().streams[*stream].closed;
  };
  EXPECT_TRUE(stranger(hello_and({}, magic + 1), base + 18)) << "another magic";
  EXPECT_TRUE(stranger(encode(Hello{.magic = magic, .type = 2}), base + 18)) << "a proxy's";
  EXPECT_TRUE(stranger(hello_and(encode(v_, SendHeader{0, 0x101}), magic), base + 16)) << "a second ring";
  Bytes huge(prefix_size);
  store(huge, 0, 0x7fffffff);
  Bytes said = encode(v_, SendHeader{0, 0x101});
  said.insert(said.end(), huge.begin(), huge.end());
  EXPECT_TRUE(stranger(hello_and(said), base + 18)) << "too long";
  EXPECT_TRUE(stranger(hello_and(Bytes(16, std::byte{0xff})), base + 18)) << "no header";
  said = encode(v_, SendHeader{2, 0x101});
  append_message(said, records(1, 0));
  EXPECT_TRUE(stranger(hello_and(said), base + 18)) << "a ghost's rank";
  EXPECT_FALSE(user().closed);
  EXPECT_THAT(user().edges, IsEmpty());
}

TEST_F(PlayedRank, CommunicatorsShareTheirPorts) {
  come_up(3);
  User other_user;
  Comm other(rig_->context.context, rig_->lobby, rig_->net, played_spec(3, {0}, magic + 1), other_user);
  other.start({});
  streams().open_all();
  const auto reply = streams().accept(GhostId{2}, base + 17, real_ring.ip);
  streams().say(*reply, hello_and(message(encode_ring_address(v_, real_ring)), magic + 1));
  EXPECT_EQ(other.waiting_for(), "the bootstrap ring from rank 0, from rank 0 (its address)");
  streams().open_all();
  EXPECT_EQ(other.waiting_for(), "the bootstrap ring from rank 0");
  EXPECT_FALSE(user().closed);

  User third_user;
  Comm third(rig_->context.context, rig_->lobby, rig_->net, played_spec(3), third_user);
  third.start({});
  EXPECT_EQ(third_user.closed, "another communicator uses the same unique ID");
}

// ncclCommSplit of four: ranks 0, 1 and 3 with color 7, in the order 3, 0, 1. The real rank's address for its previous
// one, rank 3, comes before the gather is complete.
TEST_F(PlayedRank, SplitMakesAChildOfTheSameColor) {
  come_up(4);
  rig_->comm->expect_split({.color = {0, 7, 9, 7}, .key = {0, 5, 5, -1}});
  EXPECT_THAT(send(3, split_tag, encode_ring_address(v_, real_ring)), IsEmpty());
  const std::size_t before = streams().streams.size();
  gather(encode(SplitKey{.key = 0, .color = 7}));
  const std::vector<Bytes> said = test::cut_messages(ConstBytes(streams().streams[to_real_].sent).subspan(hello_size));
  EXPECT_EQ(to_hex(said[6]), to_hex(encode(SplitKey{.key = -1, .color = 7})));
  ASSERT_EQ(user().children.size(), 1U);
  Comm& child = *user().children[0];
  EXPECT_EQ(child.hash(), child_hash(rig_->comm->hash(), 1, 7));
  ASSERT_EQ(child.spec().ranks.size(), 3U);
  EXPECT_EQ(child.spec().ranks[0].ghost, GhostId{3});
  EXPECT_TRUE(child.spec().ranks[1].real);
  EXPECT_EQ(child.spec().ranks[2].ghost, GhostId{1});
  // Rank 1 follows the real rank and tells it where; rank 3 precedes it and connects to where it was told.
  streams().open_all();
  ASSERT_EQ(streams().streams.size(), before + 2);
  const std::vector<Bytes> told = test::cut_messages(ConstBytes(streams().streams[before].sent).subspan(hello_size));
  EXPECT_EQ(to_hex(message(told.at(0))), to_hex(encode(v_, SendHeader{1, split_tag})));
  EXPECT_EQ(decode_ring_address(v_, told.at(1)), (SocketAddress{IpAddress::v4(0x0a4d0002U), base + 16}));
  EXPECT_EQ(streams().streams[before + 1].ghost, GhostId{3});
  EXPECT_EQ(streams().streams[before + 1].port, real_ring.port);
  EXPECT_EQ(decode_hello(streams().streams[before + 1].sent)->magic, child.hash());
  EXPECT_EQ(child.waiting_for(), "the bootstrap ring from rank 1");
}

// The real rank's gather may overtake the news of it.
TEST_F(PlayedRank, ASplitWaitsForTheGhostsColors) {
  come_up(3);
  gather(encode(SplitKey{.key = 0, .color = 1}));
  EXPECT_THAT(user().children, IsEmpty());
  EXPECT_EQ(waiting_for(), "split color and key of the ghosts");
  rig_->comm->expect_split({.color = {0, 1, 1}, .key = {0, 1, 2}});
  rig_->context.wheel.run({});
  ASSERT_EQ(user().children.size(), 1U);
  EXPECT_EQ(user().children[0]->spec().ranks.size(), 3U);
  EXPECT_EQ(waiting_for(), "");

  gather(encode(SplitKey{.key = 0, .color = 1}));
  rig_->comm->expect_split({.color = {0, -1, 2}, .key = {0, 1, 2}});
  rig_->context.wheel.run({});
  EXPECT_EQ(user().children.size(), 1U) << "no child has both real and ghost ranks";
  EXPECT_FALSE(user().closed);
}

TEST_F(PlayedRank, ShrinkNeedsNoGather) {
  begin(4);
  rig_->comm->shrink({2}, {});
  check_in();
  make_ring();
  gather(ring_data());
  gather(peer_info());
  EXPECT_THAT(user().children, IsEmpty());
  gather(graph(1));
  ASSERT_EQ(user().children.size(), 1U);
  EXPECT_EQ(user().children[0]->hash(), child_hash(rig_->comm->hash(), 0, 0));
  EXPECT_EQ(user().children[0]->spec().ranks.size(), 3U);
  rig_->comm.reset();  // the child outlives its parent
  EXPECT_THAT(user().children[0]->waiting_for(), HasSubstr("rank 0"));
}

}  // namespace
}  // namespace nbx::nccl
