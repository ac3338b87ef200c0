// The reaction point at work; see the header for the picture.
#include "cc/dcqcn.hpp"

#include <algorithm>

#include "base/wide.hpp"

namespace nbx::cc {
namespace {

constexpr unsigned alpha_unit_shift = 20;  // from parameters, of 1024, to alpha_one

constexpr Duration microseconds(std::uint32_t n) { return Duration{std::int64_t{n} * 1'000'000}; }

}  // namespace

const char* name(Stage stage) {
  switch (stage) {
    case Stage::line_rate:
      return "line_rate";
    case Stage::fast_recovery:
      return "fast_recovery";
    case Stage::additive_increase:
      return "additive_increase";
    case Stage::hyper_increase:
      return "hyper_increase";
  }
  return "";
}

const char* name(Cause cause) {
  switch (cause) {
    case Cause::cut:
      return "cut";
    case Cause::alpha_update:
      return "alpha_update";
    case Cause::rate_timer:
      return "rate_timer";
    case Cause::byte_counter:
      return "byte_counter";
  }
  return "";
}

ReactionPoint::ReactionPoint(const DcqcnParams& params, BitRate line) noexcept
    : params_(&params),
      limit_(params.rp_max_rate == 0 ? line : std::min(line, BitRate::mbps(params.rp_max_rate))),
      target_(limit_),
      current_(limit_),
      alpha_(params.rp_initial_alpha_value << alpha_unit_shift) {}

Stage ReactionPoint::stage() const noexcept {
  if (!limited()) {
    return Stage::line_rate;
  }
  const std::uint32_t byte_stage = params_->rp_byte_reset == 0 ? time_stage_ : byte_stage_;
  if (std::max(time_stage_, byte_stage) < params_->rp_threshold) {
    return Stage::fast_recovery;
  }
  return std::min(time_stage_, byte_stage) > params_->rp_threshold ? Stage::hyper_increase : Stage::additive_increase;
}

void ReactionPoint::on_cnp(Instant now) noexcept {
  advance(now);
  const bool first = !had_cnp_;
  had_cnp_ = true;
  if (first && params_->rp_rate_to_set_on_first_cnp != 0) {
    target_ = current_ = std::min(limit_, BitRate::mbps(params_->rp_rate_to_set_on_first_cnp));
    restart(now);
  } else if (now >= cut_allowed_at_) {
    cut(now);
  } else {
    cut_put_off_ = true;
  }
  if (params_->alpha_update == AlphaUpdate::on_cnp) {
    raise_alpha();  // behind the cut, equation (1)
    alpha_due_ = now + microseconds(params_->rp_dce_tcp_rtt);
    record(Cause::alpha_update, now);
  } else {
    cnp_in_period_ = !first;  // the first CNP finds the initial value and starts the periods
    if (alpha_due_ == Instant::never()) {
      alpha_due_ = now + microseconds(params_->rp_dce_tcp_rtt);
    }
  }
}

void ReactionPoint::on_sent(std::uint32_t bytes, Instant now) noexcept {
  advance(now);
  if (!limited() || params_->rp_byte_reset == 0) {
    return;
  }
  bytes_ += bytes;
  while (bytes_ >= params_->rp_byte_reset && limited()) {
    bytes_ -= params_->rp_byte_reset;
    increase(Cause::byte_counter, now);
  }
}

void ReactionPoint::advance(Instant now) noexcept {
  while (true) {
    const Instant due = next_deadline();
    if (due > now || due == Instant::never()) {
      return;
    }
    if (due == alpha_due_) {
      update_alpha(due);
    } else if (due == cut_due()) {
      cut(due);
    } else {
      rate_due_ = due + microseconds(params_->rp_time_reset);
      increase(Cause::rate_timer, due);
    }
  }
}

Instant ReactionPoint::next_deadline() const noexcept { return std::min({alpha_due_, cut_due(), rate_due_}); }

void ReactionPoint::cut(Instant now) noexcept {
  if (params_->rp_clamp_tgt_rate || byte_stage_ != 0 || (params_->rp_clamp_tgt_rate_ati && time_stage_ != 0)) {
    target_ = current_;
  }
  const std::uint64_t rate = current_.bits_per_second;
  const auto taken =
      static_cast<std::uint64_t>((static_cast<uint128>(rate) * alpha_) >> (alpha_unit_shift + params_->rp_gd));
  const std::uint64_t least =
      std::max(rate * params_->rp_min_dec_fac / 100, BitRate::mbps(params_->rp_min_rate).bits_per_second);
  current_.bits_per_second = std::min(rate, std::max(rate - std::min(rate, taken), least));
  restart(now);
}

void ReactionPoint::restart(Instant now) noexcept {
  time_stage_ = byte_stage_ = 0;
  bytes_ = 0;
  rate_due_ = limited() ? now + microseconds(params_->rp_time_reset) : Instant::never();
  cut_allowed_at_ = now + microseconds(params_->rp_rate_reduce_monitor_period);
  cut_put_off_ = false;
  record(Cause::cut, now);
}

void ReactionPoint::increase(Cause cause, Instant now) noexcept {
  switch (stage()) {
    case Stage::line_rate:
    case Stage::fast_recovery:
      break;
    case Stage::additive_increase:
      target_.bits_per_second += BitRate::mbps(params_->rp_ai_rate).bits_per_second;
      break;
    case Stage::hyper_increase:
      target_.bits_per_second += BitRate::mbps(params_->rp_hai_rate).bits_per_second;
      break;
  }
  target_ = std::min(target_, limit_);
  // Rounded up, so that the current rate reaches its target.
  current_.bits_per_second = (target_.bits_per_second + current_.bits_per_second + 1) / 2;
  ++(cause == Cause::rate_timer ? time_stage_ : byte_stage_);
  if (!limited()) {
    rate_due_ = Instant::never();  // the limiter is released
    bytes_ = 0;
  }
  record(cause, now);
}

void ReactionPoint::lower_alpha() noexcept {
  alpha_ = static_cast<std::uint32_t>((std::uint64_t{alpha_} * params_->rp_dce_tcp_g) >> 10U);
}

void ReactionPoint::raise_alpha() noexcept {
  lower_alpha();
  alpha_ += (1024 - params_->rp_dce_tcp_g) << alpha_unit_shift;
}

void ReactionPoint::update_alpha(Instant now) noexcept {
  if (cnp_in_period_) {
    raise_alpha();
  } else {
    lower_alpha();
  }
  cnp_in_period_ = false;
  alpha_due_ = alpha_ == 0 ? Instant::never() : now + microseconds(params_->rp_dce_tcp_rtt);
  record(Cause::alpha_update, now);
}

void ReactionPoint::record(Cause cause, Instant now) const noexcept {
  if (trace_ != nullptr) {
    trace_->on_step({now, cause, stage(), alpha_, target_, current_});
  }
}

}  // namespace nbx::cc
