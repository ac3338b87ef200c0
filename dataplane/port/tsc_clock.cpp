#include "port/tsc_clock.hpp"

#include <rte_cpuflags.h>
#include <rte_cycles.h>

#include <ctime>
#include <limits>

namespace nbx::port {
namespace {

std::uint64_t read_ns(clockid_t clock) noexcept {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(t.tv_nsec);
}

struct Sample {
  std::uint64_t ticks = 0;
  std::uint64_t ns = 0;
};

/// Both clocks at the same moment: of several tries the one with the shortest bracket, so that a preemption between
/// the reads does not count.
Sample sample(clockid_t clock) noexcept {
  Sample best;
  std::uint64_t shortest = std::numeric_limits<std::uint64_t>::max();
  for (int i = 0; i < 64; ++i) {
    const std::uint64_t before = rte_rdtsc_precise();
    const std::uint64_t ns = read_ns(clock);
    const std::uint64_t width = rte_rdtsc_precise() - before;
    if (width < shortest) {
      shortest = width;
      best = {before + width / 2, ns};
    }
  }
  return best;
}

}  // namespace

Result<TscClock> TscClock::calibrate() {
#if defined(__x86_64__)
  if (rte_cpu_get_flag_enabled(RTE_CPUFLAG_INVTSC) != 1) {
    return Error{
        "this processor's time stamp counter is not invariant (no nonstop_tsc in /proc/cpuinfo): "
        "delays cannot be exact; run on another machine, or let the hypervisor expose an invariant TSC"};
  }
#endif
  const Sample first = sample(CLOCK_MONOTONIC_RAW);
  const timespec pause{.tv_sec = 0, .tv_nsec = 50'000'000};
  nanosleep(&pause, nullptr);
  const Sample last = sample(CLOCK_MONOTONIC_RAW);

  TscClock clock;
  const auto ps = static_cast<uint128>(last.ns - first.ns) * 1000;
  clock.ps_per_tick_ = static_cast<std::uint64_t>((ps << fraction_bits) / (last.ticks - first.ticks));
  const Sample wall = sample(CLOCK_REALTIME);
  clock.start_ = wall.ticks;
  clock.epoch_ns_ = wall.ns;
  return clock;
}

Instant TscClock::now() const noexcept {
  const auto ticks = static_cast<uint128>(rte_rdtsc() - start_);
  return {static_cast<std::int64_t>((ticks * ps_per_tick_) >> fraction_bits)};
}

}  // namespace nbx::port
