// The network between a port and its ghosts, when the cluster file has one: frames wait in the queues of its switches
// as packets, and so does background traffic, which has no frames. The port's cable and every ghost are hosts of it.
// What the profile does, it does at the port.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/rng.hpp"
#include "frame/pool.hpp"
#include "pipeline/network_report.hpp"
#include "switching/class_map.hpp"
#include "switching/network.hpp"
#include "switching/pause_storm.hpp"
#include "switching/slow_receiver.hpp"
#include "traffic/engine.hpp"

namespace nbx::pipeline {

/// Pauses of the switch at the real node's cable, whatever the traffic.
struct StormPlan {
  switching::PauseStormSpec pauses;
  Duration start{};
};

struct NetworkPlan {
  switching::Topology topology;
  switching::NetworkSpec spec;
  switching::HostId node = 0;             // the real node's place
  std::vector<switching::HostId> ghosts;  // by GhostId
  switching::ClassMap classes;
  std::optional<switching::ClassMap> node_classes;  // what the real node makes of a frame; none: not known
  std::optional<StormPlan> storm;
  std::vector<std::optional<switching::SlowReceiverSpec>> receivers;  // by GhostId
  std::uint32_t packets = 65'536;         // in the network at once; beyond: Drop::network_full
  std::optional<Duration> reroute_after;  // a cable's last change; none: switches only avoid their own dead cables
  std::vector<traffic::Spec> traffic;
};

class EmulatedNetwork {
 public:
  class User {
   public:
    /// `frame` has come to its ghost, or, with `at_node`, to the real node's end; marked CE if a switch did.
    virtual void on_crossed(Frame& frame, bool at_node, Instant now) noexcept = 0;
    /// A switch, or the network as a whole, has dropped `frame`.
    virtual void on_lost(Frame& frame, Drop why, Instant now) noexcept = 0;
    /// The switch at the real node's cable pauses it.
    virtual void on_pause(const switching::PauseFrame& pause, Instant now) noexcept = 0;

    /// A frame between the real node and a ghost has another priority here than at the node, or at the ghost.
    virtual void on_class_disagreement() noexcept = 0;

   protected:
    ~User() = default;
  };

  EmulatedNetwork(const NetworkPlan& plan, Wheel& wheel, const Rng& rng, User& user);
  ~EmulatedNetwork();
  EmulatedNetwork(const EmulatedNetwork&) = delete;
  EmulatedNetwork& operator=(const EmulatedNetwork&) = delete;
  EmulatedNetwork(EmulatedNetwork&&) = delete;
  EmulatedNetwork& operator=(EmulatedNetwork&&) = delete;

  /// Before the first frame: traffic and storms begin, whose times count from `now`.
  void start(Instant now);
  /// Takes ownership. A ghost's frame is on its way to the real node, or to the ghost `to`.
  void from_node(Frame& frame, GhostId to, Instant now) noexcept;
  void from_ghost(Frame& frame, GhostId from, std::optional<GhostId> to, Instant now) noexcept;
  /// A MAC control frame of kind pfc or pause from the real node: what the switch does with it.
  void pause_from_node(const Frame& frame, Instant now) noexcept;
  /// The cable carries nothing until then; a time in the past: it is up.
  void take_cable_down(std::uint32_t cable, Instant until, Instant now) noexcept;
  /// The buffers of these switches; 0: the size that they were made with.
  void resize_buffers(const std::vector<std::uint32_t>& switches, std::uint64_t size_bytes) noexcept;
  /// Frames that wait go back to `pool`.
  void free_all(FramePool& pool) noexcept;

  [[nodiscard]] const switching::Network& network() const noexcept;
  [[nodiscard]] const traffic::Engine& traffic() const noexcept;
  /// Cold.
  [[nodiscard]] NetworkReport report(Instant now) const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace nbx::pipeline
