// A transmitter's queue against queueing theory, rates against the clock, and nothing lost but what is counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "virtual_time/sources.hpp"
#include "virtual_time/world.hpp"

namespace nbx::virtual_time {
namespace {

using namespace std::chrono_literals;

constexpr Instant at(Duration d) { return Instant{} + d; }

WorldSpec two_hosts(std::uint64_t gbps, std::uint32_t overhead) {
  WorldSpec spec;
  spec.topology = switching::rack(2, {BitRate::gbps(gbps), 1us});
  spec.network.switches.buffer.size_bytes = 100'000'000;
  spec.network.switches.overhead_bytes = overhead;
  return spec;
}

/// Mean time in the queue of a host's port, in service times.
double mean_wait(double load, bool exponential_sizes, std::uint64_t packets, std::uint64_t seed) {
  constexpr std::uint32_t size = 10'000;  // so that rounding exponential sizes to bytes does not count
  WorldSpec spec = two_hosts(100, 0);
  spec.seed = seed;
  World world{spec};
  const double service = size * 80.0;  // ps
  const Duration interval{static_cast<std::int64_t>(service / load)};
  auto& flow = world.add<OpenLoopFlow>(
      FlowSpec{.source = 0, .destination = 1, .packet_bytes = size, .packets = packets},
      ArrivalSpec{.interval = interval, .poisson = true, .exponential_sizes = exponential_sizes});
  EXPECT_TRUE(world.run_dry(at(1000s)));
  EXPECT_EQ(flow.stats().departed, packets);
  EXPECT_EQ(world.pool().exhausted(), 0U);
  return static_cast<double>(flow.stats().waited.count()) / static_cast<double>(packets) / service;
}

/// Over three seeds: the standard error is a third of a percent, or less.
void expect_wait(const char* queue, double load, bool exponential_sizes, double expected) {
  double measured = 0;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    measured += mean_wait(load, exponential_sizes, 1'500'000, seed) / 3;
  }
  std::printf("%s load %.1f: mean wait %.4f services, theory %.4f, error %+.2f %%\n", queue, load, measured, expected,
              100 * (measured / expected - 1));
  EXPECT_NEAR(measured / expected, 1, 0.01);
}

// Pollaczek and Khinchine: W = rho / (2 (1 - rho)) service times for fixed sizes, rho / (1 - rho) for exponential ones.
TEST(Queueing, m_d_1_waits_as_theory_says) {
  for (const double load : {0.3, 0.5, 0.7}) {
    expect_wait("M/D/1", load, false, load / (2 * (1 - load)));
  }
}

TEST(Queueing, m_m_1_waits_as_theory_says) {
  for (const double load : {0.3, 0.5, 0.7}) {
    expect_wait("M/M/1", load, true, load / (1 - load));
  }
}

// A fixed-rate flow (DCQCN without a CNP, held below the link) against one second of the clock.
TEST(Rates, are_right_within_a_thousandth_over_a_second) {
  for (const std::uint32_t mbps : {10U, 333U, 7'777U, 25'000U, 99'999U}) {
    World world{two_hosts(100, 24)};
    cc::DcqcnParams params;
    params.rp_max_rate = mbps;
    cc::NotificationPoint np{params, 1, 1};
    auto& flow = world.add<DcqcnFlow>(FlowSpec{.source = 0, .destination = 1, .packet_bytes = 1000}, params, np,
                                      std::size_t{0}, std::size_t{0});
    world.run(at(1s));
    const double achieved = static_cast<double>(flow.stats().departed) * 1024 * 8;
    const double asked = mbps * 1e6;
    EXPECT_NEAR(achieved / asked, 1, std::max(0.001, 1024 * 8 / asked)) << mbps;
    std::printf("asked %u Mb/s, sent %.4f Mb/s\n", mbps, achieved / 1e6);
  }
}

TEST(Sources, on_off_is_on_for_its_share) {
  World world{two_hosts(100, 24)};
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
      spec.network.path_choice = choice;
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

/// One seed, one run.
TEST(Determinism, a_run_repeats_to_the_picosecond) {
  const auto digest = [](std::uint64_t seed) {
    WorldSpec spec;
    spec.seed = seed;
    spec.topology = switching::leaf_spine({.leaves = 2, .spines = 2, .hosts_per_leaf = 4});
    spec.network.path_choice = switching::PathChoice::spray;
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
