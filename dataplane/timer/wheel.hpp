// Everything that waits: frames on a link, retransmission timers, scheduled events. A hierarchical timing wheel
// with an exact order: nodes fire by (due, order of arming), so the same input gives the same output byte for byte.
// Owns no clock and no node; never allocates.
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
  std::uint64_t order = 0;
  TimerClient* client = nullptr;
};

class TimerClient {
 public:
  /// `node.due` has come. The node is no longer armed and may be armed again from here.
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

  /// Fires every node that is due at or before `now`, in order, including nodes armed meanwhile. Each node is
  /// handed its own due time as `now` would have been on an ideal driver; `now` is the driver's clock.
  void run(Instant now) noexcept;

  /// When the earliest node is due; Instant::never() when none is armed. Exact.
  [[nodiscard]] Instant next_deadline() const noexcept;
  [[nodiscard]] std::uint64_t armed() const noexcept { return armed_; }

 private:
  static constexpr unsigned tick_shift = 16;  // a slot of level 0 spans 2^16 ps = 65.536 ns
  static constexpr unsigned slot_bits = 8;
  static constexpr unsigned levels = 6;  // 2^(16+48) ps: the whole range of Instant
  static constexpr unsigned slots = 1U << slot_bits;

  std::array<std::array<List<TimerNode>, slots>, levels> wheel_;
  std::array<std::array<std::uint64_t, slots / 64>, levels> occupied_{};
  List<TimerNode> due_;  // sorted: the nodes of the current tick
  std::uint64_t tick_ = 0;
  std::uint64_t next_order_ = 0;
  std::uint64_t armed_ = 0;
};

}  // namespace nbx
