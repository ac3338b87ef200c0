// How the operations of one group are cut over channels ("continuous byte distribution", NCCL 2.22 and later): every
// rank computes the same from what all know. Invariant: the shares of an operation are disjoint, in ascending order
// of channel and offset, and together the operation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "nccl-glue/plan/operation.hpp"
#include "nccl-glue/wire/version.hpp"

namespace nbx::nccl {

inline constexpr std::uint32_t steps_in_flight = 8;  // NCCL_STEPS

/// Bytes of a connection's buffer by protocol: NCCL_BUFFSIZE, NCCL_LL_BUFFSIZE, NCCL_LL128_BUFFSIZE.
struct Buffers {
  std::uint32_t simple = 4U << 20U;
  std::uint32_t ll = 512U << 10U;
  std::uint32_t ll128 = 4915200;

  [[nodiscard]] constexpr std::uint32_t step(Protocol protocol) const {
    const std::uint32_t bytes = protocol == Protocol::simple ? simple : protocol == Protocol::ll ? ll : ll128;
    return bytes / steps_in_flight;
  }
};

/// What the cut depends on besides the operations.
struct CommShape {
  std::uint32_t ranks = 2;
  std::uint32_t nodes = 2;
  std::uint8_t channels = 1;  // of collectives, of the whole communicator
  Buffers buffers{};
};

struct PlannedOperation {
  Operation operation;
  Decision decision;
};

/// The part of an operation that one channel carries. Bytes of the whole vector; of one rank's part for all_gather
/// and reduce_scatter.
struct Share {
  std::uint8_t channel = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint32_t chunk = 0;  // data bytes of a full chunk
};

struct Placement {
  std::size_t index = 0;  // which operation of the group, as called
  std::vector<Share> shares;
};

/// Bytes of one step unit's chunk granularity (ncclProtoGrainSize).
[[nodiscard]] constexpr std::uint32_t grain(Protocol protocol) {
  return protocol == Protocol::simple ? 512 : protocol == Protocol::ll ? 16 : 1920;
}
/// The data of these is moved as bytes, whatever its type.
[[nodiscard]] constexpr bool moved_as_bytes(Collective collective) {
  return collective == Collective::all_gather || collective == Collective::broadcast;
}
/// Step units of a chunk and of each of its messages: (4, 2) or (1, 1).
struct StepUnits {
  std::uint32_t chunk = 1;
  std::uint32_t slice = 1;
};
[[nodiscard]] constexpr StepUnits step_units(Collective collective, const Decision& decision) {
  const bool sliced = collective == Collective::all_reduce || collective == Collective::all_gather ||
                      collective == Collective::reduce_scatter;
  const bool simple_ring = decision.protocol == Protocol::simple && decision.algorithm == Algorithm::ring;
  return sliced && simple_ring ? StepUnits{4, 2} : StepUnits{1, 1};
}

/// The collectives of one group (or a single one) in the order in which the GPUs run them. Empty ones do not appear.
/// Broadcasts of a group are taken one by one (NCCL_ALLGATHERV_ENABLE=0 from 2.29). Errors: a version that cuts
/// otherwise; send or recv; more channels than there are.
[[nodiscard]] Result<std::vector<Placement>> place(const Version& version, const CommShape& shape,
                                                   std::span<const PlannedOperation> group);

}  // namespace nbx::nccl
