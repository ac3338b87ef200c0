#include "nccl-glue/comm/topology.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <unordered_map>

namespace nbx::nccl {

namespace {

using std::size_t;

/// Where Hopper and later use four channels for each one found: rings this fast, and fewer channels than this.
constexpr int doubling_compute_capability = 90;
constexpr float doubling_bandwidth = 45.0F;
constexpr int doubling_channels = 16;
constexpr std::int32_t rings_crossed = 2;  // cross_nic_ring: odd nodes swap pairs of channels

bool in_range(std::int32_t rank, std::int32_t ranks) { return rank >= 0 && rank < ranks; }

size_t at(std::int32_t rank) { return static_cast<size_t>(rank); }

std::string text(std::int32_t number) { return std::to_string(number); }

}  // namespace

TreePlace first_tree(std::int32_t node, std::int32_t nodes) {
  TreePlace place;
  if (node == 0) {
    // The root has one child: the highest power of two.
    place.children[1] =
        nodes > 1 ? static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(nodes - 1))) : -1;
    return place;
  }
  const std::int32_t bit = node & -node;
  place.parent = (node ^ bit) | (bit << 1);
  if (place.parent >= nodes) {
    place.parent = node ^ bit;
  }
  place.first_child = node < place.parent;
  if (bit > 1) {
    place.children[0] = node - bit / 2;
    for (std::int32_t step = bit / 2; step > 0; step /= 2) {
      if (node + step < nodes) {
        place.children[1] = node + step;
        break;
      }
    }
  }
  return place;
}

TreePlace second_tree(std::int32_t node, std::int32_t nodes) {
  const bool mirrored = nodes % 2 == 0;
  const auto back = [&](std::int32_t other) {
    if (other < 0) {
      return other;
    }
    return mirrored ? nodes - 1 - other : (other + 1) % nodes;
  };
  TreePlace place = first_tree(mirrored ? nodes - 1 - node : (node - 1 + nodes) % nodes, nodes);
  place.parent = back(place.parent);
  place.children = {back(place.children[0]), back(place.children[1])};
  return place;
}

Result<TopologyPattern> TopologyPattern::from(const Facts& facts) {
  TopologyPattern pattern(facts.ranks);
  int channels = facts.channels_limit;
  float bandwidth = std::numeric_limits<float>::max();
  std::vector<Graph> nodes;  // of their first ranks, in order of appearance
  std::unordered_map<std::int32_t, size_t> node_of;
  for (std::int32_t rank = 0; rank < facts.ranks; ++rank) {
    const Graph graph = facts.graph(rank);
    channels = std::min(channels, graph.channels);
    bandwidth = std::min(bandwidth, graph.ring_bandwidth);
    const auto [known, first] = node_of.emplace(graph.ring_recv[0], nodes.size());
    if (first) {
      nodes.push_back(graph);
    }
    pattern.node_.push_back(static_cast<std::uint32_t>(known->second));
  }
  if (channels < 1) {
    return Error{"a rank reports no channels"};
  }
  std::vector<std::vector<std::int32_t>> next(at(channels), std::vector<std::int32_t>(at(facts.ranks), -1));
  const auto source = [&](const Graph& graph, size_t node, int channel) {
    const bool swapped = graph.cross_nic_ring == rings_crossed && channels % 2 == 0 && node % 2 == 1;
    return static_cast<size_t>(swapped ? channel ^ 1 : channel);
  };
  for (std::int32_t rank = 0; rank < facts.ranks; ++rank) {
    const Graph graph = facts.graph(rank);
    const size_t node = pattern.node_[at(rank)];
    for (int c = 0; c < channels; ++c) {
      next[at(c)][at(rank)] = graph.ring_next[source(graph, node, c)];
    }
  }
  for (size_t k = 0; k < nodes.size(); ++k) {
    const Graph graph = nodes[k];
    for (int c = 0; c < channels; ++c) {
      nodes[k].ring_recv[at(c)] = graph.ring_recv[source(graph, k, c)];
      nodes[k].ring_send[at(c)] = graph.ring_send[source(graph, k, c)];
    }
  }
  pattern.trees_.resize(2 * at(channels), std::vector<Topology::TreeNode>(at(facts.ranks)));
  for (int c = 0; c < channels; ++c) {
    if (std::optional<Error> error = pattern.add_channel(nodes, std::move(next[at(c)]), c)) {
      return *error;
    }
  }
  pattern.usual_channels_ = std::min(facts.channels_limit, 2 * channels);
  if (facts.compute_capability_min >= doubling_compute_capability && nodes.size() > 1 &&
      bandwidth > doubling_bandwidth && pattern.usual_channels_ < doubling_channels) {
    pattern.usual_channels_ *= 2;
  }
  return pattern;
}

