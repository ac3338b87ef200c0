// A scenario on a live emulator: nbxd with the scenario's cluster, and a program on the real nodes in the place of the
// job.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/result.hpp"
#include "base/units.hpp"

namespace nbx::scenario {

struct LiveRun {
  std::string nbxd;     // path of the binary
  std::string file;     // scenario
  std::string program;  // a line for sh; its output goes to standard error
  Duration limit{};     // for the program
  bool without_faults = false;
};

/// Starts nbxd, waits until it is ready, runs the program to its end and stops nbxd: its report, to which `program` is
/// added. With `failure` alone when the program failed or did not end in time. The error says why nbxd did not run.
[[nodiscard]] Result<nlohmann::ordered_json> run_live(const LiveRun& live);

}  // namespace nbx::scenario
