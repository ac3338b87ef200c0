#include "nccl-glue/wire/peer.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "nccl-glue/wire/ib.hpp"
#include "nccl-glue/wire/little.hpp"

namespace nbx::nccl {

namespace {

// Peer info: up to the compute capability all releases of the table agree.
constexpr std::size_t peer_gdr_support = 12;
constexpr std::size_t peer_host_hash = 16;
constexpr std::size_t peer_bus_id = 40;
constexpr std::size_t peer_compute_capability = 56;

// Graph records come in the order of NCCL's algorithms; what their patterns are called is ours.
constexpr std::size_t graph_record_size = 32;
constexpr std::size_t tree_record = 0;
constexpr std::size_t ring_record = 1;
constexpr std::int32_t balanced_tree = 1;
constexpr std::array<std::int32_t, 7> patterns{balanced_tree, 4, 6, 3, 5, 5, balanced_tree};
constexpr std::size_t record_channels = 4;
constexpr std::size_t record_bandwidth = 12;  // within the node, then between nodes
constexpr float bandwidth_never_least = 1e6F;

// Channel arrays of the topology, in order; the last are NVLS heads, of which a ghost has none.
constexpr std::array arrays{&Graph::ring_recv, &Graph::ring_send, &Graph::ring_prev, &Graph::ring_next,
                            &Graph::to_parent, &Graph::to_child0, &Graph::to_child1};
constexpr std::size_t array_count = arrays.size() + 1;

std::size_t arrays_at(const Version& v) { return v.graph_topology + (v.graph_cross_nic_ring ? 4U : 0U); }
std::size_t array_at(const Version& v, std::size_t index) {
  return arrays_at(v) + index * v.channels_max * sizeof(std::int32_t);
}
/// The number of NVLS heads, then the CPU's architecture and vendor.
std::size_t cpu_at(const Version& v) { return array_at(v, array_count) + 4; }

float load_float(ConstBytes bytes, std::size_t at) { return std::bit_cast<float>(load<std::uint32_t>(bytes, at)); }

}  // namespace

Bytes encode(const Version& v, const PeerInfo& info) {
  Bytes out(v.peer_info_size);
  store(out, 0, info.rank);
  store(out, 4, info.device);
  store(out, 8, info.device);
  store(out, peer_gdr_support, std::int32_t{1});
  store(out, peer_host_hash, info.host_hash);
  store(out, peer_host_hash + 8, info.process_hash);
  store(out, peer_bus_id, info.bus_id);
  store(out, peer_compute_capability, info.compute_capability);
  store(out, v.peer_cu_mem_support, std::int32_t{info.cu_mem});
  if (v.peer_version != absent) {
    store(out, v.peer_version, info.version);
  }
  return out;
}

std::optional<PeerInfo> decode_peer_info(const Version& v, ConstBytes bytes) {
  if (bytes.size() != v.peer_info_size) {
    return std::nullopt;
  }
  return PeerInfo{.rank = load<std::int32_t>(bytes, 0),
                  .device = load<std::int32_t>(bytes, 4),
                  .host_hash = load<std::uint64_t>(bytes, peer_host_hash),
                  .process_hash = load<std::uint64_t>(bytes, peer_host_hash + 8),
                  .bus_id = load<std::int64_t>(bytes, peer_bus_id),
                  .compute_capability = load<std::int32_t>(bytes, peer_compute_capability),
                  .cu_mem = load<std::int32_t>(bytes, v.peer_cu_mem_support) != 0,
                  .version = v.peer_version == absent ? v.code : load<std::int32_t>(bytes, v.peer_version)};
}

std::optional<Graph> decode_graph(const Version& v, ConstBytes bytes) {
  if (bytes.size() != v.graph_size) {
    return std::nullopt;
  }
  Graph graph;
  constexpr std::size_t tree = tree_record * graph_record_size;
  constexpr std::size_t ring = ring_record * graph_record_size;
  graph.channels =
      std::min(load<std::int32_t>(bytes, tree + record_channels), load<std::int32_t>(bytes, ring + record_channels));
  graph.ring_bandwidth = load_float(bytes, ring + record_bandwidth);
  graph.cross_nic_ring = v.graph_cross_nic_ring ? load<std::int32_t>(bytes, v.graph_topology) : 0;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    for (std::size_t c = 0; c < v.channels_max; ++c) {
      (graph.*arrays[i])[c] = load<std::int32_t>(bytes, array_at(v, i) + c * sizeof(std::int32_t));
    }
  }
  graph.cpu_arch = load<std::int32_t>(bytes, cpu_at(v));
  graph.cpu_vendor = load<std::int32_t>(bytes, cpu_at(v) + 4);
  return graph;
}

