// Open Traffic Generator (github.com/open-traffic-generator/models, MIT licence): a configuration whose devices have
// RoCEv2 peers with queue pairs, and whose stateful flows send on them. JSON is read as the YAML that it is too.
#include <algorithm>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>

#include "config/document.hpp"
#include "config/job_keys.hpp"
#include "import/import.hpp"
#include "import/words.hpp"

namespace nbx::import {
namespace {

using config::Value;

class Otg {
 public:
  explicit Otg(config::Diagnostics& out) : out_(out) {}

  bool read(const Value& root) {
    if (root.kind != Value::Kind::mapping) {
      return error(root, "an OTG configuration is wanted: an object");
    }
    leave_out(root, {"ports", "devices", "stateful_flows"});
    return each(root, "devices", [this](const Value& device) { return read_device(device); }) &&
           each(root, "devices", [this](const Value& device) { return read_interfaces(device); }) &&
           each(root, "stateful_flows", [this](const Value& flow) {
             leave_out(flow, {"choice", "rocev2"});
             return each(flow, "rocev2", [this](const Value& group) { return read_group(group); });
           });
  }

  [[nodiscard]] bool empty() const { return steps_.empty(); }
  [[nodiscard]] std::string yaml() const { return "job: imported-otg\neach_step:\n" + steps_; }

 private:
  bool error(const Value& at, std::string message) {
    out_.push_back({at.pos, std::move(message)});
    return false;
  }
  /// Keys that nobody reads.
  void leave_out(const Value& object, std::initializer_list<std::string_view> read) {
    for (const config::Entry& entry : object.entries) {
      if (std::find(read.begin(), read.end(), *entry.key) == read.end()) {
        warn(out_, entry.key.pos, import::quoted(*entry.key) + " has no counterpart in a job; without it");
      }
    }
  }

  /// The objects of a list, or the one that is there instead; nothing is an empty list.
  template <class Body>
  bool each(const Value& object, const char* key, Body body) {
    const config::Entry* const entry = object.find(key);
    if (entry == nullptr) {
      return true;
    }
    const auto one = [&](const Value& item) {
      return item.kind == Value::Kind::mapping ? body(item)
                                               : error(item, "an object is wanted in " + import::quoted(key));
    };
    return entry->value.kind == Value::Kind::sequence
               ? std::all_of(entry->value.items.begin(), entry->value.items.end(), one)
               : one(entry->value);
  }
  /// A word, which must be there.
  const Value* word(const Value& object, const char* key) {
    const config::Entry* const entry = object.find(key);
    if (entry == nullptr || entry->value.kind != Value::Kind::scalar || entry->value.text.empty()) {
      error(entry == nullptr ? object : entry->value, import::quoted(key) + " is wanted");
      return nullptr;
    }
    return &entry->value;
  }

  /// Each address is a rank.
  bool read_device(const Value& device) {
    leave_out(device, {"name", "ethernets", "rocev2"});
    return each(device, "ethernets", [this](const Value& ethernet) {
      leave_out(ethernet, {"name", "connection", "mac", "ipv4_addresses"});
      return each(ethernet, "ipv4_addresses", [this](const Value& ip) {
        leave_out(ip, {"name", "address", "prefix", "gateway"});
        const Value* const name = word(ip, "name");
        const Value* const address = word(ip, "address");
        if (name == nullptr || address == nullptr) {
          return false;
        }
        const auto rank = static_cast<std::uint32_t>(by_address_.size());
        if (!by_address_.emplace(address->text, rank).second || !by_name_.emplace(name->text, rank).second) {
          return error(ip, "a name or an address that another interface has");
        }
        return true;
      });
    });
  }

  bool read_interfaces(const Value& device) {
    return each(device, "rocev2", [this](const Value& rocev2) {
      leave_out(rocev2, {"ipv4_interfaces"});
      return each(rocev2, "ipv4_interfaces", [this](const Value& interface) {
        leave_out(interface, {"ipv4_name", "peers"});
        const Value* const name = word(interface, "ipv4_name");
        const auto from = name != nullptr ? by_name_.find(name->text) : by_name_.end();
        if (name != nullptr && from == by_name_.end()) {
          return error(*name, "no device has an IPv4 interface " + import::quoted(name->text));
        }
        return name != nullptr &&
               each(interface, "peers", [&](const Value& peer) { return read_peer(peer, from->second); });
      });
    });
  }

