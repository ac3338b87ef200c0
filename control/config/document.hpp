// A YAML document as a tree in which every node knows its place. What YAML itself leaves open is settled here:
// duplicate keys are errors, aliases are replaced by what they name, and merge keys (`<<`) are merged.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/source.hpp"

namespace nbx::config {

struct Entry;

struct Value {
  enum class Kind : std::uint8_t { null, scalar, sequence, mapping } kind = Kind::null;
  SourcePos pos;
  std::string text;            // scalar
  bool quoted = false;         // scalar: text even if it looks like a number
  std::vector<Value> items;    // sequence
  std::vector<Entry> entries;  // mapping

  [[nodiscard]] const Entry* find(const std::string& key) const;
};

struct Entry {
  Located<std::string> key;
  Value value;
};

/// The one document of `text`; nothing, and diagnostics, when it is not YAML or has another shape.
[[nodiscard]] std::optional<Value> parse_document(const std::string& file, const std::string& text, Diagnostics& out);
/// As above, from a file.
[[nodiscard]] std::optional<Value> read_document(const std::string& file, Diagnostics& out);

/// "a list", for messages.
[[nodiscard]] std::string describe_kind(const Value& value);

}  // namespace nbx::config
