// Everything that waits: frames on a link, retransmission timers, scheduled events. A hierarchical timing wheel
// (Varghese and Lauck 1987) with an exact order: nodes fire by (due, order of arming), so the same input gives the
// same output byte for byte. Owns no clock and no node; never allocates.
//
// A tick is one picosecond. A node lies at the level of the highest digit, in base 64, in which its due time differs
// from the current tick, in the slot of that digit. So a slot of level 0 holds equal times only, each level is later
// than the one below, and no slot ever needs sorting.
#pragma once

#include <array>
#include <cstdint>

#include "base/list.hpp"
#include "base/units.hpp"

namespace nbx {

class TimerClient;

/// Embedded in whatever waits. `client` must be set before the node is armed.
struct TimerNode : ListNode {
  Instant due{};
  TimerClient* client = nullptr;
};

class TimerClient {
 public:
  /// `node.due` has come; `now` is the driver's clock, which may be later. The node is no longer armed and may be
  /// armed again from here.
  virtual void on_timer(TimerNode& node, Instant now) noexcept = 0;

 protected:
  ~TimerClient() = default;
};

class Wheel {
 public:
  explicit Wheel(Instant start = {}) noexcept;

  /// Arms `node` for `due`; a node that is armed already is moved. A time in the past fires at the next run().
  void arm(TimerNode& node, Instant due) noexcept;
  /// Disarms `node`; nothing happens when it is not armed.
  void cancel(TimerNode& node) noexcept;
  /// Disarms every node of `client` and appends it to `out`: for a client that goes and does not know its nodes.
  /// Visits every node of the wheel.
  void cancel_all(const TimerClient& client, List<TimerNode>& out) noexcept;

  /// Fires every node that is due at or before `now`, in order, including nodes armed meanwhile. A driver that is
  /// late sees the order of one that is not. Must not be called from on_timer().
  void run(Instant now) noexcept;

  /// When the earliest node is due; Instant::never() when none is armed. Exact. Looks at more than one node only
  /// when the earliest node of the first occupied slot was cancelled since.
  [[nodiscard]] Instant next_deadline() const noexcept;
  [[nodiscard]] std::uint64_t armed() const noexcept { return armed_; }

 private:
  static constexpr unsigned slot_bits = 6;
  static constexpr unsigned slots_per_level = 1U << slot_bits;
  static constexpr unsigned levels = (64 + slot_bits - 1) / slot_bits;

  struct Slot {
    List<TimerNode> nodes;  // in order of arming
    Instant earliest{};     // no node is due before; exact unless the slot is stale
  };
  struct Level {
    std::array<Slot, slots_per_level> slots;
    std::uint64_t occupied = 0;
    std::uint64_t stale = 0;  // slots whose earliest node was cancelled
  };

  /// Picoseconds as an unsigned number of the same order.
  static std::uint64_t tick_of(Instant t) noexcept {
    return static_cast<std::uint64_t>(t.ps) ^ (std::uint64_t{1} << 63U);
  }
  static unsigned level_of(std::uint64_t difference) noexcept;
  static unsigned digit(std::uint64_t tick, unsigned level) noexcept {
    return (tick >> (level * slot_bits)) % slots_per_level;
  }

  void place(TimerNode& node) noexcept;
  void insert_due(TimerNode& node) noexcept;
  void advance(Instant to) noexcept;
  [[nodiscard]] Level* first_level() const noexcept;

  mutable std::array<Level, levels> levels_;  // next_deadline() may sharpen `earliest` of a stale slot
  List<TimerNode> due_;  // sorted: the nodes that were due at or before the current tick when they were placed
  Instant current_;      // the current tick; nothing outside due_ is due at or before it
  std::uint64_t armed_ = 0;
};

}  // namespace nbx
