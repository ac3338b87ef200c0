// One part of a send or receive between a real rank and a ghost, on one connection.
#pragma once

#include "nccl-glue/plan/channels.hpp"
#include "nccl-glue/plan/point_to_point.hpp"
#include "nccl-glue/service/payload.hpp"

namespace nbx::nccl {

class PeerTransfer final : public Transfer {
 public:
  /// `to_real`: the ghost sends.
  PeerTransfer(const Operation& operation, const PointToPointPart& part, bool to_real, std::uint64_t room,
               std::int32_t ghost_rank, Instant called, Payloads& payloads)
      : operation_(operation),
        part_(part),
        to_real_(to_real),
        room_(room),
        ghost_rank_(ghost_rank),
        called_(called),
        payloads_(payloads) {}

  [[nodiscard]] std::uint64_t messages_in(unsigned /*edge*/) const override { return to_real_ ? 0 : part_.messages(); }
  [[nodiscard]] std::uint64_t messages_out(unsigned /*edge*/) const override { return to_real_ ? part_.messages() : 0; }
  [[nodiscard]] Offer offer(unsigned /*edge*/, std::uint64_t i) const override {
    return {.room = room_, .size = part_.message_bytes(i)};
  }
  [[nodiscard]] Instant open(unsigned /*edge*/) const override { return called_; }
  void received(unsigned /*edge*/, std::uint64_t /*i*/, const Message& message) override {
    payloads_.give_back(message);
  }
  [[nodiscard]] Instant ready(unsigned /*edge*/, std::uint64_t /*i*/) override { return called_; }
  [[nodiscard]] Outgoing take(unsigned /*edge*/, std::uint64_t i, std::uint64_t step) override {
    return payloads_.own(operation_, Protocol::simple, ghost_rank_,
                         {part_.offset + i * part_.message, part_.message_bytes(i)}, step);
  }
  [[nodiscard]] Steps steps() const override { return {}; }
  [[nodiscard]] unsigned window() const override { return steps_in_flight; }

 private:
  Operation operation_;
  PointToPointPart part_;
  bool to_real_;
  std::uint64_t room_;
  std::int32_t ghost_rank_;
  Instant called_;
  Payloads& payloads_;
};

}  // namespace nbx::nccl