Graph graph_of(const Version& v, const GhostGraph& ghost) {
  Graph graph;
  graph.channels = v.channels_max;
  graph.ring_bandwidth = bandwidth_never_least;
  graph.cpu_arch = ghost.cpu_arch;
  graph.cpu_vendor = ghost.cpu_vendor;
  const std::size_t ranks = ghost.node.size();
  for (std::size_t c = 0; c < v.channels_max; ++c) {
    const auto at = [&](std::size_t position) { return ghost.node[(c + position) % ranks]; };
    const std::size_t position = (ghost.self + ranks - c % ranks) % ranks;
    graph.ring_recv[c] = at(0);
    graph.ring_send[c] = at(ranks - 1);
    graph.ring_prev[c] = position == 0 ? -1 : at(position - 1);
    graph.ring_next[c] = position == ranks - 1 ? -1 : at(position + 1);
    // A balanced tree: the first rank talks to the parent and the second child, the next one to the first child.
    graph.to_parent[c] = at(0);
    graph.to_child0[c] = at(ranks == 1 ? 0 : 1);
    graph.to_child1[c] = at(0);
  }
  // A node is known by where channel 0 enters it: the same in every record of the node, as above.
  return graph;
}

Bytes encode(const Version& v, const GhostGraph& ghost) {
  const Graph graph = graph_of(v, ghost);
  Bytes out(v.graph_size);
  for (std::size_t i = 0; i < v.graph_records; ++i) {
    const std::size_t at = i * graph_record_size;
    store(out, at, patterns[i]);
    store(out, at + record_channels, graph.channels);
    store(out, at + 8, std::int32_t{1});  // same channels
    store(out, at + record_bandwidth, std::bit_cast<std::uint32_t>(bandwidth_never_least));
    store(out, at + record_bandwidth + 4, std::bit_cast<std::uint32_t>(bandwidth_never_least));
  }
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    for (std::size_t c = 0; c < v.channels_max; ++c) {
      store(out, array_at(v, i) + c * sizeof(std::int32_t), (graph.*arrays[i])[c]);
    }
  }
  store(out, cpu_at(v), graph.cpu_arch);
  store(out, cpu_at(v) + 4, graph.cpu_vendor);
  if (v.graph_p2p_channels != absent) {
    store(out, v.graph_p2p_channels, static_cast<std::int32_t>(v.channels_max));
  }
  return out;
}

ConnectRecord receive_record(const NetHandle& handle) {
  ConnectRecord record{};
  std::ranges::copy(handle, record.begin());
  return record;
}

ConnectRecord send_record(std::int32_t rank) {
  ConnectRecord record{};
  store(record, 0, rank);
  return record;
}

std::optional<NetHandle> handle_in(ConstBytes record) {
  // A sender's rank may look like an address family; only handles have the magic.
  if (record.size() != connect_record_size) {
    return std::nullopt;
  }
  const std::optional<ib::ListenHandle> decoded = ib::decode_handle(record.first(net_handle_size));
  if (!decoded || decoded->magic != ib::net_magic) {
    return std::nullopt;
  }
  NetHandle handle;
  std::ranges::copy(record.first(net_handle_size), handle.begin());
  return handle;
}

}  // namespace nbx::nccl
