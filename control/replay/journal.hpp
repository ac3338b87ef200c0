// What a replay saw at one port: deliveries, completions, counters and per-QP statistics, as text or JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "pipeline/shard.hpp"

namespace nbx::replay {

class Journal final : public pipeline::Observer {
 public:
  explicit Journal(const pipeline::ShardPlan& plan) : plan_(plan) {}

  struct Input {
    std::uint64_t frames = 0;       // given to the port
    std::uint64_t from_ghosts = 0;  // left out: the emulator says these itself
    std::uint64_t truncated = 0;    // left out: the capture does not hold all of the frame
  } input;
  std::uint64_t sent = 0;

  void on_delivery(const rdma::Delivery& delivery, Instant now) noexcept override;
  void on_completion(GhostId ghost, Qpn qpn, const rdma::Completion& completion, Instant now) noexcept override;

  /// At the end of the replay, what is this port's own: a network is not.
  [[nodiscard]] nlohmann::ordered_json report(pipeline::Shard& shard, const Counters& counters) const;

 private:
  struct Delivered {
    rdma::Delivery delivery;
    Instant at;
  };
  struct Completed {
    GhostId ghost;
    Qpn qpn;
    rdma::Completion completion;
    Instant at;
  };

  [[nodiscard]] const std::string& ghost_name(GhostId ghost) const { return plan_.ghosts[index(ghost)].identity.name; }

  const pipeline::ShardPlan& plan_;
  std::vector<Delivered> deliveries_;
  std::vector<Completed> completions_;
};

}  // namespace nbx::replay
