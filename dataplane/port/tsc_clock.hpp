// The clock of the run: the processor's time stamp counter as picoseconds since the clock was made. One counter read
// and one 128-bit multiplication; the same object serves every worker, so instants of different ports compare.
// Only the worker loop and its owner read it: everything below takes `now` as an argument.
#pragma once

#include <cstdint>

#include "base/result.hpp"
#include "base/units.hpp"

namespace nbx::port {

class TscClock {
 public:
  /// Measures the counter against CLOCK_MONOTONIC_RAW for 50 ms. Refused on a machine whose counter stops or varies.
  static Result<TscClock> calibrate();

  [[nodiscard]] Instant now() const noexcept;
  /// Nanoseconds since 1970-01-01 UTC at Instant{0}.
  [[nodiscard]] std::uint64_t epoch_ns() const noexcept { return epoch_ns_; }

 private:
  TscClock() = default;

  std::uint64_t start_ = 0;        // counter at Instant{0}
  std::uint64_t ps_per_tick_ = 0;  // fixed point, `fraction_bits` behind the point
  std::uint64_t epoch_ns_ = 0;

  static constexpr unsigned fraction_bits = 40;
};

}  // namespace nbx::port
