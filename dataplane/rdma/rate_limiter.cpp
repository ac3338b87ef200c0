// Pacer and reaction point, kept together.
#include "rdma/rate_limiter.hpp"

#include "rdma/qp.hpp"

namespace nbx::rdma {

RateLimiter::RateLimiter(const RateLimit& limit, QueuePair& qp, QpStats& stats) noexcept
    : Wakeup(qp), stats_(stats), pacer_(limit.line, credit_bytes) {
  if (limit.dcqcn) {
    reaction_.emplace(*limit.dcqcn, limit.line);
    pacer_.set_rate(reaction_->current_rate(), {});
    stats_.alpha = reaction_->alpha();
  }
  stats_.rate = pacer_.rate();
}

Instant RateLimiter::next_start(Instant now) noexcept {
  if (reaction_) {
    reaction_->advance(now);
    follow(now);
  }
  return pacer_.ready_at();
}

void RateLimiter::sent(std::uint32_t frame_bytes, Instant now) noexcept {
  const std::uint32_t bytes = frame_bytes + ethernet_overhead_bytes;
  pacer_.sent(bytes, now);
  if (reaction_) {
    reaction_->on_sent(bytes, now);
    follow(now);
  }
}

void RateLimiter::on_cnp(Instant now) noexcept {
  if (reaction_) {
    reaction_->on_cnp(now);
    follow(now);
  }
}

bool RateLimiter::set_trace(RateTrace* trace) noexcept {
  if (!reaction_) {
    return false;
  }
  trace_ = trace;
  reaction_->set_trace(trace == nullptr ? nullptr : this);
  return true;
}

void RateLimiter::on_step(const cc::DcqcnStep& step) noexcept { trace_->record(qp(), step); }

void RateLimiter::follow(Instant now) noexcept {
  stats_.alpha = reaction_->alpha();
  if (reaction_->current_rate() != pacer_.rate()) {
    pacer_.set_rate(reaction_->current_rate(), now);
    stats_.rate = pacer_.rate();
  }
}

}  // namespace nbx::rdma
