// How large flows are: distributions, drawn by their quantiles.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

namespace nbx::traffic {

struct ConstantSize {
  std::uint64_t bytes = 65'536;
};
struct UniformSize {
  std::uint64_t min = 1;
  std::uint64_t max = 65'536;
};
struct ExponentialSize {
  std::uint64_t mean = 65'536;
};
/// So large a share of all flows is not larger than so many bytes; between two points it grows evenly.
struct CdfPoint {
  double bytes = 0;
  double share = 0;
};
struct CdfSize {
  std::vector<CdfPoint> points;  // rising, from share 0 to 1
};
using Sizes = std::variant<ConstantSize, UniformSize, ExponentialSize, CdfSize>;

/// The size that a share `u` of all flows, from 0 to below 1, does not exceed; at least 1. The same on every machine.
[[nodiscard]] std::uint64_t size_at(const Sizes& sizes, double u) noexcept;

/// Their mean, to a part in ten thousand.
[[nodiscard]] double mean_bytes(const Sizes& sizes) noexcept;
/// What none exceeds, or hardly any: of exponential ones less than one in ten million do.
[[nodiscard]] std::uint64_t largest(const Sizes& sizes) noexcept;

/// Published distributions: `web_search`, `fb_hadoop`. Empty: there is none of that name.
[[nodiscard]] std::span<const CdfPoint> published_sizes(std::string_view name) noexcept;

}  // namespace nbx::traffic
