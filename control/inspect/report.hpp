// An analysis as text for people and as JSON for programs. Keys carry their unit; a value that is not known is absent.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "capture/reader.hpp"
#include "inspect/analysis.hpp"

namespace nbx::analysis {

struct Report {
  const std::string& file;
  const Analysis& analysis;
  const std::vector<capture::Reader::Interface>& interfaces;
  std::size_t flows_max = 0;  // 0: all

  /// Those to show, most bytes first.
  [[nodiscard]] std::vector<const Flow*> flows() const;
};

void print_text(const Report& report, std::ostream& out);
void print_json(const Report& report, std::ostream& out);

/// Goodput over the time from a flow's first to its last packet; 0 when that is no time.
[[nodiscard]] double goodput_bps(const Flow& flow);
[[nodiscard]] std::string_view name_of(wire::FrameKind kind);
[[nodiscard]] std::string_view name_of(capture::Direction direction);
[[nodiscard]] std::string nak_name(std::uint8_t syndrome);

}  // namespace nbx::analysis
