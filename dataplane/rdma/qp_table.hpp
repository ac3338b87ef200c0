// (ghost, QPN) to queue pair for all ghosts of a shard at once: ten thousand ghosts cost no more than one. Open
// addressing with linear probing; removal shifts back, so there are no tombstones. Grows on insertion only.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.hpp"

namespace nbx::rdma {

class QueuePair;

class QpTable {
 public:
  QpTable() : slots_(64) {}

  [[nodiscard]] QueuePair* find(GhostId ghost, Qpn qpn) const noexcept {
    const std::uint64_t key = key_of(ghost, qpn);
    for (std::size_t i = home(key);; i = next(i)) {
      if (slots_[i].qp == nullptr || slots_[i].key == key) {
        return slots_[i].qp;
      }
    }
  }

  /// The pair must not be in the table.
  void insert(GhostId ghost, Qpn qpn, QueuePair& qp) {
    if ((size_ + 1) * 2 > slots_.size()) {
      grow();
    }
    place({key_of(ghost, qpn), &qp});
    ++size_;
  }

  void remove(GhostId ghost, Qpn qpn) noexcept {
    const std::uint64_t key = key_of(ghost, qpn);
    std::size_t hole = home(key);
    while (slots_[hole].key != key || slots_[hole].qp == nullptr) {
      if (slots_[hole].qp == nullptr) {
        return;
      }
      hole = next(hole);
    }
    for (std::size_t i = next(hole); slots_[i].qp != nullptr; i = next(i)) {
      // An entry may fill the hole unless its home lies behind the hole, up to where it is.
      const std::size_t wanted = home(slots_[i].key);
      if (((i - wanted) & (slots_.size() - 1)) >= ((i - hole) & (slots_.size() - 1))) {
        slots_[hole] = slots_[i];
        hole = i;
      }
    }
    slots_[hole] = {};
    --size_;
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  struct Slot {
    std::uint64_t key = 0;
    QueuePair* qp = nullptr;  // nullptr: free
  };

  [[nodiscard]] static std::uint64_t key_of(GhostId ghost, Qpn qpn) noexcept {
    return (std::uint64_t{index(ghost)} << 24U) | qpn.value;
  }
  [[nodiscard]] std::size_t home(std::uint64_t key) const noexcept {
    return ((key * 0x9e37'79b9'7f4a'7c15ULL) >> 32U) & (slots_.size() - 1);
  }
  [[nodiscard]] std::size_t next(std::size_t i) const noexcept { return (i + 1) & (slots_.size() - 1); }

  void place(Slot slot) noexcept {
    std::size_t i = home(slot.key);
    while (slots_[i].qp != nullptr) {
      i = next(i);
    }
    slots_[i] = slot;
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.qp != nullptr) {
        place(slot);
      }
    }
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

}  // namespace nbx::rdma
