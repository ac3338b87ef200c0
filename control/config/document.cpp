#include "config/document.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

namespace nbx::config {
namespace {

constexpr std::size_t nodes_max = 500'000;  // aliases of aliases grow exponentially

std::size_t node_count(const Value& value) {
  std::size_t n = 1;
  for (const Value& item : value.items) {
    n += node_count(item);
  }
  for (const Entry& entry : value.entries) {
    n += node_count(entry.value);
  }
  return n;
}

/// Builds the tree from the parser's events.
class Builder final : public YAML::EventHandler {
 public:
  Builder(std::shared_ptr<const std::string> file, Diagnostics& out) : file_(std::move(file)), out_(out) {}

  [[nodiscard]] SourcePos pos(const YAML::Mark& mark) const {
    if (mark.is_null()) {
      return {file_, 1, 1};
    }
    return {file_, static_cast<std::uint32_t>(mark.line) + 1, static_cast<std::uint32_t>(mark.column) + 1};
  }
  [[nodiscard]] Value take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Value value;
    value.pos = open_.empty() || !open_.back().key ? pos(mark) : open_.back().key->pos;
    finish(std::move(value), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto known = anchors_.find(anchor);
    Value value;
    value.pos = pos(mark);
    if (known == anchors_.end()) {
      out_.push_back({pos(mark), "an alias of the node that it stands in"});
    } else {
      value = known->second;
      nodes_ += node_count(value);
      if (nodes_ > nodes_max) {
        throw YAML::ParserException(mark, "the aliases make the document too large");
      }
    }
    finish(std::move(value), YAML::NullAnchor);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    Value value;
    value.kind = Value::Kind::scalar;
    value.pos = pos(mark);
    value.text = text;
    value.quoted = tag == "!";  // yaml-cpp's tag of a quoted scalar; plain ones have "?"
    finish(std::move(value), anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    begin(Value::Kind::sequence, mark, anchor);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    begin(Value::Kind::mapping, mark, anchor);
  }
  void OnMapEnd() override {
    merge(open_.back().value);
    end();
  }

 private:
  struct Open {
    Value value;
    YAML::anchor_t anchor = YAML::NullAnchor;
    std::optional<Located<std::string>> key{};  // read, its value not yet
  };

  void begin(Value::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    Value value;
    value.kind = kind;
    value.pos = pos(mark);
    open_.push_back({std::move(value), anchor});
  }
  void end() {
    Open done = std::move(open_.back());
    open_.pop_back();
    finish(std::move(done.value), done.anchor);
  }

  /// Puts a finished node where it belongs.
  void finish(Value value, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) {
      anchors_[anchor] = value;
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    Open& parent = open_.back();
    if (parent.value.kind == Value::Kind::sequence) {
      parent.value.items.push_back(std::move(value));
    } else if (!parent.key) {
      if (value.kind != Value::Kind::scalar) {
        out_.push_back({value.pos, "a key is a word, not " + describe_kind(value)});
      }
      parent.key = Located<std::string>{value.text, value.pos};
    } else {
      add(parent.value, {std::move(*parent.key), std::move(value)});
      parent.key.reset();
    }
  }

  void add(Value& mapping, Entry entry) {
    const Entry* earlier = mapping.find(*entry.key);
    if (earlier != nullptr && *entry.key != "<<") {
      out_.push_back(
          {entry.key.pos, "duplicate key '" + *entry.key + "'", {{earlier->key.pos, "the first one is here"}}});
      return;
    }
    mapping.entries.push_back(std::move(entry));
  }

  /// https://yaml.org/type/merge.html: keys of the mapping itself win, then those of the first merged one.
  void merge(Value& mapping) {
    std::vector<Entry> own;
    std::vector<Value> merged;
    for (Entry& entry : mapping.entries) {
      if (*entry.key != "<<") {
        own.push_back(std::move(entry));
      } else if (entry.value.kind == Value::Kind::sequence) {
        merged.insert(merged.end(), entry.value.items.begin(), entry.value.items.end());
      } else {
        merged.push_back(std::move(entry.value));
      }
    }
    mapping.entries = std::move(own);
    for (const Value& value : merged) {
      if (value.kind != Value::Kind::mapping) {
        out_.push_back({value.pos, "'<<' merges mappings, not " + describe_kind(value)});
      }
      for (const Entry& entry : value.entries) {
        if (mapping.find(*entry.key) == nullptr) {
          mapping.entries.push_back(entry);
        }
      }
    }
  }

  std::shared_ptr<const std::string> file_;
  Diagnostics& out_;
  Value root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, Value> anchors_;
  std::size_t nodes_ = 0;
};

}  // namespace

const Entry* Value::find(const std::string& key) const {
  for (const Entry& entry : entries) {
    if (*entry.key == key) {
      return &entry;
    }
  }
  return nullptr;
}

std::string describe_kind(const Value& value) {
  switch (value.kind) {
    case Value::Kind::null:
      return "nothing";
    case Value::Kind::scalar:
      return "'" + value.text + "'";
    case Value::Kind::sequence:
      return "a list";
    case Value::Kind::mapping:
      return "a mapping";
  }
  return {};
}

std::optional<Value> parse_document(const std::string& file, const std::string& text, Diagnostics& out) {
  const std::size_t before = out.size();
  Builder builder(std::make_shared<const std::string>(file), out);
  std::istringstream stream(text);
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) {
      out.push_back({builder.pos(YAML::Mark::null_mark()), "the file is empty"});
      return std::nullopt;
    }
    Value root = builder.take();
    if (parser.HandleNextDocument(builder)) {
      out.push_back({builder.take().pos, "a second document; there is one per file"});
    }
    // Duplicate keys and the like do not hide the mistakes behind them.
    return root.kind == Value::Kind::null && out.size() != before ? std::nullopt : std::optional(std::move(root));
  } catch (const YAML::Exception& e) {
    out.push_back({builder.pos(e.mark), "YAML syntax: " + e.msg});
    return std::nullopt;
  }
}

std::optional<Value> read_document(const std::string& file, Diagnostics& out) {
  std::ifstream in(file, std::ios::binary);
  std::string text;
  std::array<char, 65536> chunk{};
  while (in.read(chunk.data(), chunk.size()) || in.gcount() != 0) {
    text.append(chunk.data(), static_cast<std::size_t>(in.gcount()));
  }
  if (!in.eof()) {
    Diagnostic& unreadable = out.emplace_back();
    unreadable.pos.file = std::make_shared<const std::string>(file);
    unreadable.message = std::string("cannot be read: ") + std::strerror(errno);
    return std::nullopt;
  }
  return parse_document(file, text, out);
}

}  // namespace nbx::config
