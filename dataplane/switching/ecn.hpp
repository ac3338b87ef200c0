// The RED ramp of a queue (Floyd and Jacobson 1993; RFC 3168 for CE in place of a drop; DCQCN, Zhu et al. 2015, figure
// 4, for the shape): below Kmin nothing, then linearly up to Pmax at Kmax, above Kmax everything.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/rng.hpp"
#include "base/wide.hpp"

namespace nbx::switching {

struct EcnSpec {
  bool enabled = false;
  std::uint32_t kmin_bytes = 0;
  std::uint32_t kmax_bytes = 0;
  std::uint32_t pmax_ppm = 0;  // at Kmax, in 10^-6
  /// Zero: the queue as it is. Else the average moves by 2^-n of the difference at every arrival.
  std::uint8_t ewma_shift = 0;

  /// The published pairs, by the names of the DCQCN presets. `gbps` scales hpcc-production as its authors do.
  [[nodiscard]] static constexpr std::optional<EcnSpec> preset(std::string_view name, std::uint32_t gbps) {
    if (name == "paper") {
      return EcnSpec{true, 5'000, 200'000, 10'000, 0};
    }
    if (name == "validation") {
      return EcnSpec{true, 10'000, 100'000, 10'000, 0};
    }
    if (name == "hpcc-production") {  // per 25 Gb/s
      return EcnSpec{true, 4'000 * gbps, 16'000 * gbps, 200'000, 0};
    }
    return std::nullopt;
  }
};

class EcnRamp {
 public:
  EcnRamp() = default;
  explicit EcnRamp(const EcnSpec& spec) noexcept : spec_(spec) {}

  /// A packet comes to a queue that holds `queued` bytes without it. True: mark it, or drop it.
  [[nodiscard]] bool chooses(std::uint64_t queued, Rng& rng) noexcept {
    if (!spec_.enabled) {
      return false;
    }
    const std::uint64_t depth = spec_.ewma_shift == 0 ? queued : average(queued);
    if (depth <= spec_.kmin_bytes) {
      return false;
    }
    if (depth > spec_.kmax_bytes) {
      return true;
    }
    // rng / 2^64 < Pmax (depth - Kmin) / (Kmax - Kmin), without a rounding.
    const auto drawn = static_cast<uint128>(rng.next() >> 16U) * (spec_.kmax_bytes - spec_.kmin_bytes) * 1'000'000;
    return drawn < (static_cast<uint128>(spec_.pmax_ppm) * (depth - spec_.kmin_bytes)) << 48U;
  }

 private:
  static constexpr unsigned fraction_bits = 16;

  std::uint64_t average(std::uint64_t queued) noexcept {
    const auto target = static_cast<std::int64_t>(queued << fraction_bits);
    average_ += (target - average_) >> spec_.ewma_shift;
    return static_cast<std::uint64_t>(average_) >> fraction_bits;
  }

  EcnSpec spec_{};
  std::int64_t average_ = 0;
};

}  // namespace nbx::switching
