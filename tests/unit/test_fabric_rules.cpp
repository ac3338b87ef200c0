// Matches, selectors and distributions on their own. Statistics are seeded and bounded at five standard deviations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "fabric/jitter.hpp"
#include "fabric/rules.hpp"

namespace nbx::fabric {
namespace {

using namespace std::chrono_literals;

wire::Parsed roce(wire::OpcodeClass op_class, std::uint32_t qpn, std::uint32_t psn) {
  wire::Parsed p;
  p.kind = wire::FrameKind::roce_v2;
  p.op_class = op_class;
  p.dest_qpn = {qpn};
  p.psn = {psn};
  return p;
}
constexpr std::uint8_t bit(wire::OpcodeClass c) { return static_cast<std::uint8_t>(1U << static_cast<unsigned>(c)); }

constexpr auto data = wire::OpcodeClass::data;
constexpr auto ack = wire::OpcodeClass::ack;

TEST(Matcher, empty_match_accepts_everything) {
  Matcher m{Match{}};
  EXPECT_TRUE(m.accepts(roce(data, 1, 2), GhostId{3}));
  EXPECT_TRUE(m.accepts(wire::Parsed{}, no_ghost));
}

TEST(Matcher, classes) {
  Match match;
  match.classes = bit(ack) | bit(wire::OpcodeClass::other);
  Matcher m{match};
  EXPECT_TRUE(m.accepts(roce(ack, 1, 2), GhostId{0}));
  EXPECT_FALSE(m.accepts(roce(data, 1, 2), GhostId{0}));
  wire::Parsed arp;
  arp.kind = wire::FrameKind::arp;
  EXPECT_TRUE(m.accepts(arp, no_ghost));
}

TEST(Matcher, ghosts) {
  Match match;
  match.ghosts = {GhostId{0}, GhostId{200}};
  Matcher m{match};
  EXPECT_TRUE(m.accepts(roce(data, 1, 2), GhostId{0}));
  EXPECT_TRUE(m.accepts(roce(data, 1, 2), GhostId{200}));
  EXPECT_FALSE(m.accepts(roce(data, 1, 2), GhostId{1}));
  EXPECT_FALSE(m.accepts(roce(data, 1, 2), GhostId{201}));
  EXPECT_FALSE(m.accepts(roce(data, 1, 2), GhostId{100'000}));
  EXPECT_FALSE(m.accepts(roce(data, 1, 2), no_ghost));
}

TEST(Matcher, queue_pair_is_of_roce_only) {
  Match match;
  match.dest_qpn = Qpn{0};
  Matcher m{match};
  EXPECT_TRUE(m.accepts(roce(data, 0, 2), GhostId{0}));
  EXPECT_FALSE(m.accepts(roce(data, 1, 2), GhostId{0}));
  EXPECT_FALSE(m.accepts(wire::Parsed{}, GhostId{0}));
}

TEST(Matcher, sequence_range_wraps) {
  Match match;
  match.psn_first = Psn{0xffff'fe};
  match.psn_last = Psn{1};
  Matcher m{match};
  for (const std::uint32_t psn : {0xffff'feU, 0xffff'ffU, 0U, 1U}) {
    EXPECT_TRUE(m.accepts(roce(data, 1, psn), GhostId{0})) << psn;
  }
  for (const std::uint32_t psn : {0xffff'fdU, 2U, 0x80'0000U}) {
    EXPECT_FALSE(m.accepts(roce(data, 1, psn), GhostId{0})) << psn;
  }
  EXPECT_FALSE(m.accepts(wire::Parsed{}, GhostId{0}));
}

TEST(Matcher, sequence_range_of_one) {
  Match both;
  both.psn_first = both.psn_last = Psn{7};
  Match first;
  first.psn_first = Psn{7};
  Match last;
  last.psn_last = Psn{7};
  for (const Match& match : {both, first, last}) {
    Matcher m{match};
    EXPECT_TRUE(m.accepts(roce(data, 1, 7), GhostId{0}));
    EXPECT_FALSE(m.accepts(roce(data, 1, 6), GhostId{0}));
    EXPECT_FALSE(m.accepts(roce(data, 1, 8), GhostId{0}));
  }
}

TEST(Matcher, nth_counts_what_the_rest_accepts) {
  Match match;
  match.classes = bit(data);
  match.nth = {2, 3, 5};
  Matcher m{match};
  std::vector<int> accepted;
  for (int i = 1; i <= 6; ++i) {
    EXPECT_FALSE(m.accepts(roce(ack, 1, 0), GhostId{0}));
    if (m.accepts(roce(data, 1, 0), GhostId{0})) {
      accepted.push_back(i);
    }
  }
  EXPECT_EQ(accepted, (std::vector{2, 3, 5}));
}

TEST(Stage, first_rule_that_accepts_acts) {
  Stage<int> stage;
  Match acks;
  acks.classes = bit(ack);
  Match second;
  second.nth = {2};
  stage.add(acks, 1);
  stage.add(second, 2);
  stage.add(Match{}, 3);
  EXPECT_EQ(stage.find(roce(ack, 1, 0), GhostId{0})->action, 1);  // not seen by the rules behind
  EXPECT_EQ(stage.find(roce(data, 1, 0), GhostId{0})->action, 3);
  EXPECT_EQ(stage.find(roce(data, 1, 0), GhostId{0})->action, 2);
  EXPECT_EQ(Stage<int>{}.find(roce(data, 1, 0), GhostId{0}), nullptr);
}

std::vector<std::uint64_t> selected(const Selector& selector, std::uint64_t frames, std::uint64_t seed = 1) {
  FrameSelector s{selector};
  Rng rng{seed};
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 1; i <= frames; ++i) {
    if (s.selects(rng)) {
      numbers.push_back(i);
    }
  }
  return numbers;
}

TEST(FrameSelector, bernoulli_rate_and_independence) {
  constexpr double n = 1e6;
  constexpr double p = 0.01;
  const auto hits = selected(Bernoulli{p}, 1'000'000);
  const auto count = static_cast<double>(hits.size());
  EXPECT_NEAR(count, n * p, 5 * std::sqrt(n * p * (1 - p)));
  double pairs = 0;  // a hit right behind a hit has probability p again
  for (std::size_t i = 1; i < hits.size(); ++i) {
    pairs += hits[i] == hits[i - 1] + 1 ? 1 : 0;
  }
  EXPECT_NEAR(pairs, count * p, 5 * std::sqrt(count * p));
}

TEST(FrameSelector, bernoulli_ends_are_exact) {
  EXPECT_TRUE(selected(Bernoulli{0}, 10'000).empty());
  EXPECT_EQ(selected(Bernoulli{1}, 10'000).size(), 10'000U);
}

TEST(FrameSelector, gilbert_elliott_share_and_burst_length) {
  constexpr double n = 1e6;
  constexpr double p = 0.01;
  constexpr double r = 0.2;
  // The share of the bad state is p/(p+r); correlation of neighbours 1-p-r widens the deviation by (1+c)/(1-c).
  const double share = p / (p + r);
  const double widening = (2 - p - r) / (p + r);
  const auto loss = [&](double h, double k) { return share * h + (1 - share) * k; };
  const auto elliott = selected(GilbertElliott{p, r, 0.8, 0.001}, 1'000'000);
  const double expected = n * loss(0.8, 0.001);
  EXPECT_NEAR(static_cast<double>(elliott.size()), expected, 5 * std::sqrt(expected * widening));

  const auto gilbert = selected(GilbertElliott{p, r, 1, 0}, 1'000'000);
  double bursts = 0;
  for (std::size_t i = 0; i < gilbert.size(); ++i) {
    bursts += i == 0 || gilbert[i] != gilbert[i - 1] + 1 ? 1 : 0;
  }
  const double length = static_cast<double>(gilbert.size()) / bursts;
  EXPECT_NEAR(length, 1 / r, 5 * std::sqrt(1 - r) / r / std::sqrt(bursts));
}

TEST(FrameSelector, gilbert_elliott_starts_good_and_steps_after_the_frame) {
  EXPECT_EQ(selected(GilbertElliott{1, 1, 1, 0}, 6), (std::vector<std::uint64_t>{2, 4, 6}));
}

TEST(FrameSelector, every_nth) {
  EXPECT_EQ(selected(EveryNth{3, 0}, 10), (std::vector<std::uint64_t>{3, 6, 9}));
  EXPECT_EQ(selected(EveryNth{3, 2}, 12), (std::vector<std::uint64_t>{5, 8, 11}));
  EXPECT_EQ(selected(EveryNth{1, 0}, 3), (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST(FrameSelector, listed) {
  EXPECT_EQ(selected(Listed{{1, 4, 5, 4'000'000'000}}, 10), (std::vector<std::uint64_t>{1, 4, 5}));
  EXPECT_TRUE(selected(Listed{}, 10).empty());
}

std::vector<double> samples_ps(const Jitter& jitter, std::size_t n = 200'000) {
  const JitterSource source{jitter};
  Rng rng{5};
  std::vector<double> samples(n);
  std::generate(samples.begin(), samples.end(), [&] { return static_cast<double>(source.draw(rng).count()); });
  return samples;
}
double mean(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) {
    sum += v;
  }
  return sum / static_cast<double>(x.size());
}
/// The share of samples that are at most `limit` against `probability`.
void expect_share(const std::vector<double>& x, double limit, double probability) {
  const auto n = static_cast<double>(x.size());
  const auto below = static_cast<double>(std::count_if(x.begin(), x.end(), [&](double v) { return v <= limit; }));
  EXPECT_NEAR(below / n, probability, 5 * std::sqrt(probability * (1 - probability) / n)) << "at " << limit;
}

TEST(Jitter, none) { EXPECT_EQ(mean(samples_ps(std::monostate{}, 10)), 0); }

TEST(Jitter, uniform) {
  const auto x = samples_ps(Uniform{1us});
  EXPECT_NEAR(mean(x), 0, 5 * 1e6 / std::sqrt(3.0 * 200'000));
  EXPECT_GE(*std::min_element(x.begin(), x.end()), -1e6);
  EXPECT_LE(*std::max_element(x.begin(), x.end()), 1e6);
  for (const double q : {0.01, 0.25, 0.5, 0.75, 0.99}) {
    expect_share(x, (2 * q - 1) * 1e6, q);
  }
}

TEST(Jitter, uniform_reaches_both_ends) {
  const auto x = samples_ps(Uniform{Duration{2}}, 1000);
  for (const double v : {-2, -1, 0, 1, 2}) {
    EXPECT_NEAR(static_cast<double>(std::count(x.begin(), x.end(), v)), 200, 5 * std::sqrt(160.0));
  }
}

TEST(Jitter, normal_quantiles_are_those_of_erfc) {
  const NormalQuantiles& table = normal_quantiles();
  for (std::size_t i = 1; i + 1 < table.size(); ++i) {
    const double z = table[i] * 0x1.0p-24;
    EXPECT_NEAR(std::erfc(-z / std::sqrt(2.0)) / 2, static_cast<double>(i) / 4096, 1e-7) << i;
  }
  EXPECT_EQ(table.front(), -table.back());
}

TEST(Jitter, normal) {
  const auto x = samples_ps(Normal{1us});
  EXPECT_NEAR(mean(x), 0, 5 * 1e6 / std::sqrt(200'000.0));
  double squares = 0;
  for (const double v : x) {
    squares += v * v;
  }
  // The variance of a sample variance of normals is 2/n, plus the 0.1 % of the cut tails.
  EXPECT_NEAR(squares / 200'000 / 1e12, 1, 5 * std::sqrt(2.0 / 200'000) + 0.001);
  for (const double z : {-3.0, -2.0, -1.0, -0.1, 0.0, 0.5, 1.5, 2.5, 3.3}) {
    expect_share(x, z * 1e6, std::erfc(-z / std::sqrt(2.0)) / 2);
  }
}

TEST(Jitter, normal_of_hours_does_not_overflow) {
  const auto x = samples_ps(Normal{1h}, 1000);
  EXPECT_LE(*std::max_element(x.begin(), x.end()), 4 * 3600e12);
  EXPECT_GT(*std::max_element(x.begin(), x.end()), 2 * 3600e12);
  EXPECT_LT(*std::min_element(x.begin(), x.end()), -2 * 3600e12);
}

TEST(Jitter, pareto) {
  constexpr double scale = 1e6;
  for (const double shape : {1.2, 3.0}) {
    const auto x = samples_ps(Pareto{1us, shape, {}});
    EXPECT_GE(*std::min_element(x.begin(), x.end()), 0);
    for (const double q : {0.1, 0.5, 0.9, 0.99, 0.999}) {
      expect_share(x, scale * (std::pow(1 - q, -1 / shape) - 1), q);
    }
  }
}

TEST(Jitter, pareto_cap) {
  const auto x = samples_ps(Pareto{1us, 1, 9us});
  EXPECT_EQ(*std::max_element(x.begin(), x.end()), 9e6);
  expect_share(x, 9e6 - 1, 0.9);  // P(X >= 9 scale) = 1/10 at shape 1
  const auto wild = samples_ps(Pareto{1us, 0.01, {}}, 1000);
  EXPECT_EQ(*std::max_element(wild.begin(), wild.end()), 1000e6);
}

TEST(Jitter, table) {
  const auto x = samples_ps(Table{{1ns, 1ns, 5us}}, 30'000);
  const auto ones = static_cast<double>(std::count(x.begin(), x.end(), 1e3));
  EXPECT_NEAR(ones, 20'000, 5 * std::sqrt(30'000 * 2.0 / 9));
  EXPECT_EQ(std::count(x.begin(), x.end(), 5e6), 30'000 - ones);
}

}  // namespace
}  // namespace nbx::fabric
