// One port and everything behind it: the way of a frame from the port through the fabric to the ghosts and back.
// Three drivers run it unchanged: the worker loop on DPDK ports, the replay of a capture, and tests in virtual time.
// Owned by one thread; shares nothing but a network of several ports.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "capture/tap.hpp"
#include "events/table.hpp"
#include "fabric/impairment.hpp"
#include "fabric/tally.hpp"
#include "frame/pool.hpp"
#include "ghost/personality.hpp"
#include "ghost/streams.hpp"
#include "pipeline/plan.hpp"
#include "pipeline/rate_tracer.hpp"
#include "stats/counters.hpp"

namespace nbx::pipeline {

/// What happened on static queue pairs and at responders: for replays and tests.
class Observer : public rdma::DeliveryObserver {
 public:
  virtual void on_completion(GhostId ghost, Qpn qpn, const rdma::Completion& completion, Instant now) noexcept = 0;

 protected:
  ~Observer() = default;
};

/// Makes what all ghosts of a shard do together; the context is that of the first ghost.
using MakeEnsemble = std::function<std::unique_ptr<ghost::Personality>(const ghost::Context&)>;

/// The parts of the world that a driver lends to a shard. Null where the driver has none.
struct ShardEnvironment {
  FrameSource* frames = nullptr;      // required
  Counters* counters = nullptr;       // required; outlives the shard, readable from any thread
  ghost::Streams* streams = nullptr;  // null: no exception path; frames for the kernel are counted and dropped
  capture::Tap* tap = nullptr;
  bool tap_inbound = true;                     // false: only what leaves the port is captured
  std::vector<capture::Tap*> ghost_taps = {};  // of ghosts' own ports, by ghost; null, and beyond the end: none
  Observer* observer = nullptr;
  MakeEnsemble ensemble = nullptr;
  SharedNetwork* network = nullptr;  // of all ports; null: one of the shard's own if its plan has one
};

class Shard {
 public:
  /// `plan` outlives the shard.
  Shard(const ShardPlan& plan, const ShardEnvironment& environment);
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;
  Shard(Shard&&) = delete;
  Shard& operator=(Shard&&) = delete;

  /// Starts static queue pairs and personalities. `now` is the start of the run.
  void start(Instant now);

  // Frames in; the shard takes ownership. Buffers must come from the environment's frame source.
  void receive(FrameList& burst, Instant now) noexcept;
  /// An IP packet that a kernel socket of a ghost sends (no Ethernet header).
  void receive_from_kernel(ConstBytes packet, Instant now) noexcept;
  /// A frame that another port's shard sent here.
  void receive_from_peer(Frame& frame, PortId peer, Instant now) noexcept;

  /// Fires timers that are due (with a shared network its driver has done so before) and, if the port has room for more
  /// frames, lets the ghosts send. True: call again at once, there is more to do.
  bool progress(Instant now, bool port_has_room = true) noexcept;
  [[nodiscard]] Instant next_deadline() const noexcept;

  // Frames out; the driver takes them after each call. What it cannot deliver it gives to discard().
  [[nodiscard]] FrameList& to_port() noexcept;
  [[nodiscard]] FrameList& to_kernel() noexcept;  // bytes() starts with the IP header
  [[nodiscard]] FrameList& to_peer(PortId peer) noexcept;
  void discard(Frame& frame, Drop why) noexcept;
  void release(Frame& frame) noexcept;

  // Control, between two bursts, on the owning thread.
  void replace_profile(const fabric::ProfileSpec& profile, Instant now);
  /// The link to the real node is down until then; a time in the past: up.
  void take_down(Instant until, bool from_node = true, bool to_node = true) noexcept;
  /// The same of links of the emulated network, which must be there.
  void take_links_down(const std::vector<switching::LinkId>& links, Instant until, Instant now) noexcept;
  /// Background traffic; nullptr without a network.
  [[nodiscard]] const traffic::Engine* traffic() const noexcept;
  /// What the rates of the ghosts' queue pairs do.
  [[nodiscard]] RateTracer& rate_tracer() noexcept;
  [[nodiscard]] const fabric::ProfileSpec& profile() const noexcept;
  /// The events of the profile; nullptr when it has none.
  [[nodiscard]] const events::Table* events() const noexcept;
  /// nullptr: the ghosts are at the other end of the port's cable.
  [[nodiscard]] const EmulatedNetwork* network() const noexcept;
  [[nodiscard]] EmulatedNetwork* network() noexcept;
  [[nodiscard]] rdma::Transport& transport() noexcept;
  [[nodiscard]] rdma::Cm& cm() noexcept;
  [[nodiscard]] const ghost::Directory& directory() const noexcept;
  [[nodiscard]] std::span<const std::unique_ptr<ghost::Personality>> personalities(GhostId ghost) const noexcept;
  [[nodiscard]] FramePool& pool() noexcept;
  [[nodiscard]] const fabric::Tally& tally(fabric::Direction direction) const noexcept;
  /// The driver did not run from one time to the other; it has not been in progress() since.
  void interrupted(Instant from, Instant until) noexcept;
  [[nodiscard]] fabric::DelayStats delay_stats(fabric::Direction direction) const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace nbx::pipeline
