// The requester of RC and UC: sends the packets of posted requests in PSN order and, for RC, completes them by the
// peer's acknowledgements and sends again what was lost. IBTA volume 1, 9.7.3, 9.7.5.2, 9.7.6 and 9.8.1.
#pragma once

#include "rdma/core.hpp"

namespace nbx::rdma {

class Requester {
 public:
  explicit Requester(Core& core) noexcept : core_(core) {}

  /// Queues a request; the queue must have room.
  void post(QueuePair& qp, const SendWr& wr) noexcept;
  /// Sends request packets, up to one burst. True when more could be sent at once.
  bool transmit(QueuePair& qp, Instant now) noexcept;
  /// An acknowledgement or response; answers why it was not accepted.
  Drop receive(QueuePair& qp, const Frame& frame, Instant now) noexcept;
  /// The timer of the queue pair fired.
  void expire(QueuePair& qp, Instant now) noexcept;

 private:
  Drop receive_acknowledge(QueuePair& qp, const wire::Parsed& packet, const wire::Aeth& aeth, Instant now) noexcept;
  Drop receive_nak(QueuePair& qp, const wire::Parsed& packet, std::uint32_t msn, Instant now) noexcept;
  Drop receive_rnr_nak(QueuePair& qp, const wire::Parsed& packet, Instant now) noexcept;
  Drop receive_read_response(QueuePair& qp, const Frame& frame, Instant now) noexcept;
  Drop receive_atomic_acknowledge(QueuePair& qp, const Frame& frame, Instant now) noexcept;

  [[nodiscard]] WcStatus check(QueuePair& qp, const SendWr& wr) noexcept;
  [[nodiscard]] bool may_send(const QueuePair& qp, const Wqe& wqe) const noexcept;
  [[nodiscard]] bool beyond_credit(const RequesterState& state) const noexcept;
  bool send_packet(QueuePair& qp, Wqe& wqe, SelectiveRepeat* known, Instant now) noexcept;
  void pass(QueuePair& qp, const Wqe& wqe, Instant now) noexcept;
  void count_packet(QueuePair& qp, Psn psn, std::uint32_t payload_size) noexcept;
  struct Again {
    Wqe* wqe = nullptr;  // none: there is nothing to be sent again
    SelectiveRepeat* known = nullptr;
  };
  [[nodiscard]] static Again find_again(RequesterState& state) noexcept;
  void learn_of(QueuePair& qp, SelectiveRepeat& known, Psn arrived, Psn lost_end, Instant now) noexcept;

  enum class Implied : std::uint8_t { executed, response_missing };
  Implied acknowledge_before(QueuePair& qp, Psn end, Instant now) noexcept;
  void advance(QueuePair& qp, Psn to, std::uint32_t packets, std::uint32_t reads, Instant now) noexcept;
  void complete(QueuePair& qp, Instant now) noexcept;
  void note_credit(QueuePair& qp, std::uint8_t syndrome, std::uint32_t msn) noexcept;
  Drop implied_nak(QueuePair& qp, Psn executed, Instant now) noexcept;
  void take_expected(QueuePair& qp, Instant now) noexcept;
  void take_response(QueuePair& qp, Instant now) noexcept;
  [[nodiscard]] static bool exhausted(const QueuePair& qp, Instant now) noexcept;
  [[nodiscard]] static Duration total_timeout(const QueuePair& qp) noexcept;
  void retry(QueuePair& qp, Instant now, Duration latency) noexcept;
  void rewind(QueuePair& qp) noexcept;
  void fail_oldest(QueuePair& qp, WcStatus status, Instant now) noexcept;
  void restart_timer(QueuePair& qp, Instant now) noexcept;
  void wait_until(QueuePair& qp, RequesterState::Waiting why, Instant deadline) noexcept;

  Core& core_;
};

}  // namespace nbx::rdma
