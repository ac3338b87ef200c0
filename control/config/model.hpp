// The descriptions of keys.hpp as data, from which schemas and references are printed.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "config/keys.hpp"

namespace nbx::config {

struct Structure;

struct Type {
  enum class Kind : std::uint8_t { scalar, structure, list } kind = Kind::scalar;
  std::string word{};                    // scalar, as the reference calls it
  Json schema{};                         // scalar
  const Structure* structure = nullptr;  // structure
  std::vector<Type> element{};           // list: one
  bool one_or_many = false;              // list
};

struct Key {
  std::string name;
  std::string doc;
  Type type;
  bool required = false;
  std::string otherwise;  // what applies without the key; empty: nothing to say
  int choice = -1;        // keys of one structure with the same number exclude each other
};

struct Choice {
  bool required = true;
  std::string otherwise;
};

struct Structure {
  std::string name;
  std::string doc;
  std::string shorthand;
  bool bare_names = false;
  std::vector<Key> keys;
  std::vector<Choice> choices;
};

/// The structures of a file, the file itself first, each before those that it is the first to use.
using Model = std::deque<Structure>;

[[nodiscard]] Model cluster_model();
[[nodiscard]] Model profile_model();
[[nodiscard]] Model job_model();
[[nodiscard]] Model scenario_model();
[[nodiscard]] Model nic_model();

}  // namespace nbx::config
