// DCQCN against the equations of Zhu et al. 2015, step by step, in values worked out by hand with exact fractions; the
// notification point's intervals; the pacer's accuracy.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/rng.hpp"
#include "cc/dcqcn.hpp"
#include "cc/notification_point.hpp"
#include "cc/pacer.hpp"

namespace nbx::cc {
namespace {

using namespace std::chrono_literals;

constexpr Instant at(Duration d) { return Instant{} + d; }

class Recorder : public DcqcnTrace {
 public:
  void on_step(const DcqcnStep& step) noexcept override { steps.push_back(step); }
  std::vector<DcqcnStep> steps;
};

struct Row {
  Duration time;
  Cause cause;
  Stage stage;
  double alpha;
  double target;
  double current;
};

void expect_steps(const std::vector<DcqcnStep>& steps, const std::vector<Row>& rows) {
  ASSERT_EQ(steps.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(steps[i].time, at(rows[i].time));
    EXPECT_STREQ(name(steps[i].cause), name(rows[i].cause));
    EXPECT_STREQ(name(steps[i].stage), name(rows[i].stage));
    EXPECT_NEAR(steps[i].alpha / static_cast<double>(alpha_one), rows[i].alpha, 1e-8);
    EXPECT_NEAR(static_cast<double>(steps[i].target.bits_per_second), rows[i].target, 64);
    EXPECT_NEAR(static_cast<double>(steps[i].current.bits_per_second), rows[i].current, 64);
  }
}

// Equations (1) to (4) with g = 1/256, F = 5, R_AI = 40 Mb/s, both timers 55 us, 40 Gb/s link. The cut uses the alpha
// of before the CNP. At one instant alpha falls before the rate rises; neither depends on the other.
TEST(Dcqcn, steps_of_the_paper) {
  ReactionPoint rp{*dcqcn_preset("paper"), BitRate::gbps(40)};
  Recorder trace;
  rp.set_trace(&trace);
  rp.on_cnp(at(0us));
  rp.on_cnp(at(50us));
  rp.on_cnp(at(440us));
  rp.advance(at(495us));
  constexpr auto fr = Stage::fast_recovery;
  constexpr auto ai = Stage::additive_increase;
  expect_steps(trace.steps, {
                                {0us, Cause::cut, fr, 1, 40e9, 20e9},
                                {0us, Cause::alpha_update, fr, 1, 40e9, 20e9},
                                {50us, Cause::cut, fr, 1, 20e9, 10e9},
                                {50us, Cause::alpha_update, fr, 1, 20e9, 10e9},
                                {105us, Cause::alpha_update, fr, 0.99609375, 20e9, 10e9},
                                {105us, Cause::rate_timer, fr, 0.99609375, 20e9, 15e9},
                                {160us, Cause::alpha_update, fr, 0.9922027587890625, 20e9, 15e9},
                                {160us, Cause::rate_timer, fr, 0.9922027587890625, 20e9, 17.5e9},
                                {215us, Cause::alpha_update, fr, 0.9883269667625427, 20e9, 17.5e9},
                                {215us, Cause::rate_timer, fr, 0.9883269667625427, 20e9, 18.75e9},
                                {270us, Cause::alpha_update, fr, 0.9844663145486265, 20e9, 18.75e9},
                                {270us, Cause::rate_timer, fr, 0.9844663145486265, 20e9, 19.375e9},
                                {325us, Cause::alpha_update, fr, 0.980620743007421, 20e9, 19.375e9},
                                {325us, Cause::rate_timer, ai, 0.980620743007421, 20e9, 19.6875e9},
                                {380us, Cause::alpha_update, ai, 0.9767901932300482, 20e9, 19.6875e9},
                                {380us, Cause::rate_timer, ai, 0.9767901932300482, 20.04e9, 19.86375e9},
                                {435us, Cause::alpha_update, ai, 0.9729746065377434, 20.04e9, 19.86375e9},
                                {435us, Cause::rate_timer, ai, 0.9729746065377434, 20.08e9, 19.971875e9},
                                {440us, Cause::cut, fr, 0.9729746065377434, 19.971875e9, 10.255811390027004e9},
                                {440us, Cause::alpha_update, fr, 0.9730801744809553, 19.971875e9, 10.255811390027004e9},
                                {495us, Cause::alpha_update, fr, 0.9692790800493891, 19.971875e9, 10.255811390027004e9},
                                {495us, Cause::rate_timer, fr, 0.9692790800493891, 19.971875e9, 15.113843195013502e9},
                            });
}

// mlx5: alpha by the microsecond, up when a CNP came in it; cuts 4 us apart, an earlier CNP waits; alpha moves first.
TEST(Dcqcn, periodic_alpha_and_cuts_that_wait) {
  ReactionPoint rp{*dcqcn_preset("mlx5"), BitRate::gbps(100)};
  Recorder trace;
  rp.set_trace(&trace);
  rp.on_cnp(at(0us));
  rp.on_cnp(at(2500ns));
  rp.advance(at(4us));
  constexpr auto fr = Stage::fast_recovery;
  constexpr double one = alpha_one;
  expect_steps(trace.steps, {
                                {0us, Cause::cut, fr, 1023.0 / 1024, 100e9, 50.048828125e9},
                                {1us, Cause::alpha_update, fr, 1067455488 / one, 100e9, 50.048828125e9},
                                {2us, Cause::alpha_update, fr, 1062243303 / one, 100e9, 50.048828125e9},
                                {3us, Cause::alpha_update, fr, 1062299448.122 / one, 100e9, 50.048828125e9},
                                {4us, Cause::alpha_update, fr, 1057112439.098 / one, 100e9, 50.048828125e9},
                                {4us, Cause::cut, fr, 1057112439.098 / one, 100e9, 25.411975209965755e9},
                            });
}

TEST(Dcqcn, hyper_increase_needs_both_counters) {
  DcqcnParams p = *dcqcn_preset("paper");
  p.rp_threshold = 2;
  p.rp_byte_reset = 1000;
  p.rp_hai_rate = 400;
  ReactionPoint rp{p, BitRate::gbps(40)};
  rp.on_cnp(at(0us));
  for (int i = 0; i < 4; ++i) {  // two of fast recovery, two additive
    rp.on_sent(1000, at(1us));
  }
  EXPECT_EQ(rp.target_rate().bits_per_second, 40'000'000'000U);  // never above the link
  rp.on_cnp(at(2us));
  const std::uint64_t target = rp.target_rate().bits_per_second;
  for (int i = 0; i < 3; ++i) {
    rp.on_sent(1000, at(3us));
  }
  EXPECT_EQ(rp.target_rate().bits_per_second, target + 40'000'000);
  EXPECT_EQ(rp.stage(), Stage::additive_increase);  // three by bytes, none by time
  rp.advance(at(2us + 3 * 55us));
  EXPECT_EQ(rp.target_rate().bits_per_second, target + 4 * 40'000'000ULL);
  EXPECT_EQ(rp.stage(), Stage::hyper_increase);
  rp.advance(at(2us + 4 * 55us));
  EXPECT_EQ(rp.target_rate().bits_per_second, target + 4 * 40'000'000ULL + 400'000'000);
}

TEST(Dcqcn, the_byte_counter_keeps_its_remainder_and_a_cut_clears_it) {
  DcqcnParams p = *dcqcn_preset("paper");
  p.rp_byte_reset = 10'000;
  ReactionPoint rp{p, BitRate::gbps(40)};
  rp.on_cnp(at(0us));
  rp.on_sent(9'999, at(1us));
  EXPECT_EQ(rp.current_rate(), BitRate::gbps(20));
  rp.on_sent(5'001, at(1us));
  EXPECT_EQ(rp.current_rate(), BitRate::gbps(30));
  rp.on_sent(5'000, at(1us));
  EXPECT_EQ(rp.current_rate(), BitRate::gbps(35));
  rp.on_sent(9'999, at(1us));
  rp.on_cnp(at(2us));
  const BitRate after = rp.current_rate();
  rp.on_sent(9'999, at(3us));
  EXPECT_EQ(rp.current_rate(), after);
}

TEST(Dcqcn, the_target_is_clamped_as_the_parameters_say) {
  const auto target_after = [](bool always, bool after_time, bool by_time) {
    DcqcnParams p = *dcqcn_preset("paper");
    p.rp_clamp_tgt_rate = always;
    p.rp_clamp_tgt_rate_ati = after_time;
    p.rp_byte_reset = 1000;
    ReactionPoint rp{p, BitRate::gbps(40)};
    rp.on_cnp(at(0us));  // 20 of 40
    if (by_time) {
      rp.advance(at(55us));
    } else {
      rp.on_sent(1000, at(54us));
    }  // 30 of 40
    rp.on_cnp(by_time ? at(55us) : at(54us));
    return rp.target_rate();
  };
  EXPECT_EQ(target_after(true, false, true), BitRate::gbps(30));
  EXPECT_EQ(target_after(false, true, true), BitRate::gbps(30));
  EXPECT_EQ(target_after(false, false, true), BitRate::gbps(40));
  EXPECT_EQ(target_after(false, false, false), BitRate::gbps(30));
}

TEST(Dcqcn, bounds_of_a_cut) {
  DcqcnParams p = *dcqcn_preset("paper");
  p.rp_min_dec_fac = 90;
  ReactionPoint gentle{p, BitRate::gbps(40)};
  gentle.on_cnp(at(0us));
  EXPECT_EQ(gentle.current_rate(), BitRate::gbps(36));

  p.rp_min_dec_fac = 0;
  p.rp_min_rate = 300;
  ReactionPoint floor{p, BitRate::gbps(1)};
  floor.on_cnp(at(0us));
  EXPECT_EQ(floor.current_rate(), BitRate::mbps(500));
  floor.on_cnp(at(1us));
  floor.on_cnp(at(2us));
  EXPECT_EQ(floor.current_rate(), BitRate::mbps(300));

  p.rp_rate_to_set_on_first_cnp = 123;
  p.rp_max_rate = 900;
  ReactionPoint first{p, BitRate::gbps(1)};
  EXPECT_EQ(first.current_rate(), BitRate::mbps(900));
  first.on_cnp(at(0us));
  EXPECT_EQ(first.current_rate(), BitRate::mbps(123));
  EXPECT_EQ(first.target_rate(), BitRate::mbps(123));
}

TEST(Dcqcn, comes_back_to_line_rate_and_then_asks_for_nothing) {
  for (const DcqcnPreset& preset : dcqcn_presets) {
    SCOPED_TRACE(preset.name);
    ReactionPoint rp{preset.params, BitRate::gbps(25)};
    rp.on_cnp(at(0us));
    EXPECT_LT(rp.current_rate(), BitRate::gbps(25));
    rp.advance(at(100s));
    EXPECT_EQ(rp.current_rate(), BitRate::gbps(25));
    EXPECT_EQ(rp.stage(), Stage::line_rate);
    EXPECT_EQ(rp.alpha(), 0U);
    if (preset.params.alpha_update == AlphaUpdate::periodic) {
      EXPECT_EQ(rp.next_deadline(), Instant::never());
    }
  }
}

// A driver that looks only when it sends sees what one sees that is woken for every step.
TEST(Dcqcn, lazy_is_eager) {
  for (const DcqcnPreset& preset : dcqcn_presets) {
    SCOPED_TRACE(preset.name);
    Rng rng{7};
    ReactionPoint lazy{preset.params, BitRate::gbps(100)};
    ReactionPoint eager{preset.params, BitRate::gbps(100)};
    Instant now{};
    for (int i = 0; i < 2000; ++i) {
      now = now + Duration{static_cast<std::int64_t>(rng.below(40'000'000))};
      while (eager.next_deadline() <= now) {
        eager.advance(eager.next_deadline());
      }
      if (rng.below(4) == 0) {
        lazy.on_cnp(now);
        eager.on_cnp(now);
      } else {
        const auto bytes = static_cast<std::uint32_t>(rng.below(65'536));
        lazy.on_sent(bytes, now);
        eager.on_sent(bytes, now);
      }
      ASSERT_EQ(lazy.current_rate(), eager.current_rate());
      ASSERT_EQ(lazy.target_rate(), eager.target_rate());
      ASSERT_EQ(lazy.alpha(), eager.alpha());
    }
  }
}

TEST(NotificationPoint, one_interval_per_scope) {
  const auto cnps = [](CnpScope scope) {
    DcqcnParams p = *dcqcn_preset("paper");
    p.np_cnp_scope = scope;
    NotificationPoint np{p, 4, 2};
    int sent = 0;
    for (std::size_t qp = 0; qp < 4; ++qp) {
      sent += np.on_ce(qp, qp / 2, at(0us)) ? 1 : 0;
    }
    return sent;
  };
  EXPECT_EQ(cnps(CnpScope::qp), 4);
  EXPECT_EQ(cnps(CnpScope::ip), 2);
  EXPECT_EQ(cnps(CnpScope::port), 1);
}

TEST(NotificationPoint, the_interval_is_exact) {
  const DcqcnParams p = *dcqcn_preset("paper");
  NotificationPoint np{p, 1, 1};
  EXPECT_TRUE(np.on_ce(0, 0, at(7us)));
  EXPECT_FALSE(np.on_ce(0, 0, at(57us) - Duration{1}));
  EXPECT_TRUE(np.on_ce(0, 0, at(57us)));
  EXPECT_FALSE(np.on_ce(0, 0, at(57us)));
}

std::uint64_t bytes_in_a_second(BitRate rate, std::uint32_t size, std::uint32_t credit, Duration late_up_to) {
  Pacer pacer{rate, credit};
  Rng rng{11};
  std::uint64_t bytes = 0;
  for (Instant now = pacer.ready_at(); now < at(1s); now = pacer.ready_at()) {
    if (late_up_to != Duration::zero()) {
      now = now + Duration{static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(late_up_to.count())))};
    }
    while (pacer.ready(now)) {
      pacer.sent(size, now);
      bytes += size;
    }
  }
  return bytes;
}

TEST(Pacer, no_error_adds_up) {
  // Rates that divide nothing; in one second the error is less than one packet and one picosecond per packet.
  for (const std::uint64_t rate :
       {1'000'003ULL, 333'333'333ULL, 9'999'999'967ULL, 97'000'000'001ULL, 400'000'000'000ULL}) {
    for (const std::uint32_t size : {1024U, 4170U}) {
      SCOPED_TRACE(testing::Message() << rate << " b/s, " << size << " bytes");
      const double sent = static_cast<double>(bytes_in_a_second({rate}, size, 0, 0ns)) * 8;
      const double packets = static_cast<double>(rate) / 8 / size;
      const double lost = static_cast<double>(rate) * packets * 1e-12;  // a picosecond each, at most
      EXPECT_LE(sent, static_cast<double>(rate) + size * 8);
      EXPECT_GE(sent, static_cast<double>(rate) - size * 8 - lost);
      EXPECT_NEAR(sent / static_cast<double>(rate), 1, 0.001 + size * 8 / static_cast<double>(rate));
    }
  }
}

TEST(Pacer, a_late_driver_catches_up_within_its_credit) {
  const auto rate = BitRate::gbps(10);
  const double asked = 10e9 / 8;
  EXPECT_NEAR(static_cast<double>(bytes_in_a_second(rate, 4096, 65'536, 10us)) / asked, 1, 0.001);
  EXPECT_LT(static_cast<double>(bytes_in_a_second(rate, 4096, 0, 10us)) / asked, 0.5);
}

TEST(Pacer, an_idle_time_earns_no_more_than_the_credit) {
  Pacer pacer{BitRate::gbps(8), 2000};
  pacer.sent(1000, at(1s));
  EXPECT_TRUE(pacer.ready(at(1s)));
  pacer.sent(1000, at(1s));
  EXPECT_TRUE(pacer.ready(at(1s)));
  pacer.sent(1000, at(1s));
  EXPECT_EQ(pacer.ready_at(), at(1s + 1us));
}

TEST(Pacer, a_new_rate_pays_the_rest_of_the_debt) {
  Pacer pacer{BitRate::gbps(8)};
  pacer.sent(1000, at(0us));  // 1 us
  pacer.set_rate(BitRate::gbps(4), at(500ns));
  EXPECT_EQ(pacer.ready_at(), at(1500ns));
  pacer.set_rate(BitRate::gbps(16), at(1000ns));
  EXPECT_EQ(pacer.ready_at(), at(1125ns));
}

TEST(Presets, are_found_by_name) {
  EXPECT_EQ(dcqcn_preset("no such"), nullptr);
  ASSERT_NE(dcqcn_preset("mlx5"), nullptr);
  EXPECT_EQ(dcqcn_preset("otg-default")->rp_dce_tcp_g, 1019U);
  EXPECT_EQ(dcqcn_preset("hpcc-production")->rp_ai_rate, 50U);
  EXPECT_EQ(dcqcn_preset("validation")->rp_time_reset, 50U);
}

}  // namespace
}  // namespace nbx::cc
