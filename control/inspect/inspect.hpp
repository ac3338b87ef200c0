// `nbx inspect`: what a capture says, per queue pair and per interface. One pass; memory per flow is bounded.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>

#include "base/units.hpp"

namespace nbx {

struct InspectOptions {
  std::string file;
  bool json = false;
  BitRate link{};       // of the cable, for the length of pauses; zero: not known
  std::size_t qps = 0;  // flows to show, those with most bytes first; 0: all
};

/// Answers the exit status: 0; 1 when the file is damaged, after reporting what could be read; 2 when it cannot be read
/// at all.
int inspect(const InspectOptions& options, std::ostream& out, std::ostream& errors);

}  // namespace nbx
