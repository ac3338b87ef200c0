#include "nccl-glue/plan/point_to_point.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace nbx::nccl {

namespace {

constexpr std::uint32_t works_per_batch = 8;  // NCCL_MAX_DEV_WORK_P2P_PER_BATCH

constexpr std::uint64_t div_up(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

/// The kernel is told the size in 8 bits: four significant ones, the rest cut off.
std::uint32_t as_kernel_sees_it(std::uint32_t size) {
  const int drop = std::max(0, static_cast<int>(std::bit_width(size)) - 4);
  return size >> drop << drop;
}

std::uint64_t parts_wanted(const PointToPointShape& shape, std::uint64_t bytes) {
  std::uint64_t most = shape.channels_per_peer;
  while (most * shape.ranks > shape.channels && most > 1) {
    most /= 2;
  }
  const std::uint64_t smallest = shape.chunk / 2;
  std::uint64_t parts = std::min(most, div_up(bytes, smallest));
  std::uint64_t part = std::max(smallest, div_up(bytes, parts));
  while (part > shape.chunk && parts <= shape.channels_per_peer / 2U) {
    parts *= 2;
    part = div_up(bytes, parts);
  }
  return parts;
}

}  // namespace

std::vector<PointToPointPart> point_to_point_parts(const PointToPointShape& shape, std::uint64_t bytes) {
  const std::uint32_t divisor = bytes < shape.chunk ? 4 : bytes < 8ULL * shape.chunk ? 2 : 1;
  const std::uint32_t message = as_kernel_sees_it(shape.chunk / divisor);
  if (bytes == 0) {
    return {{0, 0, message}};
  }
  constexpr std::uint64_t part_unit = 4096;
  const std::uint64_t part = div_up(div_up(bytes, parts_wanted(shape, bytes)), part_unit) * part_unit;
  std::vector<PointToPointPart> parts;
  for (std::uint64_t offset = 0; offset < bytes; offset += part) {
    parts.push_back({offset, std::min(part, bytes - offset), message});
  }
  return parts;
}

PointToPointSchedule::PointToPointSchedule(std::span<const std::uint32_t> node, std::uint32_t group)
    : position_(node.size()), group_(group) {
  std::vector<std::uint32_t> order(node.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, {}, [&](std::uint32_t rank) { return node[rank]; });
  for (std::uint32_t position = 0; position < order.size(); ++position) {
    position_[order[position]] = position;
  }
  for (const std::uint32_t of : node) {
    group_ = std::gcd(group_, static_cast<std::uint32_t>(std::ranges::count(node, of)));
  }
  groups_ = static_cast<std::uint32_t>(node.size()) / group_;
  // Distances in the order 0, 1, 3, 6, 10 ... modulo a power of two: every one once, and neighbours far apart.
  turn_.resize(groups_);
  const std::uint32_t modulus = std::bit_ceil(groups_);
  std::uint32_t distance = 0;
  std::uint32_t turn = 0;
  for (std::uint32_t i = 0; i < modulus; ++i) {
    distance = (distance + i) % modulus;
    if (distance < groups_) {
      turn_[distance] = turn++;
    }
  }
}

std::uint32_t PointToPointSchedule::round(std::uint32_t from, std::uint32_t to) const {
  const std::uint32_t a = position_[from];
  const std::uint32_t b = position_[to];
  const std::uint32_t distance = (b / group_ + groups_ - a / group_) % groups_;
  const std::uint32_t within = (b % group_ + group_ - a % group_) % group_;
  return turn_[distance] * group_ + within;
}

std::uint8_t PointToPointSchedule::channel(const PointToPointShape& shape, std::uint32_t round,
                                           std::uint32_t part) const {
  const auto batches = static_cast<std::uint32_t>(div_up(group_, works_per_batch));
  const std::uint32_t base = round / group_ * batches + round % group_ / works_per_batch;
  std::uint32_t reversed = 0;
  for (std::uint32_t bit = 1; bit < shape.channels; bit *= 2) {
    reversed = reversed * 2 + ((base & bit) != 0 ? 1 : 0);
  }
  return static_cast<std::uint8_t>((reversed + part) & (shape.channels - 1U));
}

}  // namespace nbx::nccl
