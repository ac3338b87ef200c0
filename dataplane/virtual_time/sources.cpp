// Sources at work. Every time is the node's own, so that a world may run a long way at once.
#include "virtual_time/sources.hpp"

#include <algorithm>
#include <numbers>

#include "base/logarithm.hpp"
#include "virtual_time/world.hpp"

namespace nbx::virtual_time {
namespace {

/// Exponential of mean `mean`.
double exponential(double mean, Rng& rng) noexcept { return -mean * std::numbers::ln2 * log2_portable(1 - rng.unit()); }

Duration exponential(Duration mean, Rng& rng) noexcept {
  return Duration{static_cast<std::int64_t>(exponential(static_cast<double>(mean.count()), rng) + 0.5)};
}

}  // namespace

OpenLoopFlow::OpenLoopFlow(World& world, const FlowSpec& spec, const ArrivalSpec& arrivals)
    : Flow(world, spec), arrivals_(arrivals), rng_(world.fork_rng()) {
  if (arrivals.on != Duration::zero()) {
    on_until_ = spec.start + exponential(arrivals.on, rng_);
  }
}

void OpenLoopFlow::on_timer(TimerNode& node, Instant /*now*/) noexcept {
  const Instant now = node.due;
  if (ended(now)) {
    return;
  }
  std::uint32_t size = spec().packet_bytes;
  if (arrivals_.exponential_sizes) {
    size = std::max(1U, static_cast<std::uint32_t>(exponential(size, rng_) + 0.5));
  }
  (void)send_data(size, now, static_cast<std::uint32_t>(stats().sent));  // a pool that is empty is counted there
  Instant next = now + (arrivals_.poisson ? exponential(arrivals_.interval, rng_) : arrivals_.interval);
  while (next >= on_until_) {
    const Duration silence = exponential(arrivals_.off, rng_);
    next = next + silence;
    on_until_ = on_until_ + silence + exponential(arrivals_.on, rng_);
  }
  wake_at(next);
}

void GreedyFlow::on_timer(TimerNode& node, Instant /*now*/) noexcept { fill(node.due); }

void GreedyFlow::fill(Instant now) noexcept {
  while (outstanding_ < window_ && !ended(now) &&
         send_data(spec().packet_bytes, now, static_cast<std::uint32_t>(stats().sent))) {
    ++outstanding_;
  }
}

void GreedyFlow::on_data(SimPacket& /*packet*/, Instant now) noexcept {
  (void)send_answer(Kind::ack, ack_bytes, ack_priority_, now);
}

void GreedyFlow::on_answer(SimPacket& /*packet*/, Instant now) noexcept {
  --outstanding_;
  fill(now);
}

void GreedyFlow::on_dropped(SimPacket& packet, Instant now) noexcept {
  Flow::on_dropped(packet, now);
  --outstanding_;
  wake_at(now);  // from here the network must not be entered
}

DcqcnFlow::DcqcnFlow(World& world, const FlowSpec& spec, const cc::DcqcnParams& params, cc::NotificationPoint& np,
                     std::size_t qp, std::size_t peer)
    : Flow(world, spec),
      params_(&params),
      np_(&np),
      qp_(qp),
      peer_(peer),
      rp_(params, world.host(spec.source).port().rate()),
      pacer_(rp_.current_rate()) {}

void DcqcnFlow::on_timer(TimerNode& node, Instant /*now*/) noexcept { try_send(node.due); }

void DcqcnFlow::on_departed(Instant now) noexcept {
  in_port_ = false;
  try_send(now);
}

void DcqcnFlow::try_send(Instant now) noexcept {
  if (in_port_ || ended(now)) {
    return;
  }
  rp_.advance(now);
  pacer_.set_rate(rp_.current_rate(), now);
  if (!pacer_.ready(now)) {
    wake_at(pacer_.ready_at());
    return;
  }
  const std::uint32_t size = spec().packet_bytes;
  in_port_ = true;  // before the port, which may answer at once
  if (!send_data(size, now, static_cast<std::uint32_t>(stats().sent))) {
    in_port_ = false;
    wake_at(now + serialize_time_ceil(on_line(size), rp_.current_rate()));
    return;
  }
  pacer_.sent(on_line(size), now);
  rp_.on_sent(on_line(size), now);
}

void DcqcnFlow::on_data(SimPacket& packet, Instant now) noexcept {
  if (packet.ecn == switching::Ecn::ce && np_->on_ce(qp_, peer_, now)) {
    (void)send_answer(Kind::cnp, cnp_bytes, static_cast<std::uint8_t>(params_->np_cnp_prio), now);
  }
}

void DcqcnFlow::on_answer(SimPacket& /*packet*/, Instant now) noexcept {
  rp_.on_cnp(now);
  try_send(now);
}

}  // namespace nbx::virtual_time
