// Random additions to a delay. Drawn with integer and plain IEEE arithmetic of our own, because the distributions of
// the standard library differ between libraries: one seed gives one sequence everywhere.
#pragma once

#include <array>
#include <cstdint>
#include <variant>
#include <vector>

#include "base/rng.hpp"
#include "fabric/spec.hpp"

namespace nbx::fabric {

/// Quantiles of the standard normal distribution at i/4096, in units of 2^-24, between which a draw interpolates. The
/// ends are at 4 sigma, which keeps the variance right within 0.1 %.
inline constexpr unsigned normal_quantile_bits = 12;
inline constexpr unsigned normal_fraction_bits = 24;
using NormalQuantiles = std::array<std::int32_t, (1U << normal_quantile_bits) + 1>;
[[nodiscard]] const NormalQuantiles& normal_quantiles() noexcept;

class JitterSource {
 public:
  explicit JitterSource(const Jitter& jitter);

  /// One addition; may be negative. Takes one number from `rng`, or none where nothing is random.
  Duration draw(Rng& rng) const noexcept;

 private:
  Jitter jitter_;
};

}  // namespace nbx::fabric
