// Packets in whole networks: none is lost but what is counted, whatever the paths; which paths keep their order; one
// seed, one run.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "virtual_time/sources.hpp"
#include "virtual_time/world.hpp"

namespace nbx::virtual_time {
namespace {

using namespace std::chrono_literals;

constexpr Instant at(Duration d) { return Instant{} + d; }

TEST(Sources, on_off_is_on_for_its_share) {
  WorldSpec spec;
  spec.topology = switching::rack(2, {});
  spec.network.switches.buffer.size_bytes = 1'000'000;
  World world{spec};
  auto& flow = world.add<OpenLoopFlow>(FlowSpec{.source = 0, .destination = 1, .packet_bytes = 976},
                                       ArrivalSpec{.interval = 100ns, .on = 10us, .off = 30us});
  world.run(at(1s));
  EXPECT_NEAR(static_cast<double>(flow.stats().sent) * 100e-9, 0.25, 0.005);  // 25,000 periods
}

/// Every choice of path, lossy and lossless at once, a flapping cable: packets are delivered, dropped and counted, or
/// still there, and in the end none is.
TEST(Conservation, every_packet_is_delivered_or_counted) {
  for (const auto choice :
       {switching::PathChoice::ecmp, switching::PathChoice::spray, switching::PathChoice::adaptive}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(seed);
      WorldSpec spec;
      spec.seed = seed;
      spec.topology = switching::fat_tree(4, {BitRate::gbps(10), 500ns});
      spec.network.paths.choice = choice;
      spec.network.switches.latency = 300ns;
      spec.network.switches.buffer.size_bytes = 200'000;
      spec.network.switches.buffer.priority[3] = {.lossless = true, .alpha_log2 = -2, .headroom_bytes = 10'000};
      spec.network.switches.ecn[0] = {true, 5'000, 20'000, 500'000, 0};
      World world{spec};
      std::vector<Flow*> flows;
      Rng rng{seed};
      for (std::uint32_t i = 0; i < 48; ++i) {
        const auto from = static_cast<std::uint32_t>(rng.below(16));
        const auto to = static_cast<std::uint32_t>((from + 1 + rng.below(15)) % 16);
        const FlowSpec flow{.source = from,
                            .destination = to,
                            .packet_bytes = static_cast<std::uint32_t>(100 + rng.below(1400)),
                            .priority = static_cast<std::uint8_t>(i % 2 == 0 ? 0 : 3),
                            .ecn = i % 4 == 0 ? switching::Ecn::not_ect : switching::Ecn::ect0,
                            .hash = static_cast<std::uint32_t>(rng.next()),
                            .packets = 1000};
        if (i % 3 == 0) {
          flows.push_back(&world.add<GreedyFlow>(flow, 20U, std::uint8_t{0}));
        } else {
          flows.push_back(&world.add<OpenLoopFlow>(flow, ArrivalSpec{.interval = 2us, .poisson = true}));
        }
      }
      for (int i = 0; i < 20; ++i) {
        world.run(at(i * 100us));
        world.network().set_cable_up(static_cast<std::uint32_t>(rng.below(32)), i % 2 != 0, world.now());
      }
      for (std::uint32_t c = 0; c < world.network().topology().cables.size(); ++c) {
        world.network().set_cable_up(c, true, world.now());
      }
      ASSERT_TRUE(world.run_dry(at(100s)));
      EXPECT_EQ(world.pool().in_use(), 0U);
      std::uint64_t dropped = 0;
      for (const Flow* flow : flows) {
        EXPECT_EQ(flow->stats().sent, 1000U);
        EXPECT_EQ(flow->stats().delivered + flow->stats().dropped, flow->stats().sent);
        dropped += flow->stats().dropped;
      }
      std::uint64_t counted = world.pool().dropped(switching::SwitchDrop::link_down);
      counted += world.network().dropped();
      EXPECT_GE(counted, dropped);  // acknowledgements are dropped too
      EXPECT_GT(world.network().dropped(), 0U);
      EXPECT_EQ(world.pool().dropped(switching::SwitchDrop::headroom_full), 0U);
      for (switching::SwitchId s = 0; s < world.network().topology().switches.size(); ++s) {
        EXPECT_EQ(world.network().at(s).buffer().pool_used(), 0U);
      }
    }
  }
}

/// Every host of leaf 0 sends to its like on leaf 1, over four spines, in bursts; all of them together fill one spine.
struct Spread {
  Spread(switching::PathChoice choice, Duration gap) {
    WorldSpec spec;
    spec.packets = 100'000;
    const switching::CableSpec cable{BitRate::gbps(100), 1us};
    spec.topology = switching::leaf_spine(
        {.leaves = 2, .spines = 4, .hosts_per_leaf = 4, .host_cable = cable, .fabric_cable = cable});
    spec.network.paths = {.choice = choice, .flowlet_gap = gap};
    spec.network.switches.buffer.size_bytes = 100'000'000;
    World world{spec};
    std::vector<Flow*> flows;
    for (std::uint32_t i = 0; i < 4; ++i) {
      flows.push_back(
          &world.add<OpenLoopFlow>(FlowSpec{.source = i, .destination = 4 + i, .hash = i, .packets = 20'000},
                                   ArrivalSpec{.interval = 350ns, .poisson = true, .on = 20us, .off = 20us}));
    }
    EXPECT_TRUE(world.run_dry(at(1s)));
    for (const Flow* flow : flows) {
      EXPECT_EQ(flow->stats().delivered, 20'000U);
      reordered += flow->stats().reordered;
      extent = std::max(extent, flow->stats().reorder_extent);
    }
    for (PortIndex port = 4; port < 8; ++port) {
      least = std::min(least, world.network().at(0).port(port).counters(3).tx_packets);
    }
  }
  using PortIndex = switching::PortIndex;
  std::uint64_t reordered = 0;
  std::uint32_t extent = 0;
  std::uint64_t least = ~0ULL;  // packets on the spine that got the fewest
};

TEST(Paths, spray_reorders_and_ecmp_and_flowlets_do_not) {
  const Spread ecmp{switching::PathChoice::ecmp, {}};
  const Spread spray{switching::PathChoice::spray, {}};
  const Spread adaptive{switching::PathChoice::adaptive, {}};
  const Spread flowlet{switching::PathChoice::flowlet, 5us};
  std::printf("reordered of 80000: ecmp %lu, spray %lu (extent %u), adaptive %lu (extent %u), flowlet %lu\n",
              static_cast<unsigned long>(ecmp.reordered), static_cast<unsigned long>(spray.reordered), spray.extent,
              static_cast<unsigned long>(adaptive.reordered), adaptive.extent,
              static_cast<unsigned long>(flowlet.reordered));
  EXPECT_EQ(ecmp.reordered, 0U);
  EXPECT_EQ(flowlet.reordered, 0U);
  EXPECT_GT(spray.reordered, 0U);
  EXPECT_LE(adaptive.extent, spray.extent);  // queues that are kept even reorder less
  EXPECT_GT(spray.least, 19'000U);
  EXPECT_GT(flowlet.least, 10'000U);
}

/// How far a packet may come behind, by docs/fabric.md: a way differs from another by what its queues hold, in time
/// `difference`; what leaves the host later than that after a packet does not overtake it.
struct Overtaking {
  Overtaking(std::uint64_t seed, switching::PathChoice choice, double gap_in_differences) {
    constexpr std::uint32_t spines = 4;
    constexpr std::uint32_t hosts = 4;
    constexpr BitRate host_rate = BitRate::gbps(100);
    Rng rng{seed};
    const auto limit = static_cast<std::uint32_t>(10'000 + rng.below(50'000));
    WorldSpec spec;
    spec.seed = seed;
    spec.packets = 100'000;
    spec.topology = switching::leaf_spine({.leaves = 2,
                                           .spines = spines,
                                           .hosts_per_leaf = hosts,
                                           .host_cable = {host_rate, 1us},
                                           .fabric_cable = {host_rate, 1us}});
    const auto slow = BitRate::gbps(20 + rng.below(80));
    spec.topology.cables[2 * hosts + rng.below(2 * spines)].spec.rate = slow;
    spec.network.switches.buffer = {.size_bytes = 100'000'000};
    spec.network.switches.buffer.priority[3].queue_limit_bytes = limit;
    const auto size = static_cast<std::uint32_t>(200 + rng.below(4000));
    const std::uint64_t packets_waiting = limit / size + 1;  // and one on the line
    const Duration at_slow = serialize_time_ceil(packets_waiting * (size + ethernet_overhead_bytes), slow);
    const Duration elsewhere = serialize_time_ceil(packets_waiting * (size + ethernet_overhead_bytes), host_rate);
    const Duration difference = at_slow + elsewhere;  // up to a spine and down from it; one cable is slow
    const Duration spacing = serialize_time_ceil(size + ethernet_overhead_bytes, host_rate);
    bound = static_cast<std::uint32_t>(difference / spacing);
    spec.network.paths = {.choice = choice,
                          .flowlet_gap = Duration{
                              static_cast<std::int64_t>(static_cast<double>(difference.count()) * gap_in_differences)}};
    World world{spec};
    std::vector<Flow*> flows;
    for (std::uint32_t i = 0; i < hosts; ++i) {
      flows.push_back(&world.add<OpenLoopFlow>(
          FlowSpec{.source = i, .destination = hosts + i, .packet_bytes = size, .hash = i, .packets = 5'000},
          ArrivalSpec{.interval = spacing * 5 / 4, .poisson = true, .on = difference * 4, .off = difference * 3}));
    }
    EXPECT_TRUE(world.run_dry(at(10s)));
    for (const Flow* flow : flows) {
      reordered += flow->stats().reordered;
      extent = std::max(extent, flow->stats().reorder_extent);
    }
  }
  std::uint32_t bound;  // in packets
  std::uint64_t reordered = 0;
  std::uint32_t extent = 0;
};

TEST(Paths, what_overtakes_is_bounded_by_the_queues) {
  using switching::PathChoice;
  struct Row {
    PathChoice choice;
    double gap;  // in differences of the ways
    double nearest = 0;
    std::uint64_t reordered = 0;
  };
  std::array<Row, 4> rows{Row{PathChoice::spray, 0}, Row{PathChoice::adaptive, 0}, Row{PathChoice::flowlet, 0.01},
                          Row{PathChoice::flowlet, 1}};
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    for (Row& row : rows) {
      const Overtaking run{seed, row.choice, row.gap};
      EXPECT_LE(run.extent, run.bound);
      row.nearest = std::max(row.nearest, static_cast<double>(run.extent) / run.bound);
      row.reordered += run.reordered;
    }
  }
  for (const Row& row : rows) {
    std::printf("choice %d, gap %.2f: %lu reordered, at worst %.2f of the bound\n", static_cast<int>(row.choice),
                row.gap, static_cast<unsigned long>(row.reordered), row.nearest);
  }
  EXPECT_GT(rows[0].nearest, 0.5);  // the bound is no empty word
  EXPECT_GT(rows[1].reordered, 0U);
  EXPECT_GT(rows[2].reordered, 0U);
  EXPECT_EQ(rows[3].reordered, 0U);  // a gap that outlasts the difference
}

// A leaf-spine cable is cut. The leaf avoids its own dead link at once; the spine has no other way to it, so traffic
// that comes down that spine is lost until routes are made anew.
TEST(Paths, a_cut_is_passed_by_the_leaf_at_once_and_by_all_after_rerouting) {
  WorldSpec spec;
  const switching::CableSpec cable{BitRate::gbps(100), 1us};
  spec.topology = switching::leaf_spine(
      {.leaves = 2, .spines = 2, .hosts_per_leaf = 1, .host_cable = cable, .fabric_cable = cable});
  spec.network.paths.choice = switching::PathChoice::spray;
  spec.network.switches.buffer.size_bytes = 1'000'000;
  World world{spec};
  auto& away = world.add<OpenLoopFlow>(FlowSpec{.source = 0, .destination = 1}, ArrivalSpec{.interval = 1us});
  auto& back = world.add<OpenLoopFlow>(FlowSpec{.source = 1, .destination = 0}, ArrivalSpec{.interval = 1us});
  world.run(at(1ms));
  world.network().set_cable_up(2, false, world.now());  // leaf0 to spine0; cables 0 and 1 are the hosts'
  const std::uint64_t on_it = away.stats().dropped;
  world.run(at(2ms));
  EXPECT_LE(away.stats().dropped, on_it + 2);  // what was on the cable
  EXPECT_NEAR(static_cast<double>(back.stats().dropped), 500, 100);
  EXPECT_EQ(
      world.pool().dropped(switching::SwitchDrop::link_down) + world.pool().dropped(switching::SwitchDrop::no_route),
      away.stats().dropped + back.stats().dropped);
  world.network().reroute();
  const std::uint64_t before = back.stats().dropped;
  world.run(at(3ms));
  EXPECT_LE(back.stats().dropped, before + 3);  // what spine0 already had
  world.network().set_cable_up(2, true, world.now());
  world.network().reroute();
  const std::uint64_t used = world.network().at(0).port(1).counters(3).tx_packets;
  world.run(at(4ms));
  EXPECT_NEAR(static_cast<double>(world.network().at(0).port(1).counters(3).tx_packets - used), 500, 100);
}

/// One seed, one run.
TEST(Determinism, a_run_repeats_to_the_picosecond) {
  const auto digest = [](std::uint64_t seed) {
    WorldSpec spec;
    spec.seed = seed;
    spec.topology = switching::leaf_spine({.leaves = 2, .spines = 2, .hosts_per_leaf = 4});
    spec.network.paths.choice = switching::PathChoice::spray;
    spec.network.switches.buffer.size_bytes = 100'000;
    World world{spec};
    std::uint64_t sum = 0;
    std::vector<Flow*> flows;
    for (std::uint32_t i = 0; i < 8; ++i) {
      flows.push_back(&world.add<OpenLoopFlow>(FlowSpec{.source = i, .destination = 7 - i, .packets = 2000},
                                               ArrivalSpec{.interval = 90ns, .poisson = true}));
    }
    world.run(at(1s));
    for (const Flow* flow : flows) {
      sum = sum * 31 + static_cast<std::uint64_t>(flow->stats().last_delivery.ps) + flow->stats().dropped;
    }
    return sum;
  };
  EXPECT_EQ(digest(5), digest(5));
  EXPECT_NE(digest(5), digest(6));
}

}  // namespace
}  // namespace nbx::virtual_time
