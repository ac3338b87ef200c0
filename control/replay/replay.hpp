// Captures through the pipeline, in their own time: the ghosts of ports answer the frames of files, and what the ports
// send goes to another file with its virtual time. Same input, same output, byte for byte.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"
#include "pipeline/plan.hpp"
#include "replay/inputs.hpp"

namespace nbx::replay {

struct Options {
  std::vector<InputFile> inputs;
  std::string output;       // with an interface for each port; empty: no file is written
  bool with_input = false;  // the input frames go to the output too
  bool json = false;
  Duration linger = std::chrono::seconds{1};  // virtual time after the last frame or request in which timers still fire
};

/// Replays the inputs through ports: all that a network spans, or one. Frames that a ghost sent, or came from another
/// port, are not input. Answers what went wrong with the files, if anything did; the report goes to `out`.
Result<bool> replay(const std::vector<pipeline::ShardPlan>& plans, const Options& options, std::ostream& out);

}  // namespace nbx::replay
