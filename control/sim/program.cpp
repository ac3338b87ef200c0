#include "sim/program.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/overloaded.hpp"
#include "nccl-glue/comm/topology.hpp"

namespace nbx::sim {
namespace {

using config::AllGather;
using config::AllReduce;
using config::AllToAll;
using config::Broadcast;
using config::Compute;
using config::Incast;
using config::OneFlow;
using config::ReduceScatter;
using config::SendRecv;

constexpr std::uint64_t message_max = 1ULL << 30U;

std::uint64_t up(std::uint64_t n, std::uint64_t by) { return (n + by - 1) / by; }

/// The ranks that work together with one, and its place among them.
struct Members {
  std::uint32_t size;
  std::uint32_t stride;
  std::uint32_t first;
  std::uint32_t place;

  [[nodiscard]] std::uint32_t rank(std::uint32_t at) const { return first + at % size * stride; }
};

Members members_of(const config::Group& group, std::uint32_t rank, std::uint32_t ranks) {
  const std::uint32_t size = group.size == 0 ? ranks / group.stride : group.size;
  const std::uint32_t span = size * group.stride;
  const std::uint32_t first = rank / span * span + rank % group.stride;
  return {size, group.stride, first, (rank - first) / group.stride};
}

/// `bytes` as messages; at least one.
Stream one_message(std::uint32_t to, std::uint64_t bytes) {
  Stream stream{.to = to};
  stream.messages = stream.slices = std::max<std::uint64_t>(1, up(bytes, message_max));
  stream.slice_bytes = static_cast<std::uint32_t>(message_max);
  stream.last_bytes = static_cast<std::uint32_t>(bytes - (stream.slices - 1) * message_max);
  return stream;
}

/// Chunks of a ring are equal, rounded up. `chunks` go out and as many come in; of those that go, the first `own` are
/// the rank's.
struct RingShare {
  std::uint64_t chunk_bytes;
  std::uint64_t out;
  std::uint64_t in;
  std::uint64_t own;
};

Part ring(const config::RingCollective& x, const Members& m, const RingShare& share) {
  Part part;
  const std::uint64_t slice = std::min<std::uint64_t>(x.slice.value, message_max);
  const std::uint64_t slices = up(share.chunk_bytes, slice);
  for (std::uint32_t lane = 0; lane < x.channels; ++lane) {
    if (share.out != 0) {
      Stream stream{.to = m.rank(m.place + 1), .lane = lane, .messages = share.out * slices, .slices = slices};
      stream.ahead = share.own * slices;
      if (share.in != 0) {
        stream.after = {lane};
      }
      stream.slice_bytes = static_cast<std::uint32_t>(slice);
      stream.last_bytes = static_cast<std::uint32_t>(share.chunk_bytes - (slices - 1) * slice);
      part.out.push_back(stream);
    }
    part.in.push_back(share.in * slices);
  }
  return part;
}

/// Lanes of one tree at a rank: from each of its children, and from its parent.
enum TreeLane : std::uint32_t { first_child, second_child, parent, tree_lanes };

/// The share of one tree: up goes the sum of what the children sent, down what came from the parent. The root turns
/// round what its children sent.
void add_tree(Part& part, const Members& m, nccl::TreePlace place, std::uint32_t lane, Stream stream) {
  const auto rank = [&](std::int32_t at) { return m.rank(static_cast<std::uint32_t>(at)); };
  std::vector<std::uint32_t> children;
  for (const TreeLane child : {first_child, second_child}) {
    if (place.children[child] >= 0) {
      children.push_back(lane + child);
      part.in[lane + child] = stream.messages;
    }
  }
  stream.ahead = children.empty() ? stream.messages : 0;
  stream.after = children;
  if (place.parent >= 0) {
    stream.to = rank(place.parent);
    stream.lane = lane + (place.first_child ? first_child : second_child);
    part.out.push_back(stream);
    part.in[lane + parent] = stream.messages;
    stream.after = {lane + parent};
  }
  stream.ahead = 0;
  stream.lane = lane + parent;
  for (const TreeLane child : {first_child, second_child}) {
    if (place.children[child] >= 0) {
      stream.to = rank(place.children[child]);
      part.out.push_back(stream);
    }
  }
}

/// Ranks as nodes of one rank each. A channel is two trees, as NCCL makes two of each that its search found.
Part trees(const AllReduce& x, const Members& m) {
  const std::uint64_t slice = std::min<std::uint64_t>(x.slice.value, message_max);
  const std::uint64_t bytes = up(x.bytes.value, 2ULL * x.channels);
  Stream stream;
  stream.messages = stream.slices = up(bytes, slice);
  stream.slice_bytes = static_cast<std::uint32_t>(slice);
  stream.last_bytes = static_cast<std::uint32_t>(bytes - (stream.slices - 1) * slice);
  const auto at = static_cast<std::int32_t>(m.place);
  const auto nodes = static_cast<std::int32_t>(m.size);
  Part part;
  part.in.resize(std::size_t{2} * x.channels * tree_lanes);
  for (std::uint32_t tree = 0; tree < 2 * x.channels; ++tree) {
    const bool second = tree >= x.channels;
    add_tree(part, m, second ? nccl::second_tree(at, nodes) : nccl::first_tree(at, nodes), tree * tree_lanes, stream);
  }
  return part;
}

/// Every rank sends each server its share; a server answers all when it has heard from all.
Part servers(const AllReduce& x, const Members& m) {
  enum Lane : std::uint32_t { push, pull, lanes };
  const std::uint64_t share = up(x.bytes.value, x.servers);
  Part part;
  part.in.resize(lanes);
  for (std::uint32_t k = 1; k < m.size; ++k) {
    const std::uint32_t other = (m.place + k) % m.size;
    Stream stream = one_message(m.rank(other), share);
    if (other < x.servers) {
      stream.lane = push;
      part.out.push_back(stream);
      part.in[pull] += stream.messages;
    }
    if (m.place < x.servers) {
      stream.lane = pull;
      stream.behind = push;
      stream.behind_messages = (m.size - 1) * stream.messages;
      part.out.push_back(stream);
      part.in[push] += stream.messages;
    }
  }
  return part;
}

/// By channel, the dimensions in the order in which it reduces and scatters. Balanced: each channel begins with the
/// dimension that has the least to do for those before it, since what it sends first is the largest.
std::vector<std::vector<std::size_t>> orders(const AllReduce& x, const std::vector<std::uint32_t>& sizes) {
  std::vector<double> load(sizes.size());
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<std::vector<std::size_t>> all;
  for (std::uint32_t channel = 0; channel < x.channels; ++channel) {
    if (x.schedule == config::Schedule::balanced) {
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return load[a] < load[b]; });
    }
    double share = 1;
    for (const std::size_t dimension : order) {
      share /= sizes[dimension];
      load[dimension] +=
          share * (sizes[dimension] - 1) / static_cast<double>(x.dimensions[dimension].rate.bits_per_second);
    }
    all.push_back(order);
  }
  return all;
}

