// The whole state of a queue pair: what its user sees, and what the responder, the requester and the datagram side keep
// in it. Queues are allocated at creation and never grow.
#pragma once

#include <algorithm>
#include <bit>
#include <memory>

#include "base/list.hpp"
#include "rdma/nic.hpp"
#include "rdma/rate_limiter.hpp"
#include "rdma/selective_repeat.hpp"
#include "rdma/transport.hpp"
#include "wire/build.hpp"

namespace nbx::rdma {

/// Distance from `base` to `psn` going up, in [0, 2^24): for ranges that may span half of the PSN space.
[[nodiscard]] constexpr std::uint32_t offset(Psn psn, Psn base) { return (psn.value - base.value) & mask24; }
/// A requester must not have more PSNs outstanding (9.7.2: PSN ranges of new and duplicate requests).
inline constexpr std::uint32_t psn_window = 1U << 23U;
/// Parts of READs that a responder with selective repeat owes at a time, besides whole ones.
inline constexpr std::uint32_t read_parts_max = 16;
/// The longest message (9.4): 2^31 bytes.
inline constexpr std::uint32_t message_size_max = 1U << 31U;

/// A queue of fixed capacity, addressed by indices that only grow.
template <class T>
class Ring {
 public:
  void allocate(std::uint32_t capacity) {
    capacity_ = capacity;
    mask_ = std::bit_ceil(std::max(capacity, 1U)) - 1;
    slots_ = std::make_unique_for_overwrite<T[]>(std::size_t{mask_} + 1);
  }
  [[nodiscard]] bool empty() const noexcept { return head_ == tail_; }
  [[nodiscard]] bool full() const noexcept { return size() == capacity_; }
  [[nodiscard]] std::uint32_t size() const noexcept { return head_ - tail_; }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::uint32_t head() const noexcept { return head_; }  // index of the next element
  [[nodiscard]] std::uint32_t tail() const noexcept { return tail_; }  // index of the oldest element
  [[nodiscard]] T& operator[](std::uint32_t index) noexcept { return slots_[index & mask_]; }
  [[nodiscard]] T& front() noexcept { return (*this)[tail_]; }
  void push(const T& element) noexcept { slots_[head_++ & mask_] = element; }
  void pop() noexcept { ++tail_; }
  void clear() noexcept { tail_ = head_; }

 private:
  std::unique_ptr<T[]> slots_;
  std::uint32_t capacity_ = 0;
  std::uint32_t mask_ = 0;
  std::uint32_t head_ = 0;
  std::uint32_t tail_ = 0;
};

/// A posted send request and the PSNs that belong to it.
struct Wqe {
  std::uint64_t wr_id;
  Sge local;
  std::uint64_t remote_addr;
  std::uint64_t compare_add;
  std::uint64_t swap;
  std::uint32_t rkey;
  std::uint32_t imm_data;
  Psn first;
  std::uint32_t psns;  // request packets; response packets of a READ
  WrOpcode opcode;
  WcStatus status;  // other than success: not to be sent, fails when its turn comes
  bool signaled;
  bool solicited;
  bool fence;

  [[nodiscard]] Psn end() const { return first.plus(psns); }
  [[nodiscard]] bool reads() const { return opcode == WrOpcode::rdma_read || atomic(); }
  [[nodiscard]] bool atomic() const {
    return opcode == WrOpcode::atomic_cmp_and_swp || opcode == WrOpcode::atomic_fetch_and_add;
  }
  /// Consumes a receive of the peer, so it is subject to end-to-end credits (9.7.7.2).
  [[nodiscard]] bool needs_receive() const {
    return opcode == WrOpcode::send || opcode == WrOpcode::send_with_imm || opcode == WrOpcode::send_with_inv ||
           opcode == WrOpcode::rdma_write_with_imm;
  }
};

/// Where one datagram goes.
struct UdDestination {
  wire::Path path;
  Qpn qpn;
  std::uint32_t qkey;
};

struct RequesterState {
  /// pause: after an RNR NAK, or before the NIC reacts to a NAK.
  enum class Waiting : std::uint8_t { nothing, acknowledgement, pause };

  Ring<Wqe> wqes;
  std::unique_ptr<UdDestination[]> destinations;  // UD: parallel to wqes
  std::uint32_t cursor = 0;                       // index of the request that the next packet belongs to
  Psn unacknowledged;                             // everything before is done with
  Psn next;                                       // of the next packet; behind `sent` while sending again
  Psn sent;                                       // one behind the highest PSN ever sent
  Psn unposted;                                   // first PSN of the next request to be posted
  std::uint32_t in_flight = 0;                    // request packets between unacknowledged and next
  std::uint32_t reads_in_flight = 0;              // READs and atomics among them
  std::uint32_t unrequested = 0;                  // packets since AckReq was last set
  std::uint32_t credit_limit = 0;                 // LSN: last request that the peer has a receive for
  bool credit_limited = false;                    // the peer tells its credits
  bool retrying = false;                          // sends again, and nothing new has been acknowledged since
  std::uint8_t retries_left = 0;
  std::uint8_t rnr_retries_left = 0;
  Waiting waiting = Waiting::nothing;
  Instant deadline{};
  AdaptiveTimeout adaptive;   // with Nic::adaptive
  Instant progress{};         // the last one, or when waiting for one began
  SelectiveRepeat selective;  // with Nic::selective(): request packets at the peer,
  SelectiveRepeat responses;  // of READs, here
  Psn executed;               // the peer has executed everything before; with `responses`
};

/// A READ or atomic that was accepted: what is still to be answered, and what a duplicate gets (9.7.5.1).
struct ReadAtomic {
  Psn first;              // of the request as it first came
  std::uint32_t psns;     // that its response takes
  std::uint64_t address;  // of the request as it first came
  std::uint32_t length;
  std::uint32_t rkey;
  std::uint64_t original;   // atomic: what the memory held before
  Psn start;                // the execution under way, or the last one: its first PSN,
  std::uint32_t offset;     // where in the message it starts,
  std::uint32_t remaining;  // its bytes not sent yet,
  std::uint32_t emitted;    // and packets sent
  std::uint32_t msn;
  bool atomic;
  bool pending;   // response packets are due
  bool replayed;  // and the first answer had been sent completely

