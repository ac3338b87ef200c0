// Both recoveries; an answer carries the PSN that is expected next and, when something came out of order, that PSN.
#include "virtual_time/message_flow.hpp"

#include <algorithm>

namespace nbx::virtual_time {

MessageFlow::MessageFlow(World& world, const FlowSpec& spec, const RecoverySpec& recovery)
    : Flow(world, spec), recovery_(recovery), length_(static_cast<std::uint32_t>(spec.packets)) {
  if (recovery.recovery == Recovery::selective_repeat) {
    seen_.resize(length_);
    kept_.resize(length_);
  }
}

void MessageFlow::on_timer(TimerNode& node, Instant /*now*/) noexcept {
  const Instant now = node.due;
  if (acknowledged_ == length_) {
    return;
  }
  if (started_) {
    ++timeouts_;
    if (recovery_.recovery == Recovery::go_back_n) {
      next_ = acknowledged_;
    } else {
      repair_next_ = acknowledged_;
      repair_end_ = std::max(repair_end_, acknowledged_ + 1);
      repair_until_ = next_;
    }
  }
  started_ = true;
  wake_at(now + recovery_.timeout);
  try_send(now);
}

void MessageFlow::on_departed(Instant now) noexcept {
  in_port_ = false;
  try_send(now);
}

/// The next that is missing at the destination, or length_.
std::uint32_t MessageFlow::lost_one() noexcept {
  for (; repair_next_ < repair_end_; ++repair_next_) {
    if (!seen_[repair_next_]) {
      return repair_next_++;
    }
  }
  return length_;
}

void MessageFlow::try_send(Instant now) noexcept {
  if (in_port_ || acknowledged_ == length_) {
    return;
  }
  std::uint32_t psn = recovery_.recovery == Recovery::selective_repeat ? lost_one() : length_;
  const bool again = psn != length_;
  if (!again) {
    if (next_ == length_ || (recovery_.window_packets != 0 && next_ - acknowledged_ >= recovery_.window_packets)) {
      return;
    }
    psn = next_;
  }
  in_port_ = true;
  if (!send_data(spec().packet_bytes, now, psn)) {
    in_port_ = false;  // the timeout tries again
    return;
  }
  next_ += again ? 0U : 1U;
}

void MessageFlow::on_data(SimPacket& packet, Instant now) noexcept {
  const std::uint32_t psn = packet.psn;
  const bool early = psn > expected_;
  if (early && recovery_.recovery == Recovery::go_back_n) {
    if (!gap_reported_) {
      gap_reported_ = true;
      (void)send_answer(Kind::nak, ack_bytes, recovery_.ack_priority, now, expected_, psn);
    }
    return;
  }
  if (early) {
    kept_[psn] = true;
  } else if (psn == expected_) {
    gap_reported_ = false;
    do {
      ++expected_;
    } while (expected_ < length_ && !kept_.empty() && kept_[expected_]);
    if (expected_ == length_) {
      completed_at_ = now;
    }
  }
  (void)send_answer(early ? Kind::nak : Kind::ack, ack_bytes, recovery_.ack_priority, now, expected_, psn);
}

void MessageFlow::on_answer(SimPacket& packet, Instant now) noexcept {
  const bool progress = packet.psn > acknowledged_;
  acknowledged_ = std::max(acknowledged_, packet.psn);
  next_ = std::max(next_, acknowledged_);
  if (acknowledged_ == length_) {
    return;  // the timer finds nothing to do
  }
  if (recovery_.recovery == Recovery::go_back_n) {
    if (packet.kind == Kind::nak && packet.psn == acknowledged_) {
      next_ = acknowledged_;
    }
  } else if (packet.kind == Kind::nak) {
    seen_[packet.out_of_order_psn] = true;
    if (acknowledged_ >= repair_until_) {  // a new recovery
      repair_until_ = next_;
      repair_next_ = acknowledged_;
    }
    repair_end_ = std::max(repair_end_, packet.out_of_order_psn);
  }
  repair_next_ = std::max(repair_next_, acknowledged_);
  if (progress) {
    wake_at(now + recovery_.timeout);
  }
  try_send(now);
}

}  // namespace nbx::virtual_time
