// Hosts hand packets to their flows and back to the pool.
#include "virtual_time/world.hpp"

#include <string>

namespace nbx::virtual_time {

void PacketPool::on_dropped(switching::Packet& packet, switching::SwitchDrop reason, Instant now) noexcept {
  ++dropped_[static_cast<std::size_t>(reason)];
  auto& own = static_cast<SimPacket&>(packet);
  own.of->on_dropped(own, now);
  give_back(own);
}

void Host::on_packet(switching::Packet& packet, switching::PortIndex /*port*/, Instant now) noexcept {
  auto& own = static_cast<SimPacket&>(packet);
  own.of->arrived(own, now);
  pool_->give_back(own);
}

void Host::on_departed(switching::Packet& packet, Instant now) noexcept {
  auto& own = static_cast<SimPacket&>(packet);
  own.of->departed(own, now - serialize_time_ceil(own.size + overhead_, port_.rate()) - own.queued_at, now);
}

World::World(const WorldSpec& spec)
    : rng_(spec.seed), pool_(spec.packets), network_(wheel_, pool_, spec.topology, spec.network, rng_.fork("network")) {
  for (switching::HostId h = 0; h < spec.topology.hosts.size(); ++h) {
    const switching::EgressSpec port{network_.host_rate(h), spec.network.switches.scheduler,
                                     spec.network.switches.overhead_bytes};
    hosts_.push_back(std::make_unique<Host>(wheel_, pool_, network_.uplink(h), port));
    network_.attach(h, *hosts_.back());
  }
}

Rng World::fork_rng() { return rng_.fork("flow " + std::to_string(forks_++)); }

}  // namespace nbx::virtual_time
