#include "config/source.hpp"

#include <algorithm>
#include <numeric>
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

/// Levenshtein distance.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0U);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
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
  write_line(out, diagnostic.pos, "error", diagnostic.message);
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
