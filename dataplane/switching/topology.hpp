// A network as plain data: hosts, switches and the cables between them, and generators of the usual ones. A host is one
// port of an end station and has one cable. Cold: nothing here is used per packet.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "switching/packet.hpp"

namespace nbx::switching {

using SwitchId = std::uint32_t;

struct CableSpec {
  BitRate rate = BitRate::gbps(100);
  Duration propagation{};
};

struct Topology {
  struct End {
    bool host = false;
    std::uint32_t index = 0;
    friend bool operator==(const End&, const End&) = default;
  };
  struct Cable {
    End a;
    End b;
    CableSpec spec;
  };

  std::vector<std::string> hosts;     // names, by HostId
  std::vector<std::string> switches;  // by SwitchId
  std::vector<Cable> cables;          // a switch numbers its ports in this order

  HostId add_host(std::string name);
  SwitchId add_switch(std::string name);
  void connect_host(HostId host, SwitchId to, const CableSpec& spec);
  void connect(SwitchId a, SwitchId b, const CableSpec& spec);
};

/// A direction of a cable: twice its number, and one more for what end b sends.
using LinkId = std::uint32_t;
[[nodiscard]] constexpr LinkId link_of(std::uint32_t cable, bool from_a) noexcept {
  return 2 * cable + (from_a ? 0 : 1);
}
[[nodiscard]] inline const Topology::End& sender(const Topology& topology, LinkId link) {
  const Topology::Cable& cable = topology.cables[link / 2];
  return link % 2 == 0 ? cable.a : cable.b;
}
[[nodiscard]] inline const Topology::End& receiver(const Topology& topology, LinkId link) {
  return sender(topology, link ^ 1U);
}

/// One switch.
[[nodiscard]] Topology rack(std::uint32_t hosts, const CableSpec& cable);

/// Every leaf to every spine, `parallel` times.
struct LeafSpineSpec {
  std::uint32_t leaves = 2;
  std::uint32_t spines = 2;
  std::uint32_t hosts_per_leaf = 8;
  std::uint32_t parallel = 1;
  CableSpec host_cable{};
  CableSpec fabric_cable{};
};
[[nodiscard]] Topology leaf_spine(const LeafSpineSpec& spec);

/// k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 cores, k^3/4 hosts (Al-Fares et al., SIGCOMM 2008). k even.
[[nodiscard]] Topology fat_tree(std::uint32_t k, const CableSpec& cable);

/// Nodes of `rails` ports; port r of every node of a group on the group's leaf r; every leaf to every spine. Host
/// n * rails + r is port r of node n.
struct RailSpec {
  std::uint32_t nodes = 2;
  std::uint32_t rails = 8;
  std::uint32_t nodes_per_group = 2;
  std::uint32_t spines = 2;
  CableSpec host_cable{};
  CableSpec fabric_cable{};
};
[[nodiscard]] Topology rail_optimized(const RailSpec& spec);

/// a h + 1 groups of `a` routers, all connected within the group, `h` cables from each router to other groups, one
/// between any two groups; `p` hosts at a router (Kim et al., ISCA 2008).
[[nodiscard]] Topology dragonfly(std::uint32_t p, std::uint32_t a, std::uint32_t h, const CableSpec& cable);

/// What a switch port leads to.
struct Neighbour {
  Topology::End end;
  std::uint32_t cable = 0;
};
/// [switch][port]
[[nodiscard]] std::vector<std::vector<Neighbour>> neighbours(const Topology& topology);

/// The ports of each switch that begin a shortest path to each host: [switch][host]. Empty: there is none. `usable`, by
/// cable: which may be used; empty: all.
[[nodiscard]] std::vector<std::vector<std::vector<PortIndex>>> shortest_paths(const Topology& topology,
                                                                              const std::vector<bool>& usable = {});

}  // namespace nbx::switching
