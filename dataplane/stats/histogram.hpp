// Counts of a value by size, for quantiles of any number of samples in fixed memory: bins of one unit up to 1024, then
// 128 bins per power of two, so a quantile is exact below 1024 and within 0.8 % above.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace nbx {

class Histogram {
 public:
  void record(std::uint64_t value) noexcept {
    ++bins_[bin_of(value)];
    ++count_;
  }

  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }

  /// The smallest recorded value, to the precision of its bin, that at least `q` (0 to 1) of the samples do not
  /// exceed; 0 when there is none.
  [[nodiscard]] std::uint64_t quantile(double q) const noexcept {
    const auto rank = static_cast<std::uint64_t>(std::ceil(q * static_cast<double>(count_)));
    std::uint64_t seen = 0;
    for (std::size_t bin = 0; bin < bins_.size(); ++bin) {
      seen += bins_[bin];
      if (seen != 0 && seen >= rank) {
        return value_of(bin);
      }
    }
    return 0;
  }

  /// Calls `use(value, count)` for every bin that is not empty, in rising order of the value.
  template <class Use>
  void for_each(Use use) const {
    for (std::size_t bin = 0; bin < bins_.size(); ++bin) {
      if (bins_[bin] != 0) {
        use(value_of(bin), bins_[bin]);
      }
    }
  }

 private:
  static constexpr unsigned linear_bits = 10;
  static constexpr unsigned octave_bits = 7;
  static constexpr std::size_t linear = std::size_t{1} << linear_bits;
  static constexpr std::size_t per_octave = std::size_t{1} << octave_bits;
  static constexpr std::size_t bins = linear + (64 - linear_bits) * per_octave;

  static constexpr std::size_t bin_of(std::uint64_t value) noexcept {
    if (value < linear) {
      return value;
    }
    const auto exponent = static_cast<unsigned>(std::bit_width(value)) - 1;
    const std::uint64_t within = (value >> (exponent - octave_bits)) % per_octave;
    return linear + (exponent - linear_bits) * per_octave + within;
  }
  /// The middle of a bin.
  static constexpr std::uint64_t value_of(std::size_t bin) noexcept {
    if (bin < linear) {
      return bin;
    }
    const std::size_t exponent = linear_bits + (bin - linear) / per_octave;
    const std::uint64_t width = std::uint64_t{1} << (exponent - octave_bits);
    return (std::uint64_t{1} << exponent) + (bin - linear) % per_octave * width + width / 2;
  }

  std::array<std::uint64_t, bins> bins_{};
  std::uint64_t count_ = 0;
};

}  // namespace nbx
