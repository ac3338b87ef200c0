// A transmitter's queue against queueing theory, and rates against the clock.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

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

}  // namespace
}  // namespace nbx::virtual_time
