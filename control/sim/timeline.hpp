// Queues and rates over the time of a simulation, in a bounded number of samples: when there are too many, every other
// one goes and the interval doubles.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "rdma/transport.hpp"
#include "switching/network.hpp"

namespace nbx::sim {

/// Of messages, from the sender's wish until they are acknowledged.
struct Latencies {
  std::uint64_t messages = 0;
  Duration sum{};
  Duration min = Duration::max();
  Duration max{};

  void add(Duration latency) noexcept {
    ++messages;
    sum += latency;
    min = std::min(min, latency);
    max = std::max(max, latency);
  }
};

/// The queue pairs on which `from` sends to `to`.
struct Flow {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t lane = 0;
  const rdma::Qp* qp = nullptr;
  const rdma::Qp* peer = nullptr;  // the receiver's
  Latencies latencies{};
};

class Timeline {
 public:
  /// `network`: may be null. Of many flows the first few are watched.
  Timeline(const switching::Network* network, std::vector<Flow> flows);

  /// Nothing has changed since the last call, and something will at `now`.
  void until(Instant now) {
    if (now >= next_) {
      sample(now);
    }
  }
  /// Queued bytes of the fullest queue and of all; of each flow the payload sent between two samples, as a rate.
  [[nodiscard]] nlohmann::ordered_json report() const;

 private:
  struct Sample {
    std::uint64_t fullest = 0;
    std::uint64_t all = 0;
    std::vector<std::uint64_t> sent;  // by flow, from the start
  };
  void sample(Instant now);

  const switching::Network* network_;
  std::vector<Flow> flows_;
  std::vector<Sample> samples_;
  Duration interval_ = std::chrono::microseconds{1};
  Instant next_{};
};

}  // namespace nbx::sim
