// The experiment behind IRN's headline (Mittal et al., SIGCOMM 2018): the same messages with selective repeat and with
// go-back-N, with PFC and without.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "virtual_time/message_flow.hpp"
#include "virtual_time/world.hpp"

namespace nbx::test {

struct IrnScheme {
  const char* name;
  virtual_time::Recovery recovery;
  bool pfc;
};
inline constexpr std::array<IrnScheme, 4> irn_schemes = {{
    {"IRN", virtual_time::Recovery::selective_repeat, false},
    {"IRN with PFC", virtual_time::Recovery::selective_repeat, true},
    {"RoCE with PFC", virtual_time::Recovery::go_back_n, true},
    {"RoCE", virtual_time::Recovery::go_back_n, false},
}};

struct IrnOutcome {
  bool complete = false;  // every message arrived, and no packet was missing
  double slowdown = 0;    // mean of the completion times over those of an empty network
  double mean_us = 0;     // completion time
  double p99_us = 0;
  std::uint64_t messages = 0;
  std::uint64_t dropped = 0;  // packets
};

inline constexpr BitRate irn_rate = BitRate::gbps(40);
inline constexpr Duration irn_propagation = std::chrono::microseconds{2};
inline constexpr std::uint32_t irn_packet = 1000;  // bytes of payload and headers; 24 more on the line

inline virtual_time::WorldSpec irn_world(bool pfc, std::uint64_t seed) {
  const switching::CableSpec cable{irn_rate, irn_propagation};
  virtual_time::WorldSpec spec;
  spec.seed = seed;
  spec.packets = 200'000;
  spec.topology = switching::fat_tree(4, cable);
  switching::BufferSpec& buffer = spec.network.switches.buffer;
  buffer.size_bytes = 1'600'000;
  if (pfc) {
    buffer.priority[3] = {.lossless = true,
                          .headroom_bytes = switching::headroom_for(cable.rate, cable.propagation, {}, irn_packet),
                          .xoff_bytes = 220'000,
                          .xon_bytes = 5'000};
  } else {
    buffer.priority[3] = {.alpha_log2 = 3, .queue_limit_bytes = 240'000};
  }
  return spec;
}

/// A fat tree of 16 hosts at 40 Gb/s, 240 kB of buffer a queue, 4 ms of messages at `load`: half of one packet, a third
/// up to 200, the rest up to 3000 (the mix of the paper's default, in packets of 1000 bytes). IRN: at most a
/// bandwidth-delay product under way, timeout 320 us. RoCE: no limit, and a timeout that no pause meets.
inline IrnOutcome run_irn(const IrnScheme& scheme, double load, std::uint64_t seed) {
  using namespace virtual_time;
  using namespace std::chrono_literals;
  const RecoverySpec how = scheme.recovery == Recovery::selective_repeat ? RecoverySpec{scheme.recovery, 110, 320us, 6}
                                                                         : RecoverySpec{scheme.recovery, 0, 4ms, 6};
  World world{irn_world(scheme.pfc, seed)};
  Rng rng = Rng{seed}.fork("messages");
  const auto log_uniform = [&rng](double from, double to) { return from * std::pow(to / from, rng.unit()); };
  const double mean_packets = 0.5 + 0.35 * 199 / std::log(200.0) + 0.15 * 2800 / std::log(15.0);
  const double mean_gap = mean_packets * 1024 * 8 / 40e9 / load;
  std::vector<const MessageFlow*> flows;
  for (switching::HostId host = 0; host < 16; ++host) {
    for (double t = 0; t < 4e-3; t -= std::log(1 - rng.unit()) * mean_gap) {
      const double kind = rng.unit();
      const double packets = kind < 0.5 ? 1 : kind < 0.85 ? log_uniform(1, 200) : log_uniform(200, 3000);
      flows.push_back(&world.add<MessageFlow>(
          FlowSpec{.source = host,
                   .destination = static_cast<switching::HostId>((host + 1 + rng.below(15)) % 16),
                   .packet_bytes = irn_packet,
                   .hash = static_cast<std::uint32_t>(rng.next()),
                   .packets = static_cast<std::uint64_t>(packets),
                   .start = Instant{static_cast<std::int64_t>(t * 1e12)}},
          how));
    }
  }
  IrnOutcome outcome;
  outcome.complete = world.run_dry(Instant{} + 10s) && world.pool().exhausted() == 0;
  outcome.messages = flows.size();
  outcome.dropped = world.network().dropped();
  std::vector<double> times;
  for (const MessageFlow* flow : flows) {
    outcome.complete = outcome.complete && flow->completed();
    const double ideal_us = static_cast<double>(flow->spec().packets + 5) * 1024 * 8 / 40e3 + 6 * 2;
    times.push_back(static_cast<double>(flow->completion_time().count()) * 1e-6);
    outcome.slowdown += times.back() / ideal_us / static_cast<double>(flows.size());
    outcome.mean_us += times.back() / static_cast<double>(flows.size());
  }
  std::sort(times.begin(), times.end());
  outcome.p99_us = times[times.size() * 99 / 100];
  return outcome;
}

}  // namespace nbx::test
