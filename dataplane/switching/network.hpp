// A topology at work: a switch for each switch, two links for each cable, routes. What is at the hosts is the caller's:
// a port of a real node, the transport of a ghost, a source of a simulation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "switching/switch.hpp"
#include "switching/topology.hpp"

namespace nbx::switching {

struct NetworkSpec {
  SwitchSpec switches{};
  PathSpec paths{};
  bool polarised = false;  // every switch hashes alike
};

class Network {
 public:
  /// Allocates everything that it will ever need.
  Network(Wheel& wheel, PacketOwner& owner, Topology topology, const NetworkSpec& spec, const Rng& rng);

  /// What comes out at `host` goes to `receiver`, as its port 0. Before the first packet.
  void attach(HostId host, Receiver& receiver);
  /// Into the network.
  [[nodiscard]] Link& uplink(HostId host) noexcept { return *host_links_[host].up; }
  [[nodiscard]] BitRate host_rate(HostId host) const noexcept { return host_links_[host].spec.rate; }
  /// See Routes::pin.
  void pin(std::uint64_t flow, HostId destination, SwitchId at, PortIndex port);
  /// Routes around the cables that are down, as a routing protocol would in the end; until then a switch only avoids
  /// its own dead links. Cold; pins stay.
  void reroute();
  /// Both directions; for a half-open cable see link().
  void set_cable_up(std::uint32_t cable, bool up, Instant now) noexcept;
  [[nodiscard]] Link& link(LinkId id) noexcept { return *links_[id]; }
  /// `from_a`: the direction from end a of the cable to end b.
  [[nodiscard]] Link& link(std::uint32_t cable, bool from_a) noexcept { return link(link_of(cable, from_a)); }

  [[nodiscard]] const Topology& topology() const noexcept { return topology_; }
  [[nodiscard]] Switch& at(SwitchId s) noexcept { return *switches_[s]; }
  [[nodiscard]] const Switch& at(SwitchId s) const noexcept { return *switches_[s]; }
  /// What is at the other end of a switch's port, and as which port of it.
  struct Peer {
    Topology::End end;
    PortIndex port;
  };
  [[nodiscard]] const Peer& peer(SwitchId s, PortIndex port) const noexcept { return peers_[s][port]; }
  [[nodiscard]] std::uint64_t dropped() const noexcept;

 private:
  struct HostLinks {
    Link* up = nullptr;
    Link* down = nullptr;
    CableSpec spec{};
  };

  struct PinAt {
    std::uint64_t flow;
    HostId destination;
    SwitchId at;
    PortIndex port;
  };
  [[nodiscard]] std::vector<Routes> make_routes();

  Topology topology_;
  PathSpec paths_;
  std::vector<std::uint64_t> ecmp_seeds_;
  std::vector<PinAt> pins_;
  std::vector<std::unique_ptr<Link>> links_;  // by LinkId
  std::vector<HostLinks> host_links_;
  std::vector<std::vector<Peer>> peers_;
  std::vector<std::unique_ptr<Switch>> switches_;
};

/// A queue of a switch: where a deadlock holds.
struct QueuePlace {
  SwitchId at;
  PortIndex port;
  unsigned priority;
  friend bool operator==(const QueuePlace&, const QueuePlace&) = default;
};

/// A cycle of queues each of which is paused because the next is full and paused: none will ever move again. Cold.
[[nodiscard]] std::optional<std::vector<QueuePlace>> find_deadlock(const Network& network, Instant now);
/// "s0 port 2 priority 3 -> s1 port 2 priority 3 -> ... -> s0 port 2 priority 3"
[[nodiscard]] std::string describe(const Network& network, const std::vector<QueuePlace>& cycle);

}  // namespace nbx::switching
