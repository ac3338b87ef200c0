// Changes of a running emulator. Each is checked completely before anything moves, and applied by the port's worker
// between two bursts.
#pragma once

#include <nlohmann/json.hpp>

#include "base/result.hpp"
#include "daemon/emulator.hpp"

namespace nbx::daemon {

using Json = nlohmann::ordered_json;

/// {"action": "start", "file": …, "snaplen": …, "per_port": …} or {"action": "stop"}.
Result<Json> change_capture(Emulator& emulator, const Json& request);
/// {"port": …, "file": path or the name of a shipped profile} or {"port": …, "inline": YAML text}.
Result<Json> load_profile(Emulator& emulator, const Json& request);
/// {"port": …, "values": {"to_node.delay": "5ms", …}}: keys of the port's profile, values as in a file.
Result<Json> set_values(Emulator& emulator, const Json& request);
/// {"port": …, "part": "storm", "slow_receiver" or "traffic", "start": true, "values": {"duration": "5ms", …}}, or,
/// with "start": false, "name" of a ghost or of traffic.
Result<Json> change_network(Emulator& emulator, const Json& request);
/// {"port": …, "down": true, "for": "300ms"}, without a time until {"port": …, "down": false}.
Result<Json> change_link(Emulator& emulator, const Json& request);

}  // namespace nbx::daemon
