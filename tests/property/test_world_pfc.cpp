// PFC in whole networks: an incast that loses nothing and one that loses what is counted, deadlock where there is a
// cycle and none where there is not, a storm that spreads and a watchdog that ends it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "switching/pause_storm.hpp"
#include "virtual_time/sources.hpp"
#include "virtual_time/world.hpp"

namespace nbx::virtual_time {
namespace {

using namespace std::chrono_literals;
using switching::PortIndex;
using switching::SwitchId;

constexpr Instant at(Duration d) { return Instant{} + d; }
constexpr switching::CableSpec cable{BitRate::gbps(100), 1us};

/// 64 hosts on 8 leaves send 500 packets each to one host of a ninth leaf, all at once and at line rate.
WorldSpec incast(bool lossless) {
  WorldSpec spec;
  spec.packets = 64 * 500 + 100;
  spec.topology = switching::leaf_spine(
      {.leaves = 9, .spines = 4, .hosts_per_leaf = 8, .host_cable = cable, .fabric_cable = cable});
  spec.network.switches.latency = 500ns;
  switching::BufferSpec& buffer = spec.network.switches.buffer;
  buffer.size_bytes = 2'000'000;
  buffer.priority[3].alpha_log2 = -3;
  if (lossless) {
    buffer.priority[3].lossless = true;
    buffer.priority[3].headroom_bytes = switching::headroom_for(cable.rate, cable.propagation, 500ns, 1500);
  }
  return spec;
}

std::vector<Flow*> add_incast(World& world) {
  std::vector<Flow*> flows;
  for (std::uint32_t i = 0; i < 64; ++i) {
    flows.push_back(&world.add<OpenLoopFlow>(
        FlowSpec{.source = i, .destination = 64, .packet_bytes = 1500, .hash = i * 7919, .packets = 500},
        ArrivalSpec{.interval = 100ns}));
  }
  return flows;
}

TEST(Incast, a_lossless_64_to_1_loses_nothing) {
  World world{incast(true)};
  const auto flows = add_incast(world);
  ASSERT_TRUE(world.run_dry(at(1s)));
  for (const Flow* flow : flows) {
    EXPECT_EQ(flow->stats().delivered, 500U);
  }
  EXPECT_EQ(world.network().dropped(), 0U);
  // It was a contest: peers were paused, headroom was used, and never all of it.
  std::uint64_t xoffs = 0;
  std::uint64_t headroom = 0;
  for (SwitchId s = 0; s < world.network().topology().switches.size(); ++s) {
    for (PortIndex port = 0; port < world.network().at(s).ports(); ++port) {
      xoffs += world.network().at(s).pfc(port).xoffs();
      headroom = std::max(headroom, world.network().at(s).buffer().headroom_peak(port, 3));
    }
  }
  std::printf("lossless 64:1: 32000 packets delivered, %lu pauses, headroom used %lu of %u bytes\n",
              static_cast<unsigned long>(xoffs), static_cast<unsigned long>(headroom),
              switching::headroom_for(cable.rate, cable.propagation, 500ns, 1500));
  EXPECT_GT(xoffs, 64U);
  EXPECT_GT(headroom, 0U);
  // And the one link was busy all the time: the last packet comes when all have been sent on it, and the flight.
  Instant last{};
  for (const Flow* flow : flows) {
    last = std::max(last, flow->stats().last_delivery);
  }
  const Duration busy = serialize_time_ceil(std::uint64_t{64} * 500 * 1524, cable.rate);
  EXPECT_GE(last, at(busy));
  EXPECT_LE(last, at(busy + 10us));
}

// The same with too little headroom: the arithmetic of headroom_for() is not generous by a factor.
TEST(Incast, half_the_headroom_is_not_enough) {
  WorldSpec spec = incast(true);
  spec.network.switches.buffer.priority[3].headroom_bytes /= 2;
  World world{spec};
  add_incast(world);
  ASSERT_TRUE(world.run_dry(at(1s)));
  EXPECT_GT(world.pool().dropped(switching::SwitchDrop::headroom_full), 0U);
}

TEST(Incast, a_lossy_64_to_1_loses_what_the_counters_say) {
  World world{incast(false)};
  const auto flows = add_incast(world);
  ASSERT_TRUE(world.run_dry(at(1s)));
  std::uint64_t delivered = 0;
  std::uint64_t dropped = 0;
  for (const Flow* flow : flows) {
    delivered += flow->stats().delivered;
    dropped += flow->stats().dropped;
  }
  std::uint64_t counted = 0;
  for (std::size_t reason = 0; reason < switching::switch_drops; ++reason) {
    std::uint64_t by_switches = 0;
    for (SwitchId s = 0; s < world.network().topology().switches.size(); ++s) {
      by_switches += world.network().at(s).counters().dropped(static_cast<switching::SwitchDrop>(reason));
    }
    EXPECT_EQ(by_switches, world.pool().dropped(static_cast<switching::SwitchDrop>(reason)));
    counted += by_switches;
  }
  std::printf("lossy 64:1: %lu delivered, %lu dropped\n", static_cast<unsigned long>(delivered),
              static_cast<unsigned long>(dropped));
  EXPECT_EQ(delivered + dropped, 64U * 500U);
  EXPECT_EQ(counted, dropped);
  EXPECT_GT(dropped, 1000U);
  EXPECT_EQ(world.pool().dropped(switching::SwitchDrop::dynamic_threshold), dropped);
}

/// `n` switches in a ring or in a row, two hosts each. In a ring every host sends two switches further round; in a row
/// it sends two further on, as far as there is one.
struct Round {
  Round(std::uint32_t n, bool ring, switching::WatchdogSpec watchdog = {}) : world(spec(n, ring, watchdog)) {
    std::uint32_t hash = 0;
    for (std::uint32_t host = 0; host < 2 * n; ++host) {
      const std::uint32_t from = host / 2;
      if (!ring && from + 2 >= n) {
        continue;
      }
      const std::uint32_t to = (from + 2) % n * 2 + host % 2;
      const FlowSpec flow{.source = host, .destination = to, .packet_bytes = 1000, .hash = ++hash};
      for (std::uint32_t hop = from; ring && hop < from + 2; ++hop) {
        world.network().pin(hash, to, hop % n, port_to(hop % n, (hop + 1) % n));
      }
      flows.push_back(&world.add<GreedyFlow>(flow, 200U, std::uint8_t{6}));
    }
  }

