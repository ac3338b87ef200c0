// Time, sizes and rates as types. Time is integer picoseconds: one byte is a whole number of
// picoseconds at every Ethernet rate from 10G to 1.6T, and int64 still spans +-106 days.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <limits>

#include "base/wide.hpp"

namespace nbx {

using Duration = std::chrono::duration<std::int64_t, std::pico>;

/// A point on the clock of the run: picoseconds since the driver's own epoch (start of the emulator, first
/// frame of a capture, zero of a simulation). There is deliberately no static now(): time is an argument.
struct Instant {
  std::int64_t ps = 0;

  [[nodiscard]] static constexpr Instant never() { return {std::numeric_limits<std::int64_t>::max()}; }

  friend constexpr auto operator<=>(Instant, Instant) = default;
  friend constexpr Instant operator+(Instant t, Duration d) { return {t.ps + d.count()}; }
  friend constexpr Instant operator-(Instant t, Duration d) { return {t.ps - d.count()}; }
  friend constexpr Duration operator-(Instant a, Instant b) { return Duration{a.ps - b.ps}; }
};

/// A rate in bits per second. Zero means "not limited".
struct BitRate {
  std::uint64_t bits_per_second = 0;

  [[nodiscard]] static constexpr BitRate gbps(std::uint64_t n) { return {n * 1'000'000'000}; }
  [[nodiscard]] static constexpr BitRate mbps(std::uint64_t n) { return {n * 1'000'000}; }
  [[nodiscard]] constexpr bool unlimited() const { return bits_per_second == 0; }

  friend constexpr auto operator<=>(BitRate, BitRate) = default;
};

/// Time that `bytes` occupy a link of rate `rate`, rounded up to a picosecond; zero when not limited.
[[nodiscard]] constexpr Duration serialize_time_ceil(std::uint64_t bytes, BitRate rate) {
  if (rate.unlimited()) {
    return Duration::zero();
  }
  const auto bits_ps = static_cast<uint128>(bytes) * 8 * 1'000'000'000'000ULL;
  return Duration{static_cast<std::int64_t>((bits_ps + rate.bits_per_second - 1) / rate.bits_per_second)};
}

/// What a frame occupies on an Ethernet link beyond its own bytes: preamble, FCS and the inter-packet gap
/// (IEEE 802.3 clause 4).
inline constexpr std::uint32_t ethernet_overhead_bytes = 8 + 4 + 12;

}  // namespace nbx
