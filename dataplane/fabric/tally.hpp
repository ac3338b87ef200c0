// What one direction of a profile did to the frames that came to it: the achieved side of the report.
#pragma once

#include <cstdint>

#include "frame/frame.hpp"

namespace nbx::fabric {

struct Tally {
  std::uint64_t frames = 0;  // submitted, and copies
  std::uint64_t lost = 0;
  std::uint64_t no_room = 0;  // in the queue or the delay line
  std::uint64_t duplicates = 0;
  std::uint64_t corrupted = 0;
  std::uint64_t ecn_marked = 0;
  std::uint64_t reordered = 0;

  /// Once per frame, when its treatment is decided.
  void record(const Treatment& treatment) noexcept {
    ++frames;
    lost += treatment.dropped == Drop::loss || treatment.dropped == Drop::event ? 1 : 0;
    no_room += treatment.dropped == Drop::queue_full || treatment.dropped == Drop::delay_line_full ? 1 : 0;
    duplicates += treatment.duplicate ? 1 : 0;
    corrupted += treatment.corrupted ? 1 : 0;
    ecn_marked += treatment.ecn_marked ? 1 : 0;
    reordered += treatment.reordered ? 1 : 0;
  }
};

}  // namespace nbx::fabric
