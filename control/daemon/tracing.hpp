// Traces of the ghosts' rates: started, taken piece by piece, stopped.
#pragma once

#include <nlohmann/json.hpp>

#include "base/result.hpp"
#include "daemon/emulator.hpp"

namespace nbx::daemon {

using Json = nlohmann::ordered_json;

/// {"action": "start", "port": …, "ghost": …, "qpn": …, "steps_max": …, "rates_only": …}, all but the action optional,
/// or {"action": "stop"}.
Result<Json> change_trace(Emulator& emulator, const Json& request);
/// The steps since the last time.
[[nodiscard]] Json trace_json(Emulator& emulator);

}  // namespace nbx::daemon
