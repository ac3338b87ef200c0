// Generators, and shortest paths by breadth-first search.
#include "switching/topology.hpp"

#include <deque>
#include <limits>
#include <utility>

#include "base/check.hpp"

namespace nbx::switching {
namespace {

std::string numbered(const char* what, std::uint32_t n) { return what + std::to_string(n); }

std::string numbered(const char* what, std::uint32_t group, std::uint32_t n) {
  return what + std::to_string(group) + "." + std::to_string(n);
}

constexpr std::uint32_t far_away = std::numeric_limits<std::uint32_t>::max();

bool may_use(const std::vector<bool>& usable, std::uint32_t cable) { return usable.empty() || usable[cable]; }

/// Hops from every switch to `from`.
std::vector<std::uint32_t> distances(const std::vector<std::vector<Neighbour>>& around, const std::vector<bool>& usable,
                                     SwitchId from) {
  std::vector<std::uint32_t> distance(around.size(), far_away);
  std::deque<SwitchId> frontier{from};
  distance[from] = 0;
  while (!frontier.empty()) {
    const SwitchId here = frontier.front();
    frontier.pop_front();
    for (const Neighbour& next : around[here]) {
      if (!next.end.host && distance[next.end.index] == far_away && may_use(usable, next.cable)) {
        distance[next.end.index] = distance[here] + 1;
        frontier.push_back(next.end.index);
      }
    }
  }
  return distance;
}

}  // namespace

HostId Topology::add_host(std::string name) {
  hosts.push_back(std::move(name));
  return static_cast<HostId>(hosts.size() - 1);
}

SwitchId Topology::add_switch(std::string name) {
  switches.push_back(std::move(name));
  return static_cast<SwitchId>(switches.size() - 1);
}

void Topology::connect_host(HostId host, SwitchId to, const CableSpec& spec) {
  cables.push_back({{true, host}, {false, to}, spec});
}

void Topology::connect(SwitchId a, SwitchId b, const CableSpec& spec) {
  cables.push_back({{false, a}, {false, b}, spec});
}

Topology rack(std::uint32_t hosts, const CableSpec& cable) {
  Topology t;
  const SwitchId tor = t.add_switch("tor");
  for (std::uint32_t h = 0; h < hosts; ++h) {
    t.connect_host(t.add_host(numbered("host", h)), tor, cable);
  }
  return t;
}

Topology leaf_spine(const LeafSpineSpec& spec) {
  Topology t;
  for (std::uint32_t l = 0; l < spec.leaves; ++l) {
    const SwitchId leaf = t.add_switch(numbered("leaf", l));
    for (std::uint32_t h = 0; h < spec.hosts_per_leaf; ++h) {
      t.connect_host(t.add_host(numbered("host", l * spec.hosts_per_leaf + h)), leaf, spec.host_cable);
    }
  }
  for (std::uint32_t s = 0; s < spec.spines; ++s) {
    const SwitchId spine = t.add_switch(numbered("spine", s));
    for (std::uint32_t i = 0; i < spec.leaves * spec.parallel; ++i) {
      t.connect(i / spec.parallel, spine, spec.fabric_cable);
    }
  }
  return t;
}

Topology fat_tree(std::uint32_t k, const CableSpec& cable) {
  NBX_CHECK(k % 2 == 0);
  const std::uint32_t half = k / 2;
  Topology t;
  for (std::uint32_t core = 0; core < half * half; ++core) {
    t.add_switch(numbered("core", core));
  }
  for (std::uint32_t pod = 0; pod < k; ++pod) {
    std::vector<SwitchId> aggregation;
    for (std::uint32_t i = 0; i < half; ++i) {
      aggregation.push_back(t.add_switch(numbered("agg", pod, i)));
      for (std::uint32_t j = 0; j < half; ++j) {
        t.connect(aggregation.back(), i * half + j, cable);
      }
    }
    for (std::uint32_t i = 0; i < half; ++i) {
      const SwitchId edge = t.add_switch(numbered("edge", pod, i));
      for (const SwitchId up : aggregation) {
        t.connect(edge, up, cable);
      }
      for (std::uint32_t h = 0; h < half; ++h) {
        t.connect_host(t.add_host(numbered("host", static_cast<std::uint32_t>(t.hosts.size()))), edge, cable);
      }
    }
  }
  return t;
}

Topology rail_optimized(const RailSpec& spec) {
  Topology t;
  const std::uint32_t groups = (spec.nodes + spec.nodes_per_group - 1) / spec.nodes_per_group;
  for (std::uint32_t g = 0; g < groups; ++g) {
    for (std::uint32_t r = 0; r < spec.rails; ++r) {
      t.add_switch(numbered("rail", g, r));
    }
  }
  for (std::uint32_t n = 0; n < spec.nodes; ++n) {
    for (std::uint32_t r = 0; r < spec.rails; ++r) {
      t.connect_host(t.add_host(numbered("node", n, r)), n / spec.nodes_per_group * spec.rails + r, spec.host_cable);
    }
  }
  for (std::uint32_t s = 0; s < spec.spines; ++s) {
    const SwitchId spine = t.add_switch(numbered("spine", s));
    for (SwitchId leaf = 0; leaf < groups * spec.rails; ++leaf) {
      t.connect(leaf, spine, spec.fabric_cable);
    }
  }
  return t;
}

Topology dragonfly(std::uint32_t p, std::uint32_t a, std::uint32_t h, const CableSpec& cable) {
  const std::uint32_t groups = a * h + 1;
  Topology t;
  for (std::uint32_t g = 0; g < groups; ++g) {
    for (std::uint32_t r = 0; r < a; ++r) {
      const SwitchId router = t.add_switch(numbered("router", g, r));
      for (std::uint32_t i = 0; i < p; ++i) {
        t.connect_host(t.add_host(numbered("host", static_cast<std::uint32_t>(t.hosts.size()))), router, cable);
      }
      for (std::uint32_t other = 0; other < r; ++other) {
        t.connect(g * a + other, router, cable);
      }
    }
  }
  // Global cable d of a group, from 0, leads to the d + 1st group behind it, where it is cable groups - 2 - d.
  for (std::uint32_t g = 0; g < groups; ++g) {
    for (std::uint32_t d = 0; d < a * h; ++d) {
      const std::uint32_t to = (g + d + 1) % groups;
      if (g < to) {
        t.connect(g * a + d / h, to * a + (groups - 2 - d) / h, cable);
      }
    }
  }
  return t;
}

std::vector<std::vector<Neighbour>> neighbours(const Topology& topology) {
  std::vector<std::vector<Neighbour>> around(topology.switches.size());
  for (std::uint32_t i = 0; i < topology.cables.size(); ++i) {
    const Topology::Cable& cable = topology.cables[i];
    if (!cable.a.host) {
      around[cable.a.index].push_back({cable.b, i});
    }
    if (!cable.b.host) {
      around[cable.b.index].push_back({cable.a, i});
    }
  }
  return around;
}

std::vector<std::vector<std::vector<PortIndex>>> shortest_paths(const Topology& topology,
                                                                const std::vector<bool>& usable) {
  const auto around = neighbours(topology);
  std::vector<SwitchId> home(topology.hosts.size(), far_away);
  for (const Topology::Cable& cable : topology.cables) {
    if (cable.a.host) {
      home[cable.a.index] = cable.b.index;
    }
  }
  std::vector<std::vector<std::vector<PortIndex>>> ways(around.size());
  for (auto& of_switch : ways) {
    of_switch.resize(topology.hosts.size());
  }
  std::vector<std::uint32_t> distance;
  for (HostId host = 0; host < topology.hosts.size(); ++host) {
    if (home[host] == far_away) {
      continue;
    }
    if (host == 0 || home[host] != home[host - 1]) {
      distance = distances(around, usable, home[host]);
    }
    for (SwitchId s = 0; s < around.size(); ++s) {
      for (std::size_t port = 0; port < around[s].size(); ++port) {
        const Topology::End& end = around[s][port].end;
        const bool there = end.host && end.index == host;
        const bool nearer = !end.host && distance[s] != far_away && distance[end.index] + 1 == distance[s];
        if ((there || nearer) && may_use(usable, around[s][port].cable)) {
          ways[s][host].push_back(static_cast<PortIndex>(port));
        }
      }
    }
  }
  return ways;
}

}  // namespace nbx::switching
