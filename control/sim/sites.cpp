#include "sim/sites.hpp"

#include <algorithm>

namespace nbx::sim {
namespace {

/// Whether a node or a ghost of the file has it.
bool is_taken(const IpAddress& ip, const config::ClusterConfig& cluster) {
  const auto has = [&](const auto& each) {
    return std::any_of(each.addresses.begin(), each.addresses.end(), [&](const auto& own) { return own->ip == ip; });
  };
  return std::any_of(cluster.nodes.begin(), cluster.nodes.end(), has) ||
         std::any_of(cluster.ghosts.begin(), cluster.ghosts.end(), has);
}

/// A ghost with the name and addresses of a port's real node, without one in the file with the first free address of
/// those behind the last ghost's, and with the NIC of the first ghost. `unnamed`: nodes before it that are not in the
/// file.
pipeline::GhostPlan node_plan(const config::ClusterConfig& cluster, const std::vector<pipeline::ShardPlan>& ports,
                              std::size_t number, std::uint32_t& unnamed) {
  const auto has_ghosts = [](const pipeline::ShardPlan& port) { return !port.ghosts.empty(); };
  const pipeline::GhostPlan& first = std::find_if(ports.begin(), ports.end(), has_ghosts)->ghosts.front();
  const pipeline::GhostPlan& last = std::find_if(ports.rbegin(), ports.rend(), has_ghosts)->ghosts.back();
  pipeline::GhostPlan node;
  node.nic = first.nic;
  node.defaults = first.defaults;
  node.identity.vlan_tci = first.identity.vlan_tci;
  node.identity.traffic_class = first.identity.traffic_class;
  const auto given = std::find_if(cluster.nodes.begin(), cluster.nodes.end(), [&](const config::Node& each) {
    return ports.size() == 1 || *each.port == ports[number].port_name;
  });
  if (given != cluster.nodes.end()) {
    node.identity.name = *given->name;
    node.identity.mac = *given->mac;
    for (const auto& address : given->addresses) {
      node.identity.addresses.push_back({address->ip, address->prefix});
    }
  }
  if (node.identity.name.empty()) {
    node.identity.name = ports.size() == 1 ? config::node_word : ports[number].port_name;
  }
  const std::uint32_t place = node.identity.mac == Mac{} || node.identity.addresses.empty() ? ++unnamed : 0;
  if (node.identity.mac == Mac{}) {
    node.identity.mac = *parse_mac("52:54:00:00:00:00");
    node.identity.mac.octets[4] = static_cast<std::uint8_t>(place >> 8U);
    node.identity.mac.octets[5] = static_cast<std::uint8_t>(place);
  }
  if (node.identity.addresses.empty()) {
    ghost::InterfaceAddress address = last.identity.addresses.front();
    for (std::uint32_t left = place; left != 0;) {
      for (std::size_t octet = address.ip.octets.size(); octet-- != 0 && ++address.ip.octets[octet] == 0;) {
      }
      left -= is_taken(address.ip, cluster) ? 0 : 1;
    }
    node.identity.addresses.push_back(address);
  }
  return node;
}

}  // namespace

std::vector<std::unique_ptr<Site>> make_sites(const config::ClusterConfig& cluster,
                                              const std::vector<pipeline::ShardPlan>& plans) {
  std::vector<std::unique_ptr<Site>> sites;
  std::uint32_t rank = 0;
  std::uint32_t unnamed = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    Site& site = *sites.emplace_back(std::make_unique<Site>());
    site.first_rank = rank;
    rank += static_cast<std::uint32_t>(plans[i].ghosts.size()) + 1;
    pipeline::ShardPlan& port = site.port_plan = plans[i];
    for (pipeline::GhostPlan& ghost : port.ghosts) {
      ghost.personalities.clear();
      ghost.qps.clear();
      ghost.listeners.clear();
    }
    if (cluster.network && !port.transport.rate_limit) {
      port.transport.rate_limit = rdma::RateLimit{.line = cluster.network->host_rate};  // as a NIC's cable has it
    }
    site.node_plan.port_name = plans.size() == 1 ? "node" : port.port_name + "-node";
    site.node_plan.seed = port.seed;
    site.node_plan.mtu = port.mtu;
    site.node_plan.profile.name = "ideal";
    site.node_plan.transport = port.transport;
    site.node_plan.ghosts = {node_plan(cluster, plans, i, unnamed)};
  }
  for (const auto& site : sites) {
    for (const auto& other : sites) {
      if (site != other) {
        site->port_plan.elsewhere.emplace_back(other->node_plan.ghosts.front().identity.mac, other->port_plan.port);
      }
    }
  }
  return sites;
}

std::uint32_t smallest_path_mtu(const std::vector<std::unique_ptr<Site>>& sites) {
  std::uint32_t smallest = UINT32_MAX;
  for (const auto& site : sites) {
    for (const pipeline::GhostPlan& ghost : site->port_plan.ghosts) {
      smallest = std::min(smallest, ghost.defaults.path_mtu);
    }
  }
  return smallest;
}

std::uint32_t largest_mtu(const std::vector<std::unique_ptr<Site>>& sites) {
  return (*std::max_element(sites.begin(), sites.end(),
                            [](const auto& a, const auto& b) { return a->port_plan.mtu < b->port_plan.mtu; }))
      ->port_plan.mtu;
}

}  // namespace nbx::sim
