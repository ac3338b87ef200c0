// Texts as lines of words, each with its place.
#pragma once

#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/source.hpp"

namespace nbx::import {

struct Word {
  std::string_view text;
  config::SourcePos pos;
};

/// The lines of a text that have words.
inline std::vector<std::vector<Word>> words_of(const std::string& name, std::string_view text) {
  const auto file = std::make_shared<const std::string>(name);
  std::vector<std::vector<Word>> lines;
  for (std::uint32_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    std::vector<Word> words;
    constexpr std::string_view blank = " \t\r";
    for (std::size_t at = line.find_first_not_of(blank); at != std::string_view::npos;) {
      const std::size_t end = std::min(line.find_first_of(blank, at), line.size());
      words.push_back({line.substr(at, end - at), {file, number, static_cast<std::uint32_t>(at + 1)}});
      at = line.find_first_not_of(blank, end);
    }
    if (!words.empty()) {
      lines.push_back(std::move(words));
    }
  }
  return lines;
}

/// A whole number and nothing else.
inline std::optional<std::uint64_t> whole(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

/// A finite number that is not negative, and what follows it.
struct Quantity {
  double value;
  std::string_view unit;
};
inline std::optional<Quantity> quantity(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || !(value >= 0 && value < 1e18)) {
    return std::nullopt;
  }
  return Quantity{value, text.substr(static_cast<std::size_t>(end - text.data()))};
}

inline std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

/// Of a file that has nothing to point at.
inline config::SourcePos start_of(const std::string& name) {
  config::SourcePos pos;
  pos.file = std::make_shared<const std::string>(name);
  pos.line = pos.column = 1;
  return pos;
}

inline void warn(config::Diagnostics& out, const config::SourcePos& pos, std::string message) {
  out.push_back({pos, std::move(message), {}, config::Severity::warning});
}

}  // namespace nbx::import
