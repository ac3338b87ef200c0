// The rate limiter of one queue pair: when its next packet may start. A debt of bits, in units of 10^-12 bit, that the
// rate pays off every picosecond: every product is whole, so nothing is rounded but the answer, up to a picosecond,
// and no error adds up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/units.hpp"
#include "base/wide.hpp"

namespace nbx::cc {

class Pacer {
 public:
  /// `credit_bytes`: how far a late driver may catch up. Zero: what was not used in time is lost. At most max_bytes.
  explicit Pacer(BitRate rate, std::uint32_t credit_bytes = 0) noexcept
      : rate_(rate), credit_(work(std::min(credit_bytes, max_bytes))) {}

  static constexpr std::uint32_t max_bytes = 500'000;  // of debt or credit that are kept

  /// From `now` on at `rate`, not zero; the debt stays.
  void set_rate(BitRate rate, Instant now) noexcept {
    settle(now);
    rate_ = rate;
  }
  [[nodiscard]] BitRate rate() const noexcept { return rate_; }

  /// When the next packet may start, at the present rate.
  [[nodiscard]] Instant ready_at() const noexcept {
    if (debt_ <= 0) {
      return settled_at_;
    }
    const auto debt = static_cast<std::uint64_t>(debt_);
    return settled_at_ +
           Duration{static_cast<std::int64_t>((debt + rate_.bits_per_second - 1) / rate_.bits_per_second)};
  }
  [[nodiscard]] bool ready(Instant now) const noexcept { return ready_at() <= now; }

  /// A packet of `bytes` starts at `now`.
  void sent(std::uint32_t bytes, Instant now) noexcept {
    settle(now);
    debt_ = std::min(debt_ + work(std::min(bytes, max_bytes)), work(max_bytes));
  }

 private:
  static constexpr std::int64_t work(std::uint32_t bytes) noexcept {
    return std::int64_t{bytes} * 8 * 1'000'000'000'000;
  }
  static_assert(std::uint64_t{2 * max_bytes} * 8 * 1'000'000'000'000 <
                static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));

  void settle(Instant now) noexcept {
    if (now > settled_at_) {
      const auto paid = static_cast<int128>((now - settled_at_).count()) * rate_.bits_per_second;
      debt_ =
          static_cast<std::int64_t>(std::max<int128>(static_cast<int128>(debt_) - paid, -static_cast<int128>(credit_)));
      settled_at_ = now;
    }
  }

  BitRate rate_;
  std::int64_t credit_;
  std::int64_t debt_ = 0;
  Instant settled_at_{};
};

}  // namespace nbx::cc
