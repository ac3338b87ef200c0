// Mahimahi (Netravali et al., USENIX ATC 2015), mm-link(1): each line of a trace is a millisecond at which a packet of
// 1,500 bytes may leave; the trace begins anew when it ends.
#include <algorithm>

#include "config/profile_keys.hpp"
#include "import/import.hpp"
#include "import/words.hpp"

namespace nbx::import {
namespace {

constexpr std::uint64_t chance_bits = 1500 * 8;
constexpr std::uint64_t bin_ms = 100;
constexpr std::uint64_t trace_ms_max = 3'600'000;

/// Rates of bins of equal length, of which equal neighbours are one failure.
std::string failures(const std::vector<std::uint64_t>& chances, const std::string& way) {
  std::string yaml;
  for (std::size_t first = 0; first != chances.size();) {
    std::size_t end = first;
    while (end != chances.size() && chances[end] == chances[first]) {
      ++end;
    }
    const std::uint64_t rate = std::max<std::uint64_t>(1, chances[first] * chance_bits * 1000 / bin_ms);
    yaml += "  - {at: " + std::to_string(first * bin_ms) + "ms, for: " + std::to_string((end - first) * bin_ms) +
            "ms, direction: " + way + ", rate: {limit: " + config::Scalar<BitRate>::format({rate}) +
            ", count_overhead: false}}\n";
    first = end;
  }
  return yaml;
}

}  // namespace

Imported from_mahimahi(const std::string& name, std::string_view text, config::Way way) {
  Imported out;
  std::vector<std::uint64_t> chances;  // by bin
  std::uint64_t last = 0;
  const auto lines = words_of(name, text);
  for (const std::vector<Word>& line : lines) {
    const Word& word = line.front();
    const auto ms = whole(word.text);
    if (line.size() != 1 || !ms || *ms > trace_ms_max) {
      out.diagnostics.push_back({word.pos, "a line is one number of milliseconds, to " + std::to_string(trace_ms_max)});
      return out;
    }
    if (*ms < last) {
      out.diagnostics.push_back({word.pos, std::to_string(*ms) + " ms is before the line above"});
      return out;
    }
    last = *ms;
    chances.resize(std::max<std::size_t>(chances.size(), last / bin_ms + 1));
    ++chances[last / bin_ms];
  }
  if (lines.empty()) {
    out.diagnostics.push_back({start_of(name), "a trace without a line"});
    return out;
  }
  warn(out.diagnostics, lines.back().front().pos,
       "Mahimahi begins anew here; the profile ends, and what it says besides holds");
  warn(out.diagnostics, lines.front().front().pos,
       "chances to send are rates of " + std::to_string(bin_ms) + " ms here; a tenth of a second without one is 1 b/s");
  out.yaml = "name: imported-mahimahi\nfailures:\n" + failures(chances, config::Scalar<config::Way>::format(way));
  return out;
}

}  // namespace nbx::import
