// Where time goes: what the profile did to the packets of some queue pairs, and what their owner says they waited for.
// Every instant is booked once, however many packets are on their way.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "frame/frame.hpp"

namespace nbx {

enum class Cause : std::uint8_t {
  queueing,       // behind frames of others on the profile's link
  serialisation,  // on that link
  propagation,    // the profile's delay
  recovery,       // something lost, damaged or held back had not been made good
  late_ghost,     // a ghost was not there yet
  between_ghosts,
};
inline constexpr std::size_t cause_count = 6;

struct TimeShares {
  std::array<Duration, cause_count> of{};

  [[nodiscard]] Duration& operator[](Cause cause) noexcept { return of[static_cast<std::size_t>(cause)]; }
  [[nodiscard]] Duration operator[](Cause cause) const noexcept { return of[static_cast<std::size_t>(cause)]; }
  [[nodiscard]] Duration sum() const noexcept;
  void add(const TimeShares& more) noexcept;
  [[nodiscard]] TimeShares since(const TimeShares& earlier) const noexcept;
};

/// One rule of the profile, or one reason without a rule, at work on the packets of an account.
struct Firing {
  Direction direction{};
  Effect effect{};
  std::uint8_t rule = 0;  // from 1; 0: not of a rule
  std::uint64_t frames = 0;
  Duration cost{};  // until it was made good; of a delay: the propagation that it is behind
  // The first of the frames.
  Qpn dest_qpn{};
  Psn psn{};
  std::uint8_t opcode = 0;
};

/// Costs a few additions per packet; nothing allocates but the queries.
class Account {
 public:
  // The ledger's.
  /// `frame` of connection `flow` will leave the profile at frame.due.
  void pass(const Frame& frame, Direction direction, const void* flow, Instant now) noexcept;
  /// The rule has acted on `frame`; answers its number here.
  std::size_t fire(const Frame& frame, Direction direction, Effect effect, Instant now) noexcept;
  /// What rule `firing` did to `flow` is to be made good, and has been.
  void harm(std::size_t firing, const void* flow, Instant now) noexcept;
  void repair(std::size_t firing, Instant now) noexcept;

  // The owner's.
  /// The owner does nothing before `until`: up to `late_until` because of a late ghost, then between ghosts.
  void hold(Instant late_until, Instant until, Instant now) noexcept;
  /// All time booked up to `now`, which must not lie behind what was booked before.
  [[nodiscard]] TimeShares shares(Instant now) const noexcept;
  /// When something was booked last.
  [[nodiscard]] Instant seen() const noexcept { return seen_; }
  [[nodiscard]] std::vector<Firing> firings(Instant now) const;
  /// The same, and counts from zero again.
  std::vector<Firing> take_firings(Instant now);

 private:
  static constexpr std::size_t firings_max = 32;  // the last takes what is beyond

  struct Row {
    Firing firing;
    std::uint32_t open = 0;  // not made good
    Instant open_since{};
  };

  void begin(Instant now) noexcept;
  void book(Cause cause, Instant until) noexcept;
  void take_back(TimeShares& shares, Instant from) const noexcept;
  [[nodiscard]] std::size_t row_of(Direction direction, Effect effect, std::uint8_t rule) noexcept;

  TimeShares shares_;
  Instant until_{};       // everything before is booked, or was nobody's
  Instant late_until_{};  // by hold(): these two
  Instant held_until_{};
  const void* last_flow_ = nullptr;  // whose frames have moved until_ last,
  Instant last_flow_from_{};         // and from where
  std::uint32_t open_ = 0;           // of all rows
  Instant seen_{};
  std::array<Row, firings_max> rows_{};
  std::size_t rows_used_ = 0;
};

}  // namespace nbx