  [[nodiscard]] std::uint32_t end() const noexcept { return offset + remaining; }  // of what is due, in the message
};

struct ResponderState {
  enum class Message : std::uint8_t { none, send, write };

  Ring<RecvWr> receives;
  std::unique_ptr<ReadAtomic[]> reads;  // the last max_dest_rd_atomic of them
  std::uint64_t reads_accepted = 0;     // the next goes to slot reads_accepted % max_dest_rd_atomic
  std::uint32_t reads_pending = 0;
  Psn expected;
  std::uint32_t msn = 0;
  Message message = Message::none;  // under way
  bool gap = false;                 // a NAK was sent for `expected`: no other until it comes
  bool broken = false;              // UC: the rest of a message is to be dropped
  std::uint32_t unanswered = 0;     // request packets since the last acknowledgement was owed
  bool ack_pending = false;
  bool nak_pending = false;
  std::uint8_t nak_syndrome = 0;
  Psn ack_psn;
  Psn nak_psn;
  bool nak_tells = false;  // of `arrived`, in place of the MSN
  Instant nak_due{};
  std::uint64_t nak_after = 0;  // follows the responses of the READs accepted before this one
  // Selective repeat
  Ring<ReadAtomic> parts;  // of READs, asked for again while others of the same READ are due
  FrameList kept;          // packets ahead of their turn, by PSN
  std::uint32_t kept_size = 0;
  Ring<Psn> arrived;  // kept, and not told to the requester yet
  // The message under way
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t dma_length = 0;
  std::uint32_t received = 0;
  std::uint32_t crc = 0;

  void cancel_replies(std::uint32_t depth) noexcept {
    ack_pending = nak_pending = false;
    reads_pending = 0;
    parts.clear();
    for (std::uint32_t i = 0; i < depth; ++i) {
      reads[i].pending = false;
    }
  }
};

struct TurnLink : ListNode {};  // in the round of queue pairs that have something to send, or among the destroyed
struct QpLink : ListNode {};    // among all queue pairs

class QueuePair final : public Qp, public TurnLink, public QpLink, public TimerNode {
 public:
  QueuePair(GhostId ghost, std::uint32_t number, const QpAttr& attr, const Nic& nic, QpUser& user)
      : user_(&user), nic_(&nic) {
    attr_ = attr;
    ghost_ = ghost;
    number_ = number;
    state_ = QpState::init;
    requester.wqes.allocate(attr.max_send_wr);
    responder.receives.allocate(attr.max_recv_wr);
    if (attr.type == QpType::ud || attr.adopt_peer) {
      requester.destinations = std::make_unique<UdDestination[]>(std::bit_ceil(std::max(attr.max_send_wr, 1U)));
    }
  }

  [[nodiscard]] QpAttr& attributes() noexcept { return attr_; }
  [[nodiscard]] QpStats& statistics() noexcept { return stats_; }
  [[nodiscard]] QpUser& user() noexcept { return *user_; }
  [[nodiscard]] const Nic& nic() const noexcept { return *nic_; }
  void set_state(QpState state) noexcept { state_ = state; }

  /// Packets that `length` bytes take; a message without payload takes one.
  [[nodiscard]] std::uint32_t packets(std::uint32_t length) const noexcept {
    return length == 0 ? 1U : ((length - 1) >> mtu_shift) + 1;
  }
  [[nodiscard]] bool reliable() const noexcept { return attr_.type == QpType::rc; }
  /// Request packets that may be in flight.
  [[nodiscard]] std::uint32_t window() const noexcept {
    const std::uint32_t own = std::max(attr_.max_outstanding_packets, 1U);
    return nic_->bdp_cap == 0 ? own : std::min(own, nic_->bdp_cap);
  }
  [[nodiscard]] UdDestination& destination(std::uint32_t index) noexcept {
    return requester.destinations[index & (std::bit_ceil(std::max(requester.wqes.capacity(), 1U)) - 1)];
  }

  ResponderState responder;
  RequesterState requester;
  wire::Encapsulation encapsulation;
  Instant next_cnp{};                    // not before; where an interval is a queue pair's own
  std::unique_ptr<RateLimiter> limiter;  // none: as fast as the window allows
  std::unique_ptr<Wakeup> nak_wakeup;    // with Nic::nak_latency
  std::uint8_t mtu_shift = 10;
  bool destroyed = false;

 private:
  QpUser* user_;
  const Nic* nic_;
};

}  // namespace nbx::rdma
