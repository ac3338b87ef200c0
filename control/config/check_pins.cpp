// Pinned routes against the topology: who is pinned, and whether the way exists, is taken and arrives.
#include <algorithm>
#include <optional>

#include "config/checks.hpp"

namespace nbx::config {
namespace {

/// The ends of pins are hosts, their ways exist, are taken, and lead to the receiver.
class PinChecker {
 public:
  PinChecker(const switching::Topology& topology, const ClusterConfig& config, Diagnostics& out)
      : topology_(topology),
        names_(host_names(config)),
        ports_(switching::neighbours(topology)),
        ways_(switching::shortest_paths(topology)),
        config_(config),
        out_(out) {}

  void check(const Pin& pin) {
    const auto from = hosts_of(pin.from);
    const auto to = hosts_of(pin.to);
    const std::optional<std::vector<switching::LinkId>> path = links_of_path(pin);
    if (!path || path->empty() || from.empty() || to.empty()) {
      return;
    }
    for (const switching::HostId sender : from) {
      for (const switching::HostId receiver : to) {
        if (sender == receiver) {
          out_.push_back({pin.to.pos, "'" + *pin.to + "' would send to itself"});
          return;
        }
        if (!check_way(pin, *path, sender, receiver)) {
          return;
        }
      }
    }
  }

 private:
  std::vector<switching::HostId> hosts_of(const Located<std::string>& word) {
    auto hosts = hosts_named(word, config_);
    if (hosts.empty() && word.given()) {
      std::vector<std::string> known = names_;
      known.emplace_back(node_word);
      for (const Ghost& ghost : config_.ghosts) {
        known.push_back(ghost.group);
      }
      out_.push_back({word.pos, "no ghost is called '" + *word + "'" + did_you_mean(*word, known)});
    }
    return hosts;
  }

  std::optional<std::vector<switching::LinkId>> links_of_path(const Pin& pin) {
    std::vector<switching::LinkId> path;
    for (const Located<std::string>& word : pin.path) {
      const auto links = links_of(topology_, *word, names_);
      if (!word.given() || links.size() != 1 || switching::sender(topology_, links[0]).host ||
          switching::receiver(topology_, links[0]).host) {
        complain(word, links);
        return std::nullopt;
      }
      if (!path.empty() && switching::receiver(topology_, path.back()) != switching::sender(topology_, links[0])) {
        out_.push_back({word.pos, "'" + *word + "' does not begin at " +
                                      name(switching::receiver(topology_, path.back())) +
                                      ", where the cable before it ends"});
        return std::nullopt;
      }
      path.push_back(links[0]);
    }
    return path;
  }

  void complain(const Located<std::string>& word, const std::vector<switching::LinkId>& links) {
    if (!word.given()) {
      return;
    }
    const bool one_way = word->find("->") != std::string::npos;
    out_.push_back({word.pos, links.empty()      ? no_cable(topology_, *word, names_)
                              : !one_way         ? "a way has a direction: leaf0->spine1 is what leaf0 sends"
                              : links.size() > 1 ? "there are " + std::to_string(links.size()) + " cables '" + *word +
                                                       "': '" + *word + ".0' is the first"
                                                 : "a way is of cables between switches; a host has only one cable"});
  }

  bool check_way(const Pin& pin, const std::vector<switching::LinkId>& path, switching::HostId from,
                 switching::HostId to) {
    const switching::SwitchId first = switching::sender(topology_, path.front()).index;
    if (!passes(leaf_of(from), to)[first]) {
      out_.push_back({pin.path.front().pos, "nothing from '" + *pin.from + "' to '" + *pin.to + "' comes by " +
                                                topology_.switches[first] + ": it is on no shortest path"});
      return false;
    }
    const std::vector<bool> behind = passes(switching::receiver(topology_, path.back()).index, to);
    for (const switching::LinkId link : path) {
      const switching::SwitchId at = switching::sender(topology_, link).index;
      if (behind[at]) {
        out_.push_back({pin.path.back().pos, "from " + name(switching::receiver(topology_, path.back())) +
                                                 " on, the way to '" + *pin.to + "' leads back to " +
                                                 topology_.switches[at]});
        return false;
      }
    }
    return true;
  }

  [[nodiscard]] switching::SwitchId leaf_of(switching::HostId host) const {
    const switching::Topology::End end{.host = true, .index = host};
    const auto cable = std::find_if(topology_.cables.begin(), topology_.cables.end(),
                                    [&](const auto& c) { return c.a == end || c.b == end; });
    return cable->a == end ? cable->b.index : cable->a.index;
  }
  /// The switches on shortest paths from one of them to a host.
  [[nodiscard]] std::vector<bool> passes(switching::SwitchId from, switching::HostId to) const {
    std::vector<bool> seen(topology_.switches.size());
    std::vector<switching::SwitchId> open{from};
    while (!open.empty()) {
      const switching::SwitchId at = open.back();
      open.pop_back();
      if (seen[at]) {
        continue;
      }
      seen[at] = true;
      for (const switching::PortIndex port : ways_[at][to]) {
        if (const switching::Topology::End& next = ports_[at][port].end; !next.host) {
          open.push_back(next.index);
        }
      }
    }
    return seen;
  }
  [[nodiscard]] std::string name(const switching::Topology::End& end) const { return topology_.switches[end.index]; }

  const switching::Topology& topology_;
  std::vector<std::string> names_;
  std::vector<std::vector<switching::Neighbour>> ports_;
  std::vector<std::vector<std::vector<switching::PortIndex>>> ways_;
  const ClusterConfig& config_;
  Diagnostics& out_;
};

}  // namespace

void check_pins(const Network& network, const switching::Topology& topology, const ClusterConfig& config,
                Diagnostics& out) {
  if (network.pins.empty()) {
    return;
  }
  PinChecker pins(topology, config, out);
  for (const Pin& pin : network.pins) {
    pins.check(pin);
  }
}

}  // namespace nbx::config
