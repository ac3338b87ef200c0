// Verdicts of the same scenarios from two runs, beside each other: in virtual time and live, say.
#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>

#include "base/result.hpp"

namespace nbx::scenario {

/// A row for each assertion of `a` that `b` has too, by scenario and text; both are what `nbx scenario --json` prints.
/// `ratio` is b / a. An error when they have none in common.
[[nodiscard]] Result<nlohmann::ordered_json> compare(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);

}  // namespace nbx::scenario
