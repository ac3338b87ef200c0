// Transit between ports: a learning bridge without shared state. Each shard learns which port a MAC is behind from
// the frames that the port's shard sends it, and floods what it does not know, as IEEE 802.1D 7.8 does.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/net.hpp"
#include "frame/pool.hpp"
#include "stats/counters.hpp"

namespace nbx::pipeline {

/// For the other end of a cable, such as LLDP: no bridge passes it on (IEEE 802.1Q table 8-1).
inline bool is_for_one_cable(const Mac& mac) noexcept {
  constexpr std::array<std::uint8_t, 5> reserved{0x01, 0x80, 0xc2, 0x00, 0x00};
  return std::equal(reserved.begin(), reserved.end(), mac.octets.begin()) && mac.octets[5] < 0x10;
}

class Bridge {
 public:
  /// `known` in advance; so many more are learned.
  Bridge(PortId self, std::uint32_t ports, const std::vector<std::pair<Mac, PortId>>& known)
      : self_(self), queues_(ports), learned_(known.begin(), known.end()), macs_(known.size() + macs_learned) {
    learned_.reserve(macs_);
  }

  [[nodiscard]] bool has_peers() const noexcept { return queues_.size() > 1; }
  [[nodiscard]] FrameList& queue(PortId peer) noexcept { return queues_[index(peer)]; }
  /// The port that `mac` is behind, if that is known.
  [[nodiscard]] std::optional<PortId> find(const Mac& mac) const noexcept {
    const auto known = learned_.empty() ? learned_.end() : learned_.find(mac);
    return known != learned_.end() ? std::optional(known->second) : std::nullopt;
  }

  void learn(const Mac& mac, PortId peer) noexcept {
    const auto known = learned_.find(mac);
    if (known != learned_.end()) {
      known->second = peer;
    } else if (learned_.size() < macs_ && !mac.is_multicast()) {
      learned_.emplace(mac, peer);
    }
  }

  /// Queues `frame` for the port that `destination` is behind, or a copy for every other port.
  void forward(Frame& frame, const Mac& destination, FramePool& pool, Counters& counters) noexcept {
    if (const std::optional<PortId> known = find(destination)) {
      push(frame, *known, counters);
      return;
    }
    copy_to_all(frame, pool, counters);
    pool.free(frame);
  }

  /// Queues copies for every other port.
  void copy_to_all(const Frame& frame, FramePool& pool, Counters& counters) noexcept {
    for_each_copy(frame, pool, counters, [&](Frame& copy, PortId port) { push(copy, port, counters); });
  }
  /// Hands `take` a copy for every other port.
  template <class Take>
  void for_each_copy(const Frame& frame, FramePool& pool, Counters& counters, Take&& take) noexcept {
    for (std::uint8_t i = 0; i < queues_.size(); ++i) {
      if (PortId{i} == self_) {
        continue;
      }
      Frame* copy = pool.alloc(frame.size);
      if (copy == nullptr) {
        counters.count(Drop::frame_pool_empty);
        continue;
      }
      std::memcpy(copy->data, frame.data, frame.size);
      copy->parsed = frame.parsed;
      take(*copy, PortId{i});
    }
  }

  void free_all(FramePool& pool) noexcept {
    for (FrameList& queue : queues_) {
      pool.free_all(queue);
    }
  }

 private:
  static constexpr std::size_t macs_learned = 4096;

  struct MacHash {
    std::size_t operator()(const Mac& m) const noexcept {
      std::uint64_t v = 0;
      std::memcpy(&v, m.octets.data(), m.octets.size());
      return static_cast<std::size_t>((v * 0x9e37'79b9'7f4a'7c15ULL) >> 20U);
    }
  };

  void push(Frame& frame, PortId peer, Counters& counters) noexcept {
    counters.count(Counter::transit_packets);
    queue(peer).push_back(frame);
  }
  PortId self_;
  std::deque<FrameList> queues_;  // by port; lists do not move
  std::unordered_map<Mac, PortId, MacHash> learned_;
  std::size_t macs_;
};

}  // namespace nbx::pipeline
