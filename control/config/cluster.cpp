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

}  // namespace nbx::config
