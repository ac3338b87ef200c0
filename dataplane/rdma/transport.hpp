// The RDMA transport of every ghost behind one port: queue pairs, responder, requester, UC, UD. Sans-I/O: packets and
// `now` in, packets out, next deadline by the wheel. IBTA volume 1 chapter 9.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "cc/params.hpp"
#include "frame/pool.hpp"
#include "rdma/memory.hpp"
#include "rdma/nic.hpp"
#include "rdma/verbs.hpp"
#include "stats/counters.hpp"
#include "timer/wheel.hpp"

namespace nbx::rdma {

/// What the Open Traffic Generator counts per queue pair, plus the state.
struct QpStats {
  std::uint64_t data_frames_tx = 0, data_frames_rx = 0;
  std::uint64_t payload_bytes_tx = 0, payload_bytes_rx = 0;
  std::uint64_t data_frames_retransmitted = 0;
  std::uint64_t frame_sequence_error = 0;
  std::uint64_t message_tx = 0, message_complete_rx = 0, message_fail = 0;
  std::uint64_t ack_tx = 0, ack_rx = 0, nak_tx = 0, nak_rx = 0, rnr_nak_tx = 0, rnr_nak_rx = 0;
  std::uint64_t cnp_tx = 0, cnp_rx = 0, ecn_ce_rx = 0;
  std::uint64_t timeouts = 0;
  BitRate rate{};           // at which it may send now; 0: not limited
  std::uint32_t alpha = 0;  // DCQCN's, of cc::alpha_one
};

/// The part of a queue pair that its user may see.
class Qp {
 public:
  [[nodiscard]] Qpn qpn() const noexcept { return attr_.qpn; }
  [[nodiscard]] GhostId ghost() const noexcept { return ghost_; }
  /// In the order of creation at the ghost, from 1.
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
  [[nodiscard]] QpState state() const noexcept { return state_; }
  [[nodiscard]] const QpAttr& attr() const noexcept { return attr_; }
  [[nodiscard]] const QpStats& stats() const noexcept { return stats_; }

 protected:
  Qp() = default;
  ~Qp() = default;

  QpAttr attr_;
  GhostId ghost_ = no_ghost;
  std::uint32_t number_ = 0;
  QpState state_ = QpState::reset;
  QpStats stats_;
};

/// Told of every connection of a ghost: by control calls, between packets.
class ConnectionObserver {
 public:
  virtual void on_connected(const Qp& qp) = 0;
  virtual void on_destroyed(const Qp& qp) = 0;

 protected:
  ~ConnectionObserver() = default;
};

/// Takes the MADs that arrive at QP1 of any ghost.
class MadHandler {
 public:
  /// `mad` is 256 bytes; `reply_path` leads back to the sender.
  virtual void on_mad(GhostId ghost, ConstBytes mad, const wire::Path& reply_path, Instant now) noexcept = 0;

 protected:
  ~MadHandler() = default;
};

/// How fast a queue pair sends requests and READ responses. Counted is what a link counts: whole frames, preamble, FCS
/// and gap.
struct RateLimit {
  BitRate line{};                          // never faster
  std::optional<cc::DcqcnParams> dcqcn{};  // slower after CNPs
};

class RateTrace;

struct TransportConfig {
  bool send_cnp = true;
  Duration cnp_interval = std::chrono::microseconds{50};  // mlx5's min_time_between_cnps
  cc::CnpScope cnp_scope = cc::CnpScope::qp;              // what shares an interval
  std::uint8_t cnp_traffic_class = 48 << 2;               // DSCP 48
  std::optional<RateLimit> rate_limit{};
  std::size_t burst = 32;  // request packets per queue pair and turn
  // Frames of the pool that responders may keep, all together (Nic::selective()).
  std::size_t kept_max = std::numeric_limits<std::size_t>::max();
};

class Transport {
 public:
  /// Packets that ghosts send are appended to `out`, frame.ghost and frame.parsed set.
  Transport(const TransportConfig& config, FramePool& pool, Wheel& wheel, Counters& counters, FrameList& out);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  Transport(Transport&&) = delete;
  Transport& operator=(Transport&&) = delete;

  // Control: may allocate.
  /// Adds a ghost with that NIC; ids are dense, from 0.
  void add_ghost(GhostId id, const Nic& nic = {});
  [[nodiscard]] MemoryTable& memory(GhostId id);
  void set_mad_handler(MadHandler* handler);
  void set_observer(DeliveryObserver* observer);
  void set_connection_observer(ConnectionObserver* observer);

  /// Creates a queue pair in INIT: it has a number and takes receives. nullptr when attr.qpn is taken at that ghost.
  Qp* create_qp(GhostId ghost, const QpAttr& attr, QpUser& user);
  /// INIT to RTR to RTS (IBTA 10.3.1) with the peer's part of `attr`; type, qpn and queue sizes stay as created.
  void connect_qp(Qp& qp, const QpAttr& attr, bool ready_to_send = true);
  /// RTR to RTS.
  void ready_to_send(Qp& qp);
  void set_error(Qp& qp, WcStatus cause, Instant now) noexcept;
  /// The queue pair is unusable at once and its memory is returned in the next progress().
  void destroy_qp(Qp& qp) noexcept;
  /// Every step of its reaction point goes to `trace` from now on; nullptr: none. False: it has no reaction point.
  bool trace_rate(Qp& qp, RateTrace* trace) noexcept;
  [[nodiscard]] Qp* find_qp(GhostId ghost, Qpn qpn) noexcept;
  [[nodiscard]] std::size_t qp_count() const noexcept;
  /// Calls f(Qp&) for every queue pair, in order of creation.
  template <class F>
  void for_each_qp(F&& f) {
    for (Qp* qp = first_qp(); qp != nullptr; qp = next_qp(*qp)) {
      f(*qp);
    }
  }

  // Data path.
  /// false: the queue is full, or the state does not allow it. An invalid request completes with an error.
  bool post_send(Qp& qp, const SendWr& wr, Instant now) noexcept;
  bool post_recv(Qp& qp, const RecvWr& wr) noexcept;
  /// A parsed RoCEv2 packet for `ghost`; takes ownership. Answers why it was dropped, after counting it.
  Drop receive(Frame& frame, GhostId ghost, Instant now) noexcept;
  /// Sends a 256-byte MAD from QP1 of `ghost`.
  bool send_mad(GhostId ghost, const wire::Path& path, ConstBytes mad, Instant now) noexcept;
  /// Emits what is due: coalesced ACKs, READ responses, request packets. True when there is more to send than one
  /// turn allows: the driver should call again soon.
  bool progress(Instant now) noexcept;

 private:
  Qp* first_qp() noexcept;
  Qp* next_qp(Qp& qp) noexcept;

  class State;
  std::unique_ptr<State> state_;
};

}  // namespace nbx::rdma
