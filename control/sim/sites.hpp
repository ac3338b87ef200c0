// The ports of a simulated cluster, each with its real node.
#pragma once

#include <memory>
#include <vector>

#include "config/cluster.hpp"
#include "pipeline/shard.hpp"

namespace nbx::sim {

/// A port and the real node at its cable, whose place in the simulation a ghost of its own takes.
struct Site {
  // The shards keep references to their plans.
  pipeline::ShardPlan port_plan;
  pipeline::ShardPlan node_plan;
  std::uint32_t first_rank = 0;  // the node's; the ghosts' follow
  Counters port_counters;
  Counters node_counters;
  capture::Tap* port_tap = nullptr;
  capture::Tap* node_tap = nullptr;
  std::vector<capture::Tap*> ghost_taps;
  std::unique_ptr<pipeline::Shard> port;
  std::unique_ptr<pipeline::Shard> node;
};

/// One per plan.
[[nodiscard]] std::vector<std::unique_ptr<Site>> make_sites(const config::ClusterConfig& cluster,
                                                            const std::vector<pipeline::ShardPlan>& plans);
/// That all ports carry.
[[nodiscard]] std::uint32_t smallest_path_mtu(const std::vector<std::unique_ptr<Site>>& sites);
[[nodiscard]] std::uint32_t largest_mtu(const std::vector<std::unique_ptr<Site>>& sites);

}  // namespace nbx::sim
