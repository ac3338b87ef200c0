// A ring collective on one channel through a run of consecutive ghosts. With ghosts that contribute the identity, what
// the run sends is what came in, later: see RingPlan::source.
#pragma once

#include <memory>
#include <unordered_map>

#include "nccl-glue/plan/ring.hpp"
#include "nccl-glue/service/delay.hpp"
#include "nccl-glue/service/payload.hpp"

namespace nbx::nccl {

/// Consecutive ghosts of a ring between two real ranks (or one and the same).
struct RingPlace {
  std::uint32_t last = 0;    // ring index of the last ghost
  std::uint32_t length = 1;  // ghosts
  std::uint32_t ranks = 2;   // of the ring
  /// The rank at distance d from the end of the run.
  std::function<std::int32_t(std::uint32_t)> rank_at;

  [[nodiscard]] std::uint32_t first() const { return (last + ranks - (length - 1)) % ranks; }
};

class RingTransfer final : public Transfer {
 public:
  RingTransfer(const PlannedOperation& planned, const RingPlan& plan, RingPlace place, RunReadiness readiness,
               const DelayModel& delay, Payloads& payloads);
  ~RingTransfer() override;

  /// The ring collective before it on the channel, if any: a ghost begins this one when it has ended that one.
  void follow(std::shared_ptr<RingTransfer> before) {
    before_ = in_loops() && plan_.loops() > 0 ? std::move(before) : nullptr;
  }

  [[nodiscard]] std::uint64_t messages_in(unsigned edge) const override;
  [[nodiscard]] std::uint64_t messages_out(unsigned edge) const override;
  [[nodiscard]] Offer offer(unsigned edge, std::uint64_t i) const override;
  [[nodiscard]] Instant open(unsigned edge) const override;
  void received(unsigned edge, std::uint64_t i, const Message& message) override;
  [[nodiscard]] Instant ready(unsigned edge, std::uint64_t i) override;
  [[nodiscard]] Outgoing take(unsigned edge, std::uint64_t i, std::uint64_t step) override;
  [[nodiscard]] Steps steps() const override;
  [[nodiscard]] unsigned window() const override;

 private:
  /// The outgoing message that stems from incoming message `i`; none: it ends with a ghost.
  [[nodiscard]] std::optional<std::uint64_t> sent_on_as(std::uint64_t i) const;
  [[nodiscard]] bool reduces(const RingMessage& message) const;
  /// Whether ranks take turns at sending and receiving, so that a rank begins a loop when it has ended the one before.
  [[nodiscard]] bool in_loops() const;
  /// The incoming message with which the ghost at `distance` ends loop `loop`.
  [[nodiscard]] std::uint64_t end_of(std::uint64_t loop, std::uint32_t distance) const;
  /// When what ends the loop, or the whole transfer, for the ghost at `distance` came to the run; never: it did not.
  [[nodiscard]] Instant loop_ended(std::uint64_t loop, std::uint32_t distance) const;
  [[nodiscard]] Instant ended(std::uint32_t distance) const;
  [[nodiscard]] Instant own_ready(const RingMessage& message, Duration work, Duration hop);
  [[nodiscard]] Outgoing first_sent(const RingMessage& message, std::uint64_t step);
  [[nodiscard]] Outgoing sent_on(const RingMessage& message, const Message& came, std::uint64_t step);
  void add_contributions(MutableBytes data, const RingMessage& message, std::uint32_t from) const;

  PlannedOperation planned_;
  RingPlan plan_;
  RingPlace place_;
  RunReadiness readiness_;
  const DelayModel& delay_;
  Payloads& payloads_;
  std::shared_ptr<RingTransfer> before_;               // until the last ghost has begun its first loop
  std::unordered_map<std::uint64_t, Message> stored_;  // by number at the first ghost
  std::unordered_map<std::uint64_t, Instant> ends_;    // arrivals of messages that end a loop for a ghost
};

}  // namespace nbx::nccl
