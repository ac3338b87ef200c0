// `nbx check`: says what is wrong with cluster and profile files, all at once.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace nbx::check {

struct Options {
  bool json = false;  // one JSON document on `out` instead of text
};

/// Diagnostics go to `err`, one line per sound file to `out`. Answers the exit status: 0, or 2 when anything is wrong.
int check(const std::vector<std::string>& files, const Options& options, std::ostream& out, std::ostream& err);

}  // namespace nbx::check
