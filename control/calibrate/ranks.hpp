// One run of a program: a process per rank, watched until the last one has ended, none left behind.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace nbx::calibrate {

/// What rank 0 has printed. An error when a rank fails, when the limit is over or when the user interrupts: with the
/// rank and the last lines that it said. Commands are for /bin/sh. `waiting` is called several times a second.
[[nodiscard]] Result<std::string> run_ranks(const std::vector<std::string>& commands, std::chrono::seconds limit,
                                            const std::function<void(std::chrono::milliseconds)>& waiting);

/// `command` with {rank}, {ranks} and {run} replaced.
[[nodiscard]] std::string filled_in(std::string command, int rank, int ranks, const std::string& run);

}  // namespace nbx::calibrate
