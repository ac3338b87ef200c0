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

struct SlowPlan {
  switching::SlowReceiverSpec spec;
  Duration lasts{};  // zero: for good
};

/// Where frames from one host to another leave switches, whatever the path choice.
struct PinPlan {
  struct Hop {
    switching::SwitchId at;
    switching::PortIndex port;
  };
  switching::HostId from = 0;
  switching::HostId to = 0;
  std::optional<std::uint16_t> source_port;  // UDP; none: all flows of the pair
  std::vector<Hop> hops;
};

struct NetworkPlan {
  switching::Topology topology;
  switching::NetworkSpec spec;
  switching::HostId node = 0;             // the real node's place
  std::vector<switching::HostId> ghosts;  // by GhostId
  switching::ClassMap classes;
  std::optional<switching::ClassMap> node_classes;  // what the real node makes of a frame; none: not known
  std::optional<StormPlan> storm;
  std::vector<std::optional<SlowPlan>> receivers;  // by GhostId
  std::uint32_t packets = 65'536;                  // in the network at once; beyond: Drop::network_full
  std::vector<PinPlan> pins;                       // of those that match a frame the first one holds
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
  /// The link carries nothing until then; a time in the past: it is up.
  void take_link_down(switching::LinkId link, Instant until, Instant now) noexcept;
  /// In place of a storm that blows. nullopt: it ends.
  void set_storm(const std::optional<StormPlan>& storm, Instant now) noexcept;
  /// The ghost receives slowly from now on, or, with nullopt, as fast as it can.
  void set_receiver(GhostId ghost, const std::optional<SlowPlan>& slow, Instant now);
  [[nodiscard]] traffic::Engine& traffic() noexcept;
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
