#include "config/cluster.hpp"

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

std::vector<switching::HostId> hosts_named(const Located<std::string>& name, const ClusterConfig& config) {
  if (*name == node_word) {
    return {0};
  }
  std::vector<switching::HostId> hosts;
  for (std::uint32_t i = 0; i < config.ghosts.size(); ++i) {
    if (*config.ghosts[i].name == *name || config.ghosts[i].group == *name) {
      hosts.push_back(i + 1);
    }
  }
  return hosts;
}

std::vector<switching::HostId> hosts_named(const std::vector<Located<std::string>>& names,
                                           const ClusterConfig& config) {
  std::vector<switching::HostId> hosts;
  for (const Located<std::string>& name : names) {
    const auto found = hosts_named(name, config);
    hosts.insert(hosts.end(), found.begin(), found.end());
  }
  for (std::uint32_t i = 0; names.empty() && i < config.ghosts.size(); ++i) {
    hosts.push_back(i + 1);
  }
  return hosts;
}

}  // namespace nbx::config
