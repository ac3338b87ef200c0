// One word, one meaning: what pins, traffic, failures, captures and commands call a port, a node or a ghost.
#include <algorithm>
#include <map>
#include <set>

#include "config/checks.hpp"

namespace nbx::config {
namespace {

/// What a word means, and where the file says so.
struct Meaning {
  std::string what;
  SourcePos pos;
};

class NameChecker {
 public:
  NameChecker(const ClusterConfig& config, Diagnostics& out) : config_(config), out_(out) {}

  void check() {
    for (const Port& port : config_.ports) {
      meanings_.try_emplace(*port.name, Meaning{"a port", port.name.pos});
    }
    add_groups();
    if (config_.network) {
      meanings_.try_emplace(node_word, Meaning{"every real node of the network", config_.network->topology.pos});
    }
    for (const Node& node : config_.nodes) {
      const bool only_one = *node.name == node_word && config_.ports.size() == 1;
      if (*node.name != *node.port && !only_one) {  // a real node may be called as its port
        complain(node.name, "a real node");
      }
    }
    for (const Ghost& ghost : config_.ghosts) {
      complain(ghost.name, "a ghost");
    }
  }

  /// Of a sound topology: the words for its own hosts and switches in the names of cables.
  void check(const switching::Topology& topology) {
    std::map<std::string, std::size_t> places;  // of hosts by the topology's words
    for (std::size_t i = 0; i < topology.hosts.size(); ++i) {
      places.emplace(topology.hosts[i], i);
    }
    const std::vector<NetworkHost> hosts = hosts_of(config_);
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      const std::string& name = hosts[i].name;
      const SourcePos& pos = hosts[i].ghost != nullptr ? hosts[i].ghost->name.pos : hosts[i].port->name.pos;
      if (const auto place = places.find(name); place != places.end() && place->second != i) {
        out_.push_back({pos,
                        "'" + name + "' is the network's host " + std::to_string(i) + ", and the topology calls host " +
                            std::to_string(place->second) + " so",
                        {{config_.network->topology.pos, "the topology is here"}}});
      }
      if (std::find(topology.switches.begin(), topology.switches.end(), name) != topology.switches.end()) {
        out_.push_back({pos,
                        "'" + name + "' is a host of the network, and a switch of the topology is called so",
                        {{config_.network->topology.pos, "the topology is here"}}});
      }
    }
  }

 private:
  /// The common name of ghosts with a count, which none of them has.
  void add_groups() {
    std::set<std::string> seen;
    for (const Ghost& ghost : config_.ghosts) {
      if (ghost.group == *ghost.name || !seen.insert(ghost.group).second) {
        continue;
      }
      const Meaning own{"the common name of several ghosts", ghost.name.pos};
      if (const auto [other, fresh] = meanings_.try_emplace(ghost.group, own); !fresh) {
        say(ghost.group, own.pos, own.what, other->second);
      }
    }
  }

  void complain(const Located<std::string>& name, const std::string& what) {
    if (const auto other = meanings_.find(*name); name.given() && other != meanings_.end()) {
      say(*name, name.pos, what, other->second);
    }
  }
  void say(const std::string& name, const SourcePos& pos, const std::string& what, const Meaning& other) {
    out_.push_back({pos,
                    "'" + name + "' is " + what + " here, and also " + other.what + ": one word, one meaning",
                    {{other.pos, "the other one is here"}}});
  }

  const ClusterConfig& config_;
  Diagnostics& out_;
  std::map<std::string, Meaning> meanings_;
};

}  // namespace

void check_names(const ClusterConfig& config, Diagnostics& out) { NameChecker(config, out).check(); }

void check_names(const switching::Topology& topology, const ClusterConfig& config, Diagnostics& out) {
  NameChecker(config, out).check(topology);
}

}  // namespace nbx::config
