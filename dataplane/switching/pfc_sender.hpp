// The pauses that one port sends to its peer: one word when a priority has to stop, refreshed at half its time so that
// it never runs out, and a zero when it may go on. IEEE 802.1Q clause 36.
#pragma once

#include <cstdint>

#include "switching/egress_port.hpp"

namespace nbx::switching {

class PfcSender final : private TimerClient {
 public:
  /// `out` leads to the peer. `quanta` of every pause: its time has to outlast a frame on the line, twice.
  PfcSender(Wheel& wheel, EgressPort& out, std::uint16_t quanta) noexcept
      : wheel_(&wheel), out_(&out), quanta_(quanta) {
    timer_.client = this;
  }
  PfcSender(const PfcSender&) = delete;
  PfcSender& operator=(const PfcSender&) = delete;
  PfcSender(PfcSender&&) = delete;
  PfcSender& operator=(PfcSender&&) = delete;
  ~PfcSender() = default;

  [[nodiscard]] bool pausing(unsigned priority) const noexcept { return ((pausing_ >> priority) & 1U) != 0; }

  void pause(unsigned priority, Instant now) noexcept {
    pausing_ |= bit(priority);
    ++xoffs_;
    send(bit(priority), quanta_, now);
    if (refresh_at_ == Instant::never()) {
      refresh_in_half(now);
    }
  }

  void resume(unsigned priority, Instant now) noexcept {
    pausing_ &= static_cast<std::uint8_t>(~bit(priority));
    send(bit(priority), 0, now);
    if (pausing_ == 0) {
      wheel_->cancel(timer_);
      refresh_at_ = Instant::never();
    }
  }

  /// How often a priority was stopped.
  [[nodiscard]] std::uint64_t xoffs() const noexcept { return xoffs_; }

 private:
  static constexpr std::uint8_t bit(unsigned priority) noexcept { return static_cast<std::uint8_t>(1U << priority); }

  void on_timer(TimerNode& node, Instant /*now*/) noexcept override {
    send(pausing_, quanta_, node.due);
    refresh_in_half(node.due);
  }

  void send(std::uint8_t classes, std::uint16_t quanta, Instant now) noexcept {
    PauseFrame frame;
    frame.class_enable = classes;
    for (unsigned p = 0; p < priorities; ++p) {
      frame.quanta[p] = ((classes >> p) & 1U) != 0 ? quanta : std::uint16_t{0};
    }
    out_->send_pause(frame, now);
  }

  void refresh_in_half(Instant now) noexcept {
    refresh_at_ = now + pause_time(quanta_, out_->rate()) / 2;
    wheel_->arm(timer_, refresh_at_);
  }

  Wheel* wheel_;
  EgressPort* out_;
  std::uint16_t quanta_;
  std::uint8_t pausing_ = 0;
  Instant refresh_at_ = Instant::never();
  std::uint64_t xoffs_ = 0;
  TimerNode timer_;
};

}  // namespace nbx::switching
