// Chakra execution traces (MLCommons; schema/protobuf/et_def.proto of github.com/mlcommons/chakra, MIT licence):
// messages of Protocol Buffers, each behind its length, first GlobalMetadata and then Nodes. Read by the schema's field
// numbers.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "config/job_keys.hpp"
#include "import/import.hpp"
#include "import/words.hpp"

namespace nbx::import {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// NodeType and CollectiveCommType.
enum NodeType : std::uint64_t { metadata = 1, mem_load, mem_store, computing, sending, receiving, collective };
enum Collective : std::uint64_t {
  all_reduce = 0,
  all_gather = 2,
  broadcast = 5,
  all_to_all = 6,
  reduce_scatter = 7,
  reduce_scatter_block = 8
};

constexpr std::uint64_t hour_us = 3'600'000'000;

struct Node {
  std::size_t byte = 0;  // where it begins
  std::uint64_t id = 0;
  std::string name;
  std::uint64_t type = 0;
  std::uint64_t duration_us = 0;
  std::vector<std::uint64_t> after;
  std::map<std::string, std::uint64_t> attributes;  // those that are integers
  std::string group;                                // process group, if the trace has one
  std::size_t level = 0;
};

class Chakra {
 public:
  Chakra(const std::string& name, std::string_view bytes, config::Diagnostics& out)
      : out_(out),
        file_(std::make_shared<const std::string>(name)),
        size_(bytes.size()),
        input_(reinterpret_cast<const std::uint8_t*>(bytes.data()), static_cast<int>(bytes.size())) {}

  bool read() {
    bool first = true;
    while (at() != size_) {
      const std::size_t start = at();
      std::uint32_t length = 0;
      if (!input_.ReadVarint32(&length)) {
        return fail(start, "the length of a message is wanted");
      }
      if (length > size_ - at()) {
        return fail(start, "a message of " + std::to_string(length) + " bytes, and the file ends after " +
                               std::to_string(size_ - at()));
      }
      const CodedInputStream::Limit limit = input_.PushLimit(static_cast<int>(length));
      Node node;
      node.byte = start;
      if (!(first ? skip_message() : read_node(node)) || !input_.ConsumedEntireMessage()) {
        return fail(at(), first ? "no GlobalMetadata as Chakra has it" : "no Node as Chakra has it");
      }
      input_.PopLimit(limit);
      if (!first) {
        nodes_.push_back(std::move(node));
      }
      first = false;
    }
    return !nodes_.empty() || fail(0, "a trace without a node");
  }

