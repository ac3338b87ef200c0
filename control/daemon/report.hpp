// Asked against achieved, per port and direction: what the profile says and what became of the frames.
#pragma once

#include <nlohmann/json.hpp>

#include "daemon/emulator.hpp"

namespace nbx::daemon {

using Json = nlohmann::ordered_json;

/// Also after stop().
[[nodiscard]] Json report_json(Emulator& emulator);

}  // namespace nbx::daemon
