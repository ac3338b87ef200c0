// DCQCN flows that share one port: their rates follow the equations step by step, and they end with fair shares.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "support/dcqcn_incast.hpp"

namespace nbx::virtual_time {
namespace {

using namespace std::chrono_literals;

constexpr Instant at(Duration d) { return Instant{} + d; }

/// The largest relative distance of a flow's share of [from, to] from an equal one.
double unfairness(const std::vector<std::uint64_t>& from, const std::vector<std::uint64_t>& to) {
  double sum = 0;
  for (std::size_t i = 0; i < to.size(); ++i) {
    sum += static_cast<double>(to[i] - from[i]);
  }
  const double fair = sum / static_cast<double>(to.size());
  double worst = 0;
  for (std::size_t i = 0; i < to.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(to[i] - from[i]) / fair - 1));
  }
  return worst;
}

struct Case {
  const char* preset;
  std::uint64_t gbps;
  unsigned flows;
};

class DcqcnFairness : public testing::TestWithParam<Case> {};

// Runs 600 ms. Fair: over the second half. Converged: the start of the first 200 ms over which no flow is farther than
// a tenth from its share.
TEST_P(DcqcnFairness, every_flow_gets_its_share) {
  const auto [preset, gbps, m] = GetParam();
  Incast incast{preset, gbps, m, 1us};
  std::vector<std::vector<std::uint64_t>> every_10_ms{incast.delivered()};
  for (int i = 1; i <= 60; ++i) {
    incast.world().run(at(i * 10ms));
    every_10_ms.push_back(incast.delivered());
  }
  int converged = -1;
  for (std::size_t i = 0; i + 20 < every_10_ms.size() && converged < 0; ++i) {
    converged = unfairness(every_10_ms[i], every_10_ms[i + 20]) <= 0.1 ? static_cast<int>(i) * 10 : -1;
  }
  const double worst = unfairness(every_10_ms[30], every_10_ms[60]);
  double gbps_in_all = 0;
  for (unsigned i = 0; i < m; ++i) {
    gbps_in_all += static_cast<double>(every_10_ms[60][i] - every_10_ms[30][i]) * 8 / 0.3e9;
  }
  std::printf(
      "%s, %u flows at %lu Gb/s: converged after %d ms, then within %.1f %% of a fair share, %.1f Gb/s in all\n",
      preset, m, static_cast<unsigned long>(gbps), converged, 100 * worst, gbps_in_all);
  EXPECT_LE(worst, 0.1);
  EXPECT_GE(converged, 0);
  EXPECT_GE(gbps_in_all, 0.75 * static_cast<double>(gbps));  // the worst is 128 flows: cuts of many at a time
  EXPECT_EQ(incast.world().network().dropped(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Paper, DcqcnFairness,
                         testing::Values(Case{"paper", 40, 2}, Case{"paper", 40, 4}, Case{"paper", 40, 8},
                                         Case{"paper", 40, 16}, Case{"paper", 40, 32}, Case{"paper", 40, 64}));
// With the paper's R_AI 256 flows would add 10 Gb/s every 55 us: then PFC holds the queue, not DCQCN.
INSTANTIATE_TEST_SUITE_P(Production, DcqcnFairness,
                         testing::Values(Case{"hpcc-production", 100, 2}, Case{"hpcc-production", 100, 4},
                                         Case{"hpcc-production", 100, 8}, Case{"hpcc-production", 100, 16},
                                         Case{"hpcc-production", 100, 32}, Case{"hpcc-production", 100, 64},
                                         Case{"hpcc-production", 100, 128}, Case{"hpcc-production", 100, 256}));

class Recorder : public cc::DcqcnTrace {
 public:
  void on_step(const cc::DcqcnStep& step) noexcept override { steps.push_back(step); }
  std::vector<cc::DcqcnStep> steps;
};

/// Each step of a trace from the one before, by equations (1) to (4) in floating point.
void expect_the_equations(const std::vector<cc::DcqcnStep>& steps, double line) {
  constexpr double g = 1.0 / 256;
  double alpha = 1;
  double target = line;
  double current = line;
  bool raise = false;  // behind a cut: the CNP that caused it
  for (const cc::DcqcnStep& step : steps) {
    switch (step.cause) {
      case cc::Cause::cut:
        target = current;
        current *= 1 - alpha / 2;
        raise = true;
        break;
      case cc::Cause::alpha_update:
        alpha = (1 - g) * alpha + (raise ? g : 0);
        raise = false;
        break;
      case cc::Cause::rate_timer:
      case cc::Cause::byte_counter:
        target = static_cast<double>(step.target.bits_per_second);  // by the stage before; checked in the table test
        current = (target + current) / 2;
        break;
    }
    ASSERT_NEAR(static_cast<double>(step.alpha) / cc::alpha_one, alpha, 1e-6);
    ASSERT_NEAR(static_cast<double>(step.target.bits_per_second), target, 1e-6 * line);
    ASSERT_NEAR(static_cast<double>(step.current.bits_per_second), current, 1e-6 * line);
    alpha = static_cast<double>(step.alpha) / cc::alpha_one;
    current = static_cast<double>(step.current.bits_per_second);
  }
}

// One flow has the link; a second one comes at line rate after 2 ms.
TEST(DcqcnTwoFlows, start_up) {
  Incast incast{"paper", 40, 2, 2ms};
  Recorder first;
  Recorder second;
  incast.flow(0).reaction_point().set_trace(&first);
  incast.flow(1).reaction_point().set_trace(&second);
  incast.world().run(at(2ms));
  EXPECT_EQ(incast.flow(0).reaction_point().current_rate(), BitRate::gbps(40));
  EXPECT_TRUE(first.steps.empty());
  for (int ms = 3; ms <= 60; ++ms) {
    incast.world().run(at(ms * 1ms));
    if (ms <= 6 || ms % 10 == 0) {
      std::printf("%2d ms: %6.3f and %6.3f Gb/s, alpha %.3f and %.3f\n", ms,
                  static_cast<double>(incast.flow(0).reaction_point().current_rate().bits_per_second) / 1e9,
                  static_cast<double>(incast.flow(1).reaction_point().current_rate().bits_per_second) / 1e9,
                  static_cast<double>(incast.flow(0).reaction_point().alpha()) / cc::alpha_one,
                  static_cast<double>(incast.flow(1).reaction_point().alpha()) / cc::alpha_one);
    }
  }
  for (const Recorder* trace : {&first, &second}) {
    ASSERT_GT(trace->steps.size(), 100U);
    EXPECT_EQ(trace->steps[0].cause, cc::Cause::cut);
    EXPECT_EQ(trace->steps[0].current, BitRate::gbps(20));  // alpha is 1
    EXPECT_LT(trace->steps[0].time, at(2ms + 100us));
    expect_the_equations(trace->steps, 40e9);
  }
}

}  // namespace
}  // namespace nbx::virtual_time
