// The network between ports and ghosts, when the cluster file has one: frames wait in the queues of its switches as
// packets, and so does background traffic, which has no frames. Every port's cable and every ghost are hosts of it.
// What the profile does, it does at the port. All its shards are of one thread, and everything that waits in them and
// in the network is in one wheel.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
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

/// Whose hosts are behind one port.
struct NetworkPort {
  std::string name;
  switching::HostId node = 0;             // the real node's place
  std::vector<switching::HostId> ghosts;  // by GhostId
  std::optional<StormPlan> storm;
  std::vector<std::optional<SlowPlan>> receivers;  // by GhostId
};

struct NetworkPlan {
  switching::Topology topology;
  switching::NetworkSpec spec;
  std::vector<NetworkPort> ports = std::vector<NetworkPort>(1);  // by PortId
  switching::ClassMap classes;
  std::optional<switching::ClassMap> node_classes;  // what real nodes make of a frame; none: not known
  std::uint32_t packets = 65'536;                   // in the network at once; beyond: Drop::network_full
  std::vector<PinPlan> pins;                        // of those that match a frame the first one holds
  std::optional<Duration> reroute_after;  // a cable's last change; none: switches only avoid their own dead cables
  std::vector<traffic::Spec> traffic;
};

class EmulatedNetwork {
 public:
  /// What sends and receives: a ghost of a port, or, with no_ghost, its real node.
  struct End {
    PortId port{};
    GhostId ghost = no_ghost;
  };

  /// A port's shard.
  class User {
   public:
    /// `frame` has come from a host of port `from` to its ghost, or, with `at_node`, to the real node's end; marked CE
    /// if a switch did.
    virtual void on_crossed(Frame& frame, PortId from, bool at_node, Instant now) noexcept = 0;
    /// A switch, or the network as a whole, has dropped `frame`, which was on its way to a host of this port.
    virtual void on_lost(Frame& frame, Drop why, Instant now) noexcept = 0;
    /// The switch at the real node's cable pauses it.
    virtual void on_pause(const switching::PauseFrame& pause, Instant now) noexcept = 0;
    /// A frame between the real node and a ghost has another priority here than at the node, or at the ghost.
    virtual void on_class_disagreement() noexcept = 0;
    /// The ghost that `frame` is for; no_ghost: the real node.
    [[nodiscard]] virtual GhostId addressee(const Frame& frame) const noexcept = 0;

   protected:
    ~User() = default;
  };

  EmulatedNetwork(const NetworkPlan& plan, Wheel& wheel, const Rng& rng);
  ~EmulatedNetwork();
  EmulatedNetwork(const EmulatedNetwork&) = delete;
  EmulatedNetwork& operator=(const EmulatedNetwork&) = delete;
  EmulatedNetwork(EmulatedNetwork&&) = delete;
  EmulatedNetwork& operator=(EmulatedNetwork&&) = delete;

  /// Each port, before start().
  void attach(PortId port, User& user) noexcept;
  /// Before the first frame: traffic and storms begin, whose times count from `now`.
  void start(Instant now);
  /// Takes ownership. The frame is on its way to a ghost of any port, or to a real node.
  void send(Frame& frame, End from, End to, Instant now) noexcept;
  /// Who gets the frame behind that port.
  [[nodiscard]] End addressee(PortId port, const Frame& frame) const noexcept;
  /// A MAC control frame of kind pfc or pause from the port's real node: what its switch does with it.
  void pause_from_node(PortId port, const Frame& frame, Instant now) noexcept;
  /// The link carries nothing until then; a time in the past: it is up.
  void take_link_down(switching::LinkId link, Instant until, Instant now) noexcept;
  /// In place of a storm that blows at the port's real node. nullopt: it ends.
  void set_storm(PortId port, const std::optional<StormPlan>& storm, Instant now) noexcept;
  /// The ghost receives slowly from now on, or, with nullopt, as fast as it can.
  void set_receiver(PortId port, GhostId ghost, const std::optional<SlowPlan>& slow, Instant now);
  [[nodiscard]] traffic::Engine& traffic() noexcept;
  /// The buffers of these switches; 0: the size that they were made with.
  void resize_buffers(const std::vector<std::uint32_t>& switches, std::uint64_t size_bytes) noexcept;
  /// Frames that wait, of whatever port, go back to `pool`.
  void free_all(FramePool& pool) noexcept;

  [[nodiscard]] const switching::Network& network() const noexcept;
  [[nodiscard]] const traffic::Engine& traffic() const noexcept;
  /// Cold.
  [[nodiscard]] NetworkReport report(Instant now) const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

/// A network with several ports, and the wheel of their shards, which their driver runs.
struct SharedNetwork {
  SharedNetwork(const NetworkPlan& plan, const Rng& rng) : network(plan, wheel, rng) {}

  Wheel wheel;
  EmulatedNetwork network;
};

}  // namespace nbx::pipeline
