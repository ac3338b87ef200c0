// Quantile functions, and the published tables.
#include "traffic/sizes.hpp"

#include <algorithm>
#include <array>
#include <numbers>

#include "base/logarithm.hpp"
#include "base/overloaded.hpp"

namespace nbx::traffic {
namespace {

// Alizadeh et al., "Data Center TCP", SIGCOMM 2010, as Li et al., "HPCC", SIGCOMM 2019, have it in numbers.
constexpr auto web_search = std::to_array<CdfPoint>({{0, 0},
                                                     {10'000, 0.15},
                                                     {20'000, 0.20},
                                                     {30'000, 0.30},
                                                     {50'000, 0.40},
                                                     {80'000, 0.53},
                                                     {200'000, 0.60},
                                                     {1'000'000, 0.70},
                                                     {2'000'000, 0.80},
                                                     {5'000'000, 0.90},
                                                     {10'000'000, 0.97},
                                                     {30'000'000, 1}});
// Roy et al., "Inside the Social Network's (Datacenter) Network", SIGCOMM 2015; the numbers as above.
constexpr auto fb_hadoop =
    std::to_array<CdfPoint>({{0, 0},          {100, 0.01},     {200, 0.02},        {300, 0.05},       {350, 0.15},
                             {400, 0.20},     {500, 0.30},     {600, 0.40},        {700, 0.50},       {1'000, 0.60},
                             {2'000, 0.67},   {7'000, 0.70},   {30'000, 0.72},     {50'000, 0.82},    {80'000, 0.87},
                             {120'000, 0.90}, {300'000, 0.95}, {1'000'000, 0.975}, {2'000'000, 0.99}, {10'000'000, 1}});

double bytes_at(const CdfSize& cdf, double u) noexcept {
  const auto above = std::upper_bound(cdf.points.begin(), cdf.points.end(), u,
                                      [](double share, const CdfPoint& point) { return share < point.share; });
  if (above == cdf.points.begin() || above == cdf.points.end()) {
    return above == cdf.points.end() ? cdf.points.back().bytes : above->bytes;
  }
  const CdfPoint& below = *(above - 1);
  return below.bytes + (above->bytes - below.bytes) * ((u - below.share) / (above->share - below.share));
}

}  // namespace

std::uint64_t size_at(const Sizes& sizes, double u) noexcept {
  const double bytes =
      std::visit(Overloaded{[](const ConstantSize& x) { return static_cast<double>(x.bytes); },
                            [u](const UniformSize& x) {
                              return static_cast<double>(x.min) + u * static_cast<double>(x.max - x.min + 1) - 0.5;
                            },
                            [u](const ExponentialSize& x) {
                              return -static_cast<double>(x.mean) * std::numbers::ln2 * log2_portable(1 - u);
                            },
                            [u](const CdfSize& x) { return bytes_at(x, u); }},
                 sizes);
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(bytes + 0.5));
}

double mean_bytes(const Sizes& sizes) noexcept {
  constexpr std::uint32_t quantiles = 100'000;
  double sum = 0;
  for (std::uint32_t i = 0; i < quantiles; ++i) {
    sum += static_cast<double>(size_at(sizes, (i + 0.5) / quantiles));
  }
  return sum / quantiles;
}

std::uint64_t largest(const Sizes& sizes) noexcept {
  constexpr double nearly_all = 1 - 1e-7;
  return size_at(sizes, nearly_all);
}

std::span<const CdfPoint> published_sizes(std::string_view name) noexcept {
  if (name == "web_search") {
    return web_search;
  }
  if (name == "fb_hadoop") {
    return fb_hadoop;
  }
  return {};
}

}  // namespace nbx::traffic
