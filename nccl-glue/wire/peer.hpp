// What ranks tell each other about themselves: peer info, graph exchange and connection records. A ghost presents
// values that never win where NCCL takes the minimum or the maximum over ranks, so that the real node's own choice
// stays in force. Memory images of C structures; pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "nccl-glue/wire/bootstrap.hpp"

namespace nbx::nccl {

struct PeerInfo {
  std::int32_t rank = 0;
  std::int32_t device = 0;  // CUDA and NVML
  std::uint64_t host_hash = 0;
  std::uint64_t process_hash = 0;
  std::int64_t bus_id = 0;
  std::int32_t compute_capability = 0;
  bool cu_mem = false;  // false on any rank: no lazy connections
  std::int32_t version = 0;

  friend bool operator==(const PeerInfo&, const PeerInfo&) = default;
};
[[nodiscard]] Bytes encode(const Version& v, const PeerInfo& info);
[[nodiscard]] std::optional<PeerInfo> decode_peer_info(const Version& v, ConstBytes bytes);

/// One rank's part of the graph exchange, as far as rings and trees depend on it.
inline constexpr std::size_t channels_max = 64;  // of any release
using PerChannel = std::array<std::int32_t, channels_max>;
struct Graph {
  // Each the smaller (channels, bandwidth) of what concerns the rings and the trees of the rank.
  std::int32_t channels = 0;
  float ring_bandwidth = 0;  // GB/s of a channel within the node
  std::int32_t cross_nic_ring = 0;
  PerChannel ring_recv{};  // first and last rank of the ring within the node
  PerChannel ring_send{};
  PerChannel ring_prev{};  // neighbours within the node, or -1
  PerChannel ring_next{};
  PerChannel to_parent{};  // the ranks of the node that talk to other nodes of the tree
  PerChannel to_child0{};
  PerChannel to_child1{};
  std::int32_t cpu_arch = 0;  // "mixed" unless equal everywhere: no value is neutral
  std::int32_t cpu_vendor = 0;
};
[[nodiscard]] std::optional<Graph> decode_graph(const Version& v, ConstBytes bytes);

/// A ghost's part: on channel c the ring enters its node at rank c modulo the node's ranks, and goes on in their order.
/// `node` are the ranks of its node in that order, `self` the index of its own.
struct GhostGraph {
  std::span<const std::int32_t> node;
  std::size_t self = 0;
  std::int32_t cpu_arch = 0;
  std::int32_t cpu_vendor = 0;
};
/// What a real rank makes of it.
[[nodiscard]] Graph graph_of(const Version& v, const GhostGraph& ghost);
[[nodiscard]] Bytes encode(const Version& v, const GhostGraph& ghost);

/// ncclConnect of the NET transport: from the receiver of the data a listen handle, from the sender its rank.
inline constexpr std::size_t connect_record_size = 256;
inline constexpr std::size_t net_handle_size = 128;
using NetHandle = std::array<std::byte, net_handle_size>;
using ConnectRecord = std::array<std::byte, connect_record_size>;
[[nodiscard]] ConnectRecord receive_record(const NetHandle& handle);
[[nodiscard]] ConnectRecord send_record(std::int32_t rank);
/// The handle when `record` (connect_record_size bytes) is a receiver's.
[[nodiscard]] std::optional<NetHandle> handle_in(ConstBytes record);

}  // namespace nbx::nccl
