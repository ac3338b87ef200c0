#include "config/reader.hpp"

namespace nbx::config {

void MappingReader::about(const About& about) {
  name_ = about.name;
  if (value_.kind == Value::Kind::mapping) {
    entries_ = &value_.entries;
    return;
  }
  if (about.bare_names && value_.kind == Value::Kind::scalar) {
    Value defaults;
    defaults.kind = Value::Kind::mapping;
    defaults.pos = value_.pos;
    written_out_.push_back({{value_.text, value_.pos}, std::move(defaults)});
  } else if (!about.shorthand.empty() && value_.kind != Value::Kind::null) {
    written_out_.push_back({{std::string(about.shorthand), value_.pos}, value_});
  } else {
    complain(value_, "a mapping (" + name_ + ") is needed here, not " + describe_kind(value_), out_);
    return;
  }
  entries_ = &written_out_;
}

const Entry* MappingReader::take(std::string_view key) {
  known_.emplace_back(key);
  if (entries_ == nullptr) {
    return nullptr;
  }
  const auto found =
      std::find_if(entries_->begin(), entries_->end(), [key](const Entry& entry) { return *entry.key == key; });
  return found == entries_->end() ? nullptr : &*found;
}

void MappingReader::missing(const std::string& what) {
  if (entries_ != nullptr) {
    complain(value_, name_ + " needs " + what, out_);
  }
}

void MappingReader::excluded(const Entry& entry, const Entry& by) {
  out_.push_back({entry.key.pos,
                  "'" + *entry.key + "' and '" + *by.key + "' exclude each other",
                  {{by.key.pos, "'" + *by.key + "' is here"}}});
}

void MappingReader::finish() {
  if (entries_ == nullptr) {
    return;
  }
  for (const Entry& entry : *entries_) {
    if (std::find(known_.begin(), known_.end(), *entry.key) == known_.end()) {
      out_.push_back(
          {entry.key.pos, "unknown key '" + *entry.key + "' in " + name_ + did_you_mean(*entry.key, known_)});
    }
  }
}

bool expect_word(const Value& value, const std::string& type, Diagnostics& out) {
  if (value.kind != Value::Kind::scalar) {
    complain(value, "a value (" + type + ") is needed here, not " + describe_kind(value), out);
    return false;
  }
  return true;
}

void complain(const Value& value, std::string message, Diagnostics& out) {
  out.push_back({value.pos, std::move(message)});
}

}  // namespace nbx::config
