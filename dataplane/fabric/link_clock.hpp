// A link of a given rate with a FIFO in front of it, as arithmetic: when the last bit of each frame has left, exact to
// the fraction of a picosecond. Frames wait elsewhere; what the queue holds follows from when the link falls idle.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/units.hpp"
#include "base/wide.hpp"
#include "fabric/spec.hpp"

namespace nbx::fabric {

class LinkClock {
 public:
  /// Frames accepted before keep their times; later ones follow behind them at the new rate.
  void configure(const RateSpec& spec) noexcept { spec_ = spec; }
  [[nodiscard]] bool limited() const noexcept { return !spec_.rate.unlimited(); }

  /// When the first bit of a frame that is offered at `now` leaves.
  [[nodiscard]] Instant idle_from(Instant now) const noexcept { return std::max(idle_at_, now); }

  /// Queues a frame of `bytes` at `now`. Answers when its last bit leaves, rounded up to a picosecond; nothing when
  /// the queue, which holds every byte accepted and not yet sent, would exceed its length.
  [[nodiscard]] std::optional<Instant> offer(std::uint32_t bytes, Instant now) noexcept {
    const std::uint64_t rate = spec_.rate.bits_per_second;
    const std::uint64_t bits = (std::uint64_t{bytes} + (spec_.count_overhead ? ethernet_overhead_bytes : 0)) * 8;
    Instant start = idle_at_;
    std::uint64_t fraction = fraction_;
    if (start < now) {
      start = now;
      fraction = 0;
    }
    const auto backlog = static_cast<uint128>((start - now).count()) * rate + fraction;  // in bits times ps_per_second
    if (backlog + static_cast<uint128>(bits) * ps_per_second >
        static_cast<uint128>(spec_.queue_bytes) * 8 * ps_per_second) {
      return std::nullopt;
    }
    const std::uint64_t work = bits * ps_per_second + fraction;
    idle_at_ = start + Duration{static_cast<std::int64_t>(work / rate)};
    fraction_ = work % rate;
    return idle_at_ + Duration{fraction_ != 0 ? 1 : 0};
  }

 private:
  static constexpr std::uint64_t ps_per_second = 1'000'000'000'000;

  RateSpec spec_{};
  Instant idle_at_{std::numeric_limits<std::int64_t>::min()};
  std::uint64_t fraction_ = 0;  // of a picosecond behind idle_at_, times the rate
};

}  // namespace nbx::fabric
