// NCCL's own words for the enumerators of operation.hpp.
#pragma once

#include "nccl-glue/plan/operation.hpp"

namespace nbx::nccl {

[[nodiscard]] constexpr const char* name(Collective collective) {
  constexpr const char* names[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter",
                                   "AllReduce", "?",      "Send",      "Recv"};
  return names[static_cast<std::uint8_t>(collective)];
}
[[nodiscard]] constexpr const char* name(DataType type) {
  constexpr const char* names[] = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                                   "uint64", "float16", "float32", "float64", "bfloat16"};
  return names[static_cast<std::uint8_t>(type)];
}
[[nodiscard]] constexpr const char* name(RedOp op) {
  constexpr const char* names[] = {"sum", "prod", "max", "min", "avg"};
  return names[static_cast<std::uint8_t>(op)];
}
[[nodiscard]] constexpr const char* name(Algorithm algorithm) { return algorithm == Algorithm::tree ? "TREE" : "RING"; }
[[nodiscard]] constexpr const char* name(Protocol protocol) {
  constexpr const char* names[] = {"LL", "LL128", "SIMPLE"};
  return names[static_cast<std::uint8_t>(protocol)];
}

}  // namespace nbx::nccl
