// What every role of the transport shares: the means to send, the ghosts, completions, and the way into the error
// state.
#pragma once

#include <deque>

#include "rdma/qp.hpp"
#include "rdma/qp_table.hpp"

namespace nbx::rdma {

/// What the transport keeps per ghost.
struct GhostState {
  Nic nic;
  MemoryTable memory;
  Psn gsi_psn{};
  std::uint32_t qps_created = 0;
  Qpn next_qpn{0x11};  // lower numbers are left alone, as HCAs do
};

struct Core {
  Core(const TransportConfig& config_, FramePool& pool_, Wheel& wheel_, Counters& counters_, FrameList& out_)
      : config(config_), pool(pool_), wheel(wheel_), counters(counters_), out(out_) {}

  [[nodiscard]] GhostState& ghost(GhostId id) noexcept { return ghosts[index(id)]; }
  [[nodiscard]] MemoryTable& memory(const Qp& qp) noexcept { return ghost(qp.ghost()).memory; }
  /// The region behind `sge` when it covers [sge.addr, +sge.length) and allows `access`; nullptr otherwise.
  [[nodiscard]] Region* local_region(const Qp& qp, const Sge& sge, std::uint8_t access) noexcept;

  /// Gives `qp` a turn in the next progress().
  void activate(QueuePair& qp) noexcept;

  /// Whether the rate of `qp` lets a packet start now. If not, it gets a turn when it does.
  [[nodiscard]] bool may_start(QueuePair& qp, Instant now) noexcept;
  /// A packet of that many bytes starts.
  void started(QueuePair& qp, std::uint32_t frame_bytes, Instant now) noexcept;

  /// Completes the oldest send request.
  void complete_send(QueuePair& qp, WcStatus status, Instant now) noexcept;
  /// Completes the oldest receive; wr_id is filled in.
  void complete_receive(QueuePair& qp, Completion completion, Instant now) noexcept;
  void deliver(const QueuePair& qp, Delivery delivery, Instant now) noexcept;
  /// Gives back what the responder has kept.
  void forget_kept(QueuePair& qp) noexcept;
  /// To the error state (10.3.1.6): flushes both queues and tells the user.
  void fail(QueuePair& qp, WcStatus cause, Instant now) noexcept;

  const TransportConfig config;
  FramePool& pool;
  Wheel& wheel;
  Counters& counters;
  FrameList& out;
  DeliveryObserver* observer = nullptr;
  ConnectionObserver* connection_observer = nullptr;
  MadHandler* mad_handler = nullptr;
  std::deque<GhostState> ghosts;  // references stay valid as it grows
  QpTable table;
  List<TurnLink> turns;  // queue pairs that may have something to send
  std::size_t kept = 0;  // frames, by the responders of all queue pairs
};

}  // namespace nbx::rdma
