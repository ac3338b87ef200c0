// What an emulated network did, as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "pipeline/network_report.hpp"

namespace nbx::report {

/// Times in microseconds; rows only of what was seen.
[[nodiscard]] nlohmann::ordered_json network_json(const pipeline::NetworkReport& report);

}  // namespace nbx::report
