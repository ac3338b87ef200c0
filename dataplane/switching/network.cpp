// Builds the network that a topology describes.
#include "switching/network.hpp"

#include <string>
#include <utility>

namespace nbx::switching {

Network::Network(Wheel& wheel, PacketOwner& owner, Topology topology, const NetworkSpec& spec, const Rng& rng)
    : topology_(std::move(topology)),
      paths_(spec.paths),
      host_links_(topology_.hosts.size()),
      peers_(topology_.switches.size()) {
  for (std::size_t i = 0; i < 2 * topology_.cables.size(); ++i) {
    links_.push_back(std::make_unique<Link>(wheel, owner));
  }
  std::vector<std::vector<Switch::PortSpec>> ports(topology_.switches.size());
  std::vector<std::pair<PortIndex, PortIndex>> port_of_end(topology_.cables.size());
  for (std::uint32_t i = 0; i < topology_.cables.size(); ++i) {
    const Topology::Cable& cable = topology_.cables[i];
    const auto end = [&](const Topology::End& here, Link& out, Link& in) {
      if (here.host) {
        host_links_[here.index] = {&out, &in, cable.spec};
        return PortIndex{0};
      }
      ports[here.index].push_back({cable.spec.rate, &out});
      return static_cast<PortIndex>(ports[here.index].size() - 1);
    };
    port_of_end[i].first = end(cable.a, link(i, true), link(i, false));
    port_of_end[i].second = end(cable.b, link(i, false), link(i, true));
  }

  for (SwitchId s = 0; s < topology_.switches.size(); ++s) {
    Rng seeds = spec.polarised ? rng.fork("ecmp") : rng.fork("ecmp " + std::to_string(s));
    ecmp_seeds_.push_back(seeds.next());
  }
  std::vector<Routes> routes = make_routes();
  for (SwitchId s = 0; s < topology_.switches.size(); ++s) {
    switches_.push_back(std::make_unique<Switch>(wheel, owner, rng.fork("switch " + std::to_string(s)), spec.switches,
                                                 ports[s], std::move(routes[s])));
    peers_[s].resize(ports[s].size());
  }

  for (std::uint32_t i = 0; i < topology_.cables.size(); ++i) {
    const Topology::Cable& cable = topology_.cables[i];
    const auto [port_a, port_b] = port_of_end[i];
    if (!cable.a.host) {
      link(i, false).connect(*switches_[cable.a.index], port_a, cable.spec.propagation, spec.switches.latency);
      peers_[cable.a.index][port_a] = {cable.b, port_b};
    }
    if (!cable.b.host) {
      link(i, true).connect(*switches_[cable.b.index], port_b, cable.spec.propagation, spec.switches.latency);
      peers_[cable.b.index][port_b] = {cable.a, port_a};
    }
  }
}

void Network::attach(HostId host, Receiver& receiver) {
  host_links_[host].down->connect(receiver, 0, host_links_[host].spec.propagation, Duration::zero());
}

void Network::pin(std::uint64_t flow, HostId destination, SwitchId at, PortIndex port) {
  pins_.push_back({flow, destination, at, port});
  switches_[at]->pin(flow, destination, port);
}

std::vector<Routes> Network::make_routes() {
  std::vector<bool> usable;
  for (std::uint32_t i = 0; i < topology_.cables.size(); ++i) {
    usable.push_back(link(i, true).up() && link(i, false).up());
  }
  const auto ways = shortest_paths(topology_, usable);
  std::vector<Routes> routes;
  for (SwitchId s = 0; s < topology_.switches.size(); ++s) {
    routes.emplace_back(paths_, ecmp_seeds_[s], topology_.hosts.size());
    for (const auto& of_host : ways[s]) {
      routes.back().add(of_host);
    }
  }
  for (const PinAt& pin : pins_) {
    routes[pin.at].pin(pin.flow, pin.destination, pin.port);
  }
  return routes;
}

void Network::reroute() {
  std::vector<Routes> routes = make_routes();
  for (SwitchId s = 0; s < topology_.switches.size(); ++s) {
    switches_[s]->set_routes(std::move(routes[s]));
  }
}

void Network::set_cable_up(std::uint32_t cable, bool up, Instant now) noexcept {
  link(cable, true).set_up(up, now);
  link(cable, false).set_up(up, now);
}

std::uint64_t Network::dropped() const noexcept {
  std::uint64_t sum = 0;
  for (const auto& s : switches_) {
    sum += s->counters().dropped();
  }
  return sum;
}

}  // namespace nbx::switching