/// Rings within rings. A phase is a ring of one dimension, on a lane of its own, and begins when the one before has
/// ended.
Part dimensions(const AllReduce& x, const Members& m) {
  const std::vector<std::uint32_t> sizes = *config::sizes_of(x.dimensions, m.size);
  const std::uint64_t slice = std::min<std::uint64_t>(x.slice.value, message_max);
  Part part;
  for (const std::vector<std::size_t>& order : orders(x, sizes)) {
    std::vector<std::size_t> phases = order;
    phases.insert(phases.end(), order.rbegin(), order.rend());
    std::uint64_t parts = x.channels;
    const Stream* before = nullptr;
    for (std::size_t phase = 0; phase < phases.size(); ++phase) {
      const std::uint32_t size = sizes[phases[phase]];
      const bool gathers = phase >= order.size();
      parts *= gathers ? 1 : size;
      const std::uint64_t bytes = up(x.bytes.value, parts);
      parts /= gathers ? size : 1;
      const auto lane = static_cast<std::uint32_t>(part.in.size());
      Stream stream{.lane = lane, .after = {lane}, .slices = up(bytes, slice)};
      stream.messages = (size - 1) * stream.slices;
      stream.ahead = stream.slices;
      stream.slice_bytes = static_cast<std::uint32_t>(slice);
      stream.last_bytes = static_cast<std::uint32_t>(bytes - (stream.slices - 1) * slice);
      part.in.push_back(stream.messages);
      if (size == 1) {
        continue;
      }
      const auto stride = std::accumulate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(phases[phase]), 1U,
                                          std::multiplies<>());
      const std::uint32_t at = m.place / stride % size;
      stream.to = m.rank(m.place - at * stride + (at + 1) % size * stride);
      if (before != nullptr) {
        stream.behind = before->lane;
        stream.behind_messages = before->messages;
      }
      part.out.push_back(stream);
      before = &part.out.back();
    }
  }
  return part;
}

std::uint64_t chunk_bytes(const config::RingCollective& x, std::uint32_t n) {
  return up(x.bytes.value, std::uint64_t{n} * x.channels);
}

}  // namespace

