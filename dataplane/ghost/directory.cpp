// Both tables are built once; by_ip_ is at most half full, so that every probe ends.
#include "ghost/ghost.hpp"

#include <algorithm>
#include <bit>

namespace nbx::ghost {
namespace {

void add_link_local(Identity& ghost) {
  const bool given = std::ranges::any_of(ghost.addresses, [](const InterfaceAddress& a) {
    return a.ip.is_link_local_v6();
  });
  if (!given) {
    ghost.addresses.push_back({link_local_from_mac(ghost.mac), 64});
  }
}

}  // namespace

Directory::Directory(std::vector<Identity> ghosts) : ghosts_(std::move(ghosts)) {
  std::size_t addresses = 0;
  for (Identity& ghost : ghosts_) {
    add_link_local(ghost);
    addresses += ghost.addresses.size();
  }
  by_ip_.resize(std::bit_ceil(addresses * 2 + 1));
  for (std::uint32_t i = 0; i < ghosts_.size(); ++i) {
    by_mac_.emplace_back(ghosts_[i].mac, GhostId{i});
    for (const InterfaceAddress& address : ghosts_[i].addresses) {
      insert(address.ip, GhostId{i});
    }
  }
  std::ranges::sort(by_mac_);
}

void Directory::insert(const IpAddress& ip, GhostId ghost) noexcept {
  const std::size_t mask = by_ip_.size() - 1;
  std::size_t i = probe_start(ip, mask);
  while (by_ip_[i].ghost != no_ghost && by_ip_[i].ip != ip) {
    i = (i + 1) & mask;
  }
  by_ip_[i] = {ip, ghost};
}

GhostId Directory::by_ip(const IpAddress& ip) const noexcept {
  const std::size_t mask = by_ip_.size() - 1;
  for (std::size_t i = probe_start(ip, mask); by_ip_[i].ghost != no_ghost; i = (i + 1) & mask) {
    if (by_ip_[i].ip == ip) {
      return by_ip_[i].ghost;
    }
  }
  return no_ghost;
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
