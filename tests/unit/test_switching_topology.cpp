// Generated topologies against the counts of the papers that named them; ways, hashes, sprays.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "switching/check.hpp"
#include "switching/class_map.hpp"
#include "switching/routes.hpp"
#include "switching/topology.hpp"

namespace nbx::switching {
namespace {

std::size_t ways_between(const Topology& t, SwitchId from, HostId to) { return shortest_paths(t)[from][to].size(); }

void expect_everyone_reaches_everyone(const Topology& t, std::size_t hops_max) {
  const auto ways = shortest_paths(t);
  const auto around = neighbours(t);
  for (HostId to = 0; to < t.hosts.size(); ++to) {
    for (SwitchId from = 0; from < t.switches.size(); ++from) {
      SwitchId here = from;
      std::size_t hops = 0;
      while (true) {
        ASSERT_FALSE(ways[here][to].empty()) << t.switches[here] << " to " << t.hosts[to];
        const Topology::End end = around[here][ways[here][to].back()].end;
        if (end.host) {
          ASSERT_EQ(end.index, to);
          break;
        }
        here = end.index;
        ASSERT_LE(++hops, hops_max);
      }
    }
  }
}

TEST(Topology, rack) {
  const Topology t = rack(8, {});
  EXPECT_EQ(t.hosts.size(), 8U);
  EXPECT_EQ(t.switches.size(), 1U);
  expect_everyone_reaches_everyone(t, 0);
}

TEST(Topology, leaf_spine) {
  const Topology t = leaf_spine({.leaves = 4, .spines = 3, .hosts_per_leaf = 5, .parallel = 2});
  EXPECT_EQ(t.hosts.size(), 20U);
  EXPECT_EQ(t.switches.size(), 7U);
  EXPECT_EQ(t.cables.size(), 20U + 4 * 3 * 2);
  expect_everyone_reaches_everyone(t, 2);
  EXPECT_EQ(ways_between(t, 0, 19), 6U);
  EXPECT_EQ(ways_between(t, 0, 0), 1U);
  EXPECT_EQ(ways_between(t, 4, 19), 2U);  // from a spine
}

// Al-Fares et al. 2008: 5k^2/4 switches, k^3/4 hosts, every switch has k ports, (k/2)^2 ways between pods.
TEST(Topology, fat_tree) {
  for (const std::uint32_t k : {2U, 4U, 8U}) {
    const Topology t = fat_tree(k, {});
    EXPECT_EQ(t.hosts.size(), k * k * k / 4);
    EXPECT_EQ(t.switches.size(), 5 * k * k / 4);
    for (const auto& ports : neighbours(t)) {
      EXPECT_EQ(ports.size(), k);
    }
    expect_everyone_reaches_everyone(t, 4);
    const auto edge =
        static_cast<SwitchId>(std::find(t.switches.begin(), t.switches.end(), "edge0.0") - t.switches.begin());
    EXPECT_EQ(ways_between(t, edge, static_cast<HostId>(t.hosts.size() - 1)), k / 2);
  }
}

TEST(Topology, rail_optimized) {
  const Topology t = rail_optimized({.nodes = 6, .rails = 4, .nodes_per_group = 3, .spines = 2});
  EXPECT_EQ(t.hosts.size(), 24U);
  EXPECT_EQ(t.switches.size(), 2 * 4 + 2U);
  const auto around = neighbours(t);
  EXPECT_EQ(around[1].size(), 3 + 2U);
  for (const HostId host : {1U, 5U, 9U}) {  // port 1 of nodes 0, 1, 2
    EXPECT_TRUE(std::any_of(around[1].begin(), around[1].end(), [&](const Neighbour& n) {
      return n.end == Topology::End{true, host};
    }));
  }
  expect_everyone_reaches_everyone(t, 2);
}

// Kim et al. 2008: N = a p (a h + 1) hosts, radix p + h + a - 1, one cable between two groups, at most one local, one
// global and one local hop.
TEST(Topology, dragonfly) {
  const std::uint32_t p = 2;
  const std::uint32_t a = 4;
  const std::uint32_t h = 2;
  const Topology t = dragonfly(p, a, h, {});
  EXPECT_EQ(t.hosts.size(), a * p * (a * h + 1));
  EXPECT_EQ(t.switches.size(), a * (a * h + 1));
  const auto around = neighbours(t);
  std::map<std::pair<std::uint32_t, std::uint32_t>, int> between;
  for (SwitchId s = 0; s < around.size(); ++s) {
    EXPECT_EQ(around[s].size(), p + h + a - 1);
    for (const Neighbour& n : around[s]) {
      if (!n.end.host && n.end.index / a != s / a) {
        ++between[{s / a, n.end.index / a}];
      }
    }
  }
  EXPECT_EQ(between.size(), std::size_t{9} * 8);
  for (const auto& [groups, cables] : between) {
    EXPECT_EQ(cables, 1);
  }
  expect_everyone_reaches_everyone(t, 3);
}

Packet packet(std::uint32_t flow, HostId to = 0) {
  Packet p;
  p.flow = flow;
  p.destination = to;
  return p;
}

constexpr auto no_queue = [](PortIndex) { return std::uint64_t{0}; };

TEST(Routes, ecmp_keeps_a_flow_and_spreads_flows) {
  Routes routes{{.choice = PathChoice::ecmp}, 42, 1};
  routes.add({0, 1, 2, 3});
  Rng rng{1};
  std::map<PortIndex, int> used;
  for (std::uint32_t flow = 0; flow < 40'000; ++flow) {
    const PortIndex port = routes.pick(packet(flow), Instant{}, rng, no_queue);
    EXPECT_EQ(routes.pick(packet(flow), Instant{}, rng, no_queue), port);
    ++used[port];
  }
  for (const auto& [port, flows] : used) {
    EXPECT_NEAR(flows, 10'000, 400) << port;  // four sigma are 346
  }
}

// Two tiers of four ways: with one seed, the flows that reach a second switch all hash to one of its ports.
TEST(Routes, equal_seeds_polarise) {
  const auto ports_used = [](std::uint64_t second_seed) {
    Routes first{{.choice = PathChoice::ecmp}, 42, 1};
    Routes second{{.choice = PathChoice::ecmp}, second_seed, 1};
    first.add({0, 1, 2, 3});
    second.add({0, 1, 2, 3});
    Rng rng{1};
    std::set<PortIndex> used;
    for (std::uint32_t flow = 0; flow < 1'000; ++flow) {
      if (first.pick(packet(flow), Instant{}, rng, no_queue) == 2) {
        used.insert(second.pick(packet(flow), Instant{}, rng, no_queue));
      }
    }
    return used.size();
  };
  EXPECT_EQ(ports_used(42), 1U);
  EXPECT_EQ(ports_used(43), 4U);
}

TEST(Routes, spray_uses_every_way_for_one_flow) {
  Routes routes{{.choice = PathChoice::spray}, 42, 1};
  routes.add({0, 1, 2, 3});
  Rng rng{1};
  std::map<PortIndex, int> used;
  for (int i = 0; i < 40'000; ++i) {
    ++used[routes.pick(packet(7), Instant{}, rng, no_queue)];
  }
  for (const auto& [port, packets] : used) {
    EXPECT_NEAR(packets, 10'000, 400) << port;
  }
}

TEST(Routes, adaptive_takes_the_shortest_queue) {
  Routes routes{{.choice = PathChoice::adaptive}, 42, 1};
  routes.add({4, 5, 6});
  Rng rng{1};
  const auto queued = [](PortIndex port) { return std::uint64_t{port == 5 ? 10U : 100U}; };
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(routes.pick(packet(7), Instant{}, rng, queued), 5);
  }
}

TEST(Routes, a_pin_beats_the_hash_and_what_is_unknown_has_no_way) {
  Routes routes{{.choice = PathChoice::ecmp}, 42, 3};
  routes.add({0, 1});
  routes.add({});
  routes.add({2, 3});
  Rng rng{1};
  for (const PortIndex port : {PortIndex{0}, PortIndex{1}}) {
    Routes pinned = routes;
    pinned.pin(5, 0, port);
    pinned.pin(4, 0, 1);
    pinned.pin(5, 2, 3);
    EXPECT_EQ(pinned.pick(packet(5), Instant{}, rng, no_queue), port);
    EXPECT_EQ(pinned.pick(packet(5, 2), Instant{}, rng, no_queue), 3);
  }
  EXPECT_EQ(routes.pick(packet(5, 1), Instant{}, rng, no_queue), no_port);
  EXPECT_EQ(routes.pick(packet(5, 3), Instant{}, rng, no_queue), no_port);
}

// A flow whose packets come close together stays; after a gap it moves to the shortest queue.
TEST(Routes, a_flowlet_keeps_its_way_until_a_gap) {
  using namespace std::chrono_literals;
  Routes routes{{.choice = PathChoice::flowlet, .flowlet_gap = 10us}, 42, 1};
  routes.add({4, 5, 6});
  Rng rng{1};
  PortIndex shortest = 5;
  const auto queued = [&shortest](PortIndex port) { return std::uint64_t{port == shortest ? 10U : 100U}; };
  EXPECT_EQ(routes.pick(packet(7), Instant{} + 1us, rng, queued), 5);
  shortest = 6;
  EXPECT_EQ(routes.pick(packet(7), Instant{} + 11us, rng, queued), 5);
  EXPECT_EQ(routes.pick(packet(7), Instant{} + 21us, rng, queued), 5);
  EXPECT_EQ(routes.pick(packet(8), Instant{} + 21us, rng, queued), 6);
  EXPECT_EQ(routes.pick(packet(7), Instant{} + 31us + Duration{1}, rng, queued), 6);
}

TEST(Routes, a_dead_link_is_passed_over) {
  Routes routes{{}, 42, 1};
  routes.add({4, 5, 6});
  EXPECT_EQ(routes.other_than(5, 0, [](PortIndex p) { return p != 5; }), 6);
  EXPECT_EQ(routes.other_than(6, 0, [](PortIndex p) { return p == 5; }), 5);
  EXPECT_EQ(routes.other_than(5, 0, [](PortIndex) { return false; }), no_port);
}

TEST(ClassMap, two_ends_that_agree_have_nothing_to_say) {
  ClassMap map;
  map.lossless = 0b1000;
  EXPECT_EQ(map.priority(8, 26), 3);
  EXPECT_EQ(map.priority(5, 64), 0);
  EXPECT_TRUE(disagreements("node", map, "leaf0", map).empty());
}

TEST(ClassMap, two_ends_that_do_not_are_told_apart) {
  ClassMap node;
  node.lossless = 0b1000;
  ClassMap leaf = node;
  leaf.of_dscp[26] = 4;
  EXPECT_EQ(disagreements("node", node, "leaf0", leaf),
            (std::vector<std::string>{"DSCP 26 is priority 3 (lossless) at node and priority 4 (lossy) at leaf0"}));
  leaf = node;
  leaf.lossless = 0;
  EXPECT_EQ(disagreements("node", node, "leaf0", leaf).size(), 8U);  // DSCP 24 to 31
  leaf.trust = Trust::pcp;
  EXPECT_EQ(leaf.priority(5, 26), 5);
  EXPECT_EQ(disagreements("node", node, "leaf0", leaf),
            (std::vector<std::string>{"node trusts DSCP, leaf0 trusts PCP"}));
}

std::vector<std::string> findings(const Topology& t, const NetworkSpec& spec) {
  std::vector<std::string> texts;
  for (const Finding& f : check(t, spec, 4096)) {
    texts.push_back((f.fatal ? "error: " : "warning: ") + f.text);
  }
  return texts;
}

TEST(Check, a_sound_network_has_no_findings) {
  NetworkSpec spec;
  spec.switches.buffer.size_bytes = 1'000'000;
  // 2 x 500 ns at 100 Gb/s are 12500 bytes; three frames of 4120 are 12360.
  spec.switches.buffer.priority[3] = {
      .lossless = true, .headroom_bytes = 24'860, .xoff_bytes = 50'000, .xon_bytes = 10'000};
  spec.switches.ecn[3] = {true, 10'000, 40'000, 10'000, 0};
  EXPECT_EQ(findings(rack(4, {BitRate::gbps(100), std::chrono::nanoseconds{500}}), spec), std::vector<std::string>{});
}

TEST(Check, says_what_is_wrong_with_the_arithmetic) {
  NetworkSpec spec;
  spec.switches.buffer.size_bytes = 1'000'000;
  spec.switches.buffer.priority[3] = {
      .lossless = true, .headroom_bytes = 24'859, .xoff_bytes = 5'000, .xon_bytes = 5'000};
  spec.switches.buffer.priority[1] = {.queue_limit_bytes = 10'000};
  spec.switches.ecn[0] = {true, 2, 1, 10'000, 0};
  spec.switches.ecn[1] = {true, 10'000, 20'000, 0, 0};
  spec.switches.ecn[3] = {true, 5'000, 40'000, 10'000, 0};
  spec.switches.pfc_quanta = 100;
  EXPECT_EQ(
      findings(rack(4, {BitRate::gbps(100), std::chrono::nanoseconds{500}}), spec),
      (std::vector<std::string>{
          "error: priority 0: Kmin, 2 bytes, is above Kmax, 1 bytes",
          "warning: priority 1: Pmax is 0: nothing is marked up to Kmax, everything above",
          "warning: priority 1: Kmin, 10000 bytes, is not below the queue's limit, 10000 bytes: it drops before it "
          "marks",
          "warning: priority 3: Kmin, 5000 bytes, is not below xoff, 5000 bytes: one sender is paused before it is "
          "marked",
          "warning: priority 3: resumes 5000 bytes below an xoff of 5000 bytes: only when all is gone",
          "warning: priority 3: headroom of 24859 bytes may lose packets: 24860 bytes can arrive after a pause "
          "(twice the propagation and the latency at the link's rate, and three frames)",
          "warning: priority 3: 100 quanta are over before a refresh has passed a frame on the line: pauses have "
          "gaps"}));
}

TEST(Check, refuses_what_does_not_fit) {
  NetworkSpec spec;
  spec.switches.buffer.size_bytes = 199'999;
  spec.switches.buffer.priority[3] = {.lossless = true, .headroom_bytes = 50'000};
  EXPECT_EQ(findings(rack(4, {}), spec),
            (std::vector<std::string>{
                "error: tor: reserves and headroom take 4 ports x 50000 bytes = 200000 bytes of 199999 bytes"}));
  Topology alone = rack(1, {});
  alone.add_host("lonely");
  EXPECT_EQ(findings(alone, {}), (std::vector<std::string>{"error: lonely has 0 cables; a host has one"}));
}

}  // namespace
}  // namespace nbx::switching
