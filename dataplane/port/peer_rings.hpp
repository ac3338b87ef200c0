// Frames between the shards of two ports: one single-producer, single-consumer ring for each direction of each pair.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "frame/frame.hpp"

struct rte_ring;

namespace nbx::port {

class PeerRings {
 public:
  static Result<std::unique_ptr<PeerRings>> create(std::size_t ports);
  ~PeerRings();
  PeerRings(const PeerRings&) = delete;
  PeerRings& operator=(const PeerRings&) = delete;
  PeerRings(PeerRings&&) = delete;
  PeerRings& operator=(PeerRings&&) = delete;

  [[nodiscard]] std::size_t ports() const noexcept { return ports_; }
  /// False when the ring is full. Only `from`'s worker calls it.
  [[nodiscard]] bool push(PortId from, PortId to, Frame& frame) noexcept;
  /// The oldest frame from `from` to `to`, or nullptr. Only `to`'s worker calls it.
  [[nodiscard]] Frame* pop(PortId from, PortId to) noexcept;

 private:
  explicit PeerRings(std::size_t ports) : ports_(ports), rings_(ports * ports) {}
  [[nodiscard]] rte_ring* at(PortId from, PortId to) const noexcept { return rings_[index(from) * ports_ + index(to)]; }

  std::size_t ports_;
  std::vector<rte_ring*> rings_;  // null on the diagonal
};

}  // namespace nbx::port
