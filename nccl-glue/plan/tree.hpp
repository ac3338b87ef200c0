// One channel's share of a tree all-reduce. Every connection of the tree carries every chunk once, in order: up, the
// sum of the subtree; down, the finished sum. Up and down have no order among each other. Invariant: message i is chunk
// i on every edge, so its shape does not depend on the rank.
#pragma once

#include <cstdint>

#include "nccl-glue/plan/channels.hpp"

namespace nbx::nccl {

struct TreeMessage {
  std::uint64_t offset = 0;  // bytes, in the vector that Share::offset refers to
  std::uint32_t bytes = 0;   // of data
};

class TreePlan {
 public:
  TreePlan(const Decision& decision, const CommShape& shape, const Share& share);

  /// Messages on each edge of the tree in each direction; every one takes one step of the connection's counter.
  [[nodiscard]] std::uint64_t messages() const { return messages_; }
  [[nodiscard]] TreeMessage message(std::uint64_t i) const;
  [[nodiscard]] std::uint32_t wire_bytes(std::uint32_t data) const;
  /// Size in the clear-to-send of a real receiver.
  [[nodiscard]] std::uint32_t clear_to_send() const { return step_; }

 private:
  Protocol protocol_;
  std::uint32_t step_;
  Share share_;
  std::uint64_t messages_;
};

}  // namespace nbx::nccl
