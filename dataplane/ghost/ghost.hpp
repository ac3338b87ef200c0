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
  std::vector<InterfaceAddress> addresses;  // IPv4 and IPv6
  std::uint16_t vlan_tci = 0;
  std::uint8_t traffic_class = 0;  // of packets that the ghost originates

  /// Every IPv6 host has a link-local address (RFC 4291 2.1): unless one is given, the one that Linux would make.
  void add_link_local();
  /// The address to talk to `peer` from: of its family, link-local to link-local; nullptr when there is none.
  [[nodiscard]] const IpAddress* source_for(const IpAddress& peer) const noexcept;
};

/// Lookups are one probe of an open-addressing table.
class Directory {
 public:
  explicit Directory(std::vector<Identity> ghosts);

  /// `id` has another MAC, and other addresses unless `addresses` is empty. Cold; references to its Identity stay
  /// valid.
  void change(GhostId id, const Mac& mac, const std::vector<InterfaceAddress>& addresses);

  [[nodiscard]] std::size_t size() const noexcept { return ghosts_.size(); }
  [[nodiscard]] const Identity& operator[](GhostId id) const noexcept { return ghosts_[index(id)]; }
  [[nodiscard]] GhostId by_ip(const IpAddress& ip) const noexcept { return by_ip_.find(ip); }
  [[nodiscard]] GhostId by_mac(const Mac& mac) const noexcept;
  [[nodiscard]] GhostId by_name(const std::string& name) const;
  /// A ghost whose solicited-node multicast group `group` is (several may share one), or no_ghost.
  [[nodiscard]] GhostId by_solicited_node(const IpAddress& group) const noexcept { return by_group_.find(group); }

 private:
  /// An open-addressing table, at most half full so that every probe ends.
  class Table {
   public:
    explicit Table(std::size_t entries_max);
    /// The first ghost to claim an address keeps it.
    void insert(const IpAddress& ip, GhostId ghost) noexcept;
    [[nodiscard]] GhostId find(const IpAddress& ip) const noexcept { return entries_[probe(ip)].ghost; }

   private:
    struct Entry {
      IpAddress ip;
      GhostId ghost = no_ghost;
    };
    /// Where `ip` is, or would be.
    [[nodiscard]] std::size_t probe(const IpAddress& ip) const noexcept {
      const std::size_t mask = entries_.size() - 1;
      std::size_t i = hash_value(ip) & mask;
      while (entries_[i].ghost != no_ghost && entries_[i].ip != ip) {
        i = (i + 1) & mask;
      }
      return i;
    }
    std::vector<Entry> entries_;
  };

  void index_all();

  std::vector<Identity> ghosts_;
  Table by_ip_;
  Table by_group_;
  std::vector<std::pair<Mac, GhostId>> by_mac_;  // sorted
};

}  // namespace nbx::ghost
