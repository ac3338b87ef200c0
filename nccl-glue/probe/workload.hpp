// The collectives as the probe measures them: how large their buffers are, what a rank puts in and what must come out
// when ghosts contribute the identity of the reduction, or zeros where they are a source. Pure: host memory only.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "nccl-glue/plan/operation.hpp"

namespace nbx::nccl::probe {

enum class Kind { all_reduce, all_gather, reduce_scatter, broadcast, reduce, send_receive, all_to_all };

struct Workload {
  Kind kind = Kind::all_reduce;
  DataType type = DataType::f32;
  RedOp op = RedOp::sum;
  int root = 0;
  int ranks = 1;
  int real_ranks = 1;  // ranks 0 to real_ranks - 1 are real
  int rank = 0;
  std::uint64_t count = 0;  // as the collective's call takes it

  /// Elements of the two buffers.
  [[nodiscard]] std::uint64_t send_count() const;
  [[nodiscard]] std::uint64_t receive_count() const;
  /// The bytes that nccl-tests names the size: of the larger buffer.
  [[nodiscard]] std::uint64_t size() const;
  /// Where the send buffer starts in the receive buffer when both are one, in elements. In place means nothing to a
  /// workload whose peers are other ranks.
  [[nodiscard]] std::uint64_t in_place_offset() const;
  [[nodiscard]] std::uint64_t in_place_receive_offset() const;
  [[nodiscard]] bool has_in_place() const { return kind != Kind::send_receive && kind != Kind::all_to_all; }
  /// Whether the calls reduce.
  [[nodiscard]] bool reduces() const;
  /// Bus bandwidth over algorithm bandwidth: what the slowest link carries per byte of the size.
  [[nodiscard]] double bus_factor() const;
  /// The workload of about this size: rounded down to whole elements on every rank.
  [[nodiscard]] Workload sized(std::uint64_t bytes) const;
};

/// What a rank sends; `of` may be another rank than the workload's.
[[nodiscard]] std::vector<std::byte> input(const Workload& workload, int of);
/// What the rank receives; empty: nothing that NCCL defines (reduce, away from the root).
[[nodiscard]] std::vector<std::byte> expected(const Workload& workload);
/// Elements that differ. An average of floating-point numbers may differ by a rounding per real rank.
[[nodiscard]] std::uint64_t count_wrong(const Workload& workload, ConstBytes received, ConstBytes wanted);

[[nodiscard]] const char* name_of(Kind kind);
[[nodiscard]] const char* name_of(DataType type);
[[nodiscard]] const char* name_of(RedOp op);

}  // namespace nbx::nccl::probe
