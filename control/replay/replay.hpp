// A capture through the pipeline, in the capture's own time: the ghosts of one port answer the frames of a file, and
// what they say goes to another file with its virtual time. Same input, same output, byte for byte.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "base/result.hpp"
#include "base/units.hpp"
#include "pipeline/plan.hpp"

namespace nbx::replay {

struct Options {
  std::string input;
  std::string output;       // empty: no file is written
  bool with_input = false;  // the input frames go to the output too
  bool json = false;
  Duration linger = std::chrono::seconds{1};  // virtual time after the last frame or request in which timers still fire
};

/// Replays `options.input` through the port that `plan` describes. Frames in the file that a ghost of the port sent
/// are not input. Answers what went wrong with the files, if anything did; the report goes to `out`.
Result<bool> replay(const pipeline::ShardPlan& plan, const Options& options, std::ostream& out);

}  // namespace nbx::replay
