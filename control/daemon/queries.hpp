// What a running emulator says of itself: one JSON document per question. A worker that does not answer in time is
// said to be so, and the rest of the answer stands.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "daemon/emulator.hpp"

namespace nbx::daemon {

using Json = nlohmann::ordered_json;

[[nodiscard]] Json status_json(Emulator& emulator);
/// What a flight recorder has written.
[[nodiscard]] Json dump_json(const DumpReport& dump);
[[nodiscard]] Json recorder_json(const RecorderControl& recorder);
[[nodiscard]] Json ports_json(Emulator& emulator);
[[nodiscard]] Json qps_json(Emulator& emulator);
[[nodiscard]] Json ghosts_json(Emulator& emulator);
/// NCCL's communicators with ghost ranks, and their latest operations.
[[nodiscard]] Json nccl_json(Emulator& emulator);
/// The events of every port and the last packets that they took.
[[nodiscard]] Json events_json(Emulator& emulator);
/// Background traffic: asked and achieved, and how long flows took.
[[nodiscard]] Json traffic_json(Emulator& emulator);
/// Every counter and drop, summed over the ports, or of `port` alone.
[[nodiscard]] Json counters_json(Emulator& emulator, const std::string& port);
/// Prometheus' text format 0.0.4.
[[nodiscard]] std::string metrics_text(Emulator& emulator);

}  // namespace nbx::daemon
