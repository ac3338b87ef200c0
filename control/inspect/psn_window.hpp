// Which PSNs of a stream were seen: the newest 32768 one by one, older ones as a range. A jump farther than that is
// taken for the start of another stream under the same number.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstdint>

#include "base/ids.hpp"

namespace nbx::analysis {

class PsnWindow {
 public:
  enum class Verdict : std::uint8_t {
    in_order,      // ahead of all others
    out_of_order,  // behind a later one, for the first time
    again,
    restart,
  };

  explicit PsnWindow(Psn first) noexcept : newest_(first.prev()) {}

  Verdict see(Psn psn) noexcept {
    const std::int32_t ahead = psn.distance_from(newest_);
    if (ahead > size || -ahead > std::max(reach_, size - 1)) {
      *this = PsnWindow(psn);
      see(psn);
      return Verdict::restart;
    }
    if (ahead > 0) {
      for (std::int32_t i = 1; i <= ahead; ++i) {
        forget(newest_.plus(static_cast<std::uint32_t>(i)));
      }
      newest_ = psn;
      reach_ = std::min(reach_ + ahead, reach_max);
      seen_.set(slot(psn));
      return Verdict::in_order;
    }
    if (-ahead >= size || seen_.test(slot(psn))) {
      return Verdict::again;
    }
    seen_.set(slot(psn));
    reach_ = std::max(reach_, 1 - ahead);
    return Verdict::out_of_order;
  }

  [[nodiscard]] bool seen(Psn psn) const noexcept { return in_window(psn) && seen_.test(slot(psn)); }

  /// Notes that `psn` got through; true for the first time.
  bool deliver(Psn psn) noexcept {
    if (!in_window(psn) || delivered_.test(slot(psn))) {
      return false;
    }
    delivered_.set(slot(psn));
    return true;
  }

 private:
  static constexpr std::int32_t size = 32'768;
  static constexpr std::int32_t reach_max = 0x0080'0000;  // distances are not longer

  [[nodiscard]] static std::size_t slot(Psn psn) noexcept { return psn.value % static_cast<std::uint32_t>(size); }
  [[nodiscard]] bool in_window(Psn psn) const noexcept {
    const std::int32_t ahead = psn.distance_from(newest_);
    return ahead <= 0 && -ahead < size;
  }
  void forget(Psn psn) noexcept {
    seen_.reset(slot(psn));
    delivered_.reset(slot(psn));
  }

  Psn newest_;
  std::int32_t reach_ = 0;  // PSNs from the stream's first to its newest
  std::bitset<static_cast<std::size_t>(size)> seen_;
  std::bitset<static_cast<std::size_t>(size)> delivered_;
};

}  // namespace nbx::analysis
