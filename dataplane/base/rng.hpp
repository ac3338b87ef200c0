// Seeded, forkable randomness. Every consumer forks its own stream from (seed, name), so adding one does not
// reshuffle the others. xoshiro256** by Blackman and Vigna (public domain algorithm).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/wide.hpp"

namespace nbx {

class Rng {
 public:
  explicit constexpr Rng(std::uint64_t seed) {
    for (auto& word : state_) {  // splitmix64, as the authors advise for seeding
      seed += 0x9e37'79b9'7f4a'7c15ULL;
      std::uint64_t z = seed;
      z = (z ^ (z >> 30U)) * 0xbf58'476d'1ce4'e5b9ULL;
      z = (z ^ (z >> 27U)) * 0x94d0'49bb'1331'11ebULL;
      word = z ^ (z >> 31U);
    }
  }

  /// A stream that depends only on this generator's seed and on `name`.
  [[nodiscard]] constexpr Rng fork(std::string_view name) const {
    std::uint64_t h = 0xcbf2'9ce4'8422'2325ULL ^ state_[0];
    for (const char c : name) {
      h = (h ^ static_cast<std::uint8_t>(c)) * 0x0000'0100'0000'01b3ULL;
    }
    return Rng{h ^ state_[2]};
  }

  constexpr std::uint64_t next() {
    const std::uint64_t result = rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t t = state_[1] << 17U;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotl(state_[3], 45);
    return result;
  }

  /// Uniform in [0, bound); bound > 0. Multiply-shift: the bias is below 2^-32 for the bounds used here.
  constexpr std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<uint128>(next()) * bound) >> 64U);
  }

  /// Uniform in [0, 1).
  constexpr double unit() { return static_cast<double>(next() >> 11U) * 0x1.0p-53; }

 private:
  static constexpr std::uint64_t rotl(std::uint64_t x, unsigned k) { return (x << k) | (x >> (64U - k)); }

  std::array<std::uint64_t, 4> state_{};
};

/// A probability as a threshold on 64 random bits: one compare on the fast path, exact at 0 and 1.
class Chance {
 public:
  constexpr Chance() = default;
  explicit constexpr Chance(double p)
      : always_(p >= 1.0), threshold_(p <= 0.0 || p >= 1.0 ? 0 : static_cast<std::uint64_t>(p * 0x1.0p64)) {}

  [[nodiscard]] constexpr bool never() const { return !always_ && threshold_ == 0; }
  constexpr bool draw(Rng& rng) const { return always_ || (threshold_ != 0 && rng.next() < threshold_); }

 private:
  bool always_ = false;
  std::uint64_t threshold_ = 0;
};

}  // namespace nbx
