#include "nccl-glue/plan/tree.hpp"

#include <algorithm>

#include "nccl-glue/plan/lines.hpp"

namespace nbx::nccl {

TreePlan::TreePlan(const Decision& decision, const CommShape& shape, const Share& share)
    : protocol_(decision.protocol),
      step_(shape.buffers.step(decision.protocol)),
      share_(share),
      messages_((share.bytes + share.chunk - 1) / share.chunk) {}

TreeMessage TreePlan::message(std::uint64_t i) const {
  const std::uint64_t skip = i * share_.chunk;
  return {share_.offset + skip, static_cast<std::uint32_t>(std::min<std::uint64_t>(share_.chunk, share_.bytes - skip))};
}

std::uint32_t TreePlan::wire_bytes(std::uint32_t data) const {
  return static_cast<std::uint32_t>(wire_size(protocol_, data));
}

}  // namespace nbx::nccl
