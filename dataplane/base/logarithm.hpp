// A logarithm that is the same on every machine: plain IEEE operations in a fixed order. Whoever uses it compiles with
// -ffp-contract=off.
#pragma once

#include <bit>
#include <cstdint>
#include <numbers>

namespace nbx {

/// Base-2 logarithm of a normal positive number: exponent, and 2 atanh((m-1)/(m+1)) / ln 2 for the mantissa.
inline double log2_portable(double x) noexcept {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto exponent = static_cast<int>(bits >> 52U) - 1023;
  const auto mantissa = std::bit_cast<double>((bits & 0x000f'ffff'ffff'ffffU) | (std::uint64_t{1023} << 52U));
  const double t = (mantissa - 1) / (mantissa + 1);
  double power = t;
  double sum = 0;
  for (int n = 1; n <= 33; n += 2) {  // t <= 1/3, so the rest is below 1e-17
    sum += power / n;
    power *= t * t;
  }
  return exponent + 2 * sum * std::numbers::log2e;
}

}  // namespace nbx
