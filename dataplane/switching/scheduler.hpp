// Which of a port's queues sends next: strict priorities first, from 7 down to 0 (IEEE 802.1Q 8.6.8.1), then deficit
// round robin among the others (Shreedhar and Varghese 1996; the ETS of 802.1Q 8.6.8.3).
#pragma once

#include <array>
#include <cstdint>

#include "switching/packet.hpp"

namespace nbx::switching {

struct SchedulerSpec {
  /// Bytes a priority may send in its turn; zero: strict. A quantum below a frame costs turns, not correctness.
  std::array<std::uint32_t, priorities> quantum_bytes{};
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerSpec& spec) noexcept : spec_(spec) {
    for (unsigned p = 0; p < priorities; ++p) {
      strict_ |= spec_.quantum_bytes[p] == 0 ? static_cast<std::uint8_t>(1U << p) : std::uint8_t{0};
    }
  }

  /// `ready`: the queues that have a packet and may send, not none. `head_bytes(p)`: what the first of `p` occupies on
  /// the link. The packet of the answer leaves.
  template <class HeadBytes>
  [[nodiscard]] unsigned pick(std::uint8_t ready, HeadBytes head_bytes) noexcept {
    const unsigned strict = ready & strict_;
    if (strict != 0) {
      return 31U - static_cast<unsigned>(__builtin_clz(strict));
    }
    while (true) {
      const bool may = ((ready >> turn_) & 1U) != 0;
      if (may && !served_) {
        deficit_[turn_] += spec_.quantum_bytes[turn_];
        served_ = true;
      }
      if (may && head_bytes(turn_) <= deficit_[turn_]) {
        deficit_[turn_] -= head_bytes(turn_);
        return turn_;
      }
      turn_ = (turn_ + 1) % priorities;
      served_ = false;
    }
  }

  /// The queue of `priority` ran empty: it keeps no credit.
  void emptied(unsigned priority) noexcept { deficit_[priority] = 0; }

 private:
  SchedulerSpec spec_;
  std::uint8_t strict_ = 0;
  unsigned turn_ = 0;
  bool served_ = false;  // the queue whose turn it is has got its quantum
  std::array<std::uint64_t, priorities> deficit_{};
};

}  // namespace nbx::switching
