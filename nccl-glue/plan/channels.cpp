#include "nccl-glue/plan/channels.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>
#include <string>
#include <tuple>

namespace nbx::nccl {

namespace {

constexpr std::uint64_t div_up(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }
constexpr std::uint64_t round_up(std::uint64_t a, std::uint64_t b) { return div_up(a, b) * b; }

bool per_rank(Collective collective) {
  return collective == Collective::all_gather || collective == Collective::reduce_scatter;
}

std::uint64_t bytes_of(const Operation& operation) { return operation.count * type_size(operation.type); }

/// How often a byte of the count crosses the network: what NCCL weighs operations by.
std::uint64_t traffic_per_byte(Collective collective, std::uint32_t ranks) {
  if (per_rank(collective)) {
    return ranks;
  }
  return collective == Collective::all_reduce ? 2 : 1;
}

std::uint64_t weight(const Version& version, const PlannedOperation& planned, std::uint32_t ranks) {
  const bool times_four = version.ll_traffic_times_four && planned.decision.protocol == Protocol::ll;
  return traffic_per_byte(planned.operation.collective, ranks) * (times_four ? 4 : 1);
}

/// The kernels' own distinction: min and max are one function, avg is another one for integers than for the rest.
int device_function(const Operation& operation) {
  constexpr int pre_multiplied = 4;
  constexpr int post_divided = 5;
  switch (operation.op) {
    case RedOp::sum:
    case RedOp::prod:
      return static_cast<int>(operation.op);
    case RedOp::max:
    case RedOp::min:
      return static_cast<int>(RedOp::max);
    case RedOp::avg:
      break;
  }
  return operation.type <= DataType::u64 ? post_divided : pre_multiplied;
}

/// NCCL sorts by size only roughly: four bins between powers of two, from 1 KiB to 1 GiB.
std::uint32_t size_bin(std::uint64_t traffic) {
  constexpr std::uint64_t unit_log2 = 10;
  constexpr std::uint64_t largest = 1ULL << 30U;
  const auto units = static_cast<std::uint32_t>(std::min(traffic, largest) >> unit_log2);
  const std::uint32_t log2 = static_cast<std::uint32_t>(std::bit_width(units | 1U)) - 1;
  return log2 < 2 ? units : ((log2 - 1) << 2U) | ((units >> (log2 - 2)) & 3U);
}

/// The order in which a group's operations run: by function, the functions in order of their largest operation,
/// within one from small to large; later calls before earlier ones of the same size bin in the descending list.
std::vector<std::size_t> run_order(std::uint32_t ranks, std::span<const PlannedOperation> group) {
  std::vector<std::size_t> list;
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (group[i].operation.count != 0) {
      list.push_back(i);
    }
  }
  std::ranges::reverse(list);
  std::ranges::stable_sort(list, std::ranges::greater{}, [&](std::size_t i) {
    const Operation& operation = group[i].operation;
    return size_bin(bytes_of(operation) * traffic_per_byte(operation.collective, ranks));
  });

  const auto function = [&](std::size_t i) {
    const Operation& operation = group[i].operation;
    return moved_as_bytes(operation.collective)
               ? std::tuple(operation.collective, 0, DataType::i8)
               : std::tuple(operation.collective, device_function(operation), operation.type);
  };
  std::vector<std::size_t> order;
  while (!list.empty()) {
    const auto first = function(list.front());
    const auto rest =
        std::stable_partition(list.begin(), list.end(), [&](std::size_t i) { return function(i) == first; });
    order.insert(order.end(), std::make_reverse_iterator(rest), list.rend());
    list.erase(list.begin(), rest);
  }
  return order;
}

/// Deals cells of operations to channels, one operation after the other. Invariant: the present channel has room
/// left, or is the last one.
class Dealer {
 public:
  Dealer(const Version& version, const CommShape& shape, std::uint64_t target)
      : version_(version), shape_(shape), target_(target) {}

