#include "port/peer_rings.hpp"

#include <rte_errno.h>
#include <rte_ring.h>

#include <string>

namespace nbx::port {

Result<std::unique_ptr<PeerRings>> PeerRings::create(std::size_t ports) {
  constexpr unsigned entries = 1024;
  std::unique_ptr<PeerRings> rings(new PeerRings(ports));
  for (std::size_t i = 0; i < ports * ports; ++i) {
    const std::size_t from = i / ports;
    const std::size_t to = i % ports;
    if (from == to) {
      continue;
    }
    const std::string name = "nbx-peer-" + std::to_string(from) + "-" + std::to_string(to);
    rings->rings_[i] = rte_ring_create(name.c_str(), entries, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
    if (rings->rings_[i] == nullptr) {
      return Error{"no memory for the rings between ports: " + std::string(rte_strerror(rte_errno))};
    }
  }
  return rings;
}

PeerRings::~PeerRings() {
  for (rte_ring* ring : rings_) {
    rte_ring_free(ring);
  }
}

bool PeerRings::push(PortId from, PortId to, Frame& frame) noexcept {
  return rte_ring_sp_enqueue(at(from, to), &frame) == 0;
}

Frame* PeerRings::pop(PortId from, PortId to) noexcept {
  void* frame = nullptr;
  return rte_ring_sc_dequeue(at(from, to), &frame) == 0 ? static_cast<Frame*>(frame) : nullptr;
}

}  // namespace nbx::port
