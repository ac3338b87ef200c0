// A reduction that multiplies before it adds (ncclRedOpCreatePreMulSum), with which averages stay meaningful although
// ghosts contribute nothing. Only floating-point types have fractions.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "nccl-glue/plan/operation.hpp"

namespace nbx::nccl::announce {

/// The factor as one element of the type; none: the type is an integer.
[[nodiscard]] std::optional<std::array<std::byte, 8>> scalar(DataType type, double factor);

}  // namespace nbx::nccl::announce
