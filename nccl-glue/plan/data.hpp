// What ghosts put into a collective and how it is combined, as NCCL's kernels do it: one element at a time, each result
// rounded to the element's type. Spans are whole elements; no alignment is needed.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"
#include "nccl-glue/plan/operation.hpp"

namespace nbx::nccl {

/// What changes nothing when reduced: 0 for sum and avg, 1 for prod, the smallest value for max, the largest for min
/// (infinities for floating point).
void fill_identity(MutableBytes dst, DataType type, RedOp op) noexcept;

/// A pattern that shows misplaced data: element e of rank r is (r * 31 + e) mod 97 + 1, exact in every type. `first`
/// is the number of the first element of `dst`.
void fill_pattern(MutableBytes dst, DataType type, std::uint32_t rank, std::uint64_t first) noexcept;

/// dst = dst op src, of equal sizes. avg adds; see scale_input and divide.
void reduce(MutableBytes dst, ConstBytes src, DataType type, RedOp op) noexcept;

/// avg of floating point is a sum of what every rank has multiplied by 1/ranks first. Does nothing for other
/// operations and types.
void scale_input(MutableBytes data, DataType type, RedOp op, std::uint32_t ranks) noexcept;

/// avg of integers is a sum that the rank which finishes it divides by `ranks`, rounding towards zero. Does nothing
/// for other operations and types.
void divide(MutableBytes data, DataType type, RedOp op, std::uint32_t ranks) noexcept;

}  // namespace nbx::nccl
