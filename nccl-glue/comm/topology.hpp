// The rings and trees that every rank computes from the graph exchange. How many channels there are is known only
// roughly: environment variables and limits of the real ranks cut or copy them. Their number of connections tells.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "nccl-glue/wire/peer.hpp"

namespace nbx::nccl {

struct Topology {
  int channels = 0;
  std::vector<std::vector<std::int32_t>> ring;  // [channel][position]: rank; position 0 is rank 0
  struct TreeNode {
    std::int32_t parent = -1;
    std::array<std::int32_t, 3> children{-1, -1, -1};
  };
  std::vector<std::vector<TreeNode>> tree;  // [channel][rank]
  std::vector<std::uint32_t> node;          // [rank]: nodes are numbered by their first ranks
};

/// Bit c: channel c.
using ChannelMask = std::uint64_t;

/// What repeats itself over the channels.
class TopologyPattern {
 public:
  struct Facts {
    std::int32_t ranks = 0;
    int channels_limit = 0;  // of the release
    int compute_capability_min = 0;
    std::function<Graph(std::int32_t rank)> graph;
  };
  [[nodiscard]] static Result<TopologyPattern> from(const Facts& facts);

  /// The number of channels when nothing cuts or copies them.
  [[nodiscard]] int usual_channels() const { return usual_channels_; }
  [[nodiscard]] int channels_found() const { return static_cast<int>(next_.size()); }
  [[nodiscard]] Topology with_channels(int channels) const;
  /// Channels whose ring goes from `from` directly to `to`; whose tree has an edge between them.
  [[nodiscard]] ChannelMask ring_edges(std::int32_t from, std::int32_t to, int channels) const;
  [[nodiscard]] ChannelMask tree_edges(std::int32_t a, std::int32_t b, int channels) const;

 private:
  explicit TopologyPattern(std::int32_t ranks) : ranks_(ranks) {}
  std::optional<Error> add_channel(const std::vector<Graph>& nodes, std::vector<std::int32_t> next, int channel);
  void add_trees(const std::vector<Graph>& nodes, const std::vector<std::int32_t>& next, std::size_t channel);

  std::int32_t ranks_;
  int usual_channels_ = 0;
  // As many rings as the search found channels; twice as many trees: first of each pair, then second of each.
  std::vector<std::vector<std::int32_t>> next_;  // [channel][rank]
  std::vector<std::vector<Topology::TreeNode>> trees_;
  std::vector<std::uint32_t> node_;  // [rank]
};

/// A node's place in the double binary tree over `nodes` nodes.
struct TreePlace {
  std::int32_t parent = -1;
  bool first_child = false;  // of its parent
  std::array<std::int32_t, 2> children{-1, -1};
};
[[nodiscard]] TreePlace first_tree(std::int32_t node, std::int32_t nodes);
[[nodiscard]] TreePlace second_tree(std::int32_t node, std::int32_t nodes);

}  // namespace nbx::nccl
