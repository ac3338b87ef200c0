// What the requester of a NIC with selective repeat knows of its packets behind the first one that the peer lacks, or
// of responses behind the first one that it lacks itself: which of them arrived, and which of the others are lost. IRN
// (Mittal et al., "Revisiting Network Support for RDMA", SIGCOMM 2018), 3.1: what is missing before a packet that
// arrived is lost. It is sent again once; if it is lost again, the timer finds it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>

#include "base/ids.hpp"

namespace nbx::rdma {

class SelectiveRepeat {
 public:
  /// For a window of so many packets that begins at `first`. What lies further ahead, behind a READ, is not remembered.
  void allocate(std::uint32_t window, Psn first) {
    size_ = std::max(std::bit_ceil(window), word);
    words_ = std::make_unique<std::uint64_t[]>(size_ / word);
    first_ = lost = lost_end = first;
  }
  [[nodiscard]] bool in_use() const noexcept { return words_ != nullptr; }

  [[nodiscard]] bool remembers(Psn psn) const noexcept { return psn.after(first_) && psn.before(first_.plus(size_)); }
  [[nodiscard]] bool arrived(Psn psn) const noexcept {
    return remembers(psn) && (words_[at(psn)] >> (psn.value % word) & 1U) != 0;
  }
  /// The one that is first now arrived before it was.
  [[nodiscard]] bool first_arrived() const noexcept { return in_use() && (words_[at(first_)] & bit(first_)) != 0; }
  /// `psn` arrived, and what is missing before `end` is lost.
  void learn(Psn psn, Psn end) noexcept {
    if (remembers(psn)) {
      words_[at(psn)] |= bit(psn);
    }
    lost_end = lost_end.before(end) ? end : lost_end;
  }
  void forget(Psn psn) noexcept { words_[at(psn)] &= ~bit(psn); }
  /// Everything before `to` is acknowledged.
  void acknowledge(Psn to) noexcept {
    for (std::uint32_t n = std::min((to.value - first_.value) & mask24, size_); n != 0; --n) {
      forget(first_);
      first_ = first_.next();
    }
    first_ = to;
    lost = lost.before(to) ? to : lost;
    lost_end = lost_end.before(to) ? to : lost_end;
  }

  Psn lost;                   // the next packet to be looked at,
  Psn lost_end;               // and where to stop
  std::uint32_t request = 0;  // index of the one that `lost` belongs to, or of an earlier one

 private:
  static constexpr std::uint32_t word = 64;
  [[nodiscard]] std::size_t at(Psn psn) const noexcept { return psn.value % size_ / word; }
  [[nodiscard]] static std::uint64_t bit(Psn psn) noexcept { return std::uint64_t{1} << (psn.value % word); }

  std::unique_ptr<std::uint64_t[]> words_;
  std::uint32_t size_ = 0;
  Psn first_;  // not acknowledged
};

}  // namespace nbx::rdma
