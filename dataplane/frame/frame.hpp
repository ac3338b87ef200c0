// A packet and its metadata. The bytes belong to whoever made the pool: mbufs on a port, a slab in a replay or a test.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/list.hpp"
#include "base/units.hpp"
#include "stats/counters.hpp"
#include "timer/wheel.hpp"
#include "wire/parse.hpp"

namespace nbx {

/// What a profile does to frames: first what its rules do, in the order of its stages.
enum class Effect : std::uint8_t { loss, corrupt, duplicate, ecn, delay, reorder, no_room, link_down };
inline constexpr std::size_t effects_by_rule = 6;

/// What the profile did to a frame; goes into captures as a comment.
struct Treatment {
  Drop dropped = Drop::none;
  bool ecn_marked = false;
  bool duplicate = false;  // this is the copy
  bool corrupted = false;
  bool reordered = false;
  std::uint8_t answer = 0;  // the AETH syndrome that an event has the responder answer with; 0: none
  std::uint32_t event = 0;  // that acted last, from 1; 0: none
  std::array<std::uint8_t, effects_by_rule> rule{};  // by Effect: which rule acted, from 1; 255: that or a later one
  Duration delay{};                                  // asked for; zero: none
  Duration on_link{};                                // how long the profile's link takes to send the frame

  [[nodiscard]] std::uint8_t& rule_of(Effect effect) noexcept { return rule[static_cast<std::size_t>(effect)]; }
  [[nodiscard]] std::uint8_t rule_of(Effect effect) const noexcept { return rule[static_cast<std::size_t>(effect)]; }
  [[nodiscard]] bool any() const {
    return dropped != Drop::none || ecn_marked || duplicate || corrupted || reordered || event != 0 ||
           delay != Duration::zero();
  }
};

/// Linked into at most one list or timer at a time.
struct Frame : TimerNode {
  std::byte* data = nullptr;
  std::uint32_t size = 0;
  std::uint32_t capacity = 0;  // bytes from data that may be written
  Instant arrival{};           // rx: when the port had it; tx: when the ghost made it
  GhostId ghost = no_ghost;    // the ghost that made it or will get it
  wire::Parsed parsed{};
  Treatment treatment{};
  std::uint32_t reorder_rule = 0;     // fabric: the rule that will hold the frame, from 1; 0: none
  std::uint64_t released_behind = 0;  // fabric: how many frames must have passed for a held one to go

  [[nodiscard]] ConstBytes bytes() const { return {data, size}; }
  [[nodiscard]] MutableBytes bytes() { return {data, size}; }
};
static_assert(sizeof(Frame) <= 192);

using FrameList = List<Frame>;

}  // namespace nbx
