// What is printed from the description of the keys, and from the table of counters: `nbx schema` and `nbx docs`.
#pragma once

#include <string>

namespace nbx::config {

/// JSON Schemas (draft 7, which editors know best).
[[nodiscard]] std::string cluster_schema();
[[nodiscard]] std::string profile_schema();
[[nodiscard]] std::string job_schema();
[[nodiscard]] std::string nic_schema();
[[nodiscard]] std::string scenario_schema();

/// Markdown.
[[nodiscard]] std::string cluster_reference();
[[nodiscard]] std::string profile_reference();
[[nodiscard]] std::string job_reference();
[[nodiscard]] std::string nic_reference();
/// With the metrics of assertions.
[[nodiscard]] std::string scenario_reference();
[[nodiscard]] std::string counter_reference();

}  // namespace nbx::config
