// The flight recorder: what stands in a dump, when, and what a trigger is.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <vector>

#include "capture/recorder.hpp"
#include "capture/tap.hpp"

namespace nbx::capture {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t epoch_ns = 1'700'000'000'000'000'000;
constexpr std::size_t frame_size = 60;
constexpr std::size_t block_size = 28 + frame_size + 8 + 4 + 4;

Instant at(Duration d) { return Instant{} + d; }

struct Rig {
  explicit Rig(std::size_t blocks, std::vector<Trigger> triggers = {}, Duration before = {}, Duration after = {},
               Duration apart = {})
      : recorder({.ring_bytes = blocks * block_size,
                  .epoch_ns = epoch_ns,
                  .snaplen = 4096,
                  .filter = nullptr,
                  .before = before,
                  .after = after,
                  .apart = apart,
                  .triggers = std::move(triggers)},
                 counters),
        tap({.ring_bytes = 4096, .epoch_ns = epoch_ns}, counters) {
    tap.attach(recorder);
  }

  /// One frame per microsecond, each with a turn of its own; the time is in the record.
  void frames(int first, int last) {
    std::array<std::byte, frame_size> bytes{};
    for (int us = first; us <= last; ++us) {
      Frame frame;
      frame.data = bytes.data();
      frame.size = frame_size;
      tap.record(frame, Direction::inbound, at(us * 1us));
      tap.look(at(us * 1us));
    }
  }
  /// Microseconds of the frames that a dump holds.
  std::vector<int> dump() {
    std::vector<int> times;
    for (MutableBytes record = recorder.front(); !record.empty(); record = recorder.front()) {
      EXPECT_EQ(record.size(), block_size);
      times.push_back(static_cast<int>((epb_time(record) - epoch_ns) / 1000));
      recorder.pop(record);
    }
    return times;
  }

