// See wheel.hpp. Moving the current tick to T touches one slot at most: the one that T enters, whose nodes then differ
// from T only in lower digits. Every lower level is empty by then, because all of its nodes were due before that slot.
#include "timer/wheel.hpp"

#include <algorithm>
#include <bit>

namespace nbx {

Wheel::Wheel(Instant start) noexcept : current_(start) {}

void Wheel::arm(TimerNode& node, Instant due) noexcept {
  cancel(node);
  node.due = due;
  place(node);
  ++armed_;
}

void Wheel::cancel(TimerNode& node) noexcept {
  if (!node.linked()) {
    return;
  }
  node.unlink();
  --armed_;
  const std::uint64_t tick = tick_of(node.due);
  if (tick <= tick_of(current_)) {
    return;
  }
  const unsigned n = level_of(tick ^ tick_of(current_));
  Level& level = levels_[n];
  Slot& slot = level.slots[digit(tick, n)];
  const std::uint64_t bit = std::uint64_t{1} << digit(tick, n);
  if (slot.nodes.empty()) {
    level.occupied &= ~bit;
  } else if (node.due == slot.earliest) {
    level.stale |= bit;
  }
}

void Wheel::cancel_all(const TimerClient& client, List<TimerNode>& out) noexcept {
  const auto sweep = [&](List<TimerNode>& nodes) {
    for (TimerNode* node = nodes.front(); node != nullptr;) {
      TimerNode* after = nodes.after(*node);
      if (node->client == &client) {
        cancel(*node);
        out.push_back(*node);
      }
      node = after;
    }
  };
  sweep(due_);
  for (Level& level : levels_) {
    for (Slot& slot : level.slots) {
      sweep(slot.nodes);
    }
  }
}

void Wheel::run(Instant now) noexcept {
  for (;;) {
    for (TimerNode* node = due_.front(); node != nullptr && node->due <= now; node = due_.front()) {
      node->unlink();
      --armed_;
      node->client->on_timer(*node, now);
    }
    if (now <= current_) {
      return;
    }
    // A stale slot only makes this an instant too early, at which nothing fires.
    const Level* level = first_level();
    const auto first = level == nullptr ? 0U : static_cast<unsigned>(std::countr_zero(level->occupied));
    advance(level == nullptr ? now : std::min(now, level->slots[first].earliest));
  }
}

Instant Wheel::next_deadline() const noexcept {
  if (!due_.empty()) {
    return due_.front()->due;
  }
  Level* level = first_level();
  if (level == nullptr) {
    return Instant::never();
  }
  const auto n = static_cast<unsigned>(std::countr_zero(level->occupied));
  Slot& slot = level->slots[n];
  const std::uint64_t bit = std::uint64_t{1} << n;
  if ((level->stale & bit) != 0) {
    level->stale &= ~bit;
    slot.earliest = Instant::never();
    for (TimerNode* node = slot.nodes.front(); node != nullptr; node = slot.nodes.after(*node)) {
      slot.earliest = std::min(slot.earliest, node->due);
    }
  }
  return slot.earliest;
}

unsigned Wheel::level_of(std::uint64_t difference) noexcept {
  return (63U - static_cast<unsigned>(std::countl_zero(difference))) / slot_bits;
}

Wheel::Level* Wheel::first_level() const noexcept {
  auto* const found = std::find_if(levels_.begin(), levels_.end(), [](const Level& l) { return l.occupied != 0; });
  return found == levels_.end() ? nullptr : &*found;
}

void Wheel::place(TimerNode& node) noexcept {
  const std::uint64_t tick = tick_of(node.due);
  if (tick <= tick_of(current_)) {
    insert_due(node);
    return;
  }
  const unsigned n = level_of(tick ^ tick_of(current_));
  Level& level = levels_[n];
  Slot& slot = level.slots[digit(tick, n)];
  const std::uint64_t bit = std::uint64_t{1} << digit(tick, n);
  slot.nodes.push_back(node);
  if ((level.occupied & bit) == 0) {
    level.occupied |= bit;
    level.stale &= ~bit;
    slot.earliest = node.due;
  } else if (node.due <= slot.earliest) {
    level.stale &= ~bit;
    slot.earliest = node.due;
  }
}

/// Behind every node that is due at the same time or before. Times in the past come in ascending order as a rule.
void Wheel::insert_due(TimerNode& node) noexcept {
  TimerNode* where = due_.back();
  while (where != nullptr && where->due > node.due) {
    where = due_.before(*where);
  }
  if (where == nullptr) {
    due_.push_front(node);
  } else {
    due_.insert_after(*where, node);
  }
}

/// Moves the current tick; no node outside due_ is due before `to`.
void Wheel::advance(Instant to) noexcept {
  const std::uint64_t tick = tick_of(to);
  const unsigned n = level_of(tick ^ tick_of(current_));
  Level& level = levels_[n];
  const std::uint64_t bit = std::uint64_t{1} << digit(tick, n);
  current_ = to;
  if ((level.occupied & bit) == 0) {
    return;
  }
  level.occupied &= ~bit;
  List<TimerNode> entered;
  entered.splice_back(level.slots[digit(tick, n)].nodes);
  while (TimerNode* node = entered.pop_front()) {
    place(*node);
  }
}

}  // namespace nbx
