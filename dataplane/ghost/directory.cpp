// Built before the first frame, and again when a ghost changes.
#include <algorithm>
#include <bit>

#include "ghost/ghost.hpp"

namespace nbx::ghost {
namespace {

std::vector<Identity> with_link_local(std::vector<Identity> ghosts) {
  for (Identity& ghost : ghosts) {
    ghost.add_link_local();
  }
  return ghosts;
}

std::size_t count_addresses(const std::vector<Identity>& ghosts) {
  std::size_t n = 0;
  for (const Identity& ghost : ghosts) {
    n += ghost.addresses.size();
  }
  return n;
}

}  // namespace

Directory::Table::Table(std::size_t entries_max) : entries_(std::bit_ceil(2 * entries_max + 1)) {}

void Directory::Table::insert(const IpAddress& ip, GhostId ghost) noexcept {
  Entry& entry = entries_[probe(ip)];
  if (entry.ghost == no_ghost) {
    entry = {ip, ghost};
  }
}

void Identity::add_link_local() {
  if (std::ranges::none_of(addresses, [](const InterfaceAddress& a) { return a.ip.is_link_local_v6(); })) {
    addresses.push_back({link_local_from_mac(mac), 64});
  }
}

const IpAddress* Identity::source_for(const IpAddress& peer) const noexcept {
  for (const InterfaceAddress& own : addresses) {
    if (own.ip.is_v4() == peer.is_v4() && own.ip.is_link_local_v6() == peer.is_link_local_v6()) {
      return &own.ip;
    }
  }
  return nullptr;
}

Directory::Directory(std::vector<Identity> ghosts)
    : ghosts_(with_link_local(std::move(ghosts))),
      by_ip_(count_addresses(ghosts_)),
      by_group_(count_addresses(ghosts_)) {
  index_all();
}

void Directory::change(GhostId id, const Mac& mac, const std::vector<InterfaceAddress>& addresses) {
  Identity& ghost = ghosts_[index(id)];
  const IpAddress implied = link_local_from_mac(ghost.mac);
  std::erase_if(ghost.addresses, [&](const InterfaceAddress& a) { return a.ip == implied; });
  ghost.mac = mac;
  if (!addresses.empty()) {
    ghost.addresses = addresses;
  }
  ghost.add_link_local();
  by_ip_ = Table(count_addresses(ghosts_));
  by_group_ = Table(count_addresses(ghosts_));
  by_mac_.clear();
  index_all();
}

void Directory::index_all() {
  by_mac_.reserve(ghosts_.size());
  for (std::uint32_t i = 0; i < ghosts_.size(); ++i) {
    const GhostId id{i};
    by_mac_.emplace_back(ghosts_[i].mac, id);
    for (const InterfaceAddress& address : ghosts_[i].addresses) {
      by_ip_.insert(address.ip, id);
      if (!address.ip.is_v4()) {
        by_group_.insert(solicited_node(address.ip), id);
      }
    }
  }
  std::ranges::sort(by_mac_);
}

GhostId Directory::by_mac(const Mac& mac) const noexcept {
  const auto at = std::ranges::lower_bound(by_mac_, mac, {}, &std::pair<Mac, GhostId>::first);
  return at != by_mac_.end() && at->first == mac ? at->second : no_ghost;
}

GhostId Directory::by_name(const std::string& name) const {
  const auto at = std::ranges::find(ghosts_, name, &Identity::name);
  return at == ghosts_.end() ? no_ghost : GhostId{static_cast<std::uint32_t>(at - ghosts_.begin())};
}

}  // namespace nbx::ghost
