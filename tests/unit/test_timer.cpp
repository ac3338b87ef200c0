// The wheel against its contract: order, ties, the exact deadline, arming from within, times that are past or far.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "timer/wheel.hpp"

namespace nbx {
namespace {

using namespace std::chrono_literals;

constexpr Instant at(Duration d) { return Instant{} + d; }

struct Timer : TimerNode {
  int id = 0;
};

class Recorder : public TimerClient {
 public:
  void on_timer(TimerNode& node, Instant now) noexcept override {
    fired.push_back(static_cast<Timer&>(node).id);
    clocks.push_back(now);
    if (then) {
      then(static_cast<Timer&>(node));
    }
  }

  std::vector<int> fired;
  std::vector<Instant> clocks;
  std::function<void(Timer&)> then;
};

class WheelTest : public testing::Test {
 protected:
  Timer& timer(int id) {
    auto& t = *timers_.emplace_back(std::make_unique<Timer>());
    t.id = id;
    t.client = &recorder;
    return t;
  }

  Recorder recorder;
  Wheel wheel;

 private:
  std::vector<std::unique_ptr<Timer>> timers_;
};

TEST_F(WheelTest, empty_wheel_never_has_a_deadline) {
  EXPECT_EQ(wheel.next_deadline(), Instant::never());
  wheel.run(at(1s));
  wheel.run(Instant::never());
  EXPECT_EQ(wheel.armed(), 0U);
}

TEST_F(WheelTest, fires_at_its_picosecond_and_not_before) {
  wheel.arm(timer(1), at(5ms));
  wheel.run(at(5ms) - Duration{1});
  EXPECT_TRUE(recorder.fired.empty());
  EXPECT_EQ(wheel.next_deadline(), at(5ms));
  wheel.run(at(5ms));
  EXPECT_EQ(recorder.fired, (std::vector{1}));
  EXPECT_EQ(wheel.armed(), 0U);
}

TEST_F(WheelTest, equal_times_fire_in_the_order_of_arming) {
  Timer& moved = timer(0);
  wheel.arm(moved, at(7us));
  for (int id = 1; id <= 1000; ++id) {
    wheel.arm(timer(id), at(7us));
  }
  wheel.arm(moved, at(7us));  // armed again: now the last
  wheel.run(at(1s));
  ASSERT_EQ(recorder.fired.size(), 1001U);
  EXPECT_EQ(recorder.fired.front(), 1);
  EXPECT_EQ(recorder.fired.back(), 0);
  EXPECT_TRUE(std::is_sorted(recorder.fired.begin(), recorder.fired.end() - 1));
}

TEST_F(WheelTest, equal_times_keep_their_order_across_levels) {
  wheel.arm(timer(1), at(1s));  // placed high
  wheel.run(at(1s) - 1us);
  wheel.arm(timer(2), at(1s));  // placed lower, later
  wheel.run(at(1s) - Duration{5});
  wheel.arm(timer(3), at(1s));
  wheel.run(at(1s));
  EXPECT_EQ(recorder.fired, (std::vector{1, 2, 3}));
}

TEST_F(WheelTest, late_driver_sees_the_order_of_a_punctual_one) {
  wheel.arm(timer(3), at(3s));
  wheel.arm(timer(1), at(1ns));
  wheel.arm(timer(2), at(2us));
  wheel.run(at(10s));
  EXPECT_EQ(recorder.fired, (std::vector{1, 2, 3}));
  EXPECT_EQ(recorder.clocks, (std::vector{at(10s), at(10s), at(10s)}));
}

TEST_F(WheelTest, past_times_fire_first_and_in_order) {
  wheel.run(at(1s));
  wheel.arm(timer(4), at(1s));
  wheel.arm(timer(2), at(10us));
  wheel.arm(timer(1), Instant{-5});
  wheel.arm(timer(3), at(10us));
  wheel.arm(timer(5), at(1s) + Duration{1});
  EXPECT_EQ(wheel.next_deadline(), Instant{-5});
  wheel.run(at(1s));
  EXPECT_EQ(recorder.fired, (std::vector{1, 2, 3, 4}));
  EXPECT_EQ(wheel.next_deadline(), at(1s) + Duration{1});
}

TEST_F(WheelTest, clock_that_goes_back_fires_nothing_early) {
  wheel.run(at(1s));
  wheel.arm(timer(1), at(500ms));
  wheel.run(at(400ms));
  EXPECT_TRUE(recorder.fired.empty());
  wheel.run(at(500ms));
  EXPECT_EQ(recorder.fired, (std::vector{1}));
}

TEST_F(WheelTest, nodes_armed_from_within_fire_in_the_same_run) {
  Timer& chain = timer(1);
  Timer& other = timer(2);
  int rounds = 0;
  recorder.then = [&](Timer& t) {
    if (&t == &chain && ++rounds < 5) {
      wheel.arm(chain, chain.due + 10ns);
    }
  };
  wheel.arm(chain, at(0ns));
  wheel.arm(other, at(25ns));
  wheel.run(at(30ns));
  EXPECT_EQ(recorder.fired, (std::vector{1, 1, 1, 2, 1}));
  EXPECT_EQ(wheel.next_deadline(), at(40ns));
}

TEST_F(WheelTest, a_node_can_cancel_its_neighbours) {
  Timer& victim = timer(2);
  recorder.then = [&](Timer& t) {
    if (t.id == 1) {
      wheel.cancel(victim);
    }
  };
  wheel.arm(timer(1), at(1us));
  wheel.arm(victim, at(1us));
  wheel.arm(timer(3), at(1us));
  wheel.run(at(1us));
  EXPECT_EQ(recorder.fired, (std::vector{1, 3}));
  EXPECT_EQ(wheel.armed(), 0U);
}

TEST_F(WheelTest, deadline_is_exact_after_the_earliest_is_cancelled) {
  Timer& first = timer(1);
  wheel.arm(first, at(100ms));
  wheel.arm(timer(2), at(100ms) + 3us);
  wheel.arm(timer(3), at(100ms) + 2us);
  wheel.cancel(first);
  wheel.cancel(first);
  EXPECT_EQ(wheel.armed(), 2U);
  EXPECT_EQ(wheel.next_deadline(), at(100ms) + 2us);
  wheel.run(at(100ms) + 2us - Duration{1});
  EXPECT_TRUE(recorder.fired.empty());
  EXPECT_EQ(wheel.next_deadline(), at(100ms) + 2us);
}

TEST_F(WheelTest, the_whole_range_of_time_fits) {
  Wheel early{Instant{std::numeric_limits<std::int64_t>::min()}};
  early.arm(timer(3), Instant::never());
  early.arm(timer(2), Instant{0});
  early.arm(timer(1), Instant{-1});
  EXPECT_EQ(early.next_deadline(), Instant{-1});
  early.run(Instant{Instant::never().ps - 1});
  EXPECT_EQ(recorder.fired, (std::vector{1, 2}));
  EXPECT_EQ(early.next_deadline(), Instant::never());
  EXPECT_EQ(early.armed(), 1U);
  early.run(Instant::never());
  EXPECT_EQ(recorder.fired, (std::vector{1, 2, 3}));
}

TEST_F(WheelTest, weeks_of_idleness_cost_nothing) {
  // Ten thousand jumps of 10 minutes with a timer far ahead: a wheel that walked its ticks would not come back.
  wheel.arm(timer(1), at(std::chrono::hours{24 * 70}));
  for (int i = 1; i <= 10'000; ++i) {
    wheel.run(at(std::chrono::minutes{10} * i));
  }
  EXPECT_TRUE(recorder.fired.empty());
  wheel.run(at(std::chrono::hours{24 * 70}));
  EXPECT_EQ(recorder.fired, (std::vector{1}));
}

TEST_F(WheelTest, cancel_all_finds_the_nodes_of_one_client) {
  Recorder stays;
  Timer& other = timer(9);
  other.client = &stays;
  wheel.run(at(1us));
  wheel.arm(timer(1), at(0us));
  wheel.arm(other, at(3us));
  wheel.arm(timer(2), at(3us));
  wheel.arm(timer(3), at(1h));
  List<TimerNode> out;
  wheel.cancel_all(recorder, out);
  EXPECT_EQ(wheel.armed(), 1U);
  std::vector<int> ids;
  while (TimerNode* node = out.pop_front()) {
    ids.push_back(static_cast<Timer*>(node)->id);
  }
  EXPECT_EQ(ids, (std::vector{1, 2, 3}));
  wheel.run(at(2h));
  EXPECT_EQ(stays.fired, (std::vector{9}));
  EXPECT_TRUE(recorder.fired.empty());
}

}  // namespace
}  // namespace nbx
