// The pauses of one direction at one interface: PFC per priority (IEEE 802.1Q clause 36), and PAUSE (IEEE 802.3 annex
// 31B) beside them. How long a quantum lasts depends on the rate of the link, which a capture does not say.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/units.hpp"
#include "wire/mac_control.hpp"

namespace nbx::analysis {

/// What the frames that named one priority said, and, when the rate of the link is known, what it made of the peer.
class PauseTrack {
 public:
  /// A frame replaces what is left of an earlier one; zero quanta resume.
  void on_frame(std::uint16_t quanta, BitRate link, Instant now) {
    now = std::max(now, since_);  // captures of several queues are not always in order
    if (now > until_ || pauses_ == 0) {
      if (pauses_ != 0 && !resumed_ && quanta != 0 && !link.unlimited()) {
        ++gaps_;
        longest_gap_ = std::max(longest_gap_, now - until_);
      }
      total_ = total();
      longest_ = longest();
      since_ = now;
    }
    until_ = now + serialize_time_ceil(std::uint64_t{quanta} * wire::pause_quantum_bits / 8, link);
    resumed_ = quanta == 0;
    ++(resumed_ ? resumes_ : pauses_);
    quanta_ += quanta;
  }

  [[nodiscard]] bool seen() const { return pauses_ + resumes_ != 0; }
  [[nodiscard]] std::uint64_t pauses() const { return pauses_; }
  [[nodiscard]] std::uint64_t resumes() const { return resumes_; }
  [[nodiscard]] std::uint64_t quanta() const { return quanta_; }
  /// Pauses that ran out without a resume before the next one came: what neither a storm nor a refresh may have.
  [[nodiscard]] std::uint64_t gaps() const { return gaps_; }
  [[nodiscard]] Duration longest_gap() const { return longest_gap_; }
  /// Without interruption, and altogether; the last pause counts to its end.
  [[nodiscard]] Duration longest() const { return std::max(longest_, until_ - since_); }
  [[nodiscard]] Duration total() const { return total_ + (until_ - since_); }

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

struct PauseReport {
  std::array<PauseTrack, wire::priorities> pfc;
  PauseTrack plain;
};

}  // namespace nbx::analysis
