// Which account each queue pair of a shard is booked on. Told of every packet when the profile has decided on it.
//
// What the profile harmed is made good when the sender's next copy of the packet passes, or an acknowledgement of it;
// an acknowledgement when a later one passes.
#pragma once

#include <array>
#include <memory>
#include <unordered_map>

#include "frame/account.hpp"

namespace nbx {

class Ledger {
 public:
  /// The two ends of a connection.
  struct QueuePairs {
    GhostId ghost = no_ghost;
    Qpn qpn{};
    IpAddress peer{};
    Qpn peer_qpn{};
  };

  // Control.
  /// Packets between the two are booked on `account`, until close().
  void open(const QueuePairs& pair, Account& account);
  void close(const QueuePairs& pair);

  // Data path.
  /// `frame` has been decided on: treatment and due are set.
  void record(const Frame& frame, Direction direction, Instant now) noexcept {
    if (!flows_.empty() && frame.parsed.kind == wire::FrameKind::roce_v2) {
      record_roce(frame, direction, now);
    }
  }

 private:
  /// The oldest packet of its kind that was harmed and is not made good.
  struct Harmed {
    bool open = false;
    Psn psn{};
    std::size_t firing = 0;  // of the account
  };
  struct Flow {
    Account* account = nullptr;
    std::array<std::array<Harmed, 2>, 2> harmed{};  // by direction; requests, responses
    unsigned open = 0;                              // of them
  };

  void record_roce(const Frame& frame, Direction direction, Instant now) noexcept;
  static void book(Flow& flow, const Frame& frame, Direction direction, Instant now) noexcept;
  static void repair(Flow& flow, Harmed& harmed, Instant now) noexcept;

  /// By direction, ghost, peer and the queue pair that packets are for.
  std::unordered_map<std::uint64_t, std::shared_ptr<Flow>> flows_;
};

}  // namespace nbx
