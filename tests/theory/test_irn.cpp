// IRN's headline (Mittal et al., SIGCOMM 2018): selective repeat without PFC beats go-back-N with PFC, and go-back-N
// without PFC is the worst by far.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <vector>

#include "virtual_time/message_flow.hpp"
#include "virtual_time/world.hpp"

namespace nbx::virtual_time {
namespace {

using namespace std::chrono_literals;

constexpr Instant at(Duration d) { return Instant{} + d; }

struct Outcome {
  double slowdown = 0;  // mean of the completion times over those of an empty network
  std::uint64_t dropped = 0;
};

/// A fat tree of 16 hosts at 40 Gb/s, 240 kB of buffer a queue, 4 ms of messages at 70 % load: half of one packet, a
/// third up to 200, the rest up to 3000 (the mix of the paper's default, in packets of 1000 bytes).
Outcome run_messages(bool pfc, Recovery recovery, std::uint64_t seed) {
  const switching::CableSpec cable{BitRate::gbps(40), 2us};
  WorldSpec spec;
  spec.seed = seed;
  spec.packets = 200'000;
  spec.topology = switching::fat_tree(4, cable);
  switching::BufferSpec& buffer = spec.network.switches.buffer;
  buffer.size_bytes = 1'600'000;
  if (pfc) {
    buffer.priority[3] = {.lossless = true,
                          .headroom_bytes = switching::headroom_for(cable.rate, cable.propagation, {}, 1000),
                          .xoff_bytes = 220'000,
                          .xon_bytes = 5'000};
  } else {
    buffer.priority[3] = {.alpha_log2 = 3, .queue_limit_bytes = 240'000};
  }
  // IRN: at most a bandwidth-delay product under way, timeout 320 us. RoCE: no limit, and a timeout that no pause
  // meets.
  const RecoverySpec how = recovery == Recovery::selective_repeat ? RecoverySpec{recovery, 110, 320us, 6}
                                                                  : RecoverySpec{recovery, 0, 4ms, 6};
  World world{spec};
  Rng rng = Rng{seed}.fork("messages");
  const auto log_uniform = [&rng](double from, double to) { return from * std::pow(to / from, rng.unit()); };
  const double mean_packets = 0.5 + 0.35 * 199 / std::log(200.0) + 0.15 * 2800 / std::log(15.0);
  const double mean_gap = mean_packets * 1024 * 8 / 40e9 / 0.7;
  std::vector<const MessageFlow*> flows;
  for (switching::HostId host = 0; host < 16; ++host) {
    for (double t = 0; t < 4e-3; t -= std::log(1 - rng.unit()) * mean_gap) {
      const double kind = rng.unit();
      const double packets = kind < 0.5 ? 1 : kind < 0.85 ? log_uniform(1, 200) : log_uniform(200, 3000);
      flows.push_back(&world.add<MessageFlow>(
          FlowSpec{.source = host,
                   .destination = static_cast<switching::HostId>((host + 1 + rng.below(15)) % 16),
                   .packet_bytes = 1000,
                   .hash = static_cast<std::uint32_t>(rng.next()),
                   .packets = static_cast<std::uint64_t>(packets),
                   .start = Instant{static_cast<std::int64_t>(t * 1e12)}},
          how));
    }
  }
  EXPECT_TRUE(world.run_dry(at(10s)));
  EXPECT_EQ(world.pool().exhausted(), 0U);
  Outcome outcome;
  outcome.dropped = world.network().dropped();
  for (const MessageFlow* flow : flows) {
    EXPECT_TRUE(flow->completed());
    const double ideal = static_cast<double>(flow->spec().packets + 5) * 1024 * 8 / 40e9 + 6 * 2e-6;
    const double took = static_cast<double>(flow->completion_time().count()) * 1e-12;
    outcome.slowdown += took / ideal / static_cast<double>(flows.size());
  }
  return outcome;
}

TEST(Irn, selective_repeat_without_pfc_beats_go_back_n_with_it) {
  for (const std::uint64_t seed : {1U, 2U}) {
    const Outcome irn = run_messages(false, Recovery::selective_repeat, seed);
    const Outcome irn_pfc = run_messages(true, Recovery::selective_repeat, seed);
    const Outcome roce_pfc = run_messages(true, Recovery::go_back_n, seed);
    const Outcome roce = run_messages(false, Recovery::go_back_n, seed);
    std::printf("mean slowdown: IRN %.2f, IRN with PFC %.2f, RoCE with PFC %.2f, RoCE %.2f; dropped %lu and %lu\n",
                irn.slowdown, irn_pfc.slowdown, roce_pfc.slowdown, roce.slowdown,
                static_cast<unsigned long>(irn.dropped), static_cast<unsigned long>(roce.dropped));
    EXPECT_EQ(irn_pfc.dropped, 0U);
    EXPECT_EQ(roce_pfc.dropped, 0U);
    EXPECT_GT(irn.dropped, 0U);
    const double better = 1 - irn.slowdown / roce_pfc.slowdown;  // the abstract: by 6 to 83 %
    EXPECT_GT(better, 0.3);
    EXPECT_LT(better, 0.83);
    EXPECT_GT(roce.slowdown, 3 * roce_pfc.slowdown);
    EXPECT_NEAR(irn_pfc.slowdown / irn.slowdown, 1, 0.3);  // IRN does not need PFC
  }
}

}  // namespace
}  // namespace nbx::virtual_time