Part part_of(const config::JobOperation& operation, std::uint32_t rank, std::uint32_t ranks) {
  const auto members = [&](const auto& x) { return members_of(x.group, rank, ranks); };
  return std::visit(Overloaded{
                        [&](const Compute& x) { return Part{.compute = x.time, .out = {}, .in = {}}; },
                        [&](const AllReduce& x) {
                          const Members m = members(x);
                          if (x.algorithm == config::Algorithm::tree) {
                            return trees(x, m);
                          }
                          if (x.algorithm == config::Algorithm::servers) {
                            return servers(x, m);
                          }
                          if (!x.dimensions.empty()) {
                            return dimensions(x, m);
                          }
                          const std::uint64_t steps = 2 * (std::uint64_t{m.size} - 1);
                          return ring(x, m, {chunk_bytes(x, m.size), steps, steps, 1});
                        },
                        [&](const AllGather& x) {
                          const Members m = members(x);
                          const std::uint64_t chunk =
                              x.of == config::BytesOf::rank ? up(x.bytes.value, x.channels) : chunk_bytes(x, m.size);
                          return ring(x, m, {chunk, m.size - 1U, m.size - 1U, 1});
                        },
                        [&](const ReduceScatter& x) {
                          const Members m = members(x);
                          return ring(x, m, {chunk_bytes(x, m.size), m.size - 1U, m.size - 1U, 1});
                        },
                        [&](const Broadcast& x) {
                          const Members m = members(x);
                          const std::uint64_t first = m.place == 0 ? 1 : 0;
                          const std::uint64_t last = m.place == m.size - 1 ? 1 : 0;
                          return ring(x, m, {up(x.bytes.value, x.channels), 1 - last, 1 - first, first});
                        },
                        [&](const AllToAll& x) {
                          const Members m = members(x);
                          Part part;
                          for (std::uint32_t k = 1; k < m.size; ++k) {
                            part.out.push_back(one_message(m.rank(m.place + k), up(x.bytes.value, m.size)));
                          }
                          part.in = {(m.size - 1) * part.out.front().messages};
                          return part;
                        },
                        [&](const SendRecv& x) {
                          const Members m = members(x);
                          const Stream next = one_message(m.rank(m.place + 1), x.bytes.value);
                          Part part;
                          if (m.place != m.size - 1) {
                            part.out.push_back(next);
                          }
                          if (m.place != 0) {
                            part.in = {next.messages};
                          }
                          return part;
                        },
                        [&](const OneFlow& x) {
                          const Stream stream = one_message(*x.to, x.bytes.value);
                          Part part;
                          if (rank == *x.from) {
                            part.out.push_back(stream);
                          }
                          if (rank == *x.to) {
                            part.in = {stream.messages};
                          }
                          return part;
                        },
                        [&](const Incast& x) {
                          const Members m = members(x);
                          const Stream stream = one_message(m.first, x.bytes.value);
                          Part part;
                          if (m.place == 0) {
                            part.in = {(m.size - 1) * stream.messages};
                          } else {
                            part.out.push_back(stream);
                          }
                          return part;
                        },
                    },
                    operation.what);
}

std::uint64_t rank_bytes(const config::JobOperation& operation, std::uint32_t rank, std::uint32_t ranks) {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  for (std::uint32_t other = 0; other < ranks; ++other) {
    for (const Stream& stream : part_of(operation, other, ranks).out) {
      sent += other == rank ? stream.total_bytes() : 0;
      received += stream.to == rank ? stream.total_bytes() : 0;
    }
  }
  return std::max(sent, received);
}

std::uint64_t busiest_bytes(const config::JobOperation& operation, std::uint32_t ranks) {
  std::uint64_t most = 0;
  std::vector<std::uint64_t> received(ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    std::uint64_t sent = 0;
    for (const Stream& stream : part_of(operation, rank, ranks).out) {
      const std::uint64_t bytes = stream.total_bytes();
      sent += bytes;
      most = std::max(most, received[stream.to] += bytes);
    }
    most = std::max(most, sent);
  }
  return most;
}

std::string name_of(const config::JobOperation& operation) {
  if (!operation.name.empty()) {
    return operation.name;
  }
  constexpr const char* names[] = {"compute",    "all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                   "all_to_all", "send_recv",  "flow",       "incast"};
  return names[operation.what.index()];
}

std::uint64_t bytes_of(const config::JobOperation& operation) {
  return std::visit(
      [](const auto& what) -> std::uint64_t {
        if constexpr (requires { what.bytes; }) {
          return what.bytes.value;
        } else {
          return 0;
        }
      },
      operation.what);
}

}  // namespace nbx::sim
