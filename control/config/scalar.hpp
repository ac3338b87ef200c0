// What a single word of a file can be: one type each, with its grammar, its text and what a schema says of it.
// Rates are SI and in bits, sizes in bytes with SI or IEC prefixes, and a quantity without its unit is an error.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/net.hpp"
#include "base/result.hpp"
#include "base/units.hpp"

namespace nbx::config {

using Json = nlohmann::ordered_json;

/// Bounds of a quantity in its smallest unit: 1, byte, bit per second, picosecond. Inclusive.
struct Limits {
  std::uint64_t min = 0;
  std::uint64_t max = std::numeric_limits<std::uint64_t>::max();
};

/// A word as it stands in the file; quoted ones are never numbers.
struct Word {
  std::string_view text;
  bool quoted = false;
};

// Quantities that are plain integers or doubles elsewhere.
struct ByteCount {
  std::uint64_t value = 0;
};
struct Probability {
  double value = 0;
};
/// A number above 0.
struct Factor {
  double value = 1;
};
/// Bytes of a frame that a capture keeps; 0: all.
struct SnapLength {
  std::uint32_t value = 0;
};
/// Which frames a capture takes, in tcpdump's syntax; empty: every one.
struct FilterText {
  std::string value;
};
struct HexBytes {
  std::vector<std::byte> value;
};
/// An IP address that another room takes as text; empty: none.
struct AddressText {
  std::string value;
};
/// IP address and prefix length.
struct Subnet {
  IpAddress ip;
  std::uint8_t prefix = 0;
};
/// Ranks of a job, both ends included.
struct RankRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};
/// Bytes per packet, as IBTA 9.4.3 allows them.
enum class PathMtu : std::uint32_t {};

/// The words of an enumeration: specialise with `static constexpr auto table = words<E>({{"word", E::word}, …});`
template <class E>
struct Words;
template <class E>
struct WordOf {
  std::string_view word;
  E value;
};
template <class E, std::size_t N>
constexpr std::array<WordOf<E>, N> words(const WordOf<E> (&table)[N]) {
  return std::to_array(table);
}

/// How a T is written. `type` is for readers of the reference.
///   static std::string type();
///   static Json schema(const Limits&);
///   static Result<T> parse(const Word&);
///   static std::string format(const T&);
///   static std::uint64_t magnitude(const T&) and T from(std::uint64_t), when it has limits
template <class T>
struct Scalar;

template <class T>
concept ScalarType = requires(const T& v, const Word& w) {
  Scalar<T>::parse(w);
  Scalar<T>::format(v);
};

// What the specialisations below share; see scalar.cpp.
[[nodiscard]] Result<std::uint64_t> parse_integer(const Word& word);
[[nodiscard]] Json integer_schema(const Limits& limits);
[[nodiscard]] Error not_a_word_of(const Word& word, std::span<const std::string> known);
[[nodiscard]] Json word_schema(std::span<const std::string> known);

#define NBX_SCALAR(T)                          \
  template <>                                  \
  struct Scalar<T> {                           \
    static std::string type();                 \
    static Json schema(const Limits& limits);  \
    static Result<T> parse(const Word& word);  \
    static std::string format(const T& value); \
  }
#define NBX_QUANTITY(T)                             \
  template <>                                       \
  struct Scalar<T> {                                \
    static std::string type();                      \
    static Json schema(const Limits& limits);       \
    static Result<T> parse(const Word& word);       \
    static std::string format(const T& value);      \
    static std::uint64_t magnitude(const T& value); \
    static T from(std::uint64_t value);             \
  }
NBX_SCALAR(bool);
NBX_SCALAR(Factor);
NBX_SCALAR(std::string);
NBX_SCALAR(Probability);
NBX_SCALAR(HexBytes);
NBX_SCALAR(AddressText);
NBX_SCALAR(Mac);
NBX_SCALAR(IpAddress);
NBX_SCALAR(Subnet);
NBX_SCALAR(PathMtu);
NBX_SCALAR(RankRange);
NBX_SCALAR(SnapLength);
NBX_SCALAR(FilterText);
NBX_QUANTITY(Duration);
NBX_QUANTITY(BitRate);
NBX_QUANTITY(ByteCount);
NBX_QUANTITY(Qpn);
NBX_QUANTITY(Psn);
#undef NBX_SCALAR
#undef NBX_QUANTITY

template <class T>
requires std::unsigned_integral<T> &&(!std::same_as<T, bool>)struct Scalar<T> {
  static std::string type() { return "number"; }
  static Json schema(const Limits& limits) { return integer_schema(limits); }
  static Result<T> parse(const Word& word) {
    Result<std::uint64_t> value = parse_integer(word);
    if (!value.ok()) {
      return value.error();
    }
    if (*value > std::numeric_limits<T>::max()) {
      return Error{std::string(word.text) + " is more than " + std::to_string(std::numeric_limits<T>::max())};
    }
    return static_cast<T>(*value);
  }
  static std::string format(const T& value) { return std::to_string(value); }
  static std::uint64_t magnitude(const T& value) { return value; }
  static T from(std::uint64_t value) { return static_cast<T>(value); }
};

template <class E>
requires requires { Words<E>::table; }
struct Scalar<E> {
  static std::vector<std::string> known() {
    std::vector<std::string> all;
    for (const WordOf<E>& row : Words<E>::table) {
      all.emplace_back(row.word);
    }
    return all;
  }
  static std::string type() {
    std::string all;
    for (const WordOf<E>& row : Words<E>::table) {
      all += (all.empty() ? "`" : ", `") + std::string(row.word) + "`";
    }
    return all;
  }
  static Json schema(const Limits& /*limits*/) { return word_schema(known()); }
  static Result<E> parse(const Word& word) {
    for (const WordOf<E>& row : Words<E>::table) {
      if (row.word == word.text) {
        return E{row.value};
      }
    }
    return not_a_word_of(word, known());
  }
  static std::string format(const E& value) {
    for (const WordOf<E>& row : Words<E>::table) {
      if (row.value == value) {
        return std::string(row.word);
      }
    }
    return {};
  }
};

}  // namespace nbx::config
