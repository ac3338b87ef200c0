// Who the ghosts of a port are: names and addresses, and finding one by either.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/net.hpp"

namespace nbx::ghost {

struct InterfaceAddress {
  IpAddress ip;
  std::uint8_t prefix = 24;
};

struct Identity {
  std::string name;
  Mac mac;
  std::vector<InterfaceAddress> addresses;  // IPv4 and IPv6; the link-local IPv6 address is added by the directory
  std::uint16_t vlan_tci = 0;
  std::uint8_t traffic_class = 0;  // of packets that the ghost originates
};

/// Fixed after start. Lookups are one probe of an open-addressing table.
class Directory {
 public:
  explicit Directory(std::vector<Identity> ghosts);

  [[nodiscard]] std::size_t size() const noexcept { return ghosts_.size(); }
  [[nodiscard]] const Identity& operator[](GhostId id) const noexcept { return ghosts_[index(id)]; }
  [[nodiscard]] GhostId by_ip(const IpAddress& ip) const noexcept;
  [[nodiscard]] GhostId by_mac(const Mac& mac) const noexcept;
  [[nodiscard]] GhostId by_name(const std::string& name) const;
  /// The ghost whose solicited-node multicast group `group` is, or no_ghost.
  [[nodiscard]] GhostId by_solicited_node(const IpAddress& group) const noexcept;

 private:
  struct Entry {
    IpAddress ip;
    GhostId ghost = no_ghost;
  };
  [[nodiscard]] static std::size_t probe_start(const IpAddress& ip, std::size_t mask) noexcept {
    return hash_value(ip) & mask;
  }

  std::vector<Identity> ghosts_;
  std::vector<Entry> by_ip_;
  std::vector<std::pair<Mac, GhostId>> by_mac_;  // sorted
};

}  // namespace nbx::ghost
