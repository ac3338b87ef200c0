// The forwarding table of one switch: for each destination the ports that lead there by a shortest path, and which of
// them a packet takes. Plain data, filled by control.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/rng.hpp"
#include "switching/packet.hpp"

namespace nbx::switching {

enum class PathChoice : std::uint8_t {
  ecmp,      // by the flow's hash and the switch's seed; equal seeds polarise
  spray,     // each packet anew, by chance
  adaptive,  // each packet to the shortest queue of its priority, the first of equals by chance
  flowlet,   // as adaptive, but anew only after a gap in the flow: no reordering if the gap outlasts the paths'
             // difference
};

struct PathSpec {
  PathChoice choice = PathChoice::ecmp;
  Duration flowlet_gap{};
  std::uint32_t flowlets = 4096;  // remembered by a switch, a power of two; flows that share a place share a path
};

class Routes {
 public:
  Routes(const PathSpec& spec, std::uint64_t seed, std::size_t destinations)
      : spec_(spec), seed_(seed), first_(destinations + 1) {
    if (spec.choice == PathChoice::flowlet) {
      flowlets_.resize(spec.flowlets);
    }
  }

  /// Appends the ports that lead to the next destination; called once for each, in order.
  void add(const std::vector<PortIndex>& ports) {
    ports_.insert(ports_.end(), ports.begin(), ports.end());
    first_.at(++filled_) = static_cast<std::uint32_t>(ports_.size());
  }
  /// What is `flow` to `destination` takes `port`, whatever the choice: see Packet::pinned_as.
  void pin(std::uint64_t flow, HostId destination, PortIndex port) {
    const Pin pin{flow, destination, port};
    pins_.insert(std::upper_bound(pins_.begin(), pins_.end(), pin), pin);
  }

  /// `queued(port)` is asked for adaptive choices only. no_port: there is no way.
  template <class Queued>
  [[nodiscard]] PortIndex pick(const Packet& packet, Instant now, Rng& rng, Queued queued) noexcept {
    if (packet.destination + 1 >= first_.size()) {
      return no_port;
    }
    const std::uint32_t first = first_[packet.destination];
    const std::uint32_t ways = first_[packet.destination + 1] - first;
    if (ways == 0) {
      return no_port;
    }
    if (!pins_.empty()) {
      const Pin wanted{packet.pinned_as(), packet.destination, no_port};
      const auto at = std::lower_bound(pins_.begin(), pins_.end(), wanted);
      if (at != pins_.end() && !(wanted < *at)) {
        return at->port;
      }
    }
    if (ways == 1) {
      return ports_[first];
    }
    switch (spec_.choice) {
      case PathChoice::ecmp:
        return ports_[first + reduce(mix(packet.flow ^ seed_), ways)];
      case PathChoice::spray:
        return ports_[first + rng.below(ways)];
      case PathChoice::adaptive:
        return shortest(first, ways, static_cast<std::uint32_t>(rng.below(ways)), queued);
      case PathChoice::flowlet: {
        Flowlet& flowlet = flowlets_[mix(packet.flow ^ seed_) % spec_.flowlets];
        if (now > flowlet.last + spec_.flowlet_gap) {
          flowlet.port = shortest(first, ways, static_cast<std::uint32_t>(rng.below(ways)), queued);
        }
        flowlet.last = now;
        return flowlet.port;
      }
    }
    return no_port;
  }

  /// The next way after `port` for which `usable(port)`, or no_port: what a switch does when a link of its own is down.
  template <class Usable>
  [[nodiscard]] PortIndex other_than(PortIndex port, HostId destination, Usable usable) const noexcept {
    const std::uint32_t first = first_[destination];
    const std::uint32_t ways = first_[destination + 1] - first;
    const auto begin = ports_.begin() + first;
    const auto at = static_cast<std::uint32_t>(std::find(begin, begin + ways, port) - begin);
    for (std::uint32_t i = 1; i <= ways; ++i) {
      const PortIndex candidate = ports_[first + (at + i) % ways];
      if (usable(candidate)) {
        return candidate;
      }
    }
    return no_port;
  }

 private:
  struct Pin {
    std::uint64_t flow;
    HostId destination;
    PortIndex port;
    friend bool operator<(const Pin& a, const Pin& b) {
      return a.flow != b.flow ? a.flow < b.flow : a.destination < b.destination;
    }
  };

  struct Flowlet {
    Instant last{std::numeric_limits<std::int64_t>::min() / 2};
    PortIndex port = no_port;
  };

  /// The finaliser of splitmix64: every bit of the input reaches every bit of the output.
  static constexpr std::uint64_t mix(std::uint64_t z) noexcept {
    z = (z ^ (z >> 30U)) * 0xbf58'476d'1ce4'e5b9ULL;
    z = (z ^ (z >> 27U)) * 0x94d0'49bb'1331'11ebULL;
    return z ^ (z >> 31U);
  }
  static constexpr std::uint32_t reduce(std::uint64_t hash, std::uint32_t bound) noexcept {
    return static_cast<std::uint32_t>(((hash >> 32U) * bound) >> 32U);
  }
  template <class Queued>
  [[nodiscard]] PortIndex shortest(std::uint32_t first, std::uint32_t ways, std::uint32_t start,
                                   Queued queued) const noexcept {
    PortIndex best = ports_[first + start];
    std::uint64_t least = queued(best);
    for (std::uint32_t i = 1; i < ways; ++i) {
      const PortIndex port = ports_[first + (start + i) % ways];
      const std::uint64_t bytes = queued(port);
      if (bytes < least) {
        least = bytes;
        best = port;
      }
    }
    return best;
  }

  PathSpec spec_;
  std::uint64_t seed_;
  std::size_t filled_ = 0;
  std::vector<std::uint32_t> first_;  // of each destination's ports
  std::vector<PortIndex> ports_;
  std::vector<Pin> pins_;  // sorted
  std::vector<Flowlet> flowlets_;
};

}  // namespace nbx::switching
