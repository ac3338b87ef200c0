// One direction of a port's profile at work: frames in, frames out later, or not at all.
#pragma once

#include <memory>

#include "base/rng.hpp"
#include "fabric/spec.hpp"
#include "frame/pool.hpp"
#include "stats/counters.hpp"
#include "timer/wheel.hpp"

namespace nbx::fabric {

/// Asked against achieved, for the report.
struct DelayStats {
  std::uint64_t frames = 0;
  Duration asked_min{}, asked_max{};
  double asked_mean_ps = 0;
  std::uint64_t late_frames = 0;  // released after they were due
  Duration late_median{}, late_max{};
};

/// Where frames go when they leave the direction, and where the capture hears of the others.
class ImpairmentSink {
 public:
  /// `frame` has passed every stage; the sink owns it.
  virtual void on_release(Frame& frame, Instant now) noexcept = 0;
  /// `frame` was dropped (frame.treatment says why); called before it is freed.
  virtual void on_drop(const Frame& frame, Instant now) noexcept = 0;
  /// `frame` (direction from_node) has its treatment decided, and its bytes are still those of the wire.
  virtual void on_decided(const Frame& frame, Instant now) noexcept = 0;

 protected:
  ~ImpairmentSink() = default;
};

/// The random stream is forked from the shard's seed by the caller, one per port and direction.
class Impairment {
 public:
  Impairment(const DirectionSpec& spec, Rng rng, FramePool& pool, Wheel& wheel, Counters& counters,
             ImpairmentSink& sink);
  ~Impairment();
  Impairment(const Impairment&) = delete;
  Impairment& operator=(const Impairment&) = delete;
  Impairment(Impairment&&) = delete;
  Impairment& operator=(Impairment&&) = delete;

  /// Takes ownership of `frame`. `ghost` is the ghost at the far end, or no_ghost for transit traffic.
  void submit(Frame& frame, GhostId ghost, Instant now) noexcept;

  /// Replaces the profile between two bursts; frames that wait keep their release times.
  void replace(const DirectionSpec& spec);

  [[nodiscard]] DelayStats delay_stats() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace nbx::fabric
