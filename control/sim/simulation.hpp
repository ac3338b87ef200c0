// `nbx sim`: a cluster in virtual time. The shard that would run on the port runs here, and at the other end of the
// cable, in the place of the real node, a second one whose only ghost has the node's addresses.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "config/cluster.hpp"
#include "config/job.hpp"
#include "sim/exports.hpp"

namespace nbx::sim {

struct Options {
  Duration limit = std::chrono::hours{24};  // of virtual time; then the simulation is called stuck
  bool details = false;                     // in the report: every step, queues and rates over time
  bool otg = false;                         // whether the outcome has Open Traffic Generator's metrics
  std::function<void(const Message&)> on_message{};
  struct Pcap {
    std::string port;  // of the cluster's port, the real node or a ghost
    std::string file;
  };
  std::vector<Pcap> pcaps{};
};

/// Told now and then how far the job is: 0 to 1.
using Progress = std::function<void(double done, Instant now)>;

/// Why a cluster cannot be simulated, if so.
[[nodiscard]] std::optional<Error> unfit(const config::ClusterConfig& cluster);

struct Outcome {
  nlohmann::ordered_json report;  // the same for the same files
  nlohmann::ordered_json otg;     // null when it was not asked for
  std::uint64_t packets = 0;
  std::size_t queue_pairs = 0;
  double wall_s = 0;
};
/// What became of the job. The error says what it is stuck at, or what the cluster lacks.
[[nodiscard]] Result<Outcome> simulate(const config::ClusterConfig& cluster, const config::Job& job,
                                       const Options& options, const Progress& progress);

}  // namespace nbx::sim
