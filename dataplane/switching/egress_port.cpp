// The transmitter at work. Times follow from each other without rounding: a picosecond's fraction is carried while the
// line is busy.
#include "switching/egress_port.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace nbx::switching {

EgressPort::EgressPort(Wheel& wheel, Owner& owner, Link& link, const EgressSpec& spec) noexcept
    : wheel_(&wheel), owner_(&owner), link_(&link), spec_(spec), scheduler_(spec.scheduler) {
  NBX_CHECK(!spec.rate.unlimited());
  timer_.client = this;
}

void EgressPort::enqueue(Packet& packet, Instant now) noexcept {
  Queue& queue = queues_[packet.priority];
  if (queue.packets.empty()) {
    queue.waiting_since = now;
  }
  queue.packets.push_back(packet);
  queue.bytes += packet.size;
  queue.counters.queue_peak_bytes = std::max(queue.counters.queue_peak_bytes, queue.bytes);
  nonempty_ |= static_cast<std::uint8_t>(1U << packet.priority);
  if (!busy_) {
    next(now);
  }
}

void EgressPort::send_pause(const PauseFrame& frame, Instant now) noexcept {
  if (pause_pending_ && pending_.pfc && frame.pfc) {
    pending_.class_enable |= frame.class_enable;
    for (unsigned p = 0; p < priorities; ++p) {
      pending_.quanta[p] = ((frame.class_enable >> p) & 1U) != 0 ? frame.quanta[p] : pending_.quanta[p];
    }
  } else {
    pending_ = frame;
  }
  pause_pending_ = true;
  if (!busy_) {
    next(now);
  }
}

void EgressPort::send_pause_again(Instant now) noexcept {
  const PauseFrame newer = pending_;
  const bool has_newer = pause_pending_;
  pending_ = pause_on_the_line_;
  pause_pending_ = true;
  if (has_newer) {
    send_pause(newer, now);
  } else {
    next(now);
  }
}

void EgressPort::on_pause(const PauseFrame& frame, Instant now) noexcept {
  std::array<Instant, priorities> before{};
  for (unsigned p = 0; p < priorities; ++p) {
    before[p] = pause_.until(p);
  }
  plain_pauses_received_ += frame.pfc ? 0U : 1U;
  pause_.on_frame(frame, spec_.rate, now);
  for (unsigned p = 0; p < priorities; ++p) {
    if (!frame.pfc || ((frame.class_enable >> p) & 1U) != 0) {
      count_pause(p, before[p], now);
    }
  }
  if (!busy_) {
    next(now);
  }
}

void EgressPort::count_pause(unsigned priority, Instant before, Instant now) noexcept {
  EgressCounters& counters = queues_[priority].counters;
  ++counters.rx_pause;
  const Instant until = std::max(pause_.until(priority), now);
  if (before <= now) {
    counters.rx_pause_transition += until > now ? 1U : 0U;
    counters.rx_pause_duration += until - now;
  } else {
    counters.rx_pause_duration += until - before;
  }
}

void EgressPort::ignore_pause(unsigned priority, bool ignore, Instant now) noexcept {
  const auto bit = static_cast<std::uint8_t>(1U << priority);
  ignored_ = ignore ? static_cast<std::uint8_t>(ignored_ | bit) : static_cast<std::uint8_t>(ignored_ & ~bit);
  if (!busy_) {
    next(now);
  }
}

void EgressPort::set_rate(BitRate rate) noexcept {
  spec_.rate = rate;  // the frame on the line keeps its time
  fraction_ = 0;
}

void EgressPort::flush(unsigned priority, PacketList& out) noexcept {
  Queue& queue = queues_[priority];
  for (Packet* p = queue.packets.front(); p != nullptr; p = queue.packets.after(*p)) {
    queue.bytes -= p->size;
  }
  out.splice_back(queue.packets);
  nonempty_ &= static_cast<std::uint8_t>(~(1U << priority));
  scheduler_.emptied(priority);
}

Instant EgressPort::blocked_since(unsigned priority, Instant now) const noexcept {
  const Queue& queue = queues_[priority];
  return queue.packets.empty() || !paused(priority, now) ? Instant::never() : queue.waiting_since;
}

void EgressPort::next(Instant now) noexcept {
  if (pause_pending_) {
    pause_pending_ = false;
    pause_on_the_line_ = pending_;
    on_the_line_ = nullptr;
    begin(pause_frame_size, now);
    return;
  }
  std::uint8_t ready = 0;
  for (unsigned waiting = nonempty_; waiting != 0; waiting &= waiting - 1) {
    const auto p = static_cast<unsigned>(__builtin_ctz(waiting));
    ready |= paused(p, now) ? std::uint8_t{0} : static_cast<std::uint8_t>(1U << p);
  }
  if (ready == 0) {
    wait_for_resume(now);
    return;
  }
  const unsigned p = scheduler_.pick(ready, [this](unsigned q) { return on_line(queues_[q].packets.front()->size); });
  Queue& queue = queues_[p];
  on_the_line_ = queue.packets.pop_front();
  queue.waiting_since = now;
  if (queue.packets.empty()) {
    nonempty_ &= static_cast<std::uint8_t>(~(1U << p));
    scheduler_.emptied(p);
  }
  begin(on_the_line_->size, now);
}

void EgressPort::begin(std::uint32_t size, Instant now) noexcept {
  constexpr std::uint64_t ps_per_second = 1'000'000'000'000;
  const std::uint64_t carried = line_free_ == now ? fraction_ : 0;
  const auto work = static_cast<uint128>(on_line(size)) * 8 * ps_per_second + carried;
  line_free_ = now + Duration{static_cast<std::int64_t>(work / spec_.rate.bits_per_second)};
  fraction_ = static_cast<std::uint64_t>(work % spec_.rate.bits_per_second);
  busy_ = true;
  wheel_->arm(timer_, line_free_);
}

void EgressPort::wait_for_resume(Instant now) noexcept {
  Instant resume = Instant::never();
  for (unsigned waiting = nonempty_; waiting != 0; waiting &= waiting - 1) {
    resume = std::min(resume, pause_.until(static_cast<unsigned>(__builtin_ctz(waiting))));
  }
  if (resume != Instant::never() && resume > now) {
    wheel_->arm(timer_, resume);
  } else {
    wheel_->cancel(timer_);
  }
}

void EgressPort::on_timer(TimerNode& node, Instant /*now*/) noexcept {
  const Instant now = node.due;  // a late driver changes nothing
  if (!busy_) {
    next(now);
    return;
  }
  busy_ = false;
  if (on_the_line_ == nullptr) {
    ++pause_frames_sent_;
    if (!link_->carry(pause_on_the_line_, now)) {
      send_pause_again(now);
      return;
    }
  } else {
    Packet& packet = *on_the_line_;
    Queue& queue = queues_[packet.priority];
    queue.bytes -= packet.size;
    ++queue.counters.tx_packets;
    queue.counters.tx_bytes += packet.size;
    owner_->on_departed(packet, now);
    link_->carry(packet, now);
  }
  if (!busy_) {  // the owner may have begun the next already
    next(now);
  }
}

}  // namespace nbx::switching
