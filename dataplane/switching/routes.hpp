// The forwarding table of one switch: for each destination the ports that lead there by a shortest path, and which of
// them a packet takes. Plain data, filled by control.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/rng.hpp"
#include "switching/packet.hpp"

namespace nbx::switching {

enum class PathChoice : std::uint8_t {
  ecmp,      // by the flow's hash and the switch's seed; equal seeds polarise
  spray,     // each packet anew, by chance
  adaptive,  // the shortest queue of the packet's priority, the first of equals by chance
};

class Routes {
 public:
  Routes(PathChoice choice, std::uint64_t seed, std::size_t destinations)
      : choice_(choice), seed_(seed), first_(destinations + 1) {}

  /// Appends the ports that lead to the next destination; called once for each, in order.
  void add(const std::vector<PortIndex>& ports) {
    ports_.insert(ports_.end(), ports.begin(), ports.end());
    first_.at(++filled_) = static_cast<std::uint32_t>(ports_.size());
  }
  /// `flow` to `destination` takes `port`, whatever the choice.
  void pin(std::uint32_t flow, HostId destination, PortIndex port) {
    const Pin pin{flow, destination, port};
    pins_.insert(std::upper_bound(pins_.begin(), pins_.end(), pin), pin);
  }

  /// `queued(port)` is asked for adaptive choices only. no_port: there is no way.
  template <class Queued>
  [[nodiscard]] PortIndex pick(const Packet& packet, Rng& rng, Queued queued) const noexcept {
    if (packet.destination + 1 >= first_.size()) {
      return no_port;
    }
    const std::uint32_t first = first_[packet.destination];
    const std::uint32_t ways = first_[packet.destination + 1] - first;
    if (ways == 0) {
      return no_port;
    }
    if (!pins_.empty()) {
      const Pin wanted{packet.flow, packet.destination, no_port};
      const auto at = std::lower_bound(pins_.begin(), pins_.end(), wanted);
      if (at != pins_.end() && !(wanted < *at)) {
        return at->port;
      }
    }
    if (ways == 1) {
      return ports_[first];
    }
    switch (choice_) {
      case PathChoice::ecmp:
        return ports_[first + reduce(mix(packet.flow ^ seed_), ways)];
      case PathChoice::spray:
        return ports_[first + rng.below(ways)];
      case PathChoice::adaptive:
        return shortest(first, ways, static_cast<std::uint32_t>(rng.below(ways)), queued);
    }
    return no_port;
  }

 private:
  struct Pin {
    std::uint32_t flow;
    HostId destination;
    PortIndex port;
    friend bool operator<(const Pin& a, const Pin& b) {
      return a.flow != b.flow ? a.flow < b.flow : a.destination < b.destination;
    }
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

  PathChoice choice_;
  std::uint64_t seed_;
  std::size_t filled_ = 0;
  std::vector<std::uint32_t> first_;  // of each destination's ports
  std::vector<PortIndex> ports_;
  std::vector<Pin> pins_;  // sorted
};

}  // namespace nbx::switching
