// The language in which the keys of a file are described, once: a function
//
//   template <class V> void describe(V& v, Rate& x) {
//     v.about({.name = "rate", .doc = "What the section is for.", .shorthand = "limit"});
//     v.field("limit", x.limit, "What the key does.", {.required = true});
//   }
//
// per structure. The reader visits it with the structure to fill; the model, from which the JSON Schemas and the
// reference are printed, visits it with a default-constructed one, whose values are the defaults.
#pragma once

#include <algorithm>
#include <concepts>
#include <optional>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "config/scalar.hpp"
#include "config/source.hpp"

namespace nbx::config {

struct About {
  std::string_view name;  // in messages, of the section in the reference and of the schema's definition
  std::string_view doc;
  std::string_view shorthand = {};  // a value that is not a mapping stands for this key
  bool bare_names = false;          // a word stands for the alternative of that name, with its defaults
};

struct FieldOptions {
  bool required = false;
  bool one_or_many = false;  // lists: a value that is no list is a list of one
  Limits limits = {};
  std::string_view fallback = {};  // what applies when the key is missing, where the member does not say it
};

/// A member of a plainer type that is written as a T: `as<ByteCount>(x.queue_bytes)`.
template <class T, class Member>
struct As {
  using Written = T;
  Member& member;
};
template <class T, class Member>
As<T, Member> as(Member& member) {
  return {member};
}

/// One of several keys that exclude each other; `project` names what of the alternative is written behind the key.
template <class T, class Project>
struct Alternative {
  using Type = T;
  std::string_view key;
  std::string_view doc;
  Project project;
  FieldOptions options;
};
struct Whole {
  template <class T>
  T& operator()(T& x) const {
    return x;
  }
};
template <class T, class Project = Whole>
Alternative<T, Project> alternative(std::string_view key, std::string_view doc, Project project = {},
                                    FieldOptions options = {}) {
  return {key, doc, project, options};
}

struct ChoiceOptions {
  bool required = true;
  std::string_view fallback = {};
};

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;
template <class T>
inline constexpr bool is_located = false;
template <class T>
inline constexpr bool is_located<Located<T>> = true;
template <class T>
inline constexpr bool is_as = false;
template <class T, class Member>
inline constexpr bool is_as<As<T, Member>> = true;

/// The limits of a key, within what its member can hold.
template <class T>
Limits limits_of(const T& target, Limits limits) {
  if constexpr (is_as<T>) {
    return limits_of(target.member, limits);
  } else if constexpr (std::unsigned_integral<T>) {
    limits.max = std::min<std::uint64_t>(limits.max, std::numeric_limits<T>::max());
  }
  return limits;
}

/// What a description cannot say is read as it stands: specialise with
///   static std::string type();
///   static Json schema();
///   static void read(const Value&, T&, Diagnostics&);
template <class T>
struct Raw;
template <class T>
concept RawType = requires {
  Raw<T>::type();
};

/// Strong types wrap a `value`; PathMtu and the like convert.
template <class Strong, class Member>
Strong wrap(const Member& member) {
  if constexpr (requires { Strong{member}; }) {
    return Strong{member};
  } else {
    return static_cast<Strong>(member);
  }
}
template <class Strong>
auto unwrap(const Strong& strong) {
  if constexpr (requires { strong.value; }) {
    return strong.value;
  } else {
    return static_cast<std::underlying_type_t<Strong>>(strong);
  }
}

}  // namespace nbx::config
