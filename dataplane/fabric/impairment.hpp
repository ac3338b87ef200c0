// One direction of a port's profile at work: frames in, frames out later, or not at all.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/rng.hpp"
#include "events/table.hpp"
#include "fabric/spec.hpp"
#include "frame/pool.hpp"
#include "stats/counters.hpp"
#include "timer/wheel.hpp"

namespace nbx::fabric {

/// How late frames were released after they were due.
struct Lateness {
  std::uint64_t frames = 0;
  std::uint64_t late_frames = 0;  // by a picosecond or more
  Duration median{}, p99{}, max{};
  std::vector<std::pair<std::uint64_t, std::uint64_t>> histogram_ns;  // value, frames; bins of 1 ns below 1,024 ns
};

/// Asked against achieved, for the report.
struct DelayStats {
  std::uint64_t frames = 0;
  Duration asked_min{}, asked_max{};
  double asked_mean_ps = 0;
  Lateness undisturbed;
  Lateness interrupted;  // of frames that were due while the driver did not run
};

/// Where frames go when they leave the direction, and where the capture hears of them. Every frame submitted and every
/// copy made is reported once by on_decided() or on_drop(), and those decided once more by on_release().
class ImpairmentSink {
 public:
  /// `frame` has passed every stage; the sink owns it. It was meant to leave at `frame.due`.
  virtual void on_release(Frame& frame, Instant now) noexcept = 0;
  /// `frame` was dropped (frame.treatment says why); called before it is freed.
  virtual void on_drop(const Frame& frame, Instant now) noexcept = 0;
  /// `frame` has its treatment decided, and its bytes are still those of the wire.
  virtual void on_decided(const Frame& frame, Instant now) noexcept = 0;

 protected:
  ~ImpairmentSink() = default;
};

/// Everything that happens to a frame is decided, in the order of the stages, when it is submitted. Each stage draws
/// from a stream of its own, forked from `rng`; the caller forks one per port and direction from the shard's seed.
/// Within a stage the numbers are drawn in this order: the selector of the rule that matched, then what its action
/// needs (which bit to flip). A duplicate passes the stages behind duplication right after the original.
///
/// Every frame counts: ARP, ping and the kernel's traffic belong to class `other` and are impaired by rules that do not
/// name a queue pair or sequence numbers. MAC control frames end at the port and are not submitted. A frame whose bytes
/// were corrupted keeps the Parsed of the wire; treatment.corrupted says that it must be checked again.
class Impairment {
 public:
  Impairment(const DirectionSpec& spec, Rng rng, FramePool& pool, Wheel& wheel, Counters& counters,
             ImpairmentSink& sink);
  ~Impairment();
  Impairment(const Impairment&) = delete;
  Impairment& operator=(const Impairment&) = delete;
  Impairment(Impairment&&) = delete;
  Impairment& operator=(Impairment&&) = delete;

  /// Takes ownership of `frame`, whose parsed describes it. `ghost` is the ghost at the far end, or no_ghost for
  /// transit traffic.
  void submit(Frame& frame, GhostId ghost, Instant now) noexcept;

  /// Replaces the profile between two bursts. Frames that wait keep their release times, and frames under a new rule
  /// that keeps order do not overtake them. Counts of frames (nth, lists, chains) start again; random streams go on.
  void replace(const DirectionSpec& spec);

  /// Another rate and queue for frames that are submitted from now on, until replace().
  void change_rate(const RateSpec& rate) noexcept;

  /// Events that are asked, before all stages, about what is submitted in `direction`; nullptr: none.
  void use(events::Table* events, Direction direction);

  /// Drops what is submitted before `until`; frames that wait already are past the link. A time in the past: the link
  /// is up.
  void take_down(Instant until) noexcept;

  /// The driver did not run from one time to the other: how late frames are that were due then is accounted apart.
  void interrupted(Instant from, Instant until) noexcept;

  [[nodiscard]] DelayStats delay_stats() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace nbx::fabric
