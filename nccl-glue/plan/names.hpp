// NCCL's own words for what is in operation.hpp.
#pragma once

#include <string>

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

/// The call in words.
[[nodiscard]] inline std::string text(const Operation& operation) {
  std::string out =
      std::string{name(operation.collective)} + " of " + std::to_string(operation.count) + " " + name(operation.type);
  if (operation.collective == Collective::all_reduce || operation.collective == Collective::reduce ||
      operation.collective == Collective::reduce_scatter) {
    out += std::string{" ("} + name(operation.op) + ")";
  }
  if (operation.collective == Collective::broadcast || operation.collective == Collective::reduce) {
    out += ", root " + std::to_string(operation.root);
  }
  return out;
}

}  // namespace nbx::nccl
