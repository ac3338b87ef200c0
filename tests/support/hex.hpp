// Bytes from hexadecimal text and back, for expectations that come from elsewhere.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"

namespace nbx::test {

using Bytes = std::vector<std::byte>;

/// Blanks are ignored.
inline Bytes from_hex(std::string_view text) {
  Bytes out;
  std::string digits;
  for (const char c : text) {
    if (c != ' ' && c != '\n') {
      digits += c;
    }
  }
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    out.push_back(static_cast<std::byte>(std::stoul(digits.substr(i, 2), nullptr, 16)));
  }
  return out;
}

inline std::string to_hex(ConstBytes bytes) {
  constexpr std::string_view digit = "0123456789abcdef";
  std::string out;
  for (const std::byte b : bytes) {
    out += digit[std::to_integer<unsigned>(b) >> 4U];
    out += digit[std::to_integer<unsigned>(b) & 0xfU];
  }
  return out;
}

inline void append(Bytes& out, ConstBytes more) {
  const std::size_t size = out.size();
  out.resize(size + more.size());
  std::copy(more.begin(), more.end(), out.begin() + static_cast<std::ptrdiff_t>(size));
}

}  // namespace nbx::test
