#include "frame/account.hpp"

#include <algorithm>
#include <numeric>

namespace nbx {

Duration TimeShares::sum() const noexcept { return std::accumulate(of.begin(), of.end(), Duration{}); }

void TimeShares::add(const TimeShares& more) noexcept {
  for (std::size_t i = 0; i < cause_count; ++i) {
    of[i] += more.of[i];
  }
}

TimeShares TimeShares::since(const TimeShares& earlier) const noexcept {
  TimeShares out;
  for (std::size_t i = 0; i < cause_count; ++i) {
    out.of[i] = of[i] - earlier.of[i];
  }
  return out;
}

// While something is to be made good, time in which nothing else happens is its.
void Account::begin(Instant now) noexcept {
  seen_ = now;
  if (now > until_) {
    shares_[Cause::recovery] += open_ != 0 ? now - until_ : Duration::zero();
    until_ = now;
  }
}

void Account::book(Cause cause, Instant until) noexcept {
  if (until > until_) {
    shares_[cause] += until - until_;
    until_ = until;
  }
}

// A frame adds what its way takes longer than that of the frames before it. In a stream of frames that is the time on
// the link; the delay counts only where nothing was on its way before.
void Account::pass(const Frame& frame, Direction direction, const void* flow, Instant now) noexcept {
  begin(now);
  const Treatment& treatment = frame.treatment;
  if (frame.due <= until_) {
    return;
  }
  if (last_flow_ != flow || last_flow_from_ > until_) {
    last_flow_ = flow;
    last_flow_from_ = until_;
  }
  const Duration queued = std::max(frame.due - now - treatment.on_link - treatment.delay, Duration::zero());
  Duration rest = frame.due - until_;
  const auto take = [&rest](Duration most) {
    const Duration taken = std::min(rest, most);
    rest -= taken;
    return taken;
  };
  shares_[Cause::serialisation] += take(treatment.on_link);
  shares_[Cause::queueing] += take(queued);
  const Duration delayed = take(treatment.delay);
  shares_[Cause::propagation] += delayed;
  until_ = frame.due;
  if (delayed != Duration::zero()) {
    rows_[row_of(direction, Effect::delay, treatment.rule_of(Effect::delay))].firing.cost += delayed;
  }
}

std::size_t Account::row_of(Direction direction, Effect effect, std::uint8_t rule) noexcept {
  for (std::size_t i = 0; i < rows_used_; ++i) {
    const Firing& firing = rows_[i].firing;
    if (firing.direction == direction && firing.effect == effect && firing.rule == rule) {
      return i;
    }
  }
  if (rows_used_ == firings_max) {
    return firings_max - 1;
  }
  rows_[rows_used_].firing = {.direction = direction, .effect = effect, .rule = rule};
  return rows_used_++;
}

std::size_t Account::fire(const Frame& frame, Direction direction, Effect effect, Instant now) noexcept {
  seen_ = now;
  const auto stage = static_cast<std::size_t>(effect);
  const std::size_t row = row_of(direction, effect, stage < effects_by_rule ? frame.treatment.rule[stage] : 0);
  Firing& firing = rows_[row].firing;
  if (firing.frames++ == 0) {
    firing.dest_qpn = frame.parsed.dest_qpn;
    firing.psn = frame.parsed.psn;
    firing.opcode = frame.parsed.opcode;
  }
  return row;
}

// What is on its way before the loss on the same connection does not complete anything without it. What others have on
// their way, or a ghost waits for, goes on.
void Account::harm(std::size_t firing, const void* flow, Instant now) noexcept {
  begin(now);
  Row& row = rows_[firing];
  if (row.open++ == 0) {
    row.open_since = now;
  }
  ++open_;
  const Instant from = std::max({now, held_until_, last_flow_from_});
  if (last_flow_ == flow && from < until_) {
    take_back(shares_, from);
    until_ = from;
  }
}

void Account::repair(std::size_t firing, Instant now) noexcept {
  begin(now);
  Row& row = rows_[firing];
  if (--row.open == 0) {
    row.firing.cost += now - row.open_since;
  }
  --open_;
}

void Account::hold(Instant late_until, Instant until, Instant now) noexcept {
  begin(now);
  late_until_ = std::max(late_until_, std::min(late_until, until));
  held_until_ = std::max(held_until_, until);
  book(Cause::late_ghost, late_until_);
  book(Cause::between_ghosts, held_until_);
}

// Takes out what is booked behind `from`: first the ends of the ways of frames, which lie last; then what was held;
// then the ways of frames that were booked before it was held.
void Account::take_back(TimeShares& shares, Instant from) const noexcept {
  Instant end = until_;
  const auto take = [&](Cause cause, Instant down_to) {
    const Duration taken = std::clamp(end - std::max(down_to, from), Duration::zero(), shares[cause]);
    shares[cause] -= taken;
    end = end - taken;
  };
  take(Cause::propagation, held_until_);
  take(Cause::queueing, held_until_);
  take(Cause::serialisation, held_until_);
  take(Cause::between_ghosts, late_until_);
  take(Cause::late_ghost, from);
  take(Cause::propagation, from);
  take(Cause::queueing, from);
  take(Cause::serialisation, from);
}

TimeShares Account::shares(Instant now) const noexcept {
  TimeShares out = shares_;
  if (until_ > now) {
    take_back(out, now);
  } else if (open_ != 0) {
    out[Cause::recovery] += now - until_;
  }
  return out;
}

std::vector<Firing> Account::firings(Instant now) const {
  std::vector<Firing> out;
  for (std::size_t i = 0; i < rows_used_; ++i) {
    const Row& row = rows_[i];
    if (row.firing.frames != 0 || row.firing.cost != Duration::zero() || row.open != 0) {
      Firing& firing = out.emplace_back(row.firing);
      firing.cost += row.open != 0 ? now - row.open_since : Duration::zero();
    }
  }
  return out;
}

std::vector<Firing> Account::take_firings(Instant now) {
  std::vector<Firing> out = firings(now);
  for (std::size_t i = 0; i < rows_used_; ++i) {
    Row& row = rows_[i];
    row.firing = {.direction = row.firing.direction, .effect = row.firing.effect, .rule = row.firing.rule};
    row.open_since = now;
  }
  return out;
}

}  // namespace nbx
