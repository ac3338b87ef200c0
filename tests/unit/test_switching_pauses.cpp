// What a row of pauses comes to, and a receiver that has to send them: against times worked out by hand. One quantum at
// 10 Gb/s is 51.2 ns (IEEE 802.1Q 36.1.3.3).
#include <gtest/gtest.h>

#include <vector>

#include "support/switching_rig.hpp"
#include "switching/pause_track.hpp"
#include "switching/slow_receiver.hpp"

namespace nbx::switching {
namespace {

using namespace std::chrono_literals;

constexpr BitRate link = BitRate::gbps(10);
constexpr Instant at(Duration d) { return Instant{} + d; }

TEST(PauseTrack, refreshes_in_time_are_one_pause) {
  PauseTrack track;
  track.on_frame(1000, link, at(10us));  // 51.2 us
  track.on_frame(1000, link, at(40us));
  track.on_frame(1000, link, at(91'200ns));  // at the very end
  track.on_frame(0, link, at(100us));
  EXPECT_EQ(track.pauses(), 3U);
  EXPECT_EQ(track.resumes(), 1U);
  EXPECT_EQ(track.quanta(), 3000U);
  EXPECT_EQ(track.gaps(), 0U);
  EXPECT_EQ(track.total(), Duration{90us});
  EXPECT_EQ(track.longest(), Duration{90us});
}

TEST(PauseTrack, what_ran_out_before_the_next_word_is_a_gap) {
  PauseTrack track;
  track.on_frame(100, link, at(0us));   // to 5.12 us
  track.on_frame(100, link, at(10us));  // to 15.12 us
  track.on_frame(0, link, at(20us));
  EXPECT_EQ(track.gaps(), 2U);
  EXPECT_EQ(track.longest_gap(), Duration{4'880ns});
  EXPECT_EQ(track.total(), Duration{10'240ns});
  EXPECT_EQ(track.longest(), Duration{5'120ns});
}

TEST(PauseTrack, between_a_resume_and_the_next_pause_is_no_gap) {
  PauseTrack track;
  track.on_frame(0, link, at(0us));  // of nothing
  track.on_frame(1000, link, at(10us));
  track.on_frame(0, link, at(15us));
  track.on_frame(20, link, at(300us));
  EXPECT_EQ(track.gaps(), 0U);
  EXPECT_EQ(track.total(), Duration{5us + 1'024ns});
  EXPECT_EQ(track.longest(), Duration{5us});
}

TEST(PauseTrack, a_shorter_pause_replaces_a_longer_one) {
  PauseTrack track;
  track.on_frame(65'535, link, at(0us));
  track.on_frame(1, link, at(1us));
  EXPECT_EQ(track.total(), Duration{1'051'200});
}

TEST(PauseTrack, without_a_rate_frames_are_counted) {
  PauseTrack track;
  track.on_frame(65'535, {}, at(0us));
  track.on_frame(1, {}, at(1s));
  EXPECT_EQ(track.pauses(), 2U);
  EXPECT_EQ(track.gaps(), 0U);
}

TEST(PauseTracks, a_class_that_is_not_enabled_is_not_meant) {
  PauseTracks tracks;
  PauseFrame frame = pfc(0b0000'1000, 7);
  frame.quanta[5] = 9;
  frame.quanta[0] = 4;
  tracks.on_frame(frame, link, at(0us));
  frame.pfc = false;
  tracks.on_frame(frame, link, at(0us));
  EXPECT_EQ(tracks.pfc[3].quanta(), 7U);
  EXPECT_FALSE(tracks.pfc[5].seen());
  EXPECT_EQ(tracks.plain.pauses(), 1U);
}

class Drained final : public SlowReceiver::Owner {
 public:
  void on_drained(Packet& packet, Instant now) noexcept override { packets.push_back({now, &packet}); }
  struct One {
    Instant time;
    Packet* packet;
  };
  std::vector<One> packets;
};

// 1000 bytes each 100 ns into 20 Gb/s, one each 400 ns: after n packets, floor(n / 4) are gone. Packet n comes at 100
// n.
TEST(SlowReceiver, drains_at_its_rate_and_pauses_by_its_thresholds) {
  TransmitterRig rig{{.rate = BitRate::gbps(100)}};
  Drained drained;
  SlowReceiver receiver{rig.wheel,
                        drained,
                        rig.port,
                        1000,
                        {.drain = BitRate::gbps(20),
                         .buffer_bytes = 10'000,
                         .xoff_bytes = 5'000,
                         .xon_bytes = 2'000,
                         .lossless = 0b1000}};
  for (int n = 0; n < 8; ++n) {
    rig.wheel.run(at(n * 100ns));
    EXPECT_TRUE(receiver.receive(rig.packets.make(1000), at(n * 100ns)));
  }
  rig.wheel.run(at(10us));
  ASSERT_EQ(drained.packets.size(), 8U);
  for (std::size_t n = 0; n < 8; ++n) {
    EXPECT_EQ(drained.packets[n].time, at((n + 1) * 400ns)) << n;
  }
  // The seventh, at 600 ns, is the sixth in the buffer; 2000 bytes are left when six are gone. 84 bytes on the line.
  ASSERT_EQ(rig.far.pauses.size(), 2U);
  EXPECT_EQ(rig.far.pauses[0].time, at(600ns) + Duration{6'720});
  EXPECT_EQ(rig.far.pauses[0].frame.class_enable, 0b1000);
  EXPECT_EQ(rig.far.pauses[0].frame.quanta[3], 1000);
  EXPECT_EQ(rig.far.pauses[1].time, at(2'400ns) + Duration{6'720});
  EXPECT_EQ(rig.far.pauses[1].frame.quanta[3], 0);
  EXPECT_EQ(receiver.counters().peak_bytes, 7'000U);  // 600 ns: seven came, one gone; 700 ns: eight, one gone
  EXPECT_EQ(receiver.counters().idle, Duration::zero());
}

TEST(SlowReceiver, refuses_what_has_no_room_and_pauses_no_lossy_priority) {
  TransmitterRig rig{{.rate = BitRate::gbps(100)}};
  Drained drained;
  SlowReceiver receiver{
      rig.wheel,
      drained,
      rig.port,
      1000,
      {.drain = BitRate::gbps(8), .buffer_bytes = 3'000, .xoff_bytes = 1, .xon_bytes = 0, .lossless = 0b1000}};
  for (int n = 0; n < 3; ++n) {
    EXPECT_TRUE(receiver.receive(rig.packets.make(1000, 2), at(0ns)));
  }
  EXPECT_FALSE(receiver.receive(rig.packets.make(1000, 2), at(0ns)));
  rig.wheel.run(at(1us));  // one is gone
  EXPECT_TRUE(receiver.receive(rig.packets.make(1000, 2), at(1us)));
  rig.wheel.run(at(4us));
  EXPECT_TRUE(receiver.receive(rig.packets.make(1000, 2), at(9us)));
  rig.wheel.run(at(1ms));
  EXPECT_EQ(receiver.counters().drained_packets, 5U);
  EXPECT_EQ(receiver.counters().refused_packets, 1U);
  EXPECT_EQ(receiver.counters().idle, Duration{5us});
  EXPECT_TRUE(rig.far.pauses.empty());
}

TEST(SlowReceiver, refreshes_while_it_has_to) {
  TransmitterRig rig{{.rate = BitRate::gbps(100)}};
  Drained drained;
  SlowReceiver receiver{
      rig.wheel,
      drained,
      rig.port,
      1000,  // 5.12 us
      {.drain = BitRate{80'000'000}, .buffer_bytes = 3'000, .xoff_bytes = 1'000, .xon_bytes = 0, .lossless = 0b1000}};
  EXPECT_TRUE(receiver.receive(rig.packets.make(1000), at(0ns)));
  EXPECT_TRUE(receiver.receive(rig.packets.make(1000), at(0ns)));
  rig.wheel.run(at(1ms));  // 100 us each
  PauseTracks tracks;
  for (const PauseArrival& p : rig.far.pauses) {
    tracks.on_frame(p.frame, BitRate::gbps(100), p.time);
  }
  EXPECT_EQ(tracks.pfc[3].gaps(), 0U);
  EXPECT_EQ(tracks.pfc[3].total(), Duration{200us});
  EXPECT_EQ(tracks.pfc[3].pauses(), 79U);  // at 0 and every 2.56 us before 200 us
}

}  // namespace
}  // namespace nbx::switching
