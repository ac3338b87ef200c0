// Quantiles of durations in bounded memory, of which only buckets in use take any: there are thousands of flows. A
// value below 2^(bits+1) has a bucket of its own; above, buckets widen with the value, so that a quantile is off by at
// most one part in 2^(bits+1). Smallest and largest are exact.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>

namespace nbx::analysis {

class Quantiles {
 public:
  explicit Quantiles(unsigned bits) noexcept : bits_(bits) {}

  /// Values below zero count as zero in quantiles.
  void add(std::int64_t value) {
    ++buckets_[bucket(static_cast<std::uint64_t>(std::max<std::int64_t>(value, 0)))];
    ++count_;
    min_ = std::min(min_, value);
    max_ = std::max(max_, value);
  }

  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  // The rest has a meaning only when count() != 0.
  [[nodiscard]] std::int64_t min() const noexcept { return min_; }
  [[nodiscard]] std::int64_t max() const noexcept { return max_; }
  [[nodiscard]] std::int64_t median() const noexcept { return quantile(50); }
  /// The smallest value that at least `percent` of all values do not exceed.
  [[nodiscard]] std::int64_t quantile(unsigned percent) const noexcept {
    const std::uint64_t rank = std::max<std::uint64_t>(1, (count_ * percent + 99) / 100);
    std::uint64_t below = 0;
    for (const auto& [index, n] : buckets_) {
      below += n;
      if (below >= rank) {
        return std::clamp(middle(index), min_, max_);
      }
    }
    return max_;
  }

 private:
  [[nodiscard]] std::size_t bucket(std::uint64_t value) const noexcept {
    const auto width = static_cast<unsigned>(std::bit_width(value));
    const unsigned shift = width > bits_ + 1 ? width - bits_ - 1 : 0;
    return (std::size_t{shift} << bits_) + static_cast<std::size_t>(value >> shift);
  }
  [[nodiscard]] std::int64_t middle(std::size_t index) const noexcept {
    const std::size_t octave = index >> bits_;
    const std::size_t shift = octave > 1 ? octave - 1 : 0;
    const std::uint64_t low = std::uint64_t{index - (shift << bits_)} << shift;
    return static_cast<std::int64_t>(low + ((std::uint64_t{1} << shift) >> 1U));
  }

  unsigned bits_;
  std::map<std::size_t, std::uint64_t> buckets_;
  std::uint64_t count_ = 0;
  std::int64_t min_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t max_ = std::numeric_limits<std::int64_t>::min();
};

}  // namespace nbx::analysis
