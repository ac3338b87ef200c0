// Reads a tree into structures by their descriptions (keys.hpp). Strict: a key that is not described, a missing one, a
// value of the wrong kind or outside its limits are mistakes, and all of them are reported.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "config/document.hpp"
#include "config/keys.hpp"

namespace nbx::config {

template <class T>
void read(const Value& value, T&& target, const FieldOptions& options, Diagnostics& out);

/// Visits the description of one mapping.
class MappingReader {
 public:
  MappingReader(const Value& value, Diagnostics& out) : value_(value), out_(out) {}

  void about(const About& about);

  template <class T>
  void field(std::string_view key, T&& target, std::string_view /*doc*/, const FieldOptions& options = {}) {
    if (const Entry* entry = take(key)) {
      read(entry->value, target, options, out_);
    } else if (options.required) {
      missing("'" + std::string(key) + "'");
    }
  }

  template <class Variant, class... A>
  void choice(Variant& target, const ChoiceOptions& options, const A&... alternatives) {
    const Entry* chosen = nullptr;
    (try_alternative(target, chosen, alternatives), ...);
    if (chosen == nullptr && options.required && written_out_.empty()) {
      std::string all;
      ((all += (all.empty() ? "'" : ", '") + std::string(alternatives.key) + "'"), ...);
      missing("one of " + all);
    }
  }

  /// Complains about the keys that nobody asked for.
  void finish();

 private:
  [[nodiscard]] const Entry* take(std::string_view key);
  void missing(const std::string& what);
  void excluded(const Entry& entry, const Entry& by);

  template <class Variant, class A>
  void try_alternative(Variant& target, const Entry*& chosen, const A& alternative) {
    const Entry* entry = take(alternative.key);
    if (entry == nullptr) {
      return;
    }
    if (chosen != nullptr) {
      excluded(*entry, *chosen);
      return;
    }
    chosen = entry;
    auto& held = target.template emplace<typename A::Type>();
    read(entry->value, alternative.project(held), alternative.options, out_);
  }

  const Value& value_;
  Diagnostics& out_;
  std::string name_;
  std::vector<Entry> written_out_;               // what a shorthand stands for
  const std::vector<Entry>* entries_ = nullptr;  // nullptr: not a mapping, which has been said
  std::vector<std::string> known_;
};

/// Whether the value is a word; complains when not.
bool expect_word(const Value& value, const std::string& type, Diagnostics& out);
void complain(const Value& value, std::string message, Diagnostics& out);

template <ScalarType T>
void read_scalar(const Value& value, T& target, Limits limits, Diagnostics& out) {
  if (!expect_word(value, Scalar<T>::type(), out)) {
    return;
  }
  Result<T> parsed = Scalar<T>::parse({value.text, value.quoted});
  if (!parsed.ok()) {
    complain(value, parsed.error().message, out);
    return;
  }
  if constexpr (requires { Scalar<T>::magnitude(*parsed); }) {
    const std::uint64_t magnitude = Scalar<T>::magnitude(*parsed);
    if (magnitude < limits.min || magnitude > limits.max) {
      const bool low = magnitude < limits.min;
      complain(value,
               value.text + " is out of range: " + (low ? "at least " : "at most ") +
                   Scalar<T>::format(Scalar<T>::from(low ? limits.min : limits.max)),
               out);
      return;
    }
  }
  target = std::move(*parsed);
}

template <class T>
void read_list(const Value& value, std::vector<T>& target, const FieldOptions& options, Diagnostics& out) {
  FieldOptions of_item = options;
  of_item.one_or_many = false;
  target.clear();
  if (value.kind == Value::Kind::sequence) {
    for (const Value& item : value.items) {
      read(item, target.emplace_back(), of_item, out);
    }
  } else if (options.one_or_many && value.kind != Value::Kind::null) {
    read(value, target.emplace_back(), of_item, out);
  } else {
    complain(value, "a list is needed here, not " + describe_kind(value), out);
  }
}

template <class T>
void read(const Value& value, T&& target, const FieldOptions& options, Diagnostics& out) {
  using Plain = std::remove_cvref_t<T>;
  if constexpr (is_as<Plain>) {
    read_as(value, target, limits_of(target, options.limits), out);
  } else if constexpr (is_located<Plain>) {
    const std::size_t before = out.size();
    read(value, target.value, options, out);
    target.pos =
        out.size() == before ? value.pos : SourcePos{};  // what is wrong has been said; nothing follows from it
  } else if constexpr (is_optional<Plain>) {
    read(value, target.emplace(), options, out);
  } else if constexpr (is_vector<Plain>) {
    read_list(value, target, options, out);
  } else if constexpr (RawType<Plain>) {
    Raw<Plain>::read(value, target, out);
  } else if constexpr (ScalarType<Plain>) {
    read_scalar(value, target, limits_of(target, options.limits), out);
  } else {
    MappingReader reader(value, out);
    describe(reader, target);
    reader.finish();
  }
}

template <class T, class Member>
void read_as(const Value& value, As<T, Member>& target, const Limits& limits, Diagnostics& out) {
  auto strong = wrap<T>(target.member);
  read_scalar(value, strong, limits, out);
  target.member = static_cast<Member>(unwrap(strong));
}

}  // namespace nbx::config
