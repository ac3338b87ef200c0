// Assertions of a scenario, as `jct_ratio <= 1.05`, `no qp errors`, `recovery < 2s`, `counter.np_cnp_sent > 0`: one
// metric, one comparison, one limit in the metric's unit.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/source.hpp"

namespace nbx::config {

enum class Unit : std::uint8_t { count, per_second, rate, ratio, share, size, time };

enum class Metric : std::uint8_t {
#define NBX_METRIC(name, unit, text) name,
#include "config/metrics.def"
#undef NBX_METRIC
  counter,
};

struct MetricInfo {
  std::string_view name;
  Unit unit;
  std::string_view text;
};
inline constexpr auto metric_info = std::to_array<MetricInfo>({
#define NBX_METRIC(name, unit, text) {#name, Unit::unit, text},
#include "config/metrics.def"
#undef NBX_METRIC
});

/// Whether it compares with the run without the faults.
[[nodiscard]] bool needs_baseline(Metric metric) noexcept;

enum class Comparison : std::uint8_t { less, at_most, equal, at_least, more };

struct Assertion {
  std::string text;
  SourcePos pos{};
  Metric metric{};
  std::string counter{};  // of Metric::counter: its name in counters.def
  Comparison comparison{};
  double limit = 0;  // seconds, bytes, bits per second, or a plain number

  [[nodiscard]] Unit unit() const noexcept {
    return metric == Metric::counter ? Unit::count : metric_info[static_cast<std::size_t>(metric)].unit;
  }
  [[nodiscard]] bool holds(double measured) const noexcept;
};

/// Nothing, and a diagnostic at the word that is wrong, when it is none.
[[nodiscard]] std::optional<Assertion> parse_assertion(const Located<std::string>& text, Diagnostics& out);

/// As it would stand in an assertion, rounded for people: "1.25 ms".
[[nodiscard]] std::string format(double value, Unit unit);

}  // namespace nbx::config
