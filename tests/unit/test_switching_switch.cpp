// The switch: ramp, shared buffer, pauses by thresholds, watchdog.
#include <gtest/gtest.h>

#include <cmath>

#include "support/switching_rig.hpp"
#include "switching/switch.hpp"

namespace nbx::switching {
namespace {

using namespace std::chrono_literals;

constexpr Instant at(Duration d) { return Instant{} + d; }

double chosen_of(EcnRamp ramp, std::uint64_t depth, int n, std::uint64_t seed) {
  Rng rng{seed};
  int chosen = 0;
  for (int i = 0; i < n; ++i) {
    chosen += ramp.chooses(depth, rng) ? 1 : 0;
  }
  return static_cast<double>(chosen) / n;
}

TEST(EcnRamp, follows_its_corners) {
  const EcnRamp ramp{EcnSpec{true, 5'000, 200'000, 10'000, 0}};  // DCQCN's: Pmax 1 %
  constexpr int n = 1'000'000;
  EXPECT_EQ(chosen_of(ramp, 5'000, n, 1), 0);
  EXPECT_EQ(chosen_of(ramp, 200'001, 1000, 1), 1);
  for (const std::uint64_t depth : {24'500U, 102'500U, 200'000U}) {
    const double p = 0.01 * (static_cast<double>(depth) - 5'000) / 195'000;
    EXPECT_NEAR(chosen_of(ramp, depth, n, depth), p, 4 * std::sqrt(p / n)) << depth;  // four sigma
  }
}

TEST(EcnRamp, a_step_is_a_ramp_of_no_width) {
  const EcnRamp ramp{EcnSpec{true, 30'000, 30'000, 1'000'000, 0}};
  EXPECT_EQ(chosen_of(ramp, 30'000, 100, 1), 0);
  EXPECT_EQ(chosen_of(ramp, 30'001, 100, 1), 1);
}

TEST(EcnRamp, the_average_moves_by_its_weight) {
  EcnRamp ramp{EcnSpec{true, 10'000, 10'000, 1'000'000, 2}};  // a quarter of the difference
  Rng rng{1};
  // 16000 (1 - 0.75^n) exceeds 10000 first at n = 4: 10937.5.
  EXPECT_FALSE(ramp.chooses(16'000, rng));
  EXPECT_FALSE(ramp.chooses(16'000, rng));
  EXPECT_FALSE(ramp.chooses(16'000, rng));
  EXPECT_TRUE(ramp.chooses(16'000, rng));
  EXPECT_FALSE(ramp.chooses(0, rng));  // 8203
}

TEST(EcnRamp, presets) {
  EXPECT_EQ(EcnSpec::preset("hpcc-production", 100)->kmin_bytes, 400'000U);
  EXPECT_EQ(EcnSpec::preset("hpcc-production", 25)->kmax_bytes, 400'000U);
  EXPECT_EQ(EcnSpec::preset("paper", 40)->kmax_bytes, 200'000U);
  EXPECT_FALSE(EcnSpec::preset("no such", 40).has_value());
}

Packet packet(std::uint32_t size, std::uint8_t priority, PortIndex ingress = 0) {
  Packet p;
  p.size = size;
  p.priority = priority;
  p.ingress = ingress;
  return p;
}

// Choudhury and Hahne 1998: with alpha and n queues that want everything, each gets alpha B / (1 + n alpha).
TEST(SharedBuffer, dynamic_thresholds_settle_where_the_paper_says) {
  for (const int alpha_log2 : {-2, 0, 2}) {
    for (const unsigned n : {1U, 3U, 8U}) {
      BufferSpec spec;
      spec.size_bytes = 10'000'000;
      for (PriorityBufferSpec& p : spec.priority) {
        p.alpha_log2 = static_cast<std::int8_t>(alpha_log2);
      }
      SharedBuffer buffer{spec, 1};
      std::array<std::uint64_t, priorities> queued{};
      for (bool more = true; more;) {
        more = false;
        for (std::uint8_t q = 0; q < n; ++q) {
          if (!buffer.admit(packet(100, q), queued[q])) {
            queued[q] += 100;
            more = true;
          }
        }
      }
      const double alpha = std::pow(2.0, alpha_log2);
      const double expected = alpha * 10e6 / (1 + n * alpha);
      for (unsigned q = 0; q < n; ++q) {
        EXPECT_NEAR(static_cast<double>(queued[q]), expected, 1000) << alpha << ' ' << n;
      }
    }
  }
}

TEST(SharedBuffer, a_lossless_priority_uses_reserve_pool_and_headroom_in_turn) {
  BufferSpec spec;
  spec.size_bytes = 100'000;
  spec.priority[3] = {
      .lossless = true, .reserved_bytes = 2'000, .headroom_bytes = 3'000, .xoff_bytes = 10'000, .xon_bytes = 4'000};
  SharedBuffer buffer{spec, 2};
  EXPECT_EQ(buffer.pool_bytes(), 90'000U);
  for (int i = 0; i < 12; ++i) {
    EXPECT_FALSE(buffer.admit(packet(1000, 3), 0).has_value());
    EXPECT_FALSE(buffer.above_xoff(0, 3)) << i;
  }
  EXPECT_EQ(buffer.pool_used(), 10'000U);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(buffer.admit(packet(1000, 3), 0).has_value());
    EXPECT_TRUE(buffer.above_xoff(0, 3));
  }
  EXPECT_EQ(buffer.admit(packet(1000, 3), 0), SwitchDrop::headroom_full);
  EXPECT_EQ(buffer.pool_used(), 10'000U);
  EXPECT_EQ(buffer.headroom_peak(0, 3), 3'000U);
  EXPECT_FALSE(buffer.above_xoff(1, 3));  // the other port
  for (int i = 0; i < 3 + 3; ++i) {       // headroom first, then down to 7000 of the pool
    buffer.release(packet(1000, 3));
    EXPECT_FALSE(buffer.below_xon(0, 3)) << i;
  }
  buffer.release(packet(1000, 3));  // 6000 + 4000
  EXPECT_TRUE(buffer.below_xon(0, 3));
  for (int i = 0; i < 8; ++i) {
    buffer.release(packet(1000, 3));
  }
  EXPECT_EQ(buffer.pool_used(), 0U);
  EXPECT_EQ(buffer.held(0, 3), 0U);
}

TEST(SharedBuffer, says_why_not) {
  BufferSpec spec;
  spec.size_bytes = 10'000;
  spec.priority[0] = {.alpha_log2 = 3};
  spec.priority[1] = {.alpha_log2 = -3};
  spec.priority[2] = {.alpha_log2 = 3, .queue_limit_bytes = 1'500};
  SharedBuffer buffer{spec, 1};
  EXPECT_EQ(buffer.admit(packet(1'300, 1), 0), SwitchDrop::dynamic_threshold);
  EXPECT_FALSE(buffer.admit(packet(1'000, 2), 0).has_value());
  EXPECT_EQ(buffer.admit(packet(1'000, 2), 1'000), SwitchDrop::queue_limit);
  EXPECT_FALSE(buffer.admit(packet(8'500, 0), 0).has_value());
  EXPECT_EQ(buffer.admit(packet(1'000, 0), 0), SwitchDrop::buffer_full);
  EXPECT_EQ(buffer.pool_used(), 9'500U);
}

TEST(SharedBuffer, may_shrink_below_what_it_holds_and_grow_again) {
  BufferSpec spec;
  spec.size_bytes = 10'000;
  SharedBuffer buffer{spec, 1};
  EXPECT_EQ(buffer.admit(packet(4'000, 0), 0), std::nullopt);
  buffer.resize(3'000);
  EXPECT_EQ(buffer.admit(packet(100, 0), 4'000), SwitchDrop::buffer_full);
  buffer.release(packet(4'000, 0));
  EXPECT_EQ(buffer.pool_used(), 0U);
  EXPECT_EQ(buffer.admit(packet(3'000, 0), 0), std::nullopt);
  EXPECT_EQ(buffer.admit(packet(100, 0), 3'000), SwitchDrop::buffer_full);
  buffer.resize(10'000);
  EXPECT_EQ(buffer.admit(packet(100, 0), 3'000), std::nullopt);
}

TEST(SharedBuffer, refuses_what_does_not_fit) {
  BufferSpec spec;
  spec.size_bytes = 1'000'000;
  spec.priority[3] = {.lossless = true, .headroom_bytes = 100'000};
  EXPECT_TRUE(SharedBuffer::fits(spec, 10));
  EXPECT_FALSE(SharedBuffer::fits(spec, 11));
}

/// Two inputs, one output at port 2, all 100 Gb/s.
class SwitchTest : public testing::Test {
 protected:
  void make(const SwitchSpec& spec) {
    Routes routes{{}, 1, 1};
    routes.add({2});
    std::vector<Switch::PortSpec> ports;
    for (int i = 0; i < 3; ++i) {
      links.push_back(std::make_unique<Link>(wheel, owner));
      links.back()->connect(far[static_cast<std::size_t>(i)], 0, Duration::zero(), Duration::zero());
      ports.push_back({BitRate::gbps(100), links.back().get()});
    }
    under_test = std::make_unique<Switch>(wheel, owner, Rng{1}, spec, ports, std::move(routes));
  }
  void receive(PortIndex port, std::uint32_t size, Ecn ecn, Duration when, std::uint8_t priority = 3) {
    wheel.run(at(when));
    under_test->on_packet(packets.make(size, priority, ecn), port, at(when));
  }

  Wheel wheel;
  RecordingOwner owner;
  std::array<RecordingReceiver, 3> far;
  std::vector<std::unique_ptr<Link>> links;
  PacketSlab packets;
  std::unique_ptr<Switch> under_test;
};

TEST_F(SwitchTest, ce_goes_on_ect_only) {
  SwitchSpec spec;
  spec.buffer.size_bytes = 1'000'000;
  spec.ecn[3] = {true, 0, 0, 1'000'000, 0};  // any queue at all
  spec.ecn[4] = spec.ecn[3];
  spec.buffer.priority[4] = {.lossless = true, .headroom_bytes = 10'000};
  make(spec);
  receive(0, 1000, Ecn::ect0, 0ns);  // finds no queue
  receive(0, 1000, Ecn::ect0, 0ns);
  receive(0, 1000, Ecn::ect1, 0ns);
  receive(0, 1000, Ecn::ce, 0ns);
  receive(0, 1000, Ecn::not_ect, 0ns);
  receive(0, 1000, Ecn::not_ect, 0ns, 4);
  receive(0, 1000, Ecn::not_ect, 0ns, 4);
  wheel.run(at(1ms));
  std::vector<Ecn> seen;
  for (const Arrival& a : far[2].arrivals) {
    if (a.priority == 3) {
      seen.push_back(a.ecn);
    }
  }
  EXPECT_EQ(seen, (std::vector<Ecn>{Ecn::ect0, Ecn::ce, Ecn::ce, Ecn::ce}));
  EXPECT_EQ(owner.drops, (std::vector<SwitchDrop>{SwitchDrop::red}));
  EXPECT_EQ(under_test->counters().marked[3], 3U);
  EXPECT_EQ(under_test->counters().unmarkable[4], 1U);  // a lossless priority keeps what it cannot mark
  EXPECT_EQ(under_test->counters().dropped(SwitchDrop::red), 1U);
}

TEST_F(SwitchTest, pauses_who_fills_it_and_lets_go) {
  SwitchSpec spec;
  spec.buffer.size_bytes = 1'000'000;
  spec.buffer.priority[3] = {.lossless = true, .headroom_bytes = 20'000, .xoff_bytes = 10'000, .xon_bytes = 5'000};
  spec.pfc_quanta = 1000;
  make(spec);
  for (int i = 0; i < 20; ++i) {
    receive(0, 1000, Ecn::ect0, 0ns);
  }
  receive(1, 1000, Ecn::ect0, 0ns);
  wheel.run(at(1ms));
  ASSERT_EQ(far[0].pauses.size(), 2U);
  EXPECT_EQ(far[0].pauses[0].frame.class_enable, 0b1000);
  EXPECT_EQ(far[0].pauses[0].frame.quanta[3], 1000);
  EXPECT_EQ(far[0].pauses[1].frame.quanta[3], 0);
  EXPECT_TRUE(far[1].pauses.empty());
  // Twenty wait. Ten are in headroom and go first; 5000 of the pool are left when fifteen have gone.
  EXPECT_EQ(far[0].pauses[1].time, at(0ns) + Duration{15 * 1024 * 80} + Duration{84 * 80});
  EXPECT_TRUE(owner.drops.empty());
  EXPECT_EQ(far[2].arrivals.size(), 21U);
  EXPECT_EQ(under_test->buffer().pool_used(), 0U);
}

TEST_F(SwitchTest, a_watchdog_empties_a_queue_that_is_paused_for_ever_and_lets_it_live_again) {
  SwitchSpec spec;
  spec.buffer.size_bytes = 1'000'000;
  spec.buffer.priority[3] = {.lossless = true, .headroom_bytes = 20'000};
  spec.watchdog = {.detection_time = 200us, .restoration_time = 400us};
  make(spec);
  const Duration pause = pause_time(max_quanta, BitRate::gbps(100));  // 335.5392 us
  const auto storm = [&](Duration when) {
    wheel.run(at(when));
    under_test->on_pause(pfc(0b1000, max_quanta), 2, at(when));
  };
  storm(0us);
  receive(0, 1000, Ecn::ect0, 1us);
  receive(0, 1000, Ecn::ect0, 1us);
  wheel.run(at(200us));
  EXPECT_TRUE(owner.drops.empty());
  wheel.run(at(201us));  // 200 us after the first packet could not go
  EXPECT_EQ(owner.drops.size(), 2U);
  EXPECT_EQ(under_test->watchdog(2).storms_detected(), 1U);
  EXPECT_EQ(under_test->buffer().pool_used(), 0U);
  storm(300us);
  receive(0, 1000, Ecn::ect0, 400us);
  EXPECT_EQ(owner.drops.size(), 3U);
  EXPECT_EQ(under_test->counters().dropped(SwitchDrop::pfc_watchdog), 3U);
  wheel.run(at(300us + pause + 400us));
  EXPECT_EQ(under_test->watchdog(2).storms_restored(), 1U);
  receive(0, 1000, Ecn::ect0, 300us + pause + 401us);
  wheel.run(at(10ms));
  EXPECT_EQ(far[2].arrivals.size(), 1U);
}

TEST_F(SwitchTest, a_watchdog_may_also_send_all_the_same) {
  SwitchSpec spec;
  spec.buffer.size_bytes = 1'000'000;
  spec.buffer.priority[3] = {.lossless = true, .headroom_bytes = 20'000};
  spec.watchdog = {.detection_time = 100us, .restoration_time = 1s, .action = WatchdogAction::forward};
  make(spec);
  under_test->on_pause(pfc(0b1000, max_quanta), 2, at(0us));
  receive(0, 1226, Ecn::ect0, 0us);
  wheel.run(at(1ms));
  ASSERT_EQ(far[2].arrivals.size(), 1U);
  EXPECT_EQ(far[2].arrivals[0].time, at(100us + 100ns));
}

}  // namespace
}  // namespace nbx::switching