  bool read_peer(const Value& peer, std::uint32_t from) {
    leave_out(peer, {"name", "destination_ip_address", "qps"});
    const Value* const address = word(peer, "destination_ip_address");
    const auto to = address != nullptr ? by_address_.find(address->text) : by_address_.end();
    if (address == nullptr) {
      return false;
    }
    if (to == by_address_.end() || to->second == from) {
      return error(*address, "no other device has the address " + import::quoted(address->text));
    }
    return each(peer, "qps", [&](const Value& qp) {
      const Value* const name = word(qp, "qp_name");
      if (name == nullptr) {
        return false;
      }
      each(qp, "connection_type", [this](const Value& type) {
        return each(type, "reliable_connection", [this](const Value& settings) {
          leave_out(settings, {});
          return true;
        });
      });
      return queue_pairs_.emplace(name->text, Ends{from, to->second}).second ||
             error(*name, "another queue pair has the name " + import::quoted(name->text));
    });
  }

  bool read_group(const Value& group) {
    return each(group, "tx_ports", [this](const Value& port) {
      return each(port, "transmit_type", [this](const Value& type) {
        return each(type, "target_line_rate", [this](const Value& rate) {
          warn(out_, rate.pos,
               "flows go on for as long as the test does there; here each sends one message, as fast as its cable");
          return each(rate, "flows", [this](const Value& flow) { return read_flow(flow); });
        });
      });
    });
  }

  bool read_flow(const Value& flow) {
    leave_out(flow, {"tx_endpoint", "rx_endpoint", "name", "rocev2_verb", "message_size", "message_size_unit"});
    const Value* const name = word(flow, "name");
    const Value* const sender = word(flow, "tx_endpoint");
    if (name == nullptr || sender == nullptr) {
      return false;
    }
    const auto ends = queue_pairs_.find(sender->text);
    if (ends == queue_pairs_.end()) {
      return error(*sender, "there is no queue pair " + import::quoted(sender->text));
    }
    const auto bytes = bytes_of(flow);
    if (!bytes) {
      return false;
    }
    each(flow, "rocev2_verb", [this](const Value& verb) {
      const config::Entry* const choice = verb.find("choice");
      if (choice != nullptr && choice->value.text != "write") {
        warn(out_, choice->value.pos, import::quoted(choice->value.text) + " goes as an RDMA WRITE");
      }
      return true;
    });
    steps_ += "  - {flow: {from: " + std::to_string(ends->second.from) + ", to: " + std::to_string(ends->second.to) +
              ", bytes: " + std::to_string(*bytes) +
              "B}, name: " + nlohmann::json(name->text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) +
              ", after: []}\n";
    return true;
  }

  /// Units are powers of 1,024: the model's example takes 94,239,314 bytes for 89 MB.
  std::optional<std::uint64_t> bytes_of(const Value& flow) {
    const config::Entry* const size = flow.find("message_size");
    const config::Entry* const unit = flow.find("message_size_unit");
    const auto number = size == nullptr ? std::optional<std::uint64_t>{1} : whole(size->value.text);
    if (!number || *number == 0 || *number > 65535) {
      error(size->value, "a number from 1 to 65535 is wanted");
      return std::nullopt;
    }
    const std::string_view word = unit == nullptr ? "mb" : std::string_view(unit->value.text);
    constexpr std::string_view units[] = {"bytes", "kb", "mb", "gb"};
    const auto* const power = std::find(std::begin(units), std::end(units), word);
    const std::uint64_t bytes = *number << 10U * static_cast<unsigned>(power - std::begin(units));
    if (power == std::end(units) || bytes > config::message_limits.max) {
      error(unit == nullptr ? flow : unit->value, "bytes, kb, mb or gb is wanted, and 1 TiB at most in all");
      return std::nullopt;
    }
    return bytes;
  }

  struct Ends {
    std::uint32_t from;
    std::uint32_t to;
  };
  config::Diagnostics& out_;
  std::map<std::string, std::uint32_t> by_address_;
  std::map<std::string, std::uint32_t> by_name_;
  std::map<std::string, Ends> queue_pairs_;
  std::string steps_;
};

}  // namespace

Imported from_otg(const std::string& name, std::string_view text) {
  Imported out;
  const auto root = config::parse_document(name, std::string(text), out.diagnostics);
  if (!root) {
    return out;
  }
  Otg otg(out.diagnostics);
  if (!otg.read(*root)) {
    return out;
  }
  if (otg.empty()) {
    out.diagnostics.push_back({start_of(name), "no stateful RoCEv2 flow is in it"});
    return out;
  }
  out.yaml = otg.yaml();
  return out;
}

}  // namespace nbx::import
