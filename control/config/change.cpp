#include "config/change.hpp"

#include <algorithm>
#include <charconv>

namespace nbx::config {
namespace {

bool is_named(const Value& item, const std::string& name) {
  if (item.kind != Value::Kind::mapping || item.entries.empty()) {
    return false;
  }
  const Entry* entry = item.find("name");
  return entry != nullptr && entry->value.text == name;
}

/// The item of a list, by its number or name.
Value* item_of(Value& list, const std::string& word) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error == std::errc{} && end == word.data() + word.size()) {
    return number < list.items.size() ? &list.items[number] : nullptr;
  }
  const auto found =
      std::find_if(list.items.begin(), list.items.end(), [&](const Value& item) { return is_named(item, word); });
  return found == list.items.end() ? nullptr : &*found;
}

Value& entry_of(Value& mapping, const std::string& key, const SourcePos& pos) {
  for (Entry& entry : mapping.entries) {
    if (*entry.key == key) {
      return entry.value;
    }
  }
  Entry entry{{key, pos}, {}};
  entry.value.pos = pos;
  return mapping.entries.emplace_back(std::move(entry)).value;
}

}  // namespace

bool change(Value& root, const Located<std::string>& path, std::size_t skip, const Value& value, Diagnostics& out) {
  Value* at = &root;
  while (skip < path->size()) {
    const std::size_t end = std::min(path->find('.', skip), path->size());
    const std::string word = path->substr(skip, end - skip);
    const std::string before = path->substr(0, skip == 0 ? 0 : skip - 1);
    SourcePos here = path.pos;
    here.column += static_cast<std::uint32_t>(skip);
    skip = end + 1;
    if (at->kind == Value::Kind::null) {
      at->kind = Value::Kind::mapping;
    }
    switch (at->kind) {
      case Value::Kind::mapping:
        at = &entry_of(*at, word, here);
        break;
      case Value::Kind::sequence:
        if (Value* item = item_of(*at, word); item != nullptr) {
          at = item;
          break;
        }
        out.push_back({here, "'" + before + "' is a list of " + std::to_string(at->items.size()) +
                                 ": there is no item '" + word + "', by number from 0 or by name"});
        return false;
      case Value::Kind::scalar:
      case Value::Kind::null:
        out.push_back({here,
                       "'" + before + "' is " + describe_kind(*at) + " and has no '" + word + "'",
                       {{at->pos, "it is here"}}});
        return false;
    }
  }
  *at = value;
  return true;
}

Value tree_of(const std::vector<std::pair<std::string, std::string>>& values, Diagnostics& out) {
  Value root;
  root.kind = Value::Kind::mapping;
  for (const auto& [key, text] : values) {
    if (const std::optional<Value> value = parse_document(key, text, out)) {
      root.pos = value->pos;
      change(root, {key, value->pos}, 0, *value, out);
    }
  }
  return root;
}

}  // namespace nbx::config