  Counters counters;
  Recorder recorder;
  Tap tap;
};

std::vector<int> range(int first, int last) {
  std::vector<int> all;
  for (int i = first; i <= last; ++i) {
    all.push_back(i);
  }
  return all;
}

TEST(Recorder, HoldsTheLastFramesAndThoseAfterTheTrigger) {
  Rig rig(100, {}, {}, 10us);
  rig.frames(1, 1000);
  EXPECT_FALSE(rig.recorder.due());
  rig.recorder.trigger(Trigger::command);
  rig.frames(1001, 1011);
  ASSERT_TRUE(rig.recorder.frozen());
  EXPECT_EQ(rig.recorder.frozen()->why, Trigger::command);
  EXPECT_EQ(rig.recorder.frozen()->time_ns, epoch_ns + 1'001'000);
  EXPECT_EQ(rig.dump(), range(912, 1011));
  EXPECT_EQ(rig.counters.get(Counter::recorder_lost), 0U);
}

TEST(Recorder, HalfOfItIsForWhatWasBefore) {
  Rig rig(100, {}, {}, 1s);
  rig.frames(1, 1000);
  rig.recorder.trigger(Trigger::command);
  rig.frames(1001, 1200);
  EXPECT_EQ(rig.dump().front(), 952);  // 1001 saw the trigger; 50 frames later it froze
  EXPECT_EQ(rig.counters.get(Counter::recorder_lost), 1200U - 1051U);
}

TEST(Recorder, OlderFramesThanAskedForAreLeftOut) {
  Rig rig(100, {}, 20us, 5us);
  rig.frames(1, 1000);
  rig.recorder.trigger(Trigger::command);
  rig.frames(1001, 1006);
  EXPECT_EQ(rig.dump(), range(981, 1006));
}

TEST(Recorder, WhileADumpIsWrittenNothingOfItIsOverwritten) {
  Rig rig(100, {}, {}, {});
  rig.frames(1, 1000);
  rig.recorder.trigger(Trigger::command);
  rig.frames(1001, 1002);  // takes the trigger, freezes
  ASSERT_TRUE(rig.recorder.frozen());
  rig.frames(1003, 1300);  // all of these find no room
  EXPECT_EQ(rig.counters.get(Counter::recorder_lost), 298U);
  EXPECT_EQ(rig.dump(), range(903, 1002));
  rig.frames(1301, 1310);  // there is room, and the end of the dump stays where it was
  EXPECT_TRUE(rig.dump().empty());
  rig.recorder.release(true);
  EXPECT_FALSE(rig.recorder.due());

  rig.recorder.trigger(Trigger::command);
  rig.frames(1311, 1312);
  ASSERT_TRUE(rig.recorder.frozen());
  EXPECT_EQ(rig.recorder.frozen()->lost, 298U) << "of the time before the second dump";
  EXPECT_EQ(rig.dump(), range(1301, 1312));
}

TEST(Recorder, ADumpThatCouldNotBeWrittenIsHistoryAgain) {
  Rig rig(100);
  rig.frames(1, 50);
  rig.recorder.trigger(Trigger::command);
  rig.frames(51, 52);
  rig.recorder.release(true);
  rig.recorder.trigger(Trigger::command);
  rig.frames(53, 54);
  EXPECT_EQ(rig.dump(), range(1, 54));
}

struct Cause {
  Trigger trigger;
  std::vector<Counter> counters;
};
class RecorderTriggers : public testing::TestWithParam<Cause> {};
TEST_P(RecorderTriggers, EachOfItsCounters) {
  for (const Counter counter : GetParam().counters) {
    Rig rig(100, {GetParam().trigger});
    rig.frames(1, 10);
    EXPECT_FALSE(rig.recorder.due());
    rig.counters.count(counter);
    rig.frames(11, 12);
    ASSERT_TRUE(rig.recorder.frozen()) << name(counter);
    EXPECT_EQ(rig.recorder.frozen()->why, GetParam().trigger);
    EXPECT_EQ(rig.recorder.frozen()->time_ns, epoch_ns + 11'000);

    Rig other(100, {});
    other.counters.count(counter);
    other.frames(1, 2);
    EXPECT_FALSE(other.recorder.due()) << "was not asked for";
  }
}
INSTANTIATE_TEST_SUITE_P(
    All, RecorderTriggers,
    testing::Values(Cause{Trigger::nak,
                          {Counter::naks_sent, Counter::packet_seq_err, Counter::req_remote_access_errors,
                           Counter::req_remote_invalid_request}},
                    Cause{Trigger::rnr_nak, {Counter::rnr_naks_sent, Counter::rnr_naks_received}},
                    Cause{Trigger::timeout, {Counter::local_ack_timeout_err, Counter::retries_exceeded}},
                    Cause{Trigger::qp_error, {Counter::qp_errors}}, Cause{Trigger::event, {Counter::events_fired}}),
    [](const auto& cause) { return std::string(name(cause.param.trigger)); });

TEST(Recorder, TheWatchdogsFirstDropIsAStorm) {
  Rig rig(100, {Trigger::pfc_storm});
  rig.counters.count(Drop::network_pfc_watchdog);
  rig.frames(1, 2);
  EXPECT_TRUE(rig.recorder.frozen());
}

TEST(Recorder, AStormOfTriggersIsOneDump) {
  Rig rig(1000, {Trigger::nak}, {}, 10us, 100us);
  for (int us = 1; us <= 100; ++us) {
    rig.counters.count(Counter::naks_sent);
    rig.frames(us, us);
    if (rig.recorder.frozen()) {
      rig.dump();
      rig.recorder.release(true);
    }
  }
  EXPECT_EQ(rig.counters.get(Counter::recorder_triggers), 1U);
  EXPECT_EQ(rig.counters.get(Counter::recorder_passed_over), 99U);
  rig.counters.count(Counter::naks_sent);
  rig.frames(101, 111);
  ASSERT_TRUE(rig.recorder.frozen()) << "far enough from the first";
  EXPECT_EQ(rig.recorder.frozen()->passed_over, 89U) << "since the first dump, at 11 us";
  rig.recorder.release(false);
  rig.counters.count(Counter::naks_sent);
  rig.frames(500, 600);
  EXPECT_FALSE(rig.recorder.due()) << "was the last one";
}

/// Takes frames whose first octet is odd.
class Odd final : public Filter {
 public:
  [[nodiscard]] bool matches(ConstBytes frame) noexcept override { return (frame[0] & std::byte{1}) != std::byte{0}; }
};

TEST(Tap, AFilterLeavesOutAndCounts) {
  Counters counters;
  Tap tap({.ring_bytes = 4096, .epoch_ns = epoch_ns}, counters);
  Odd odd;
  ASSERT_TRUE(tap.start(4096, &odd));
  std::array<std::byte, frame_size> bytes{};
  Frame frame;
  frame.data = bytes.data();
  frame.size = frame_size;
  for (int i = 0; i < 9; ++i) {
    bytes[0] = std::byte(i);
    tap.record(frame, Direction::inbound, at(1us));
  }
  EXPECT_EQ(counters.get(Counter::captured), 4U);
  EXPECT_EQ(counters.get(Counter::capture_filtered), 5U);
  EXPECT_EQ(counters.get(Counter::capture_lost), 0U);
}

}  // namespace
}  // namespace nbx::capture
