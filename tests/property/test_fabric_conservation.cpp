// Whatever the profile: frames in plus copies are frames out plus drops plus those that wait; the same seed gives the
// same run; and a rule more in one stage does not change what another draws.
#include <gtest/gtest.h>

#include <vector>

#include "support/fabric_rig.hpp"

namespace nbx::fabric {
namespace {

using namespace std::chrono_literals;

Selector random_selector(Rng& rng) {
  switch (rng.below(4)) {
    case 0:
      return Bernoulli{rng.unit() * 0.3};
    case 1:
      return GilbertElliott{rng.unit() * 0.1, rng.unit(), rng.unit(), rng.unit() * 0.1};
    case 2:
      return EveryNth{1 + rng.below(20), rng.below(10)};
    default:
      return Listed{{1 + rng.below(5), 10 + rng.below(50), 100}};
  }
}
Match random_match(Rng& rng) {
  Match match;
  match.classes = static_cast<std::uint8_t>(1 + rng.below(Match::all_classes));
  if (rng.below(3) == 0) {
    match.ghosts = {GhostId{static_cast<std::uint32_t>(rng.below(4))}};
  }
  return match;
}
Jitter random_jitter(Rng& rng) {
  const Duration size{static_cast<std::int64_t>(rng.below(100'000'000))};
  switch (rng.below(5)) {
    case 0:
      return {};
    case 1:
      return Uniform{size};
    case 2:
      return Normal{size};
    case 3:
      return Pareto{size, 1 + rng.unit() * 3, {}};
    default:
      return Table{{size, size / 2, size * 2}};
  }
}

DirectionSpec random_spec(Rng& rng) {
  DirectionSpec spec;
  for (std::uint64_t i = rng.below(3); i > 0; --i) {
    spec.loss.push_back({random_match(rng), random_selector(rng)});
    spec.corrupt.push_back(
        {random_match(rng), random_selector(rng), rng.below(2) == 0 ? CorruptTarget::payload : CorruptTarget::header});
    spec.duplicate.push_back({random_match(rng), random_selector(rng)});
    spec.delay.push_back({random_match(rng), Duration{static_cast<std::int64_t>(rng.below(200'000'000))},
                          random_jitter(rng), rng.below(2) == 0});
    spec.reorder.push_back(
        {random_match(rng), random_selector(rng), static_cast<std::uint32_t>(1 + rng.below(5)), 300us});
  }
  if (rng.below(2) == 0) {
    spec.rate = {BitRate::mbps(100 + rng.below(1000)), 3000 + rng.below(20'000), true};
  }
  spec.delay_line_frames = 20 + rng.below(500);
  return spec;
}

/// A random profile under random traffic, changed half-way.
struct Scenario {
  explicit Scenario(std::uint64_t seed) : choices(seed), rig(random_spec(choices), seed, 2000) {
    for (std::uint32_t i = 0; i < 4000; ++i) {
      Frame& frame = rig.make(i, 64 + static_cast<std::uint32_t>(choices.below(1000)));
      frame.parsed.op_class = static_cast<wire::OpcodeClass>(choices.below(6));
      rig.submit(frame, GhostId{static_cast<std::uint32_t>(choices.below(4))});
      rig.run_for(Duration{static_cast<std::int64_t>(choices.below(4'000'000))});
      if (i == 2000) {
        rig.impairment->replace(random_spec(choices));
      }
    }
  }
  Rng choices;
  Rig rig;
};

std::uint64_t hash(const std::vector<Event>& events) {
  std::uint64_t h = 0;
  for (const Event& e : events) {
    for (const std::uint64_t v : {std::uint64_t{e.number}, static_cast<std::uint64_t>(e.at.ps),
                                  static_cast<std::uint64_t>(e.treatment.delay.count()),
                                  std::uint64_t{e.treatment.corrupted}, std::uint64_t{e.treatment.reordered}}) {
      h = (h ^ v) * 0x0000'0100'0000'01b3ULL;
    }
  }
  return h;
}

class FabricConservation : public testing::TestWithParam<std::uint64_t> {};

TEST_P(FabricConservation, every_frame_is_accounted_for) {
  Scenario run{GetParam()};
  Rig& rig = run.rig;
  const std::uint64_t copies = rig.counters.get(Counter::impair_duplicated);
  EXPECT_EQ(rig.decided.size() + rig.dropped.size(), 4000 + copies);
  EXPECT_LE(rig.released.size(), rig.decided.size());
  rig.run_for(1s);
  EXPECT_EQ(rig.released.size(), rig.decided.size());
  EXPECT_EQ(rig.wheel.armed(), 0U);
  EXPECT_EQ(rig.impairment->delay_stats().undisturbed.late_frames, 0U);
}

TEST_P(FabricConservation, one_seed_gives_one_run) {
  Scenario first{GetParam()};
  Scenario second{GetParam()};
  EXPECT_EQ(hash(first.rig.released), hash(second.rig.released));
}

INSTANTIATE_TEST_SUITE_P(seeds, FabricConservation, testing::Range(std::uint64_t{1}, std::uint64_t{25}));

TEST(FabricStreams, another_seed_gives_another_run) {
  DirectionSpec spec;
  spec.delay.push_back({Match{}, 1ms, Uniform{1ms}, true});
  Rig one{spec, 1};
  Rig two{spec, 2};
  one.submit(1);
  two.submit(1);
  one.run_for(3ms);
  two.run_for(3ms);
  EXPECT_NE(one.released[0].at, two.released[0].at);
}

TEST(FabricStreams, stages_do_not_share_numbers) {
  DirectionSpec spec;
  spec.delay.push_back({Match{}, 1ms, Uniform{1ms}, true});
  Rig plain{spec};
  spec.corrupt.push_back({Match{}, Bernoulli{0.5}, CorruptTarget::payload});
  spec.reorder.push_back({Match{}, Bernoulli{0.5}, 1, 1us});
  Rig more{spec};
  for (std::uint32_t i = 0; i < 100; ++i) {
    plain.submit(i);
    more.submit(i);
  }
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(plain.decided[i].treatment.delay, more.decided[i].treatment.delay);
  }
}

}  // namespace
}  // namespace nbx::fabric
