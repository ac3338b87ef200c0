// One channel's share of a ring collective as messages. Ranks are ring indices: distance from rank 0 along the ring.
//
// A loop moves one chunk (all_reduce: n chunks) to everybody in `positions` chunk messages per rank, each cut in
// `slices` messages. Message i of a rank is (loop, position, slice) with slice changing fastest; its number on the
// connection to the next rank is the same i there. Invariant: what a rank receives as message i is what the rank
// before it sends as message i.
#pragma once

#include <cstdint>
#include <optional>

#include "nccl-glue/plan/channels.hpp"
#include "nccl-glue/plan/operation.hpp"

namespace nbx::nccl {

struct RingMessage {
  std::uint64_t loop = 0;
  std::uint32_t position = 0;
  std::uint32_t slice = 0;
  /// Ring index that the data belongs to: all_reduce the chunk's number, all_gather and reduce_scatter the rank whose
  /// part it is; 0 for broadcast and reduce.
  std::uint32_t part = 0;
  std::uint64_t offset = 0;  // bytes, in the vector that Share::offset refers to
  std::uint32_t bytes = 0;   // of data, may be 0: such messages are sent too
  /// Nothing will be added to it: reduced over all ranks, or data that is only passed on.
  bool finished = false;
  /// Ranks that it has passed since the one that sent it first.
  std::uint32_t hops = 0;

  bool operator==(const RingMessage&) const = default;
};

class RingPlan {
 public:
  /// `root`: ring index; only for broadcast and reduce. `decision.algorithm` is ring.
  RingPlan(const Operation& operation, const Decision& decision, const CommShape& shape, const Share& share,
           std::uint32_t root = 0);

  [[nodiscard]] std::uint64_t sends(std::uint32_t rank) const;
  [[nodiscard]] std::uint64_t receives(std::uint32_t rank) const;
  /// Message i that `rank` sends, i < sends(rank).
  [[nodiscard]] RingMessage sent(std::uint32_t rank, std::uint64_t i) const;
  /// Message i that `rank` receives, i < receives(rank).
  [[nodiscard]] RingMessage received(std::uint32_t rank, std::uint64_t i) const;
  /// For a run of `run` consecutive ranks that ends with `rank`: the number of the message that its first rank receives
  /// and from which message i of `rank` stems. None: a rank of the run sent it first.
  [[nodiscard]] std::optional<std::uint64_t> source(std::uint32_t rank, std::uint64_t i, std::uint32_t run) const;

  /// Bytes on the wire of a message of so many data bytes.
  [[nodiscard]] std::uint32_t wire_bytes(std::uint32_t data) const;
  /// Size in the clear-to-send of a real receiver, the same for all messages.
  [[nodiscard]] std::uint32_t clear_to_send() const { return step_ * units_.slice; }
  /// The connection's step counter at this operation's first message, from its value so far.
  [[nodiscard]] std::uint64_t first_step(std::uint64_t counter) const {
    return (counter + units_.chunk - 1) / units_.chunk * units_.chunk;
  }
  /// The counter at message i is first_step + i * steps_per_message(); after the last one likewise. With no message at
  /// all it is first_step.
  [[nodiscard]] std::uint32_t steps_per_message() const { return units_.slice; }

  [[nodiscard]] std::uint64_t loops() const { return loops_; }
  [[nodiscard]] std::uint32_t positions() const { return positions_; }
  [[nodiscard]] std::uint32_t slices() const { return slices_; }
  [[nodiscard]] std::uint32_t type_size() const { return type_size_; }

 private:
  [[nodiscard]] RingMessage at(std::uint32_t part, std::uint64_t i) const;
  [[nodiscard]] std::uint32_t distance(std::uint32_t rank) const { return (rank + ranks_ - root_) % ranks_; }
  [[nodiscard]] std::uint32_t hops(std::uint32_t rank, std::uint32_t position) const;
  [[nodiscard]] bool finished(std::uint32_t position) const;
  [[nodiscard]] std::uint32_t part_sent(std::uint32_t rank, std::uint32_t position) const;

  Collective collective_;
  Protocol protocol_;
  StepUnits units_;
  std::uint32_t slices_;
  std::uint32_t ranks_;
  std::uint32_t root_;
  std::uint32_t type_size_;  // all sizes below are in elements of this many bytes
  std::uint32_t step_;       // bytes of one step of the connection's buffer
  std::uint64_t offset_;
  std::uint64_t count_;
  std::uint64_t chunk_;
  std::uint32_t parts_;  // chunks side by side in a loop
  std::uint32_t positions_;
  std::uint64_t loops_;
};

}  // namespace nbx::nccl
