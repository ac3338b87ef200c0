// The names of algorithms, protocols and functions, as NCCL's profiler and the environment spell them. Case is ignored.
#pragma once

#include <strings.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "nccl-glue/plan/operation.hpp"

namespace nbx::nccl::announce {

template <class Enum, std::size_t n>
std::optional<Enum> named(const std::array<std::pair<const char*, Enum>, n>& table, std::string_view name) {
  for (const auto& [text, value] : table) {
    if (strcasecmp(text, std::string(name).c_str()) == 0) {
      return value;
    }
  }
  return std::nullopt;
}

inline std::optional<Algorithm> algorithm_named(std::string_view name) {
  return named(std::array{std::pair{"tree", Algorithm::tree}, std::pair{"ring", Algorithm::ring}}, name);
}

inline std::optional<Protocol> protocol_named(std::string_view name) {
  return named(std::array{std::pair{"ll", Protocol::ll}, std::pair{"ll128", Protocol::ll128},
                          std::pair{"simple", Protocol::simple}},
               name);
}

inline std::optional<Collective> collective_named(std::string_view name) {
  return named(
      std::array{std::pair{"Broadcast", Collective::broadcast}, std::pair{"Reduce", Collective::reduce},
                 std::pair{"AllGather", Collective::all_gather}, std::pair{"ReduceScatter", Collective::reduce_scatter},
                 std::pair{"AllReduce", Collective::all_reduce}},
      name);
}

/// 8-bit floats count as bytes: none of the fields that matter here tells them apart.
inline DataType type_named(std::string_view name) {
  return named(std::array{std::pair{"ncclInt8", DataType::i8}, std::pair{"ncclUint8", DataType::u8},
                          std::pair{"ncclInt32", DataType::i32}, std::pair{"ncclUint32", DataType::u32},
                          std::pair{"ncclInt64", DataType::i64}, std::pair{"ncclUint64", DataType::u64},
                          std::pair{"ncclFloat16", DataType::f16}, std::pair{"ncclFloat32", DataType::f32},
                          std::pair{"ncclFloat64", DataType::f64}, std::pair{"ncclBfloat16", DataType::bf16}},
               name)
      .value_or(DataType::u8);
}

}  // namespace nbx::nccl::announce
