// Shards of one thread in a time that it tells them: how replays, simulations and tests drive one port or all ports of
// a cluster. The worker does the same between bursts of its devices.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "pipeline/emulated_network.hpp"
#include "pipeline/shard.hpp"

namespace nbx::pipeline {

class ShardGroup {
 public:
  /// `network`: of all ports, and in the shards' environments; null: there is none, or each shard has its own.
  explicit ShardGroup(SharedNetwork* network = nullptr) : network_(network) {}

  /// Before start(). `ports`: of the cluster; what a shard sends to one that is not added is released.
  void add(Shard& shard, PortId port, std::uint32_t ports) { members_.push_back({&shard, port, ports}); }

  void start(Instant now) {
    if (network_ != nullptr) {
      network_->network.start(now);
    }
    for (const Member& member : members_) {
      member.shard->start(now);
    }
  }

  /// Fires timers that are due, lets all ghosts send, and hands over what goes from port to port. True: call again at
  /// this instant, there is more to do.
  bool progress(Instant now) noexcept {
    if (network_ != nullptr) {
      network_->wheel.run(now);
    }
    bool more = false;
    for (const Member& member : members_) {
      more = member.shard->progress(now) || more;
    }
    for (const Member& member : members_) {
      more = hand_over(member, now) || more;
    }
    return more || next_deadline() <= now;
  }

  [[nodiscard]] Instant next_deadline() const noexcept {
    Instant next = Instant::never();
    for (const Member& member : members_) {
      next = std::min(next, member.shard->next_deadline());
    }
    return next;
  }

 private:
  struct Member {
    Shard* shard;
    PortId port;
    std::uint32_t ports;
  };

  bool hand_over(const Member& from, Instant now) noexcept {
    bool any = false;
    for (std::uint32_t i = 0; i < from.ports; ++i) {
      const PortId port{static_cast<std::uint8_t>(i)};
      const auto to =
          std::find_if(members_.begin(), members_.end(), [&](const Member& each) { return each.port == port; });
      while (Frame* frame = from.shard->to_peer(port).pop_front()) {
        if (to == members_.end()) {
          from.shard->release(*frame);
        } else {
          to->shard->receive_from_peer(*frame, from.port, now);
          any = true;
        }
      }
    }
    return any;
  }

  SharedNetwork* network_;
  std::vector<Member> members_;
};

}  // namespace nbx::pipeline
