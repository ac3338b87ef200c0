#include "config/source.hpp"

#include <algorithm>
#include <ostream>
#include <tuple>

namespace nbx::config {
namespace {

auto key_of(const Diagnostic& d) { return std::tie(*d.pos.file, d.pos.line, d.pos.column); }

void write_line(std::ostream& out, const SourcePos& pos, const char* kind, const std::string& message) {
  out << *pos.file << ':';
  if (pos.line != 0) {
    out << pos.line << ':' << pos.column << ':';
  }
  out << ' ' << kind << ": " << message << '\n';
}

/// Insertions, deletions, substitutions and swaps of neighbours (optimal string alignment).
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const bool same = a[i - 1] == b[j - 1];
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

void sort(Diagnostics& diagnostics) {
  std::stable_sort(diagnostics.begin(), diagnostics.end(),
                   [](const Diagnostic& a, const Diagnostic& b) { return key_of(a) < key_of(b); });
  const auto same = [](const Diagnostic& a, const Diagnostic& b) {
    return key_of(a) == key_of(b) && a.message == b.message;
  };
  diagnostics.erase(std::unique(diagnostics.begin(), diagnostics.end(), same), diagnostics.end());
}

std::ostream& operator<<(std::ostream& out, const Diagnostic& diagnostic) {
  write_line(out, diagnostic.pos, diagnostic.severity == Severity::error ? "error" : "warning", diagnostic.message);
  for (const Note& note : diagnostic.notes) {
    write_line(out, note.pos, "note", note.message);
  }
  return out;
}

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;  // a third of the letters may be wrong
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string candidate = nearest(word, candidates);
  return candidate.empty() ? std::string{} : "; did you mean '" + candidate + "'?";
}

}  // namespace nbx::config
