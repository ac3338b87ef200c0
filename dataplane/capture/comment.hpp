// What the emulator did to a frame, as the comment of its record: one line for people and programs,
//   nbx: [dropped REASON] [delay=Nns [late=Nns]] [ecn-marked] [duplicate] [corrupted] [reordered] [event=N]
// REASON is a drop's name in counters.def. delay is what was asked for; late is how long after its due time, waits for
// a rate or for earlier frames included, the frame left: achieved minus asked.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/units.hpp"
#include "frame/frame.hpp"

namespace nbx::capture {

inline constexpr std::size_t comment_size_max = 192;
using CommentBuffer = std::array<char, comment_size_max>;

/// The comment, in `buffer`; empty when nothing was done to the frame. `late` without a delay is left out.
[[nodiscard]] std::string_view format_comment(CommentBuffer& buffer, const Treatment& treatment,
                                              std::optional<Duration> late) noexcept;

struct Comment {
  std::string_view dropped;  // the reason; empty: not dropped
  std::optional<std::int64_t> delay_ns;
  std::optional<std::int64_t> late_ns;
  bool ecn_marked = false;
  bool duplicate = false;
  bool corrupted = false;
  bool reordered = false;
  std::uint32_t event = 0;  // that acted last, from 1 in the order of the profile; 0: none
};

/// nullopt when `text` is not a comment of this form. The reason points into `text`.
[[nodiscard]] std::optional<Comment> parse_comment(std::string_view text) noexcept;

}  // namespace nbx::capture
