// Where a value stands in a file, and what is wrong with it. Diagnostics look like a compiler's, so that editors and
// people find the place: `FILE:LINE:COLUMN: error: MESSAGE`, `warning:`, and `note:` for the other end of a conflict.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace nbx::config {

struct SourcePos {
  std::shared_ptr<const std::string> file;
  std::uint32_t line = 0;  // both from 1; line 0: the file as a whole
  std::uint32_t column = 0;
};

/// A value that a later stage may have to complain about. Without a file it is a default.
template <class T>
struct Located {
  T value{};
  SourcePos pos{};

  [[nodiscard]] bool given() const { return pos.file != nullptr; }
  [[nodiscard]] const T& operator*() const { return value; }
  [[nodiscard]] T& operator*() { return value; }
  [[nodiscard]] const T* operator->() const { return &value; }
  [[nodiscard]] T* operator->() { return &value; }
};

struct Note {
  SourcePos pos;
  std::string message;
};

enum class Severity : std::uint8_t { error, warning };

struct Diagnostic {
  SourcePos pos;
  std::string message;
  std::vector<Note> notes{};
  Severity severity = Severity::error;
};

using Diagnostics = std::vector<Diagnostic>;

/// Orders by file and position, and removes repetitions: a profile that two ports name is read twice.
void sort(Diagnostics& diagnostics);
std::ostream& operator<<(std::ostream& out, const Diagnostic& diagnostic);

/// The candidate that `word` may be a misspelling of; empty when none is near.
[[nodiscard]] std::string nearest(const std::string& word, const std::vector<std::string>& candidates);
/// "; did you mean 'WORD'?", or nothing.
[[nodiscard]] std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace nbx::config
