// What a metric of an assertion is in a report: of `nbx sim`, or of a run of nbxd.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "base/units.hpp"
#include "config/assertion.hpp"

namespace nbx::scenario {

struct Reports {
  nlohmann::ordered_json run;
  nlohmann::ordered_json baseline;          // null: there is none
  std::optional<Duration> first_failure{};  // since the start
};

/// In seconds, bytes, bits a second, or a plain number; nothing when the report does not say it.
[[nodiscard]] std::optional<double> measure(const config::Assertion& assertion, const Reports& reports);

}  // namespace nbx::scenario
