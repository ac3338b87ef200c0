// Two measurements of the same program, with real ranks and with ghosts in the place of all but one: how far apart the
// times of its collectives are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace nbx::calibrate {

/// What was timed: a collective of a size as nbx-probe names it, or a step of any other program.
struct Subject {
  std::string name;
  std::uint64_t bytes = 0;  // 0: a step

  auto operator<=>(const Subject&) const = default;
};

using Times = std::map<Subject, std::vector<double>>;  // of single calls, in microseconds

/// Reads what `nbx-probe --json --each` prints, or {"times": {"NAME": [MICROSECONDS, ...]}} of another program.
[[nodiscard]] Result<Times> read_times(const std::string& text);

struct Sample {
  double median = 0;
  double spread = 0;  // distance of the quartiles, in % of the median
  std::size_t repeats = 0;
};
[[nodiscard]] Sample summary(std::vector<double> times);

struct Row {
  Subject subject;
  Sample real;
  Sample ghosts;

  /// In % of the real time; above 0: the ghosts take longer.
  [[nodiscard]] double error() const { return (ghosts.median / real.median - 1) * 100; }
};

/// How the real times differ from the ghosts' over sizes, by least squares: constant and growing part.
struct Gap {
  double per_call = 0;  // microseconds that the ghosts are too early
  double per_mib = 0;
};

struct Comparison {
  std::vector<Row> rows;
  std::vector<Subject> only_one;  // measured in one of the runs only

  [[nodiscard]] double worst_error() const;
  /// Of one collective over its sizes; nullopt: fewer than two sizes.
  [[nodiscard]] std::optional<Gap> gap(const std::string& name) const;
};

[[nodiscard]] Comparison compare(const Times& real, const Times& ghosts);

void print(const Comparison& comparison, double tolerance, std::ostream& out);
[[nodiscard]] nlohmann::ordered_json to_json(const Comparison& comparison, double tolerance);

}  // namespace nbx::calibrate
