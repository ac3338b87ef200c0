#include "nccl-glue/plan/ring.hpp"

#include <algorithm>

#include "nccl-glue/plan/lines.hpp"

namespace nbx::nccl {

namespace {

constexpr std::uint64_t div_up(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

std::uint32_t positions_of(Collective collective, std::uint32_t ranks) {
  switch (collective) {
    case Collective::all_reduce:
      return 2 * (ranks - 1);
    case Collective::all_gather:
    case Collective::reduce_scatter:
      return ranks - 1;
    default:
      return 1;
  }
}

}  // namespace

RingPlan::RingPlan(const Operation& operation, const Decision& decision, const CommShape& shape, const Share& share,
                   std::uint32_t root)
    : collective_(operation.collective),
      protocol_(decision.protocol),
      units_(step_units(operation.collective, decision)),
      slices_(units_.chunk / units_.slice),
      ranks_(shape.ranks),
      root_(root),
      type_size_(moved_as_bytes(operation.collective) ? 1 : nccl::type_size(operation.type)),
      step_(shape.buffers.step(decision.protocol)),
      offset_(share.offset / type_size_),
      count_(share.bytes / type_size_),
      chunk_(share.chunk / type_size_),
      parts_(operation.collective == Collective::all_reduce ? shape.ranks : 1),
      positions_(positions_of(operation.collective, shape.ranks)),
      loops_(div_up(count_, chunk_ * parts_)) {}

std::uint64_t RingPlan::sends(std::uint32_t rank) const {
  const bool silent = (collective_ == Collective::broadcast && distance(rank) == ranks_ - 1) ||
                      (collective_ == Collective::reduce && rank == root_);
  return silent ? 0 : loops_ * positions_ * slices_;
}

std::uint64_t RingPlan::receives(std::uint32_t rank) const { return sends((rank + ranks_ - 1) % ranks_); }

std::uint32_t RingPlan::part_sent(std::uint32_t rank, std::uint32_t position) const {
  switch (collective_) {
    case Collective::all_reduce:
    case Collective::reduce_scatter:
      return (rank + 2 * ranks_ - 1 - position) % ranks_;
    case Collective::all_gather:
      return (rank + ranks_ - position) % ranks_;
    default:
      return 0;
  }
}

std::uint32_t RingPlan::hops(std::uint32_t rank, std::uint32_t position) const {
  switch (collective_) {
    case Collective::broadcast:
      return distance(rank);
    case Collective::reduce:
      return distance(rank) - 1;
    default:
      return position;
  }
}

bool RingPlan::finished(std::uint32_t position) const {
  switch (collective_) {
    case Collective::all_reduce:
      return position >= ranks_ - 1;
    case Collective::broadcast:
    case Collective::all_gather:
      return true;
    default:
      return false;
  }
}

RingMessage RingPlan::sent(std::uint32_t rank, std::uint64_t i) const {
  const auto position = static_cast<std::uint32_t>(i / slices_ % positions_);
  RingMessage message = at(part_sent(rank, position), i);
  message.finished = finished(position);
  message.hops = hops(rank, position);
  return message;
}

RingMessage RingPlan::received(std::uint32_t rank, std::uint64_t i) const {
  return sent((rank + ranks_ - 1) % ranks_, i);
}

/// A chunk is cut in slices of at least 1/32 of what a message may hold; the last ones may be empty.
RingMessage RingPlan::at(std::uint32_t part, std::uint64_t i) const {
  RingMessage message;
  const std::uint64_t chunk_message = i / slices_;
  message.slice = static_cast<std::uint32_t>(i % slices_);
  message.position = static_cast<std::uint32_t>(chunk_message % positions_);
  message.loop = chunk_message / positions_;
  message.part = part;

  const std::uint64_t start = message.loop * parts_ * chunk_;
  const std::uint64_t rest = count_ - start;
  std::uint64_t chunk = chunk_;
  std::uint64_t skip = 0;  // of the loop's elements
  if (collective_ == Collective::all_reduce) {
    if (rest < parts_ * chunk_) {  // the last loop shares what is left evenly, in units of 16 bytes
      const std::uint64_t unit = 16 / type_size_;
      chunk = div_up(div_up(rest, ranks_), unit) * unit;
    }
    skip = std::min(part * chunk, rest);
  }
  const std::uint64_t elements = std::min(chunk, rest - skip);
  const std::uint64_t slice =
      std::max<std::uint64_t>(div_up(elements, 16ULL * slices_) * 16, step_ / type_size_ * units_.slice / 32);
  const std::uint64_t first = std::min(message.slice * slice, elements);
  const std::uint64_t last = slices_ == 1 ? elements : std::min(first + slice, elements);
  message.offset = (offset_ + start + skip + first) * type_size_;
  message.bytes = static_cast<std::uint32_t>((last - first) * type_size_);
  return message;
}

std::optional<std::uint64_t> RingPlan::source(std::uint32_t rank, std::uint64_t i, std::uint32_t run) const {
  if (hops(rank, static_cast<std::uint32_t>(i / slices_ % positions_)) < run) {
    return std::nullopt;
  }
  const bool chain = collective_ == Collective::broadcast || collective_ == Collective::reduce;
  return chain ? i : i - std::uint64_t{run} * slices_;
}

std::uint32_t RingPlan::wire_bytes(std::uint32_t data) const {
  return static_cast<std::uint32_t>(wire_size(protocol_, data));
}

}  // namespace nbx::nccl
