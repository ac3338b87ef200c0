// A PFC deadlock is a cycle in "waits for" among queues: a paused queue waits for the peer's ingress to fall below xon,
// which waits for the queues that hold its packets. A queue that a host pauses, or that may send, waits for nobody.
#include <map>
#include <tuple>

#include "switching/network.hpp"

namespace nbx::switching {
namespace {

struct Before {
  bool operator()(const QueuePlace& a, const QueuePlace& b) const {
    return std::tie(a.at, a.port, a.priority) < std::tie(b.at, b.port, b.priority);
  }
};

/// A paused queue, and which of the peer's queues hold how much of what it sent.
using Waits = std::map<QueuePlace, std::map<QueuePlace, std::uint64_t, Before>, Before>;

Waits paused_queues(const Network& network, SwitchId switches, Instant now) {
  Waits waits;
  for (SwitchId s = 0; s < switches; ++s) {
    for (PortIndex port = 0; port < network.at(s).ports(); ++port) {
      for (unsigned p = 0; p < priorities; ++p) {
        const EgressPort& out = network.at(s).port(port);
        if (!network.peer(s, port).end.host && out.queued(p) != 0 && out.paused(p, now)) {
          waits[{s, port, p}];
        }
      }
    }
  }
  for (auto& [place, holders] : waits) {
    const Network::Peer& peer = network.peer(place.at, place.port);
    const Switch& next = network.at(peer.end.index);
    for (PortIndex port = 0; port < next.ports(); ++port) {
      const QueuePlace holder{peer.end.index, port, place.priority};
      std::uint64_t bytes = 0;
      next.port(port).for_each_waiting(place.priority, [&bytes, &peer](const Packet& packet) {
        bytes += packet.ingress == peer.port ? packet.size : 0;
      });
      if (bytes != 0) {
        holders[holder] = bytes;
      }
    }
  }
  return waits;
}

/// Takes away what will move again, until nothing does.
void keep_stuck(const Network& network, Waits& waits) {
  for (bool changed = true; changed;) {
    changed = false;
    for (auto it = waits.begin(); it != waits.end();) {
      std::uint64_t stuck = 0;
      for (const auto& [holder, bytes] : it->second) {
        stuck += waits.count(holder) != 0 ? bytes : 0;
      }
      const SwitchId next = network.peer(it->first.at, it->first.port).end.index;
      if (network.at(next).buffer().holds_pause(it->first.priority, stuck)) {
        ++it;
      } else {
        it = waits.erase(it);
        changed = true;
      }
    }
  }
}

}  // namespace

std::optional<std::vector<QueuePlace>> find_deadlock(const Network& network, Instant now) {
  Waits waits = paused_queues(network, static_cast<SwitchId>(network.topology().switches.size()), now);
  keep_stuck(network, waits);
  if (waits.empty()) {
    return std::nullopt;
  }
  // Every queue that is left waits for one that is left: following them comes round.
  std::vector<QueuePlace> path{waits.begin()->first};
  while (true) {
    for (const auto& [holder, bytes] : waits[path.back()]) {
      if (waits.count(holder) != 0) {
        path.push_back(holder);
        break;
      }
    }
    for (std::size_t i = 0; i + 1 < path.size(); ++i) {
      if (path[i] == path.back()) {
        return std::vector<QueuePlace>(path.begin() + static_cast<std::ptrdiff_t>(i), path.end() - 1);
      }
    }
  }
}

std::string describe(const Network& network, const std::vector<QueuePlace>& cycle) {
  std::string text;
  const auto add = [&](const QueuePlace& place) {
    text += network.topology().switches[place.at] + " port " + std::to_string(place.port) + " priority " +
            std::to_string(place.priority);
  };
  for (const QueuePlace& place : cycle) {
    add(place);
    text += " -> ";
  }
  add(cycle.front());
  return text;
}

}  // namespace nbx::switching