  /// Nodes that wait for none are of level 0, the others of one more than the last that they wait for.
  bool order() {
    std::unordered_map<std::uint64_t, std::size_t> by_id;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (!by_id.emplace(nodes_[i].id, i).second) {
        return fail(nodes_[i].byte, "node " + std::to_string(nodes_[i].id) + " is there twice");
      }
    }
    std::vector<std::vector<std::size_t>> behind(nodes_.size());
    std::vector<std::size_t> waits(nodes_.size());
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      for (const std::uint64_t id : nodes_[i].after) {
        const auto found = by_id.find(id);
        if (found == by_id.end()) {
          return fail(nodes_[i].byte, "node " + std::to_string(nodes_[i].id) + " waits for " + std::to_string(id) +
                                          ", which is not there");
        }
        behind[found->second].push_back(i);
        ++waits[i];
      }
    }
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (waits[i] == 0) {
        ready.push_back(i);
      }
    }
    for (std::size_t done = 0; done != ready.size(); ++done) {
      for (const std::size_t next : behind[ready[done]]) {
        nodes_[next].level = std::max(nodes_[next].level, nodes_[ready[done]].level + 1);
        if (--waits[next] == 0) {
          ready.push_back(next);
        }
      }
    }
    if (const auto stuck = std::find_if(waits.begin(), waits.end(), [](std::size_t n) { return n != 0; });
        stuck != waits.end()) {
      const Node& node = nodes_[static_cast<std::size_t>(stuck - waits.begin())];
      return fail(node.byte, "node " + std::to_string(node.id) + " waits for itself");
    }
    std::stable_sort(nodes_.begin(), nodes_.end(), [](const Node& a, const Node& b) { return a.level < b.level; });
    return true;
  }

  /// Empty: there was an error.
  std::string yaml() {
    std::string steps;
    std::unordered_map<std::uint64_t, std::set<std::string>> ends;  // by node: the operations with which it has ended
    for (const Node& node : nodes_) {
      const std::optional<std::string> operation = operation_of(node);
      if (!operation) {
        return {};
      }
      std::set<std::string> after;
      for (const std::uint64_t id : node.after) {
        after.insert(ends[id].begin(), ends[id].end());
      }
      if (operation->empty()) {
        ends[node.id] = std::move(after);
        continue;
      }
      const std::string name = nlohmann::json(node.name + " #" + std::to_string(node.id))
                                   .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
      steps += "  - {" + *operation + ", name: " + name + ", after: [";
      for (const std::string& each : after) {
        steps += each == *after.begin() ? each : ", " + each;
      }
      steps += "]}\n";
      ends[node.id] = {name};
    }
    if (steps.empty()) {
      fail(0, "nothing in it takes time or sends");
      return {};
    }
    return "job: imported-chakra\neach_step:\n" + steps;
  }

 private:
  [[nodiscard]] std::size_t at() const { return static_cast<std::size_t>(input_.CurrentPosition()); }
  [[nodiscard]] config::SourcePos place(std::size_t byte) const {
    config::SourcePos pos;
    pos.file = file_;
    pos.line = 1;
    pos.column = static_cast<std::uint32_t>(byte + 1);
    return pos;
  }
  bool fail(std::size_t byte, std::string message) {
    out_.push_back({place(byte), std::move(message)});
    return false;
  }
  bool skip_message() { return WireFormatLite::SkipMessage(&input_); }

  bool read_node(Node& node) {
    for (std::uint32_t tag = input_.ReadTag(); tag != 0; tag = input_.ReadTag()) {
      const bool right = tag == number_tag(1)                           ? input_.ReadVarint64(&node.id)
                         : tag == length_tag(2)                         ? WireFormatLite::ReadBytes(&input_, &node.name)
                         : tag == number_tag(3)                         ? input_.ReadVarint64(&node.type)
                         : tag == number_tag(4) || tag == number_tag(5) ? read_number_into(node.after)
                         : tag == length_tag(4) || tag == length_tag(5) ? read_in(&Chakra::read_numbers, node.after)
                         : tag == number_tag(7)                         ? input_.ReadVarint64(&node.duration_us)
                         : tag == length_tag(10)                        ? read_in(&Chakra::read_attribute, node)
                                                                        : WireFormatLite::SkipField(&input_, tag);
      if (!right) {
        return false;
      }
    }
    return true;
  }
  static constexpr std::uint32_t number_tag(std::uint32_t field) { return field << 3U; }
  static constexpr std::uint32_t length_tag(std::uint32_t field) { return field << 3U | 2U; }

  bool read_number_into(std::vector<std::uint64_t>& to) {
    to.push_back(0);
    return input_.ReadVarint64(&to.back());
  }
  /// What is behind a length.
  template <class T>
  bool read_in(bool (Chakra::*body)(T&), T& to) {
    std::uint32_t length = 0;
    if (!input_.ReadVarint32(&length) || length > size_ - at()) {
      return false;
    }
    const CodedInputStream::Limit limit = input_.PushLimit(static_cast<int>(length));
    const bool right = (this->*body)(to) && input_.BytesUntilLimit() == 0;
    input_.PopLimit(limit);
    return right;
  }
  bool read_numbers(std::vector<std::uint64_t>& to) {
    while (input_.BytesUntilLimit() > 0) {
      if (!read_number_into(to)) {
        return false;
      }
    }
    return true;
  }
  bool read_attribute(Node& to) {
    std::string name;
    std::string text;
    std::optional<std::uint64_t> value;
    for (std::uint32_t tag = input_.ReadTag(); tag != 0; tag = input_.ReadTag()) {
      std::uint64_t number = 0;
      // int32_val, int64_val, uint32_val, uint64_val.
      const bool whole_number =
          tag == number_tag(7) || tag == number_tag(9) || tag == number_tag(11) || tag == number_tag(13);
      const bool right = whole_number            ? input_.ReadVarint64(&number)
                         : tag == length_tag(1)  ? WireFormatLite::ReadBytes(&input_, &name)
                         : tag == length_tag(29) ? WireFormatLite::ReadBytes(&input_, &text)  // string_val
                                                 : WireFormatLite::SkipField(&input_, tag);
      if (!right) {
        return false;
      }
      value = whole_number ? std::optional(number) : value;
    }
    if (value) {
      to.attributes[name] = *value;
    }
    // Those of Chakra's converters, and the dimensions of ASTRA-sim's.
    if (name == "pg_name" || name == "comm_group" || name == "involved_dim") {
      to.group = name + (text.empty() ? "" : " " + import::quoted(text));
    }
    return true;
  }

  std::optional<std::uint64_t> attribute(const Node& node, const char* name, std::uint64_t most) {
    const auto found = node.attributes.find(name);
    if (found == node.attributes.end() || found->second > most) {
      fail(node.byte, "node " + std::to_string(node.id) + " needs a '" + name + "' to " + std::to_string(most));
      return std::nullopt;
    }
    return found->second;
  }

  /// "compute: 5us"; empty: it takes no time here. None: it is wrong.
  std::optional<std::string> operation_of(const Node& node) {
    switch (node.type) {
      case metadata:
        return "";
      case computing:
        if (node.duration_us > hour_us) {
          fail(node.byte, "node " + std::to_string(node.id) + " computes for more than an hour");
          return std::nullopt;
        }
        return node.duration_us == 0 ? "" : "compute: " + std::to_string(node.duration_us) + "us";
      case sending:
      case receiving:
        return flow_of(node);
      case collective:
        return collective_of(node);
      default:
        warn(out_, place(node.byte),
             "node " + std::to_string(node.id) + " of type " + std::to_string(node.type) + " is left out");
        return "";
    }
  }

  std::optional<std::string> flow_of(const Node& node) {
    constexpr std::uint64_t rank_max = std::numeric_limits<std::uint32_t>::max();
    const auto from = attribute(node, "comm_src", rank_max);
    const auto to = attribute(node, "comm_dst", rank_max);
    const auto bytes = attribute(node, "comm_size", config::message_limits.max);
    if (!from || !to || !bytes) {
      return std::nullopt;
    }
    if (*bytes == 0) {
      return "";
    }
    return "flow: {from: " + std::to_string(*from) + ", to: " + std::to_string(*to) +
           ", bytes: " + std::to_string(*bytes) + "B}";
  }

  std::optional<std::string> collective_of(const Node& node) {
    const auto kind = attribute(node, "comm_type", std::numeric_limits<std::uint32_t>::max());
    const auto bytes = attribute(node, "comm_size", config::message_limits.max);
    if (!kind || !bytes) {
      return std::nullopt;
    }
    const char* const name = *kind == all_reduce                                        ? "all_reduce"
                             : *kind == all_gather                                      ? "all_gather"
                             : *kind == broadcast                                       ? "broadcast"
                             : *kind == all_to_all                                      ? "all_to_all"
                             : *kind == reduce_scatter || *kind == reduce_scatter_block ? "reduce_scatter"
                                                                                        : nullptr;
    if (name == nullptr || *bytes == 0) {
      warn(out_, place(node.byte),
           "node " + std::to_string(node.id) + ": a collective of type " + std::to_string(*kind) + " and " +
               std::to_string(*bytes) + " bytes is left out");
      return "";
    }
    if (!node.group.empty()) {
      warn(out_, place(node.byte),
           "node " + std::to_string(node.id) + ": its process group, " + node.group +
               ", is not honoured: all ranks take part");
    }
    if (*kind == all_gather || *kind >= reduce_scatter) {
      warn(out_, place(node.byte),
           "node " + std::to_string(node.id) + ": its size is taken for that of the whole vector of all ranks");
    }
    return std::string(name) + ": " + std::to_string(*bytes) + "B";
  }

  config::Diagnostics& out_;
  std::shared_ptr<const std::string> file_;
  std::size_t size_;
  CodedInputStream input_;
  std::vector<Node> nodes_;
};

}  // namespace

Imported from_chakra(const std::string& name, std::string_view bytes) {
  Imported out;
  constexpr std::size_t bytes_max = 1U << 30U;
  if (bytes.size() > bytes_max) {
    out.diagnostics.push_back({start_of(name), "a trace of more than 1 GiB"});
    return out;
  }
  Chakra trace(name, bytes, out.diagnostics);
  if (trace.read() && trace.order()) {
    out.yaml = trace.yaml();
  }
  return out;
}

}  // namespace nbx::import
