// An operation as NCCL's caller asked for it, and as NCCL decided to run it. Enumerators have NCCL's values.
#pragma once

#include <cstdint>

namespace nbx::nccl {

enum class Collective : std::uint8_t {
  broadcast = 0,
  reduce = 1,
  all_gather = 2,
  reduce_scatter = 3,
  all_reduce = 4,
  send = 6,
  recv = 7
};
enum class DataType : std::uint8_t {
  i8 = 0,
  u8 = 1,
  i32 = 2,
  u32 = 3,
  i64 = 4,
  u64 = 5,
  f16 = 6,
  f32 = 7,
  f64 = 8,
  bf16 = 9
};
enum class RedOp : std::uint8_t { sum = 0, prod = 1, max = 2, min = 3, avg = 4 };
enum class Algorithm : std::uint8_t { tree = 0, ring = 1 };
enum class Protocol : std::uint8_t { ll = 0, ll128 = 1, simple = 2 };

[[nodiscard]] constexpr std::uint32_t type_size(DataType type) {
  constexpr std::uint8_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return sizes[static_cast<std::uint8_t>(type)];
}

/// One call. `count` as the caller gave it: elements of sendbuff for all_gather, of recvbuff for reduce_scatter.
struct Operation {
  Collective collective = Collective::all_reduce;
  std::uint64_t count = 0;
  DataType type = DataType::f32;
  RedOp op = RedOp::sum;
  std::int32_t root = 0;  // broadcast and reduce; the peer of send and recv

  friend bool operator==(const Operation&, const Operation&) = default;
};

/// How NCCL runs it.
struct Decision {
  Algorithm algorithm = Algorithm::ring;
  Protocol protocol = Protocol::simple;
  std::uint8_t channels = 1;
};

}  // namespace nbx::nccl
