// A transmitter against the clauses it follows: times on the line, pauses to the picosecond, schedulers, storms.
#include <gtest/gtest.h>

#include <array>

#include "support/switching_rig.hpp"
#include "switching/pause_storm.hpp"
#include "switching/pfc_sender.hpp"

namespace nbx::switching {
namespace {

using namespace std::chrono_literals;

constexpr Instant at(Duration d) { return Instant{} + d; }

TEST(Pause, quanta_are_512_bit_times) {
  EXPECT_EQ(pause_time(1, BitRate::gbps(10)), Duration{51'200});
  EXPECT_EQ(pause_time(65'535, BitRate::gbps(400)), Duration{83'884'800});
  EXPECT_EQ(pause_time(65'535, BitRate::gbps(100)), Duration{335'539'200});
  EXPECT_EQ(pause_time(0, BitRate::gbps(400)), Duration::zero());
}

TEST(EgressPort, a_frame_occupies_its_bytes_and_the_overhead) {
  TransmitterRig rig{{.rate = BitRate::gbps(100)}, 1us};
  rig.port.enqueue(rig.packets.make(1000), at(0ns));
  rig.port.enqueue(rig.packets.make(1000), at(0ns));
  rig.wheel.run(at(1s));
  ASSERT_EQ(rig.far.arrivals.size(), 2U);
  EXPECT_EQ(rig.far.arrivals[0].time, at(1us) + Duration{1024 * 80});
  EXPECT_EQ(rig.far.arrivals[1].time, at(1us) + Duration{2 * 1024 * 80});
}

TEST(EgressPort, a_rate_that_divides_nothing_keeps_its_remainder) {
  const BitRate rate{7'777'777'777};
  TransmitterRig rig{{.rate = rate}};
  constexpr std::uint64_t n = 10'000;
  for (std::uint64_t i = 0; i < n; ++i) {
    rig.port.enqueue(rig.packets.make(1000), at(0ns));
  }
  rig.wheel.run(at(1s));
  const auto exact = static_cast<uint128>(n) * 1024 * 8 * 1'000'000'000'000ULL / rate.bits_per_second;
  EXPECT_EQ(rig.far.arrivals.back().time.ps, static_cast<std::int64_t>(exact));
}

TEST(EgressPort, a_pause_holds_its_priority_to_the_picosecond_and_no_other) {
  TransmitterRig rig{{.rate = BitRate::gbps(400), .overhead_bytes = 24}};
  for (int i = 0; i < 200; ++i) {
    rig.port.enqueue(rig.packets.make(976, 3), at(0ns));  // 20 ns each
    rig.port.enqueue(rig.packets.make(976, 2), at(0ns));
  }
  rig.wheel.run(at(5ns));  // the first of priority 3, the higher one, is on the line
  rig.port.on_pause(pfc(0b0000'1000, 100), at(5ns));
  const Instant resumed = at(5ns) + pause_time(100, BitRate::gbps(400));  // 133 ns
  rig.wheel.run(at(1s));

  std::vector<Instant> of_3;
  std::size_t others_meanwhile = 0;
  for (const Arrival& a : rig.far.arrivals) {
    if (a.priority == 3) {
      of_3.push_back(a.time);
    } else {
      others_meanwhile += a.time > at(20ns) && a.time <= resumed ? 1U : 0U;
    }
  }
  EXPECT_EQ(of_3[0], at(20ns));  // the frame that had begun is finished
  EXPECT_EQ(others_meanwhile, 5U);
  // Priority 2 is on the line when the pause ends, at 133 ns, so the next of 3 begins behind it, at 140 ns.
  EXPECT_EQ(of_3[1], at(160ns));
  EXPECT_EQ(rig.port.counters(3).rx_pause_duration, pause_time(100, BitRate::gbps(400)));
  EXPECT_EQ(rig.port.counters(2).rx_pause, 0U);
}

TEST(EgressPort, an_idle_line_resumes_exactly_when_the_quanta_end) {
  for (const std::uint64_t gbps : {10U, 25U, 100U, 200U, 400U, 800U}) {
    SCOPED_TRACE(gbps);
    TransmitterRig rig{{.rate = BitRate::gbps(gbps)}};
    rig.port.on_pause(pfc(0b0000'1000, 7), at(1us));
    rig.port.enqueue(rig.packets.make(100), at(1us));
    rig.wheel.run(at(1s));
    const Duration quanta{7 * 512 * 1000 / static_cast<std::int64_t>(gbps)};
    const Duration frame{124 * 8 * 1000 / static_cast<std::int64_t>(gbps)};
    ASSERT_EQ(rig.far.arrivals.size(), 1U);
    EXPECT_EQ(rig.far.arrivals[0].time, at(1us) + quanta + frame);
  }
}

TEST(EgressPort, zero_quanta_resume_at_once_and_a_class_that_is_not_enabled_means_nothing) {
  TransmitterRig rig{{.rate = BitRate::gbps(100)}};
  rig.port.on_pause(pfc(0b0000'1000, 65'535), at(0ns));
  rig.port.enqueue(rig.packets.make(1226), at(0ns));
  PauseFrame other = pfc(0b0000'0100, 0);
  other.quanta[3] = 0;  // not enabled
  rig.wheel.run(at(10us));
  rig.port.on_pause(other, at(10us));
  rig.wheel.run(at(20us));
  EXPECT_TRUE(rig.far.arrivals.empty());
  rig.port.on_pause(pfc(0b0000'1000, 0), at(20us));
  rig.wheel.run(at(30us));
  ASSERT_EQ(rig.far.arrivals.size(), 1U);
  EXPECT_EQ(rig.far.arrivals[0].time, at(20us + 100ns));
  EXPECT_EQ(rig.port.counters(3).rx_pause_duration, Duration{20us});
}

TEST(EgressPort, a_later_pause_replaces_an_earlier_one) {
  TransmitterRig rig{{.rate = BitRate::gbps(100)}};
  rig.port.on_pause(pfc(0b0000'1000, 1000), at(0ns));
  rig.port.on_pause(pfc(0b0000'1000, 10), at(1us));
  rig.port.enqueue(rig.packets.make(1226), at(1us));
  rig.wheel.run(at(1s));
  EXPECT_EQ(rig.far.arrivals.at(0).time, at(1us + Duration{51'200} + 100ns));
  EXPECT_EQ(rig.port.counters(3).rx_pause_duration, 1us + Duration{51'200});
  EXPECT_EQ(rig.port.counters(3).rx_pause_transition, 1U);
}

TEST(EgressPort, plain_pause_stops_everything_and_is_told_apart) {
  TransmitterRig rig{{.rate = BitRate::gbps(100)}};
  PauseFrame pause;
  pause.pfc = false;
  pause.quanta[0] = 1000;
  rig.port.on_pause(pause, at(0ns));
  for (std::uint8_t p = 0; p < priorities; ++p) {
    rig.port.enqueue(rig.packets.make(100, p), at(0ns));
  }
  rig.port.on_pause(pfc(0xff, 0), at(1us));  // resumes PFC, not PAUSE
  const Instant end = at(0ns) + pause_time(1000, BitRate::gbps(100));
  rig.wheel.run(end);
  EXPECT_TRUE(rig.far.arrivals.empty());
  rig.wheel.run(at(1s));
  EXPECT_EQ(rig.far.arrivals.size(), 8U);
  EXPECT_EQ(rig.port.plain_pauses_received(), 1U);
}

TEST(EgressPort, pause_frames_go_first_and_are_not_paused) {
  TransmitterRig rig{{.rate = BitRate::gbps(100)}};
  rig.port.enqueue(rig.packets.make(1226), at(0ns));  // 100 ns
  rig.port.enqueue(rig.packets.make(1226), at(0ns));
  rig.port.on_pause(pfc(0xff, 65'535), at(0ns));
  rig.port.send_pause(pfc(0b1000, 100), at(10ns));
  rig.port.send_pause(pfc(0b0100, 200), at(20ns));  // merged: neither has left
  rig.port.send_pause(pfc(0b1000, 0), at(30ns));    // the later word
  rig.wheel.run(at(10us));
  ASSERT_EQ(rig.far.pauses.size(), 1U);
  EXPECT_EQ(rig.far.pauses[0].time, at(100ns) + Duration{84 * 80});
  EXPECT_EQ(rig.far.pauses[0].frame.class_enable, 0b1100);
  EXPECT_EQ(rig.far.pauses[0].frame.quanta[3], 0);
  EXPECT_EQ(rig.far.pauses[0].frame.quanta[2], 200);
  EXPECT_EQ(rig.far.arrivals.size(), 1U);
}

TEST(EgressPort, a_new_rate_holds_from_the_next_frame) {
  TransmitterRig rig{{.rate = BitRate::gbps(100)}};
  rig.port.enqueue(rig.packets.make(1226), at(0ns));
  rig.port.enqueue(rig.packets.make(1226), at(0ns));
  rig.wheel.run(at(50ns));
  rig.port.set_rate(BitRate::gbps(25));
  rig.port.on_pause(pfc(0b0000'0001, 1), at(60ns));  // a quantum is of the new rate
  rig.wheel.run(at(1us));
  EXPECT_EQ(rig.far.arrivals.at(0).time, at(100ns));
  EXPECT_EQ(rig.far.arrivals.at(1).time, at(500ns));
  EXPECT_EQ(rig.port.counters(0).rx_pause_duration, Duration{20'480});
}

TEST(Scheduler, strict_priorities_go_first) {
  TransmitterRig rig{{.rate = BitRate::gbps(100)}};
  rig.port.enqueue(rig.packets.make(100, 0), at(0ns));  // on the line
  for (const std::uint8_t p : {1, 5, 3, 7, 5}) {
    rig.port.enqueue(rig.packets.make(100, p), at(0ns));
  }
  rig.wheel.run(at(1s));
  std::vector<int> order;
  for (const Arrival& a : rig.far.arrivals) {
    order.push_back(a.priority);
  }
  EXPECT_EQ(order, (std::vector<int>{0, 7, 5, 5, 3, 1}));
}

TEST(Scheduler, deficit_round_robin_shares_bytes_whatever_the_frames) {
  EgressSpec spec{.rate = BitRate::gbps(100)};
  spec.scheduler.quantum_bytes = {1000, 2000, 5000, 0, 0, 0, 0, 0};
  TransmitterRig rig{spec};
  constexpr std::array<std::uint32_t, 3> sizes{1476, 200, 4072};
  for (std::uint8_t p = 0; p < 3; ++p) {
    for (std::uint32_t bytes = 0; bytes < 40'000'000; bytes += sizes[p]) {
      rig.port.enqueue(rig.packets.make(sizes[p], p), at(0ns));
    }
  }
  rig.wheel.run(at(4ms));  // 50 MB
  std::array<double, 3> bytes{};
  for (const Arrival& a : rig.far.arrivals) {
    bytes[a.priority] += a.size + ethernet_overhead_bytes;
  }
  const double all = bytes[0] + bytes[1] + bytes[2];
  EXPECT_NEAR(bytes[0] / all, 1.0 / 8, 0.001);
  EXPECT_NEAR(bytes[1] / all, 2.0 / 8, 0.001);
  EXPECT_NEAR(bytes[2] / all, 5.0 / 8, 0.001);
}

TEST(PfcSender, refreshes_before_the_pause_ends_and_stops_with_a_zero) {
  TransmitterRig rig{{.rate = BitRate::gbps(100)}};
  PfcSender sender{rig.wheel, rig.port, 1000};  // 5.12 us
  sender.pause(3, at(0ns));
  rig.wheel.run(at(100us));
  sender.resume(3, at(100us));
  rig.wheel.run(at(200us));
  ASSERT_GE(rig.far.pauses.size(), 3U);
  PauseState peer;
  for (std::size_t i = 0; i + 1 < rig.far.pauses.size(); ++i) {
    EXPECT_TRUE(i == 0 || peer.paused(3, rig.far.pauses[i].time)) << "a gap before frame " << i;
    EXPECT_EQ(rig.far.pauses[i].frame.quanta[3], 1000);
    peer.on_frame(rig.far.pauses[i].frame, BitRate::gbps(100), rig.far.pauses[i].time);
  }
  EXPECT_EQ(rig.far.pauses.back().frame.class_enable, 0b1000);
  EXPECT_EQ(rig.far.pauses.back().frame.quanta[3], 0);
  EXPECT_EQ(rig.far.pauses.size(), 1 + 39 + 1U);  // every 2.56 us
}

// Behind full-size frames of a priority that is not paused, at each rate: the peer is never free in between.
TEST(PauseStorm, has_no_gap_at_any_rate) {
  for (const std::uint64_t gbps : {10U, 100U, 400U}) {
    SCOPED_TRACE(gbps);
    const BitRate rate = BitRate::gbps(gbps);
    TransmitterRig storming{{.rate = rate}};
    TransmitterRig peer{{.rate = rate}};
    constexpr std::uint16_t quanta = 4000;
    EXPECT_TRUE(storm_is_gapless(quanta, pause_time(quanta, rate) / 2, rate, 9018));
    for (std::uint64_t i = 0; i < 125'000'000 * gbps / 9042 / 500; ++i) {  // 2 ms of traffic
      storming.port.enqueue(storming.packets.make(9018, 2), at(0ns));
    }
    PauseStorm storm{storming.wheel, storming.port};
    storm.start({.class_enable = 0b1000, .quanta = quanta, .duration = 2ms}, at(0ns));
    storming.wheel.run(at(1s));
    for (const PauseArrival& p : storming.far.pauses) {
      peer.port.on_pause(p.frame, p.time);
    }
    const Instant first = storming.far.pauses.front().time;
    const Instant last = storming.far.pauses.back().time;
    EXPECT_EQ(peer.port.counters(3).rx_pause_transition, 1U);
    EXPECT_EQ(peer.port.counters(3).rx_pause_duration, last - first);  // ended by its zero
    EXPECT_GE(last, at(2ms));
    EXPECT_EQ(storming.far.pauses.back().frame.quanta[3], 0);
    EXPECT_EQ(peer.port.counters(2).rx_pause, 0U);
  }
}

TEST(PauseStorm, a_period_that_is_too_long_leaves_gaps_that_are_counted) {
  const BitRate rate = BitRate::gbps(400);
  EXPECT_FALSE(storm_is_gapless(max_quanta, 84us, rate, 9018));
  EXPECT_TRUE(storm_is_gapless(max_quanta, 83us, rate, 9018));
  TransmitterRig storming{{.rate = rate}};
  TransmitterRig peer{{.rate = rate}};
  PauseStorm storm{storming.wheel, storming.port};
  storm.start({.class_enable = 1, .period = 84us, .duration = 840us}, at(0ns));
  storming.wheel.run(at(1s));
  for (const PauseArrival& p : storming.far.pauses) {
    peer.port.on_pause(p.frame, p.time);
  }
  EXPECT_EQ(peer.port.counters(0).rx_pause_transition, 10U);
  EXPECT_EQ(peer.port.counters(0).rx_pause_duration, 10 * pause_time(max_quanta, rate));
}

TEST(Link, loses_what_is_on_it_when_it_goes_down) {
  TransmitterRig rig{{.rate = BitRate::gbps(100)}, 10us};
  rig.port.enqueue(rig.packets.make(1226), at(0ns));  // arrives at 10.1 us
  rig.wheel.run(at(5us));
  rig.link.set_up(false, at(5us));
  rig.link.set_up(true, at(6us));
  rig.port.enqueue(rig.packets.make(1226), at(6us));
  rig.wheel.run(at(1s));
  EXPECT_EQ(rig.owner.drops, (std::vector<SwitchDrop>{SwitchDrop::link_down}));
  ASSERT_EQ(rig.far.arrivals.size(), 1U);
  EXPECT_EQ(rig.far.arrivals[0].time, at(16us + 100ns));
}

}  // namespace
}  // namespace nbx::switching
