// From checked values to the plans of shards: one per port. Input with diagnostics is not for here.
#pragma once

#include <optional>
#include <vector>

#include "config/cluster.hpp"
#include "pipeline/plan.hpp"

namespace nbx::plan {

/// In the order of the file; a port's id is its place there.
[[nodiscard]] std::vector<pipeline::ShardPlan> make_plans(const config::ClusterConfig& config);

/// A profile for `port`, which may be another than that of the file: for changes while running.
[[nodiscard]] fabric::ProfileSpec make_profile(const config::Profile& profile, const config::Port& port,
                                               const config::ClusterConfig& config);

/// What the section `nccl` says, for the port whose ghosts it names; nullopt for others.
[[nodiscard]] std::optional<nccl::ServiceOptions> make_nccl(const config::ClusterConfig& config,
                                                            const config::Port& port);

/// The ghosts of a port in the order of their ids.
[[nodiscard]] std::vector<const config::Ghost*> ghosts_of(const config::ClusterConfig& config,
                                                          const config::Port& port);

}  // namespace nbx::plan
