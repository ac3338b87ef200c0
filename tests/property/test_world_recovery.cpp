// Go-back-N and selective repeat: what each sends again.
#include <gtest/gtest.h>

#include "virtual_time/message_flow.hpp"
#include "virtual_time/world.hpp"

namespace nbx::virtual_time {
namespace {

using namespace std::chrono_literals;

constexpr Instant at(Duration d) { return Instant{} + d; }

/// One message of 1000 packets; the first cable is cut for `cut` in the middle of it.
struct CutMessage {
  CutMessage(Recovery recovery, Duration cut) {
    WorldSpec spec;
    spec.topology = switching::rack(2, {BitRate::gbps(100), 1us});
    spec.network.switches.buffer.size_bytes = 10'000'000;
    World world{spec};
    const auto& flow =
        world.add<MessageFlow>(FlowSpec{.source = 0, .destination = 1, .packet_bytes = 976, .packets = 1000},
                               RecoverySpec{recovery, 0, 1ms, 6});
    world.run(at(40us));
    world.network().link(0, true).set_up(false, world.now());
    world.run(at(40us + cut));
    world.network().link(0, true).set_up(true, world.now());
    EXPECT_TRUE(world.run_dry(at(1s)));
    EXPECT_TRUE(flow.completed());
    stats = flow.stats();
    timeouts = flow.timeouts();
    took = flow.completion_time();
  }

  FlowStats stats;
  std::uint64_t timeouts = 0;
  Duration took{};
};

TEST(Recovery, selective_repeat_sends_again_what_was_lost_and_nothing_else) {
  const CutMessage m{Recovery::selective_repeat, 800ns};  // 10 packets of 80 ns, and 1 us of them on the way
  EXPECT_EQ(m.timeouts, 0U);
  EXPECT_GE(m.stats.dropped, 20U);
  EXPECT_LE(m.stats.dropped, 24U);
  EXPECT_EQ(m.stats.sent, 1000 + m.stats.dropped);
}

TEST(Recovery, go_back_n_sends_again_what_was_under_way_too) {
  const CutMessage m{Recovery::go_back_n, 800ns};
  EXPECT_EQ(m.timeouts, 0U);
  EXPECT_GE(m.stats.dropped, 20U);
  // A NAK is here a round trip, 4 us and more, after the gap: 50 packets of 80 ns.
  EXPECT_GT(m.stats.sent, 1000 + m.stats.dropped + 45);
  EXPECT_LT(m.stats.sent, 1000 + m.stats.dropped + 60);
}

TEST(Recovery, a_lost_tail_takes_the_timeout) {
  for (const Recovery recovery : {Recovery::go_back_n, Recovery::selective_repeat}) {
    const CutMessage m{recovery, 50us};  // the message ends at 80 us
    EXPECT_GE(m.timeouts, 1U);
    EXPECT_GE(m.took, 1ms);
  }
}

}  // namespace
}  // namespace nbx::virtual_time
