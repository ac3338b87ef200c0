// A port that pauses its peer whatever the traffic: what a broken NIC does (Guo et al., "RDMA over Commodity Ethernet
// at Scale", SIGCOMM 2016, section 4.3). It ends by itself, with a resume.
#pragma once

#include <algorithm>
#include <cstdint>

#include "switching/egress_port.hpp"

namespace nbx::switching {

struct PauseStormSpec {
  bool pfc = true;                // false: plain PAUSE
  std::uint8_t class_enable = 0;  // PFC: the priorities
  std::uint16_t quanta = max_quanta;
  Duration period{};    // zero: half the time that a frame pauses
  Duration duration{};  // the safety limit; a storm has to have one
};

/// Whether frames `period` apart, each late by up to one frame of `max_frame_bytes` on the line, leave no gap.
[[nodiscard]] constexpr bool storm_is_gapless(std::uint16_t quanta, Duration period, BitRate link,
                                              std::uint32_t max_frame_bytes) {
  const Duration late = serialize_time_ceil(max_frame_bytes + ethernet_overhead_bytes, link);
  return period + late <= pause_time(quanta, link);
}

class PauseStorm final : private TimerClient {
 public:
  PauseStorm(Wheel& wheel, EgressPort& out) noexcept : wheel_(&wheel), out_(&out) { timer_.client = this; }
  PauseStorm(const PauseStorm&) = delete;
  PauseStorm& operator=(const PauseStorm&) = delete;
  PauseStorm(PauseStorm&&) = delete;
  PauseStorm& operator=(PauseStorm&&) = delete;
  ~PauseStorm() { wheel_->cancel(timer_); }

  void start(const PauseStormSpec& spec, Instant now) noexcept {
    period_ = spec.period != Duration::zero() ? spec.period : pause_time(spec.quanta, out_->rate()) / 2;
    frame_.pfc = spec.pfc;
    frame_.class_enable = spec.pfc ? spec.class_enable : std::uint8_t{0};
    for (unsigned p = 0; p < priorities; ++p) {
      const bool meant = spec.pfc ? ((spec.class_enable >> p) & 1U) != 0 : p == 0;
      frame_.quanta[p] = meant ? spec.quanta : std::uint16_t{0};
    }
    ends_at_ = now + spec.duration;
    wheel_->arm(timer_, now);
  }
  /// Whether it has been started and is not over.
  [[nodiscard]] bool blows(Instant now) const noexcept { return now < ends_at_; }
  void stop(Instant now) noexcept {
    wheel_->cancel(timer_);
    ends_at_ = now;
    PauseFrame resume = frame_;
    resume.quanta.fill(0);
    out_->send_pause(resume, now);
  }

 private:
  void on_timer(TimerNode& node, Instant /*now*/) noexcept override {
    const Instant now = node.due;
    if (now >= ends_at_) {
      stop(now);
      return;
    }
    out_->send_pause(frame_, now);
    wheel_->arm(timer_, std::min(now + period_, ends_at_));
  }

  Wheel* wheel_;
  EgressPort* out_;
  PauseFrame frame_{};
  Duration period_{};
  Instant ends_at_{};
  TimerNode timer_;
};

}  // namespace nbx::switching