  [[nodiscard]] std::uint64_t delivered() const {
    std::uint64_t sum = 0;
    for (const Flow* flow : flows) {
      sum += flow->stats().delivered;
    }
    return sum;
  }

  World world;
  std::vector<Flow*> flows;

 private:
  static WorldSpec spec(std::uint32_t n, bool ring, switching::WatchdogSpec watchdog) {
    WorldSpec spec;
    for (std::uint32_t s = 0; s < n; ++s) {
      spec.topology.add_switch("s" + std::to_string(s));
      for (int h = 0; h < 2; ++h) {
        spec.topology.connect_host(spec.topology.add_host("host"), s, cable);
      }
    }
    for (std::uint32_t s = 0; s < (ring ? n : n - 1); ++s) {
      spec.topology.connect(s, (s + 1) % n, cable);
    }
    spec.network.switches.buffer.size_bytes = 4'000'000;
    spec.network.switches.buffer.priority[3] = {.lossless = true,
                                                .headroom_bytes = switching::headroom_for(cable.rate, 1us, {}, 1000),
                                                .xoff_bytes = 20'000,
                                                .xon_bytes = 5'000};
    spec.network.switches.watchdog = watchdog;
    return spec;
  }

  PortIndex port_to(SwitchId from, SwitchId to) {
    for (PortIndex port = 0; port < world.network().at(from).ports(); ++port) {
      if (world.network().peer(from, port).end == switching::Topology::End{false, to}) {
        return port;
      }
    }
    return switching::no_port;
  }
};

TEST(Deadlock, appears_in_a_ring_and_is_named) {
  for (const std::uint32_t n : {3U, 4U, 6U}) {
    Round ring{n, true};
    std::optional<std::vector<switching::QueuePlace>> cycle;
    for (int us = 10; us <= 10'000 && !cycle; us += 10) {
      ring.world.run(at(us * 1us));
      cycle = switching::find_deadlock(ring.world.network(), ring.world.now());
    }
    ASSERT_TRUE(cycle.has_value());
    const std::string name = switching::describe(ring.world.network(), *cycle);
    std::printf("deadlock at %.0f us: %s\n", static_cast<double>(ring.world.now().ps) / 1e6, name.c_str());
    // Once round, each queue leading to the switch of the next.
    ASSERT_EQ(cycle->size(), n);
    for (std::size_t i = 0; i < n; ++i) {
      const switching::QueuePlace& here = (*cycle)[i];
      EXPECT_EQ(ring.world.network().peer(here.at, here.port).end,
                (switching::Topology::End{false, (*cycle)[(i + 1) % n].at}));
      EXPECT_EQ(here.priority, 3U);
    }
    EXPECT_EQ(name.rfind("s0 port", 0), 0U);
    // It is one: nothing moves any more, whatever the time.
    const std::uint64_t before = ring.delivered();
    ring.world.run(ring.world.now() + 100ms);
    EXPECT_EQ(ring.delivered(), before);
    EXPECT_EQ(switching::find_deadlock(ring.world.network(), ring.world.now()), cycle);
    EXPECT_EQ(ring.world.network().dropped(), 0U);
  }
}

TEST(Deadlock, does_not_appear_without_a_cycle) {
  Round row{6, false};
  std::uint64_t before = 0;
  for (int us = 100; us <= 20'000; us += 100) {
    row.world.run(at(us * 1us));
    ASSERT_FALSE(switching::find_deadlock(row.world.network(), row.world.now()).has_value());
    ASSERT_GT(row.delivered(), before);
    before = row.delivered();
  }
  std::uint64_t xoffs = 0;
  for (SwitchId s = 0; s < 6; ++s) {
    for (PortIndex port = 0; port < row.world.network().at(s).ports(); ++port) {
      xoffs += row.world.network().at(s).pfc(port).xoffs();
    }
  }
  EXPECT_GT(xoffs, 100U);  // not for want of pauses
}

// A watchdog on every port dissolves it: packets are lost, and the ring moves.
TEST(Deadlock, a_watchdog_dissolves_it) {
  Round ring{3, true, {.detection_time = 200us, .restoration_time = 100us}};
  ring.world.run(at(150us));
  ASSERT_TRUE(switching::find_deadlock(ring.world.network(), ring.world.now()).has_value());
  const std::uint64_t before = ring.delivered();
  ring.world.run(at(10ms));
  EXPECT_GT(ring.delivered(), before);
  EXPECT_GT(ring.world.pool().dropped(switching::SwitchDrop::pfc_watchdog), 0U);
  EXPECT_EQ(ring.world.pool().dropped(switching::SwitchDrop::pfc_watchdog), ring.world.network().dropped());
}

/// Host 2 of a rack storms; hosts 0 and 1 send to it and to host 3.
struct StormRig {
  explicit StormRig(switching::WatchdogSpec watchdog) : world(spec(watchdog)) {
    to_storm = &world.add<OpenLoopFlow>(FlowSpec{.source = 0, .destination = 2}, ArrivalSpec{.interval = 200ns});
    victim = &world.add<OpenLoopFlow>(FlowSpec{.source = 0, .destination = 3}, ArrivalSpec{.interval = 200ns});
    bystander = &world.add<OpenLoopFlow>(FlowSpec{.source = 1, .destination = 3, .priority = 0},
                                         ArrivalSpec{.interval = 200ns});
  }
  static WorldSpec spec(switching::WatchdogSpec watchdog) {
    WorldSpec spec;
    spec.packets = 100'000;
    spec.topology = switching::rack(4, cable);
    spec.network.switches.buffer.size_bytes = 4'000'000;
    spec.network.switches.buffer.priority[3] = {.lossless = true,
                                                .headroom_bytes = switching::headroom_for(cable.rate, 1us, {}, 1000),
                                                .xoff_bytes = 50'000,
                                                .xon_bytes = 5'000};
    spec.network.switches.watchdog = watchdog;
    return spec;
  }

  World world;
  Flow* to_storm = nullptr;
  Flow* victim = nullptr;
  Flow* bystander = nullptr;
};

TEST(Storm, stops_who_sends_to_it_and_their_other_flows_of_that_priority) {
  StormRig rig{{}};
  switching::PauseStorm storm{rig.world.wheel(), rig.world.host(2).port()};
  rig.world.run(at(1ms));
  storm.start({.class_enable = 0b1000, .duration = 5ms}, at(1ms));
  rig.world.run(at(2ms));
  const std::uint64_t stopped = rig.to_storm->stats().delivered;
  const std::uint64_t victim = rig.victim->stats().delivered;
  const std::uint64_t bystander = rig.bystander->stats().delivered;
  rig.world.run(at(5ms));
  EXPECT_EQ(rig.to_storm->stats().delivered, stopped);
  EXPECT_EQ(rig.victim->stats().delivered, victim);  // head-of-line blocking at host 0
  EXPECT_EQ(rig.bystander->stats().delivered, bystander + 15'000);
  EXPECT_FALSE(switching::find_deadlock(rig.world.network(), rig.world.now()).has_value());  // a storm is no deadlock
  rig.world.run(at(9ms));                                                                    // it ended by itself
  EXPECT_GT(rig.to_storm->stats().delivered, stopped);
  EXPECT_GT(rig.victim->stats().delivered, victim);
  EXPECT_EQ(rig.world.network().dropped(), 0U);
}

TEST(Storm, a_watchdog_frees_the_victim) {
  StormRig rig{{.detection_time = 200us, .restoration_time = 200us}};
  switching::PauseStorm storm{rig.world.wheel(), rig.world.host(2).port()};
  rig.world.run(at(1ms));
  storm.start({.class_enable = 0b1000, .duration = 5ms}, at(1ms));
  rig.world.run(at(2ms));
  const std::uint64_t victim = rig.victim->stats().delivered;
  rig.world.run(at(5ms));
  EXPECT_EQ(rig.world.network().at(0).watchdog(2).storms_detected(), 1U);
  EXPECT_NEAR(static_cast<double>(rig.victim->stats().delivered - victim), 15'000, 200);
  EXPECT_GT(rig.world.pool().dropped(switching::SwitchDrop::pfc_watchdog), 10'000U);
  EXPECT_EQ(rig.world.pool().dropped(switching::SwitchDrop::pfc_watchdog), rig.world.network().dropped());
  rig.world.run(at(9ms));
  EXPECT_EQ(rig.world.network().at(0).watchdog(2).storms_restored(), 1U);
}

}  // namespace
}  // namespace nbx::virtual_time
