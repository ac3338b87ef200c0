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
  [[nodiscard]] Outgoing first_sent(const RingMessage& message, std::uint64_t step);
  [[nodiscard]] Outgoing sent_on(const RingMessage& message, const Message& came, std::uint64_t step);
  void add_contributions(MutableBytes data, const RingMessage& message, std::uint32_t from) const;

  PlannedOperation planned_;
  RingPlan plan_;
  RingPlace place_;
  RunReadiness readiness_;
  const DelayModel& delay_;
  Payloads& payloads_;
  std::unordered_map<std::uint64_t, Message> stored_;  // by number at the first ghost
};

}  // namespace nbx::nccl