  std::vector<Share> deal(const PlannedOperation& planned) {
    const std::uint64_t traffic = weight(version_, planned, shape_.ranks);
    const std::uint64_t cell = round_up(div_up(version_.channel_traffic_min, traffic), 16);
    const std::uint64_t cells = div_up(bytes_of(planned.operation), cell);
    std::uint64_t middle = std::min(cells, div_up(target_, cell * traffic));  // cells of a channel that gets all it may
    const bool on_last = channel_ + 1U == shape_.channels;
    const std::uint64_t low = on_last ? cells : std::min(cells, div_up(target_ - used_, cell * traffic));
    const std::uint64_t rest = cells - low;
    std::uint64_t middles = rest / middle;
    std::uint64_t high = rest % middle;
    if (channel_ + 1 + middles + (high != 0 ? 1 : 0) > shape_.channels) {
      middles = shape_.channels - channel_ - 2U;
      middle = rest / (middles + 1);
      high = middle + rest % (middles + 1);
    } else if (high == 0 && middles != 0) {
      high = middle;
      --middles;
    }

    std::vector<Share> shares;
    std::uint64_t offset = 0;
    const auto add = [&](std::uint64_t share_cells) {
      const std::uint64_t bytes = std::min(share_cells * cell, bytes_of(planned.operation) - offset);
      const auto channel = static_cast<std::uint8_t>(channel_ + shares.size());
      shares.push_back({channel, offset, bytes, chunk_bytes(planned, bytes)});
      offset += bytes;
    };
    add(low);
    for (std::uint64_t i = 0; i < middles; ++i) {
      add(middle);
    }
    if (high != 0) {
      add(high);
    }
    used_ = high != 0 ? high * cell * traffic : used_ + low * cell * traffic;
    channel_ = shares.back().channel;
    if (used_ >= target_ && channel_ + 1U != shape_.channels) {
      ++channel_;
      used_ = 0;
    }
    return shares;
  }

 private:
  [[nodiscard]] std::uint32_t chunk_bytes(const PlannedOperation& planned, std::uint64_t bytes) const {
    const auto [operation, decision] = planned;
    std::uint32_t chunk = shape_.buffers.step(decision.protocol) * step_units(operation.collective, decision).chunk;
    if (decision.protocol == Protocol::ll) {
      chunk /= 2;
    } else if (decision.protocol == Protocol::ll128) {
      chunk = chunk / 16 * 15;
      if (decision.algorithm == Algorithm::tree) {
        chunk = tree_ll128_chunk(chunk, bytes);
      }
    }
    return chunk / grain(decision.protocol) * grain(decision.protocol);
  }

  /// Deep trees want more chunks than large ones. NCCL's own arithmetic, in single precision.
  [[nodiscard]] std::uint32_t tree_ll128_chunk(std::uint32_t chunk, std::uint64_t bytes) const {
    const float per_node = static_cast<float>(shape_.ranks) / static_cast<float>(shape_.nodes);
    const auto depth = static_cast<float>(std::bit_width(shape_.nodes) + 0.1 * static_cast<double>(per_node));
    const auto too_few = [&](float wanted) {
      const std::uint64_t chunks = bytes / chunk;
      return static_cast<float>(chunks) < depth * wanted / per_node;
    };
    while (chunk > 131072 && too_few(64)) {
      chunk /= 2;
    }
    while (chunk > 32768 && too_few(16)) {
      chunk /= 2;
    }
    return chunk;
  }

  const Version& version_;
  const CommShape& shape_;
  std::uint64_t target_;  // traffic of one channel
  std::uint32_t channel_ = 0;
  std::uint64_t used_ = 0;  // traffic that channel_ has already
};

Result<bool> check(const Version& version, const CommShape& shape, std::span<const PlannedOperation> group) {
  if (!version.continuous_ranges) {
    return Error{"NCCL " + version_text(version.code) + " cuts operations over channels in another way"};
  }
  for (const auto& [operation, decision] : group) {
    if (operation.collective > Collective::all_reduce) {
      return Error{"send and recv are not cut over channels like collectives"};
    }
    if (decision.channels == 0 || decision.channels > shape.channels) {
      return Error{"an operation on " + std::to_string(decision.channels) + " channels in a communicator of " +
                   std::to_string(shape.channels)};
    }
  }
  return true;
}

}  // namespace

Result<std::vector<Placement>> place(const Version& version, const CommShape& shape,
                                     std::span<const PlannedOperation> group) {
  if (const Result<bool> checked = check(version, shape, group); !checked) {
    return checked.error();
  }
  std::uint64_t traffic = 0;
  std::uint32_t channels = 0;
  for (const PlannedOperation& planned : group) {
    if (planned.operation.count != 0) {
      traffic += std::max<std::uint64_t>(version.channel_traffic_min,
                                         bytes_of(planned.operation) * weight(version, planned, shape.ranks));
      channels = std::min<std::uint32_t>(channels + planned.decision.channels, shape.channels);
    }
  }
  std::vector<Placement> placements;
  if (traffic == 0) {
    return placements;
  }
  const std::uint64_t target = version.channel_target_floor
                                   ? std::max<std::uint64_t>(version.channel_traffic_min, traffic / channels)
                                   : round_up(traffic / channels, 16);
  Dealer dealer(version, shape, target);
  for (const std::size_t index : run_order(shape.ranks, group)) {
    placements.push_back({index, dealer.deal(group[index])});
  }
  return placements;
}

}  // namespace nbx::nccl
