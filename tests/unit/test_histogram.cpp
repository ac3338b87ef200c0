// Quantiles from bins against quantiles from the sorted samples.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.hpp"
#include "stats/histogram.hpp"

namespace nbx {
namespace {

TEST(Histogram, nothing_recorded) {
  const Histogram h;
  EXPECT_EQ(h.count(), 0U);
  EXPECT_EQ(h.quantile(0.5), 0U);
}

TEST(Histogram, small_values_are_exact) {
  Histogram h;
  for (std::uint64_t v = 0; v < 1000; ++v) {
    h.record(v);
  }
  EXPECT_EQ(h.quantile(0), 0U);
  EXPECT_EQ(h.quantile(0.5), 499U);  // 500 of the 1000 samples are at most 499
  EXPECT_EQ(h.quantile(0.501), 500U);
  EXPECT_EQ(h.quantile(1), 999U);
}

TEST(Histogram, large_values_are_within_their_bin) {
  Rng rng{7};
  Histogram h;
  std::vector<std::uint64_t> samples;
  for (int i = 0; i < 20'000; ++i) {
    samples.push_back(rng.next() >> rng.below(64));
    h.record(samples.back());
  }
  std::sort(samples.begin(), samples.end());
  for (const double q : {0.001, 0.25, 0.5, 0.9, 0.999, 1.0}) {
    const auto rank = static_cast<std::size_t>(std::ceil(q * 20'000)) - 1;
    const auto exact = static_cast<double>(samples[rank]);
    EXPECT_NEAR(static_cast<double>(h.quantile(q)), exact, exact * 0.008) << q;
  }
}

TEST(Histogram, the_largest_value_has_a_bin) {
  Histogram h;
  h.record(std::numeric_limits<std::uint64_t>::max());
  EXPECT_NEAR(static_cast<double>(h.quantile(1)), 0x1.0p64, 0x1.0p64 * 0.008);
}

}  // namespace
}  // namespace nbx
