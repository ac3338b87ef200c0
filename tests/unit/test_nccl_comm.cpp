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

TEST(NcclTopology, ChannelsDoubleOnHopperWithFastRings) {
  const auto fast = [](std::int32_t rank) {
    Graph graph = one_rank_node(rank, 2);
    graph.ring_bandwidth = 46;
    return graph;
  };
  EXPECT_EQ(pattern_of(4, 90, fast).usual_channels(), 8);
  EXPECT_EQ(pattern_of(4, 89, fast).usual_channels(), 4);
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

}  // namespace
}  // namespace nbx::nccl
