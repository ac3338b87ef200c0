#include "config/cluster.hpp"

#include <algorithm>
#include <span>

namespace nbx::config {
namespace {

std::vector<std::byte> bytes(const Zero& /*zero*/) { return {}; }
std::vector<std::byte> bytes(const Pattern& /*pattern*/) { return {}; }
std::vector<std::byte> bytes(const HexBytes& hex) { return hex.value; }
std::vector<std::byte> bytes(const FileBytes& file) { return file.bytes; }
std::vector<std::byte> bytes(const Text& text) {
  const auto raw = std::as_bytes(std::span(text.value));
  return {raw.begin(), raw.end()};
}

}  // namespace

std::optional<Mac> peer_mac(const Peer& peer, const ClusterConfig& config) {
  if (peer.mac) {
    return peer.mac;
  }
  for (const Node& node : config.nodes) {
    for (const Located<Subnet>& address : node.addresses) {
      if (address->ip == *peer.address) {
        return *node.mac;
      }
    }
  }
  return std::nullopt;
}

std::vector<std::byte> bytes_of(const Content& content) {
  return std::visit([](const auto& each) { return bytes(each); }, content);
}
std::vector<std::byte> bytes_of(const PrivateData& data) {
  return std::visit([](const auto& each) { return bytes(each); }, data);
}

std::vector<NetworkHost> hosts_of(const ClusterConfig& config) {
  std::vector<NetworkHost> hosts;
  for (const Port& port : config.ports) {
    const auto node = std::find_if(config.nodes.begin(), config.nodes.end(),
                                   [&](const Node& each) { return *each.port == *port.name; });
    const bool named = node != config.nodes.end();
    hosts.push_back({&port, nullptr, named ? *node->name : config.ports.size() > 1 ? *port.name : std::string()});
    for (const Ghost& ghost : config.ghosts) {
      if (*ghost.port == *port.name) {
        hosts.push_back({&port, &ghost, *ghost.name});
      }
    }
  }
  return hosts;
}

std::vector<switching::HostId> hosts_named(const Located<std::string>& name, const ClusterConfig& config) {
  std::vector<switching::HostId> named;
  const std::vector<NetworkHost> hosts = hosts_of(config);
  for (std::uint32_t i = 0; i < hosts.size(); ++i) {
    const NetworkHost& host = hosts[i];
    if (host.name == *name || (host.ghost != nullptr ? host.ghost->group == *name : *name == node_word)) {
      named.push_back(i);
    }
  }
  return named;
}

std::vector<switching::HostId> hosts_named(const std::vector<Located<std::string>>& names,
                                           const ClusterConfig& config) {
  std::vector<switching::HostId> named;
  for (const Located<std::string>& name : names) {
    const auto found = hosts_named(name, config);
    named.insert(named.end(), found.begin(), found.end());
  }
  const std::vector<NetworkHost> hosts = hosts_of(config);
  for (std::uint32_t i = 0; names.empty() && i < hosts.size(); ++i) {
    if (hosts[i].ghost != nullptr) {
      named.push_back(i);
    }
  }
  return named;
}

}  // namespace nbx::config
