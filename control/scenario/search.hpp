// The smallest fault that raises the step time by so much: bisection between a value that does not and one that does.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace nbx::scenario {

/// "PATH=GOOD..BAD": two numbers with one unit. The decimals in which they are written are the precision of the search.
struct Range {
  std::string path;
  std::int64_t good = 0;  // in the last decimal
  std::int64_t bad = 0;
  unsigned decimals = 0;
  std::string unit;

  /// As it would stand in a file.
  [[nodiscard]] std::string text(std::int64_t value) const;
};
[[nodiscard]] Result<Range> parse_range(const std::string& text);

/// The step time with that value, in seconds; nothing: the job came to no end, which is worse than any.
using StepTime = std::function<Result<std::optional<double>>(const std::string& value)>;

struct Tried {
  std::string value;
  std::optional<double> step_time;
  bool raised = false;  // by as much as was asked, from that of the good end
};
struct Found {
  std::optional<std::string> value;  // nothing: the bad end does not raise it so much
  std::vector<Tried> tried;          // in order
};
/// Takes it for granted that worse values are not better. `raise`: 0.1 for 10 %.
[[nodiscard]] Result<Found> smallest_that_raises(const Range& range, double raise, const StepTime& step_time);

}  // namespace nbx::scenario
