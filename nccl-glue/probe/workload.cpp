#include "nccl-glue/probe/workload.hpp"

#include <algorithm>
#include <cstring>

#include "nccl-glue/plan/data.hpp"

namespace nbx::nccl::probe {
namespace {

/// Elements are 1 to 4: small enough that every sum of up to 64 ranks is exact in every type, whatever the order.
constexpr std::uint64_t values = 4;

bool parts_of_send(Kind kind) { return kind == Kind::reduce_scatter || kind == Kind::all_to_all; }
bool parts_of_receive(Kind kind) { return kind == Kind::all_gather || kind == Kind::all_to_all; }

bool floating(DataType type) {
  return type == DataType::f16 || type == DataType::f32 || type == DataType::f64 || type == DataType::bf16;
}

std::uint64_t bits(ConstBytes element) {
  std::uint64_t value = 0;
  std::memcpy(&value, element.data(), element.size());
  return value;
}

/// What `of` sends to the rank in its part number `part`, or as a whole.
std::vector<std::byte> part_of(const Workload& workload, int of, int part) {
  const std::size_t size = workload.count * type_size(workload.type);
  if (of >= workload.real_ranks) {
    return std::vector<std::byte>(size);
  }
  const std::vector<std::byte> all = input(workload, of);
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(part) * size);
  return {begin, begin + static_cast<std::ptrdiff_t>(size)};
}

std::vector<std::byte> reduced(const Workload& workload, int part) {
  std::vector<std::byte> result(workload.count * type_size(workload.type));
  fill_identity(result, workload.type, workload.op);
  const auto ranks = static_cast<std::uint32_t>(workload.ranks);
  for (int rank = 0; rank < workload.real_ranks; rank++) {
    std::vector<std::byte> contribution = part_of(workload, rank, part);
    scale_input(contribution, workload.type, workload.op, ranks);
    nccl::reduce(result, contribution, workload.type, workload.op);
  }
  divide(result, workload.type, workload.op, ranks);
  return result;
}

}  // namespace

std::uint64_t Workload::send_count() const {
  return parts_of_send(kind) ? count * static_cast<std::uint64_t>(ranks) : count;
}

std::uint64_t Workload::receive_count() const {
  return parts_of_receive(kind) ? count * static_cast<std::uint64_t>(ranks) : count;
}

std::uint64_t Workload::size() const { return std::max(send_count(), receive_count()) * type_size(type); }

std::uint64_t Workload::in_place_offset() const {
  return kind == Kind::all_gather ? count * static_cast<std::uint64_t>(rank) : 0;
}

std::uint64_t Workload::in_place_receive_offset() const {
  return kind == Kind::reduce_scatter ? count * static_cast<std::uint64_t>(rank) : 0;
}

bool Workload::reduces() const {
  return kind == Kind::all_reduce || kind == Kind::reduce_scatter || kind == Kind::reduce;
}

double Workload::bus_factor() const {
  const double n = ranks;
  switch (kind) {
    case Kind::all_reduce:
      return 2 * (n - 1) / n;
    case Kind::all_gather:
    case Kind::reduce_scatter:
    case Kind::all_to_all:
      return (n - 1) / n;
    default:
      return 1;
  }
}

Workload Workload::sized(std::uint64_t bytes) const {
  Workload other = *this;
  const bool parts = parts_of_send(kind) || parts_of_receive(kind);
  other.count = bytes / type_size(type) / (parts ? static_cast<std::uint64_t>(ranks) : 1);
  return other;
}

std::vector<std::byte> input(const Workload& workload, int of) {
  const std::size_t size = type_size(workload.type);
  std::vector<std::byte> small(values * size);
  fill_pattern(small, workload.type, 0, 0);  // 1, 2, 3, 4
  std::vector<std::byte> data(workload.send_count() * size);
  for (std::uint64_t i = 0; i < workload.send_count(); i++) {
    const std::uint64_t value = (i / 3 + static_cast<std::uint64_t>(of)) % values;
    std::memcpy(data.data() + i * size, small.data() + value * size, size);
  }
  return data;
}

std::vector<std::byte> expected(const Workload& workload) {
  switch (workload.kind) {
    case Kind::all_reduce:
      return reduced(workload, 0);
    case Kind::reduce_scatter:
      return reduced(workload, workload.rank);
    case Kind::reduce:
      return workload.rank == workload.root ? reduced(workload, 0) : std::vector<std::byte>{};
    case Kind::broadcast:
      return part_of(workload, workload.root, 0);
    case Kind::send_receive:
      return part_of(workload, (workload.rank + workload.ranks - 1) % workload.ranks, 0);
    default:
      break;
  }
  std::vector<std::byte> all;
  for (int rank = 0; rank < workload.ranks; rank++) {
    const std::vector<std::byte> part = part_of(workload, rank, workload.kind == Kind::all_to_all ? workload.rank : 0);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::uint64_t count_wrong(const Workload& workload, ConstBytes received, ConstBytes wanted) {
  const std::size_t size = type_size(workload.type);
  const bool rounds = workload.reduces() && workload.op == RedOp::avg && floating(workload.type);
  const std::uint64_t slack = rounds ? 2 * static_cast<std::uint64_t>(workload.real_ranks) : 0;
  std::uint64_t wrong = 0;
  for (std::size_t at = 0; at < wanted.size(); at += size) {
    const std::uint64_t got = bits(received.subspan(at, size));
    const std::uint64_t want = bits(wanted.subspan(at, size));
    // All values are positive: neighbours have neighbouring representations.
    wrong += (got > want ? got - want : want - got) > slack ? 1 : 0;
  }
  return wrong;
}

const char* name_of(Kind kind) {
  constexpr const char* names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                   "reduce",     "sendrecv",   "alltoall"};
  return names[static_cast<std::size_t>(kind)];
}

const char* name_of(DataType type) {
  constexpr const char* names[] = {"int8",   "uint8", "int32", "uint32", "int64",
                                   "uint64", "half",  "float", "double", "bfloat16"};
  return names[static_cast<std::size_t>(type)];
}

const char* name_of(RedOp op) {
  constexpr const char* names[] = {"sum", "prod", "max", "min", "avg"};
  return names[static_cast<std::size_t>(op)];
}

}  // namespace nbx::nccl::probe
