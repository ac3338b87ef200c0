// The PFC watchdog of a port, as switches have it (SONiC `pfcwd`): a priority that has had packets, has been paused and
// has sent nothing for `detection_time` is in a storm; until it has gone unpaused for `restoration_time` its packets
// are dropped, or sent all the same.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "switching/egress_port.hpp"

namespace nbx::switching {

enum class WatchdogAction : std::uint8_t { drop, forward };

struct WatchdogSpec {
  Duration detection_time{};  // zero: no watchdog
  Duration restoration_time{};
  WatchdogAction action = WatchdogAction::drop;
};

class PfcWatchdog final : private TimerClient {
 public:
  class Owner {
   public:
    /// A storm begins on a port with action drop: what waits there has to go.
    virtual void on_storm(EgressPort& port, unsigned priority, Instant now) noexcept = 0;

   protected:
    ~Owner() = default;
  };

  PfcWatchdog(Wheel& wheel, Owner& owner, EgressPort& port, const WatchdogSpec& spec) noexcept
      : wheel_(&wheel), owner_(&owner), port_(&port), spec_(spec) {
    timer_.client = this;
  }
  PfcWatchdog(const PfcWatchdog&) = delete;
  PfcWatchdog& operator=(const PfcWatchdog&) = delete;
  PfcWatchdog(PfcWatchdog&&) = delete;
  PfcWatchdog& operator=(PfcWatchdog&&) = delete;
  ~PfcWatchdog() = default;

  /// The port received a pause: the only moment from which it can become blocked.
  void on_pause(Instant now) noexcept {
    if (spec_.detection_time != Duration::zero() && !watching_) {
      watch_again_at(now + spec_.detection_time);
    }
  }

  [[nodiscard]] bool dropping(unsigned priority) const noexcept {
    return spec_.action == WatchdogAction::drop && ((storms_ >> priority) & 1U) != 0;
  }
  [[nodiscard]] std::uint64_t storms_detected() const noexcept { return detected_; }
  [[nodiscard]] std::uint64_t storms_restored() const noexcept { return restored_; }

 private:
  void on_timer(TimerNode& node, Instant /*now*/) noexcept override {
    const Instant now = node.due;
    watching_ = false;
    Instant again = Instant::never();
    for (unsigned p = 0; p < priorities; ++p) {
      again = std::min(again, ((storms_ >> p) & 1U) != 0 ? look_at_storm(p, now) : look_at(p, now));
    }
    if (again != Instant::never()) {
      watch_again_at(again);
    }
  }

  void watch_again_at(Instant at) noexcept {
    watching_ = true;
    wheel_->arm(timer_, at);
  }

  /// Both answer when to look again; never(): at the next pause.
  Instant look_at(unsigned priority, Instant now) noexcept {
    const Instant since = port_->blocked_since(priority, now);
    if (since == Instant::never()) {
      return port_->paused_until(priority) > now ? now + spec_.detection_time : Instant::never();
    }
    if (now < since + spec_.detection_time) {
      return since + spec_.detection_time;
    }
    ++detected_;
    storms_ |= static_cast<std::uint8_t>(1U << priority);
    if (spec_.action == WatchdogAction::drop) {
      owner_->on_storm(*port_, priority, now);
    } else {
      port_->ignore_pause(priority, true, now);
    }
    return look_at_storm(priority, now);
  }

  Instant look_at_storm(unsigned priority, Instant now) noexcept {
    const Instant free_at = port_->paused_until(priority) + spec_.restoration_time;
    if (now < free_at) {
      return free_at;
    }
    ++restored_;
    storms_ &= static_cast<std::uint8_t>(~(1U << priority));
    port_->ignore_pause(priority, false, now);
    return Instant::never();
  }

  Wheel* wheel_;
  Owner* owner_;
  EgressPort* port_;
  WatchdogSpec spec_;
  bool watching_ = false;
  std::uint8_t storms_ = 0;
  std::uint64_t detected_ = 0;
  std::uint64_t restored_ = 0;
  TimerNode timer_;
};

}  // namespace nbx::switching
