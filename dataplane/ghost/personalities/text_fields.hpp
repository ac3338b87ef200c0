// The hexadecimal, colon-separated records by which the verbs' test programs tell each other their queue pairs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace nbx::ghost {

/// Takes fields of fixed width from the front of a record, each with the colon behind it, if it has one.
class TextFields {
 public:
  explicit TextFields(std::string_view record) : rest_(record) {}

  /// The next `digits` hexadecimal digits; a digit that is none makes the record bad.
  std::uint64_t hex(std::size_t digits) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const int digit = i < rest_.size() ? hex_digit(rest_[i]) : -1;
      good_ = good_ && digit >= 0;
      value = value << 4U | static_cast<std::uint64_t>(digit < 0 ? 0 : digit);
    }
    rest_.remove_prefix(std::min(digits, rest_.size()));
    if (rest_.starts_with(':')) {
      rest_.remove_prefix(1);
    }
    return value;
  }
  [[nodiscard]] bool good() const { return good_; }

 private:
  static int hex_digit(char c) {
    if (c >= '0' && c <= '9') {
      return c - '0';
    }
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  }

  std::string_view rest_;
  bool good_ = true;
};

}  // namespace nbx::ghost
