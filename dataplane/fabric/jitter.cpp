#include "fabric/jitter.hpp"

#include <bit>
#include <numbers>

#include "base/logarithm.hpp"
#include "base/wide.hpp"

namespace nbx::fabric {
namespace {

/// e^x for 0 <= x by its power series; compile time and small x only.
constexpr double exp_series(double x) {
  double term = 1;
  double sum = 1;
  for (int n = 1; term > sum * 1e-17; ++n) {
    term *= x / n;
    sum += term;
  }
  return sum;
}

constexpr double normal_density(double z) {
  return std::numbers::inv_sqrtpi / std::numbers::sqrt2 / exp_series(z * z / 2);
}

/// P(Z <= z) for z >= 0: 1/2 + density * (z + z^3/3 + z^5/(3*5) + ...), Marsaglia 2004.
constexpr double normal_cdf(double z) {
  double term = z;
  double sum = z;
  for (int n = 3; term > sum * 1e-17; n += 2) {
    term *= z * z / n;
    sum += term;
  }
  return 0.5 + normal_density(z) * sum;
}

constexpr NormalQuantiles make_normal_quantiles() {
  NormalQuantiles table{};
  constexpr std::size_t middle = table.size() / 2;
  double z = 0;
  for (std::size_t i = 1; i <= middle; ++i) {
    if (i == middle) {
      z = 4;
    }
    const double p = 0.5 + static_cast<double>(i) / static_cast<double>(table.size() - 1);
    // Newton from the quantile before: the CDF is concave here, so the steps never overshoot.
    for (double step = 1; i < middle && step > 1e-10; z += step) {
      step = (p - normal_cdf(z)) / normal_density(z);
    }
    const auto fixed = static_cast<std::int32_t>(z * (1U << normal_fraction_bits) + 0.5);
    table[middle + i] = fixed;
    table[middle - i] = -fixed;
  }
  return table;
}

constexpr NormalQuantiles quantiles = make_normal_quantiles();

/// 2^x for 0 <= x < 1000.
double exp2_portable(double x) noexcept {
  const auto whole = static_cast<std::uint64_t>(x);
  const double power_of_two = std::bit_cast<double>((whole + 1023) << 52U);
  return exp_series((x - static_cast<double>(whole)) * std::numbers::ln2) * power_of_two;
}

Duration draw_from(std::monostate /*none*/, Rng& /*rng*/) noexcept { return Duration::zero(); }

Duration draw_from(const Uniform& u, Rng& rng) noexcept {
  const std::int64_t spread = u.spread.count();
  return Duration{static_cast<std::int64_t>(rng.below(2 * static_cast<std::uint64_t>(spread) + 1)) - spread};
}

Duration draw_from(const Normal& n, Rng& rng) noexcept {
  const std::uint64_t r = rng.next();
  const std::size_t i = r >> (64U - normal_quantile_bits);
  const auto between = static_cast<std::int64_t>(r >> 20U & 0xffff'ffffU);
  const std::int64_t z = quantiles[i] + (((std::int64_t{quantiles[i + 1]} - quantiles[i]) * between) >> 32U);
  const auto magnitude = static_cast<uint128>(z < 0 ? -z : z) * static_cast<std::uint64_t>(n.sigma.count());
  const auto size = static_cast<std::int64_t>(magnitude >> normal_fraction_bits);
  return Duration{z < 0 ? -size : size};
}

Duration draw_from(const Pareto& p, Rng& rng) noexcept {
  const Duration cap = p.cap == Duration::zero() ? 1000 * p.scale : p.cap;
  const double u = static_cast<double>((rng.next() >> 11U) + 1) * 0x1.0p-53;  // in (0, 1]
  const double exponent = -log2_portable(u) / p.shape;
  if (exponent >= 1000) {
    return cap;
  }
  const double addition = static_cast<double>(p.scale.count()) * (exp2_portable(exponent) - 1);
  return addition < static_cast<double>(cap.count()) ? Duration{static_cast<std::int64_t>(addition)} : cap;
}

Duration draw_from(const Table& t, Rng& rng) noexcept {
  return t.values.empty() ? Duration::zero() : t.values[rng.below(t.values.size())];
}

}  // namespace

const NormalQuantiles& normal_quantiles() noexcept { return quantiles; }

JitterSource::JitterSource(const Jitter& jitter) : jitter_(jitter) {}

Duration JitterSource::draw(Rng& rng) const noexcept {
  return std::visit([&](const auto& j) { return draw_from(j, rng); }, jitter_);
}

}  // namespace nbx::fabric
