// The way of a packet through a switch.
#include "switching/switch.hpp"

#include <utility>

#include "base/check.hpp"

namespace nbx::switching {

Switch::Switch(Wheel& wheel, PacketOwner& owner, Rng rng, const SwitchSpec& spec, const std::vector<PortSpec>& ports,
               Routes routes)
    : owner_(&owner),
      rng_(rng),
      buffer_(spec.buffer, static_cast<PortIndex>(ports.size())),
      routes_(std::move(routes)) {
  NBX_CHECK(SharedBuffer::fits(spec.buffer, static_cast<PortIndex>(ports.size())));
  ports_.reserve(ports.size());
  for (const PortSpec& port : ports) {
    ports_.push_back(std::make_unique<Port>(*this, wheel, port, spec));
    for (unsigned p = 0; p < priorities; ++p) {
      ports_.back()->ramps[p] = EcnRamp{spec.ecn[p]};
    }
  }
}

void Switch::on_packet(Packet& packet, PortIndex port, Instant now) noexcept {
  packet.ingress = port;
  const unsigned priority = packet.priority;
  PortIndex to = routes_.pick(packet, now, rng_, [&](PortIndex p) { return ports_[p]->out.queued(priority); });
  if (to != no_port && !ports_[to]->out.link().up()) {
    to = routes_.other_than(to, packet.destination, [&](PortIndex p) { return ports_[p]->out.link().up(); });
  }
  if (to == no_port) {
    return drop(packet, SwitchDrop::no_route, now);
  }
  Port& out = *ports_[to];
  if (out.watchdog.dropping(priority)) {
    return drop(packet, SwitchDrop::pfc_watchdog, now);
  }
  const std::uint64_t queued = out.out.queued(priority);
  const bool chosen = out.ramps[priority].chooses(queued, rng_);
  if (chosen && packet.ecn == Ecn::not_ect && !lossless(packet)) {
    return drop(packet, SwitchDrop::red, now);
  }
  if (const std::optional<SwitchDrop> refusal = buffer_.admit(packet, queued)) {
    return drop(packet, *refusal, now);
  }
  ++counters_.admitted[priority];
  if (chosen) {
    if (packet.ecn == Ecn::not_ect) {
      ++counters_.unmarkable[priority];
    } else {
      packet.ecn = Ecn::ce;
      ++counters_.marked[priority];
    }
  }
  PfcSender& pfc = ports_[port]->pfc;
  if (lossless(packet) && !pfc.pausing(priority) && buffer_.above_xoff(port, priority)) {
    pfc.pause(priority, now);
  }
  out.out.enqueue(packet, now);
}

void Switch::on_pause(const PauseFrame& frame, PortIndex port, Instant now) noexcept {
  ports_[port]->out.on_pause(frame, now);
  ports_[port]->watchdog.on_pause(now);
}

void Switch::on_departed(Packet& packet, Instant now) noexcept { release(packet, now); }

void Switch::release(const Packet& packet, Instant now) noexcept {
  buffer_.release(packet);
  PfcSender& pfc = ports_[packet.ingress]->pfc;
  if (pfc.pausing(packet.priority) && buffer_.below_xon(packet.ingress, packet.priority)) {
    pfc.resume(packet.priority, now);
  }
}

void Switch::on_storm(EgressPort& port, unsigned priority, Instant now) noexcept {
  PacketList waiting;
  port.flush(priority, waiting);
  while (Packet* packet = waiting.pop_front()) {
    release(*packet, now);
    drop(*packet, SwitchDrop::pfc_watchdog, now);
  }
}

void Switch::drop(Packet& packet, SwitchDrop reason, Instant now) noexcept {
  ++counters_.drops[static_cast<std::size_t>(reason)][packet.priority];
  owner_->on_dropped(packet, reason, now);
}

}  // namespace nbx::switching
