// One direction of a profile at work: what leaves, when, in which order, changed how, and that no frame is lost sight
// of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <vector>

#include "support/fabric_rig.hpp"
#include "wire/build.hpp"

namespace nbx::fabric {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

constexpr Instant at(Duration d) { return Instant{} + d; }

DirectionSpec with_delay(const Duration& constant, const Jitter& jitter = {}, bool may_reorder = false) {
  DirectionSpec spec;
  spec.delay.push_back({Match{}, constant, jitter, may_reorder});
  return spec;
}

TEST(Impairment, nothing_asked_nothing_done) {
  Rig rig{DirectionSpec{}};
  rig.submit(1);
  EXPECT_THAT(rig.order(), ElementsAre(1));  // in the same call
  EXPECT_FALSE(rig.released[0].treatment.any());
  EXPECT_EQ(rig.decided.size(), 1U);
  EXPECT_EQ(rig.wheel.armed(), 0U);
  EXPECT_EQ(rig.impairment->delay_stats().frames, 0U);
}

TEST(Impairment, old_treatment_is_forgotten) {
  Rig rig{DirectionSpec{}};
  Frame& frame = rig.make(1);
  frame.treatment.delay = 5ms;
  frame.treatment.dropped = Drop::loss;
  rig.submit(frame);
  EXPECT_FALSE(rig.released[0].treatment.any());
}

TEST(Impairment, loss) {
  DirectionSpec spec;
  spec.loss.push_back({Match{}, Listed{{2, 3}}});
  Rig rig{spec};
  for (std::uint32_t i = 1; i <= 4; ++i) {
    rig.submit(i);
  }
  EXPECT_THAT(rig.order(), ElementsAre(1, 4));
  ASSERT_EQ(rig.dropped.size(), 2U);
  EXPECT_EQ(rig.dropped[0].number, 2U);
  EXPECT_EQ(rig.dropped[0].treatment.dropped, Drop::loss);
  EXPECT_EQ(rig.counters.get(Drop::loss), 2U);
  EXPECT_EQ(rig.decided.size(), 2U);  // a dropped frame is reported once
}

TEST(Impairment, first_matching_rule_shields_the_rest) {
  DirectionSpec spec;
  Match ghost_one;
  ghost_one.ghosts = {GhostId{1}};
  spec.loss.push_back({ghost_one, Bernoulli{0}});
  spec.loss.push_back({Match{}, Bernoulli{1}});
  Rig rig{spec};
  rig.submit(rig.make(1), GhostId{1});
  rig.submit(rig.make(2), GhostId{2});
  rig.submit(rig.make(3), no_ghost);
  EXPECT_THAT(rig.order(), ElementsAre(1));
}

TEST(Impairment, constant_delay_is_exact) {
  Rig rig{with_delay(5ms)};
  for (std::uint32_t i = 0; i < 100; ++i) {
    rig.submit(i);
    rig.run_for(Duration{1'234'567});
  }
  rig.run_for(10ms);
  ASSERT_EQ(rig.released.size(), 100U);
  for (std::uint32_t i = 0; i < 100; ++i) {
    EXPECT_EQ(rig.released[i].number, i);
    EXPECT_EQ(rig.released[i].at, at(5ms + Duration{1'234'567} * i));
    EXPECT_EQ(rig.released[i].treatment.delay, 5ms);
  }
  const DelayStats s = rig.impairment->delay_stats();
  EXPECT_EQ(s.frames, 100U);
  EXPECT_EQ(s.asked_min, 5ms);
  EXPECT_EQ(s.asked_max, 5ms);
  EXPECT_EQ(s.asked_mean_ps, 5e9);
  EXPECT_EQ(s.undisturbed.late_frames, 0U);
  EXPECT_EQ(s.undisturbed.max, Duration::zero());
  EXPECT_EQ(rig.counters.get(Counter::impair_delayed), 100U);
}

TEST(Impairment, lateness_of_the_driver_is_accounted) {
  Rig rig{with_delay(1ms)};
  const std::vector<Duration> late{0ns, 10ns, 20ns, 30ns, 700us};
  for (std::size_t i = 0; i < late.size(); ++i) {
    rig.submit(0);
    rig.now = rig.now + 1ms + late[i];
    rig.wheel.run(rig.now);
  }
  const DelayStats s = rig.impairment->delay_stats();
  EXPECT_EQ(s.frames, 5U);
  EXPECT_EQ(s.undisturbed.late_frames, 4U);
  EXPECT_EQ(s.undisturbed.median, 20ns);
  EXPECT_GT(s.undisturbed.p99, 694us);  // to the precision of its bin, 0.8 %
  EXPECT_LE(s.undisturbed.p99, 700us);
  EXPECT_EQ(s.undisturbed.max, 700us);
  ASSERT_EQ(s.undisturbed.histogram_ns.size(), 5U);
  EXPECT_EQ(s.undisturbed.histogram_ns[1], (std::pair<std::uint64_t, std::uint64_t>{10, 1}));
  EXPECT_EQ(s.interrupted.frames, 0U);
}

TEST(Impairment, what_was_due_while_the_driver_did_not_run_is_accounted_apart) {
  Rig rig{with_delay(1ms)};
  const auto wait_for = [&rig](Duration wait) {
    rig.now = rig.now + wait;
    rig.wheel.run(rig.now);
  };
  rig.submit(0);
  wait_for(1ms + 30ns);
  rig.submit(1);
  const Instant before = rig.now;
  rig.impairment->interrupted(before + 900us, before + 5ms);
  wait_for(5ms);
  rig.submit(2);
  wait_for(1ms + 40ns);
  const DelayStats s = rig.impairment->delay_stats();
  EXPECT_EQ(s.undisturbed.frames, 2U);
  EXPECT_EQ(s.undisturbed.max, 40ns);
  EXPECT_EQ(s.interrupted.frames, 1U);
  EXPECT_EQ(s.interrupted.max, 4ms);
}

TEST(Impairment, jitter_keeps_order_unless_it_may_not) {
  for (const bool may_reorder : {false, true}) {
    Rig rig{with_delay(1ms, Uniform{500us}, may_reorder)};
    for (std::uint32_t i = 0; i < 2000; ++i) {
      rig.submit(i);
      rig.run_for(1us);
    }
    rig.run_for(10ms);
    const auto order = rig.order();
    ASSERT_EQ(order.size(), 2000U);
    EXPECT_EQ(std::is_sorted(order.begin(), order.end()), !may_reorder);
    Instant latest{};
    for (const Event& e : rig.released) {
      const Instant own = at(1us * e.number) + e.treatment.delay;
      latest = std::max(latest, own);
      // Each leaves when it asked to; where order is kept, when the last of those before asked to.
      EXPECT_EQ(e.at, may_reorder ? own : latest);
    }
  }
}

TEST(Impairment, delay_is_never_below_zero) {
  Rig rig{with_delay(1us, Normal{1ms}, true)};
  for (std::uint32_t i = 0; i < 1000; ++i) {
    rig.submit(i);
  }
  EXPECT_GT(rig.released.size(), 400U);  // about half of the draws are negative: they leave at once
  EXPECT_LT(rig.released.size(), 600U);
}

TEST(Impairment, delay_rules_are_paths_of_their_own) {
  DirectionSpec spec;
  Match far;
  far.ghosts = {GhostId{1}};
  Match near;
  near.ghosts = {GhostId{2}};
  spec.delay.push_back({far, 5ms, {}, false});
  spec.delay.push_back({near, 1ms, {}, false});
  Rig rig{spec};
  rig.submit(rig.make(1), GhostId{1});
  rig.submit(rig.make(2), GhostId{2});
  rig.submit(rig.make(3), GhostId{3});  // on no path: at once
  rig.run_for(10ms);
  EXPECT_THAT(rig.order(), ElementsAre(3, 2, 1));
  EXPECT_EQ(rig.released[1].at, at(1ms));
  EXPECT_EQ(rig.released[2].at, at(5ms));
}

TEST(Impairment, late_driver_lets_a_timer_between_two_frames_fire_between_them) {
  struct Client : TimerClient {
    explicit Client(const Rig& r) : rig(r) {}
    void on_timer(TimerNode& /*node*/, Instant /*now*/) noexcept override { released_before = rig.released.size(); }
    const Rig& rig;
    std::size_t released_before = 0;
  };
  Rig rig{with_delay(1us)};
  for (std::uint32_t i = 0; i < 6; ++i) {
    rig.submit(i);
    rig.now = rig.now + 10ns;
  }
  Client client{rig};
  TimerNode node;
  node.client = &client;
  rig.wheel.arm(node, at(1us + 25ns));
  rig.wheel.run(at(1us + 40ns));
  EXPECT_EQ(client.released_before, 3U);
  EXPECT_EQ(rig.released.size(), 5U);
  EXPECT_EQ(rig.wheel.next_deadline(), at(1us + 50ns));
}

TEST(Impairment, late_driver_releases_in_the_order_of_due_times) {
  DirectionSpec spec;
  for (std::uint32_t g = 0; g < 2; ++g) {
    Match m;
    m.ghosts = {GhostId{g}};
    spec.delay.push_back({m, 1us, {}, false});
  }
  Rig rig{spec};
  for (std::uint32_t i = 0; i < 6; ++i) {
    rig.submit(rig.make(i), GhostId{i % 2});
    rig.now = rig.now + 10ns;
  }
  rig.wheel.run(at(1ms));
  EXPECT_THAT(rig.order(), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(Impairment, delay_line_has_an_end) {
  DirectionSpec spec = with_delay(1ms);
  spec.delay_line_frames = 3;
  Rig rig{spec};
  for (std::uint32_t i = 1; i <= 5; ++i) {
    rig.submit(i);
  }
  ASSERT_EQ(rig.dropped.size(), 2U);
  EXPECT_EQ(rig.dropped[0].treatment.dropped, Drop::delay_line_full);
  EXPECT_EQ(rig.dropped[0].treatment.delay, Duration::zero());
  EXPECT_EQ(rig.counters.get(Drop::delay_line_full), 2U);
  rig.run_for(1ms);
  rig.submit(6);
  rig.run_for(1ms);
  EXPECT_THAT(rig.order(), ElementsAre(1, 2, 3, 6));
}

TEST(Impairment, rate_spaces_frames_exactly) {
  // 33 000 007 b/s divides nothing: the k-th departure is the exact quotient, rounded up, with no drift.
  constexpr std::uint64_t rate = 33'000'007;
  for (const bool overhead : {true, false}) {
    DirectionSpec spec;
    spec.rate = {BitRate{rate}, 1 << 30, overhead};
    Rig rig{spec};
    std::uint64_t bits = 0;
    for (std::uint32_t i = 0; i < 1000; ++i) {
      const std::uint32_t size = 64 + i % 1400;
      rig.submit(rig.make(i, size));
    }
    rig.run_for(10s);
    ASSERT_EQ(rig.released.size(), 1000U);
    for (std::uint32_t i = 0; i < 1000; ++i) {
      bits += std::uint64_t{8} * (64 + i % 1400 + (overhead ? 24 : 0));
      const auto expected = (static_cast<uint128>(bits) * 1'000'000'000'000U + rate - 1) / rate;
      EXPECT_EQ(rig.released[i].at.ps, static_cast<std::int64_t>(expected)) << i;
      EXPECT_EQ(rig.released[i].number, i);
    }
  }
}

TEST(Impairment, rate_over_a_second) {
  DirectionSpec spec;
  spec.rate = {BitRate::mbps(100), 10'000, true};
  Rig rig{spec};
  std::uint32_t offered = 0;
  while (rig.now < at(1s)) {
    rig.submit(rig.make(offered++, 1000));
    rig.run_for(50us);  // 160 Mb/s and more
  }
  const double bits = static_cast<double>(rig.released.size()) * 1024 * 8;
  EXPECT_NEAR(bits, 100e6, 100e3);
  rig.run_for(1s);
  EXPECT_EQ(rig.counters.get(Drop::queue_full) + rig.released.size(), offered);
}

TEST(Impairment, link_that_was_idle_starts_at_once) {
  DirectionSpec spec;
  spec.rate = {BitRate::gbps(1), 10'000, true};
  Rig rig{spec};
  rig.submit(rig.make(1, 101));  // 125 bytes on the link: 1 us
  rig.run_for(10us);
  rig.submit(rig.make(2, 101));
  rig.run_for(10us);
  EXPECT_EQ(rig.released[0].at, at(1us));
  EXPECT_EQ(rig.released[1].at, at(11us));
}

TEST(Impairment, queue_full_is_exact) {
  DirectionSpec spec;
  spec.rate = {BitRate::gbps(1), 1000, true};
  Rig rig{spec};
  for (std::uint32_t i = 0; i < 20; ++i) {
    rig.submit(rig.make(i, 101));  // 125 bytes of link each: eight fit
  }
  EXPECT_EQ(rig.dropped.size(), 12U);
  EXPECT_EQ(rig.counters.get(Drop::queue_full), 12U);
  rig.run_for(1us - Duration{1});  // the first has not left entirely
  rig.submit(rig.make(100, 101));
  EXPECT_EQ(rig.dropped.size(), 13U);
  rig.run_for(Duration{1});
  rig.submit(rig.make(101, 101));
  EXPECT_EQ(rig.dropped.size(), 13U);
  rig.run_for(1ms);
  EXPECT_THAT(rig.order(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 101));
}

TEST(Impairment, rate_and_delay_add_up) {
  DirectionSpec spec = with_delay(1ms);
  spec.rate = {BitRate::gbps(1), 10'000, true};
  Rig rig{spec};
  rig.submit(rig.make(1, 101));
  rig.submit(rig.make(2, 101));
  rig.run_for(10ms);
  EXPECT_EQ(rig.released[0].at, at(1ms + 1us));
  EXPECT_EQ(rig.released[1].at, at(1ms + 2us));
  EXPECT_EQ(rig.released[1].treatment.delay, 1ms);
}

DirectionSpec with_reorder(const Selector& select, std::uint32_t distance, Duration hold_max = 1ms) {
  DirectionSpec spec;
  spec.reorder.push_back({Match{}, select, distance, hold_max});
  return spec;
}

TEST(Impairment, reorder_distance_is_exact) {
  Rig rig{with_reorder(Listed{{2, 4}}, 3)};
  for (std::uint32_t i = 1; i <= 9; ++i) {
    rig.submit(i);
  }
  // 3, 5 and 6 pass 2; 4 is held itself and does not count; 5, 6 and 7 pass 4.
  EXPECT_THAT(rig.order(), ElementsAre(1, 3, 5, 6, 2, 7, 4, 8, 9));
  EXPECT_TRUE(rig.released[4].treatment.reordered);
  EXPECT_FALSE(rig.released[5].treatment.reordered);
  EXPECT_EQ(rig.counters.get(Counter::impair_reordered), 2U);
  EXPECT_EQ(rig.wheel.armed(), 0U);
}

TEST(Impairment, reorder_ends_after_hold_max) {
  Rig rig{with_reorder(EveryNth{1, 0}, 1, 250us)};
  rig.submit(1);
  rig.run_for(100us);
  rig.submit(2);
  rig.run_for(1ms);
  EXPECT_THAT(rig.order(), ElementsAre(1, 2));
  EXPECT_EQ(rig.released[0].at, at(250us));
  EXPECT_EQ(rig.released[1].at, at(350us));
}

TEST(Impairment, reorder_happens_behind_the_delay) {
  DirectionSpec spec = with_reorder(Listed{{1}}, 2, 10ms);
  spec.delay = with_delay(1ms).delay;
  Rig rig{spec};
  for (std::uint32_t i = 1; i <= 4; ++i) {
    rig.submit(i);
    rig.run_for(10us);
  }
  rig.run_for(20ms);
  EXPECT_THAT(rig.order(), ElementsAre(2, 3, 1, 4));
  EXPECT_EQ(rig.released[2].at, at(1ms + 20us));  // with the frame that passed it last
  EXPECT_EQ(rig.impairment->delay_stats().undisturbed.late_frames, 0U);
}

TEST(Impairment, reorder_rules_hold_side_by_side) {
  DirectionSpec spec;
  Match one;
  one.nth = {1};
  Match rest;
  spec.reorder.push_back({one, Bernoulli{1}, 4, 1ms});
  spec.reorder.push_back({rest, Listed{{1}}, 1, 1ms});
  Rig rig{spec};
  for (std::uint32_t i = 1; i <= 7; ++i) {
    rig.submit(i);
  }
  EXPECT_THAT(rig.order(), ElementsAre(3, 2, 4, 5, 6, 1, 7));
}

TEST(Impairment, duplicate_follows_the_original) {
  DirectionSpec spec = with_delay(1ms);
  spec.duplicate.push_back({Match{}, Listed{{2}}});
  Rig rig{spec};
  for (std::uint32_t i = 1; i <= 3; ++i) {
    Frame& frame = rig.make(i);
    frame.ghost = GhostId{7};
    rig.submit(frame);
  }
  rig.run_for(1ms);
  EXPECT_THAT(rig.order(), ElementsAre(1, 2, 2, 3));
  EXPECT_FALSE(rig.released[1].treatment.duplicate);
  EXPECT_TRUE(rig.released[2].treatment.duplicate);
  EXPECT_EQ(rig.released[2].ghost, GhostId{7});
  EXPECT_EQ(rig.released[2].treatment.delay, 1ms);
  EXPECT_EQ(rig.decided.size(), 4U);
  EXPECT_EQ(rig.counters.get(Counter::impair_duplicated), 1U);
}

TEST(Impairment, duplicate_draws_its_own_jitter) {
  DirectionSpec spec = with_delay(1ms, Uniform{500us}, true);
  spec.duplicate.push_back({Match{}, Bernoulli{1}});
  Rig rig{spec};
  for (std::uint32_t i = 0; i < 10; ++i) {
    rig.submit(i);
  }
  rig.run_for(10ms);
  std::set<std::int64_t> delays;
  for (const Event& e : rig.released) {
    delays.insert(e.treatment.delay.count());
  }
  EXPECT_EQ(delays.size(), 20U);
}

TEST(Impairment, duplicate_without_a_frame_is_counted) {
  DirectionSpec spec;
  spec.duplicate.push_back({Match{}, Bernoulli{1}});
  Rig rig{spec, 1, 1};
  rig.submit(1);
  EXPECT_THAT(rig.order(), ElementsAre(1));
  EXPECT_EQ(rig.counters.get(Drop::frame_pool_empty), 1U);
  EXPECT_EQ(rig.counters.get(Counter::impair_duplicated), 0U);
}

/// A real packet, so that the receiver's own checks judge what was done to it.
class RealFrames : public testing::TestWithParam<bool> {
 protected:
  static Frame& make(Rig& rig, wire::Opcode opcode, std::size_t payload, std::uint8_t traffic_class = 2) {
    wire::Path path;
    path.source_mac = {{2, 0, 0, 0, 0, 1}};
    path.destination_mac = {{2, 0, 0, 0, 0, 2}};
    path.source_ip = GetParam() ? *parse_ip("fd00::1") : *parse_ip("10.0.0.1");
    path.destination_ip = GetParam() ? *parse_ip("fd00::2") : *parse_ip("10.0.0.2");
    path.traffic_class = traffic_class;
    const wire::Encapsulation encapsulation{path};
    const std::size_t behind_bth = wire::traits(opcode).header_size + payload;
    Frame& frame = *rig.pool.alloc(encapsulation.frame_size(behind_bth));
    std::size_t offset = encapsulation.begin(frame.bytes(), {opcode, Qpn{17}, Psn{5}}, behind_bth);
    for (std::size_t i = 0; i < behind_bth; ++i) {
      frame.data[offset++] = std::byte{static_cast<std::uint8_t>(i * 7)};
    }
    encapsulation.seal(frame.bytes(), behind_bth);
    EXPECT_EQ(wire::parse(frame.bytes(), {}, frame.parsed), Drop::none);
    return frame;
  }
};

class Receiver : public Rig {
 public:
  using Rig::Rig;
  void inspect(const Frame& frame) noexcept override {
    verdict = wire::parse(frame.bytes(), {}, parsed);
    flipped.clear();
    for (std::uint32_t i = 0; i < frame.size * 8; ++i) {
      if (((frame.data[i / 8] ^ decided_bytes[i / 8]) >> i % 8 & std::byte{1}) != std::byte{0}) {
        flipped.push_back(i / 8);
      }
    }
  }
  Drop verdict = Drop::none;
  wire::Parsed parsed;
  std::vector<std::uint32_t> flipped;  // the byte of each bit that differs from the frame as it was decided
};

DirectionSpec corrupting(CorruptTarget target) {
  DirectionSpec spec;
  spec.corrupt.push_back({Match{}, Bernoulli{1}, target});
  return spec;
}

TEST_P(RealFrames, corrupt_payload_flips_one_bit_of_it) {
  Receiver rig{corrupting(CorruptTarget::payload)};
  std::set<std::uint32_t> bytes;
  for (int i = 0; i < 2000; ++i) {
    Frame& frame = make(rig, wire::Opcode::rc_send_only, 63);  // one byte of pad, which is not payload
    const wire::Parsed p = frame.parsed;
    rig.submit(frame);
    ASSERT_EQ(rig.flipped.size(), 1U);
    ASSERT_GE(rig.flipped[0], p.payload_offset);
    ASSERT_LT(rig.flipped[0], p.payload_offset + 63U);
    ASSERT_EQ(rig.verdict, Drop::icrc_mismatch);
    bytes.insert(rig.flipped[0]);
  }
  EXPECT_EQ(bytes.size(), 63U);
  EXPECT_EQ(rig.counters.get(Counter::impair_corrupted), 2000U);
  EXPECT_TRUE(rig.released[0].treatment.corrupted);
}

TEST_P(RealFrames, corrupt_payload_of_an_acknowledgement_flips_its_extension_header) {
  Receiver rig{corrupting(CorruptTarget::payload)};
  for (int i = 0; i < 200; ++i) {
    Frame& frame = make(rig, wire::Opcode::rc_acknowledge, 0);
    const std::uint32_t aeth = frame.parsed.bth_offset + 12U;
    rig.submit(frame);
    ASSERT_EQ(rig.flipped.size(), 1U);
    ASSERT_GE(rig.flipped[0], aeth);
    ASSERT_LT(rig.flipped[0], aeth + 4);
    ASSERT_EQ(rig.verdict, Drop::icrc_mismatch);
  }
}

TEST_P(RealFrames, corrupt_header_is_found_by_the_icrc) {
  Receiver rig{corrupting(CorruptTarget::header)};
  std::set<std::uint32_t> bytes;
  for (int i = 0; i < 3000; ++i) {
    Frame& frame = make(rig, wire::Opcode::rc_rdma_write_only, 64);
    const std::uint32_t bth = frame.parsed.bth_offset;
    rig.submit(frame);
    ASSERT_EQ(rig.flipped.size(), 1U);
    ASSERT_EQ(rig.verdict, Drop::icrc_mismatch) << "byte " << rig.flipped[0] << ", BTH at " << bth;
    bytes.insert(rig.flipped[0] - (bth - 8));  // from the UDP header
  }
  EXPECT_THAT(bytes, ElementsAre(0, 1, 9, 10, 11, 13, 14, 15, 16, 17, 18, 19));
}

TEST_P(RealFrames, corrupt_copies_with_the_original) {
  DirectionSpec spec = corrupting(CorruptTarget::payload);
  spec.duplicate.push_back({Match{}, Bernoulli{1}});
  Receiver rig{spec};
  rig.submit(make(rig, wire::Opcode::rc_send_only, 64));
  ASSERT_EQ(rig.released.size(), 2U);
  EXPECT_TRUE(rig.released[1].treatment.corrupted);
  EXPECT_EQ(rig.flipped.size(), 1U);
  EXPECT_EQ(rig.verdict, Drop::icrc_mismatch);
}

TEST_P(RealFrames, ecn_marks_what_is_capable) {
  for (const bool force : {false, true}) {
    DirectionSpec spec;
    spec.ecn.push_back({Match{}, Bernoulli{1}, force});
    Receiver rig{spec};
    std::uint64_t marked = 0;
    for (std::uint8_t ecn = 0; ecn < 4; ++ecn) {
      const bool marks = ecn == 1 || ecn == 2 || (ecn == 0 && force);
      const auto dscp = static_cast<std::uint8_t>(26U << 2U);
      rig.submit(make(rig, wire::Opcode::rc_send_only, 64, dscp | ecn));
      EXPECT_EQ(rig.verdict, Drop::none);  // header checksum and ICRC still hold
      EXPECT_EQ(rig.parsed.traffic_class, dscp | (marks ? 3 : ecn));
      EXPECT_EQ(rig.released.back().treatment.ecn_marked, marks);
      marked += marks ? 1 : 0;
    }
    EXPECT_EQ(rig.counters.get(Counter::impair_ecn_marked), marked);
  }
}

INSTANTIATE_TEST_SUITE_P(ip, RealFrames, testing::Bool(),
                         [](const auto& ip) { return std::string{ip.param ? "v6" : "v4"}; });

TEST(Impairment, frames_that_are_not_roce_are_impaired_too) {
  DirectionSpec spec = corrupting(CorruptTarget::header);
  spec.ecn.push_back({Match{}, Bernoulli{1}, true});
  Receiver rig{spec};
  Frame& frame = rig.make(1, 60);
  frame.parsed = {};
  frame.parsed.kind = wire::FrameKind::arp;
  rig.submit(frame);
  ASSERT_EQ(rig.flipped.size(), 1U);
  EXPECT_GE(rig.flipped[0], 14U);
  EXPECT_FALSE(rig.released[0].treatment.ecn_marked);  // ARP has no ECN field
}

TEST(Impairment, replaced_profile_leaves_waiting_frames_alone) {
  Rig rig{with_delay(10ms)};
  rig.submit(1);
  rig.run_for(1ms);
  rig.impairment->replace(with_delay(1ms));
  rig.submit(2);  // would be due at 2 ms: does not overtake
  rig.run_for(12ms);
  rig.submit(3);
  rig.run_for(2ms);
  EXPECT_THAT(rig.order(), ElementsAre(1, 2, 3));
  EXPECT_EQ(rig.released[0].at, at(10ms));
  EXPECT_EQ(rig.released[1].at, at(10ms));
  EXPECT_EQ(rig.released[2].at, at(14ms));
}

TEST(Impairment, replaced_profile_still_releases_what_it_held) {
  DirectionSpec spec = with_reorder(Listed{{1}}, 2, 10ms);
  spec.delay = with_delay(5us, Uniform{1us}, true).delay;
  Rig rig{spec};
  rig.submit(1);
  rig.submit(2);
  rig.impairment->replace(DirectionSpec{});
  rig.impairment->replace(DirectionSpec{});
  rig.run_for(10us);
  rig.submit(3);
  EXPECT_THAT(rig.order(), ElementsAre(2, 3, 1));
}

TEST(Impairment, delay_line_counts_the_frames_of_a_replaced_profile) {
  DirectionSpec spec = with_delay(10ms);
  spec.delay_line_frames = 2;
  Rig rig{spec};
  rig.submit(1);
  rig.impairment->replace(spec);
  rig.submit(2);
  rig.submit(3);
  EXPECT_EQ(rig.dropped.size(), 1U);
}

TEST(Impairment, end_gives_every_frame_back) {
  DirectionSpec spec = with_reorder(EveryNth{3, 0}, 5, 1s);
  Match odd;
  odd.ghosts = {GhostId{1}};
  spec.delay.push_back({odd, 1ms, Uniform{1ms}, true});
  spec.delay.push_back({Match{}, 1us, {}, false});
  Rig rig{spec};
  for (std::uint32_t i = 0; i < 100; ++i) {
    rig.submit(rig.make(i), GhostId{i % 2});
  }
  rig.run_for(300us);
  rig.impairment->replace(spec);
  for (std::uint32_t i = 0; i < 100; ++i) {
    rig.submit(rig.make(i), GhostId{i % 2});
  }
  const std::size_t out = rig.released.size();
  EXPECT_GT(out, 0U);
  EXPECT_LT(out, 200U);
  rig.impairment.reset();
  EXPECT_EQ(rig.wheel.armed(), 0U);
  EXPECT_EQ(rig.slab.outstanding(), rig.pool.at_hand());
}

}  // namespace
}  // namespace nbx::fabric
