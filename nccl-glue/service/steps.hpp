// Training steps, recognised: operations that a communicator repeats in the same order.
#pragma once

#include <vector>

#include "nccl-glue/service/world.hpp"

namespace nbx::nccl {

struct StepReport {
  std::size_t operations = 0;
  std::uint64_t bytes = 0;
  Duration time{};           // from the end of the step before; of the first: from its first call
  Duration in_operations{};  // of that: the rest, nothing was called
  TimeShares shares;
  std::vector<Firing> firings;
  std::int32_t latest_rank = -1;  // the ghost that was latest, in any of its operations
  Duration latest_by{};
};

/// The steps that `operations` of one communicator, in the order of their calls, end with: the repetition that covers
/// most of them, the shortest where several do. Empty unless something has come three
/// times in a row. A step that is not complete is left out.
[[nodiscard]] std::vector<StepReport> steps_of(const std::vector<OperationReport>& operations);

}  // namespace nbx::nccl
