// Flow control of a link: PAUSE (IEEE 802.3 annex 31B) and priority-based flow control (IEEE 802.1Q clause 36), as
// values and as the state of a transmitter. The room wire/ has the images of the frames.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "base/units.hpp"
#include "switching/packet.hpp"

namespace nbx::switching {

/// One quantum is 512 bit times of the link (802.3 31B.2, 802.1Q 36.1.3.3): 64 bytes.
inline constexpr std::uint32_t pause_quantum_bytes = 512 / 8;
inline constexpr std::uint16_t max_quanta = 0xffff;
/// A MAC control frame is of the least size (802.3 31B.1), counted as Packet::size is.
inline constexpr std::uint32_t pause_frame_size = 60;

/// At 400 Gb/s, 65535 quanta are 83.8848 us.
[[nodiscard]] constexpr Duration pause_time(std::uint16_t quanta, BitRate link) {
  return serialize_time_ceil(std::uint64_t{quanta} * pause_quantum_bytes, link);
}

struct PauseFrame {
  bool pfc = true;                                 // false: PAUSE, which stops all traffic for quanta[0]
  std::uint8_t class_enable = 0;                   // PFC: bit p says that quanta[p] is meant
  std::array<std::uint16_t, priorities> quanta{};  // zero: resume
};

/// What received frames make of a transmitter. PAUSE and PFC are told apart: a priority waits for both.
class PauseState {
 public:
  void on_frame(const PauseFrame& frame, BitRate link, Instant now) noexcept {
    if (!frame.pfc) {
      all_until_ = now + pause_time(frame.quanta[0], link);
      return;
    }
    for (unsigned p = 0; p < priorities; ++p) {
      if (((frame.class_enable >> p) & 1U) != 0) {
        until_[p] = now + pause_time(frame.quanta[p], link);
      }
    }
  }

  /// From when on `priority` may send; in the past when it may.
  [[nodiscard]] Instant until(unsigned priority) const noexcept { return std::max(until_[priority], all_until_); }
  [[nodiscard]] bool paused(unsigned priority, Instant now) const noexcept { return now < until(priority); }

 private:
  static constexpr Instant long_ago{std::numeric_limits<std::int64_t>::min()};
  std::array<Instant, priorities> until_{long_ago, long_ago, long_ago, long_ago,
                                         long_ago, long_ago, long_ago, long_ago};
  Instant all_until_ = long_ago;
};

}  // namespace nbx::switching
