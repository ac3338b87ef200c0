// `nbx bench`: what each stage of the dataplane costs on this machine, next to testpmd's own forwarding modes.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

#include "base/result.hpp"

namespace nbx::bench {

struct Options {
  std::string only;  // a part of GROUP/STAGE/VARIANT; empty: everything
  unsigned rounds = 41;
  bool testpmd = true;  // the yardstick
  bool json = false;
};

/// Told now and then what is measured.
using Progress = std::function<void(const std::string& what)>;

/// Measures and prints to `out`. The error says what failed.
std::optional<Error> run(const Options& options, std::ostream& out, const Progress& progress);

}  // namespace nbx::bench
