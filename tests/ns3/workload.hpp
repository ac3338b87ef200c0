// What both simulators are given: two networks of FIFO queues, and the instants at which each flow has a packet. Knows
// neither of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <vector>

namespace workload {

constexpr unsigned packet_bytes = 1000;  // on the line, everything included
constexpr double link_bps = 10e9;
constexpr std::int64_t cable_ns = 1000;
constexpr std::int64_t packet_ns = 800;  // on one link
constexpr std::int64_t until_ns = 40'000'000;

struct Flow {
  unsigned from;
  unsigned to;
  double load;     // of its host's link
  unsigned links;  // on its way
};

/// Four hosts at each end of one link of 10 Gb/s that is used to 0.9.
inline std::vector<Flow> dumbbell() { return {{0, 4, 0.3, 3}, {1, 5, 0.3, 3}, {2, 6, 0.2, 3}, {3, 7, 0.1, 3}}; }

constexpr unsigned leaves = 4;
constexpr unsigned spines = 4;
constexpr unsigned hosts_per_leaf = 4;
/// Every host sends to two of the next leaf; the way to host h is by spine h mod 4.
inline std::vector<Flow> leaf_spine() {
  constexpr unsigned hosts = leaves * hosts_per_leaf;
  std::vector<Flow> flows;
  for (unsigned h = 0; h < hosts; ++h) {
    flows.push_back({h, (h + hosts_per_leaf) % hosts, 0.5, 4});
    flows.push_back({h, (h / hosts_per_leaf + 1) % leaves * hosts_per_leaf + (h + 1) % hosts_per_leaf, 0.3, 4});
  }
  return flows;
}

/// A Poisson process: exponential gaps from xorshift64*, rounded to nanoseconds.
class Arrivals {
 public:
  Arrivals(unsigned flow, double load) : state_(0x9e3779b97f4a7c15ULL * (flow + 1)), mean_ns_(packet_ns / load) {}
  std::int64_t next() {
    state_ ^= state_ >> 12U;
    state_ ^= state_ << 25U;
    state_ ^= state_ >> 27U;
    const double unit = (static_cast<double>((state_ * 0x2545f4914f6cdd1dULL) >> 11U) + 1) * 0x1p-53;
    at_ += static_cast<std::int64_t>(std::llround(-std::log(unit) * mean_ns_));
    return at_;
  }

 private:
  std::uint64_t state_;
  double mean_ns_;
  std::int64_t at_ = 0;
};

/// Packets of a flow come in the order in which they were sent.
class Meter {
 public:
  void sent(std::int64_t now) { under_way_.push_back(now); }
  void received(std::int64_t now) {
    ++packets_;
    delay_ns_ += static_cast<double>(now - under_way_.front());
    under_way_.pop_front();
  }
  [[nodiscard]] std::uint64_t packets() const { return packets_; }
  /// "FROM TO Gb/s QUEUE": the mean number of packets that wait somewhere on the way is their rate times their mean
  /// wait (Little's law).
  void print(const Flow& flow) const {
    const double idle = static_cast<double>(packets_) * flow.links * (packet_ns + cable_ns);
    std::printf("flow %u %u %.6f %.6f\n", flow.from, flow.to,
                static_cast<double>(packets_) * packet_bytes * 8 / static_cast<double>(until_ns),
                (delay_ns_ - idle) / static_cast<double>(until_ns));
  }

 private:
  std::deque<std::int64_t> under_way_;
  std::uint64_t packets_ = 0;
  double delay_ns_ = 0;
};

}  // namespace workload
