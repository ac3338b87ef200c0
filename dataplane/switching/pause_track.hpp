// What the pauses of one direction of a cable said and what they made of the peer: from the frames alone, so that a
// report of a run and the analysis of a capture are one arithmetic. PFC per priority (IEEE 802.1Q clause 36), PAUSE
// (IEEE 802.3 annex 31B) beside it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "switching/pause.hpp"

namespace nbx::switching {

/// Of one priority. Without the rate of the link only the frames are counted.
class PauseTrack {
 public:
  /// A frame replaces what is left of an earlier one; zero quanta resume.
  void on_frame(std::uint16_t quanta, BitRate link, Instant now) noexcept {
    now = std::max(now, since_);  // captures of several queues are not always in order
    if (now > until_ || pauses_ == 0) {
      if (pauses_ != 0 && !resumed_ && !link.unlimited()) {
        ++gaps_;
        longest_gap_ = std::max(longest_gap_, now - until_);
      }
      total_ = total();
      longest_ = longest();
      since_ = now;
    }
    until_ = now + pause_time(quanta, link);
    resumed_ = quanta == 0;
    ++(resumed_ ? resumes_ : pauses_);
    quanta_ += quanta;
  }

  [[nodiscard]] bool seen() const noexcept { return pauses_ + resumes_ != 0; }
  [[nodiscard]] std::uint64_t pauses() const noexcept { return pauses_; }
  [[nodiscard]] std::uint64_t resumes() const noexcept { return resumes_; }
  [[nodiscard]] std::uint64_t quanta() const noexcept { return quanta_; }
  /// Pauses that ran out before the next word, refresh or resume, came.
  [[nodiscard]] std::uint64_t gaps() const noexcept { return gaps_; }
  [[nodiscard]] Duration longest_gap() const noexcept { return longest_gap_; }
  /// Without interruption, and altogether; the last pause counts to its end.
  [[nodiscard]] Duration longest() const noexcept { return std::max(longest_, until_ - since_); }
  [[nodiscard]] Duration total() const noexcept { return total_ + (until_ - since_); }

 private:
  std::uint64_t pauses_ = 0;
  std::uint64_t resumes_ = 0;
  std::uint64_t quanta_ = 0;
  std::uint64_t gaps_ = 0;
  bool resumed_ = false;  // the last word was zero quanta
  Instant since_{};       // of the pause under way, or the last one
  Instant until_{};
  Duration longest_gap_{};
  Duration longest_{};
  Duration total_{};
};

/// Of all frames of one direction.
struct PauseTracks {
  std::array<PauseTrack, priorities> pfc;
  PauseTrack plain;

  void on_frame(const PauseFrame& frame, BitRate link, Instant now) noexcept {
    if (!frame.pfc) {
      plain.on_frame(frame.quanta[0], link, now);
      return;
    }
    for (unsigned p = 0; p < priorities; ++p) {
      if (((frame.class_enable >> p) & 1U) != 0) {
        pfc[p].on_frame(frame.quanta[p], link, now);
      }
    }
  }
};

}  // namespace nbx::switching