std::optional<Error> TopologyPattern::add_channel(const std::vector<Graph>& nodes, std::vector<std::int32_t> next,
                                                  int channel) {
  const size_t c = at(channel);
  for (const Graph& g : nodes) {
    for (const std::int32_t rank : {g.ring_recv[c], g.ring_send[c], g.to_parent[c], g.to_child0[c], g.to_child1[c]}) {
      if (!in_range(rank, ranks_)) {
        return Error{"channel " + text(channel) + " of the graph exchange names rank " + text(rank)};
      }
    }
  }
  // Within nodes as they stand; trees need that before the rings close.
  add_trees(nodes, next, c);
  for (size_t k = 0; k < nodes.size(); ++k) {
    next[at(nodes[k].ring_send[c])] = nodes[(k + 1) % nodes.size()].ring_recv[c];
  }
  std::int32_t rank = 0;
  for (std::int32_t visited = 1; visited <= ranks_; ++visited) {
    rank = next[at(rank)];
    if (!in_range(rank, ranks_) || (rank == 0) != (visited == ranks_)) {
      return Error{"the ring of channel " + text(channel) + " does not close"};
    }
  }
  next_.push_back(std::move(next));
  return std::nullopt;
}

/// `next` within the nodes. The order of a node's ranks in its part of the tree is not on the wire; it is that of the
/// ring in what NCCL's search finds, and matters only to the node itself.
void TopologyPattern::add_trees(const std::vector<Graph>& nodes, const std::vector<std::int32_t>& next, size_t c) {
  const auto count = static_cast<std::int32_t>(nodes.size());
  const auto add_child = [](Topology::TreeNode& node, std::int32_t child) {
    const auto free = std::ranges::find(node.children, -1);
    if (free != node.children.end()) {  // always, unless two nodes claim the same rank
      *free = child;
    }
  };
  for (const bool second : {false, true}) {
    std::vector<Topology::TreeNode>& tree = trees_[c + (second ? trees_.size() / 2 : 0)];
    for (const Graph& node : nodes) {
      std::int32_t above = node.to_parent[c];
      std::int32_t below = next[at(above)];
      // Bounded: a rank that has a parent already is not visited again.
      while (in_range(below, ranks_) && below != node.to_parent[c] && tree[at(below)].parent < 0) {
        tree[at(below)].parent = above;
        tree[at(above)].children[0] = below;
        above = below;
        below = next[at(below)];
      }
    }
    for (std::int32_t k = 0; k < count; ++k) {
      const TreePlace place = second ? second_tree(k, count) : first_tree(k, count);
      const Graph& own = nodes[at(k)];
      if (place.parent >= 0) {
        const Graph& parent = nodes[at(place.parent)];
        tree[at(own.to_parent[c])].parent = place.first_child ? parent.to_child0[c] : parent.to_child1[c];
      }
      if (place.children[0] >= 0) {
        add_child(tree[at(own.to_child0[c])], nodes[at(place.children[0])].to_parent[c]);
      }
      if (place.children[1] >= 0) {
        add_child(tree[at(own.to_child1[c])], nodes[at(place.children[1])].to_parent[c]);
      }
    }
  }
}

Topology TopologyPattern::with_channels(int channels) const {
  Topology topology;
  topology.channels = channels;
  topology.node = node_;
  for (size_t c = 0; c < at(channels); ++c) {
    const std::vector<std::int32_t>& next = next_[c % next_.size()];
    std::vector<std::int32_t>& ring = topology.ring.emplace_back();
    ring.reserve(next.size());
    for (std::int32_t rank = 0; ring.size() < next.size(); rank = next[at(rank)]) {
      ring.push_back(rank);
    }
    topology.tree.push_back(trees_[c % trees_.size()]);
  }
  return topology;
}

ChannelMask TopologyPattern::ring_edges(std::int32_t from, std::int32_t to, int channels) const {
  ChannelMask mask = 0;
  for (size_t c = 0; c < at(channels); ++c) {
    mask |= ChannelMask{next_[c % next_.size()][at(from)] == to} << c;
  }
  return mask;
}

ChannelMask TopologyPattern::tree_edges(std::int32_t a, std::int32_t b, int channels) const {
  ChannelMask mask = 0;
  for (size_t c = 0; c < at(channels); ++c) {
    const std::vector<Topology::TreeNode>& tree = trees_[c % trees_.size()];
    mask |= ChannelMask{tree[at(a)].parent == b || tree[at(b)].parent == a} << c;
  }
  return mask;
}

}  // namespace nbx::nccl
