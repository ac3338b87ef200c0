// Two ports of one emulated network in virtual time: two switches with a trunk between them, and at each a real node
// and a ghost. `g0` and `g1` are at 10.77.0.9 and 10.77.0.10.
#pragma once

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "pipeline/shard_group.hpp"
#include "support/shard_rig.hpp"

namespace nbx::test {

struct TwoPortsSpec {
  BitRate host_rate = BitRate::gbps(10);
  BitRate second_node_rate = BitRate::gbps(10);
  BitRate trunk_rate = BitRate::gbps(10);
};

/// Cables of 1 us, 500 ns in a switch.
inline pipeline::NetworkPlan two_switches(const TwoPortsSpec& spec) {
  using namespace std::chrono_literals;
  pipeline::NetworkPlan plan;
  for (const char* host : {"node0", "g0", "node1", "g1"}) {
    plan.topology.add_host(host);
  }
  plan.topology.add_switch("s0");
  plan.topology.add_switch("s1");
  plan.topology.connect_host(0, 0, {spec.host_rate, 1us});
  plan.topology.connect_host(1, 0, {spec.host_rate, 1us});
  plan.topology.connect_host(2, 1, {spec.second_node_rate, 1us});
  plan.topology.connect_host(3, 1, {spec.host_rate, 1us});
  plan.topology.connect(0, 1, {spec.trunk_rate, 1us});
  plan.ports.resize(2);
  plan.ports[0].name = "p0";
  plan.ports[0].ghosts = {1};
  plan.ports[1] = {.name = "p1", .node = 2, .ghosts = {3}, .storm = {}, .receivers = {}};
  plan.spec.switches.buffer.size_bytes = 1U << 20U;
  plan.spec.switches.latency = 500ns;
  return plan;
}

class TwoPorts {
 public:
  explicit TwoPorts(const pipeline::NetworkPlan& plan) : network_(plan, Rng{1}) {
    for (std::uint8_t i = 0; i < 2; ++i) {
      plans_[i] = one_ghost_plan();
      plans_[i].port = PortId{i};
      plans_[i].port_name = plan.ports[i].name;
      plans_[i].ports = 2;
    }
    ghost::Identity& second = plans_[1].ghosts[0].identity;
    second.name = "g1";
    second.mac = *parse_mac("02:00:00:00:00:0a");
    second.addresses = {{*parse_ip("10.77.0.10"), 24}, {*parse_ip("fd77::a"), 64}};
    for (std::uint8_t i = 0; i < 2; ++i) {
      shards_[i] = std::make_unique<pipeline::Shard>(
          plans_[i], pipeline::ShardEnvironment{
                         .frames = &frames_, .counters = &counters_[i], .streams = &streams_, .network = &network_});
      group_.add(*shards_[i], PortId{i}, 2);
    }
    group_.start(now_);
  }

  [[nodiscard]] Instant now() const { return now_; }
  pipeline::Shard& shard(std::size_t port) { return *shards_[port]; }
  pipeline::EmulatedNetwork& network() { return network_.network; }
  [[nodiscard]] std::uint64_t count(std::size_t port, Drop d) const { return counters_[port].get(d); }
  [[nodiscard]] std::uint64_t count(std::size_t port, Counter c) const { return counters_[port].get(c); }

  void receive(std::size_t port, ConstBytes bytes) {
    FrameList burst;
    Frame* frame = shards_[port]->pool().alloc(bytes.size());
    std::memcpy(frame->data, bytes.data(), bytes.size());
    burst.push_back(*frame);
    shards_[port]->receive(burst, now_);
    settle();
  }
  void receive_from_kernel(std::size_t port, ConstBytes packet) {
    shards_[port]->receive_from_kernel(packet, now_);
    settle();
  }
  void run_for(Duration d) {
    const Instant end = now_ + d;
    while (network_.wheel.next_deadline() <= end) {
      now_ = std::max(now_, network_.wheel.next_deadline());
      settle();
    }
    now_ = end;
  }
  std::vector<ShardRig::Sent> take_sent(std::size_t port) { return std::exchange(sent_[port], {}); }
  std::size_t take_kernel(std::size_t port) { return std::exchange(to_kernel_[port], 0); }
  std::size_t outstanding_after_end() {
    shards_ = {};
    return frames_.outstanding();
  }

 private:
  void settle() {
    for (bool more = true; more;) {
      more = group_.progress(now_);
      for (std::size_t i = 0; i < 2; ++i) {
        while (Frame* frame = shards_[i]->to_port().pop_front()) {
          sent_[i].push_back({now_, Bytes(frame->data, frame->data + frame->size)});
          shards_[i]->release(*frame);
        }
        while (Frame* frame = shards_[i]->to_kernel().pop_front()) {
          ++to_kernel_[i];
          shards_[i]->release(*frame);
        }
      }
    }
  }

  SlabSource frames_{1024, 9600};
  NullStreams streams_;
  std::array<Counters, 2> counters_;
  std::array<pipeline::ShardPlan, 2> plans_;
  std::array<std::vector<ShardRig::Sent>, 2> sent_;
  std::array<std::size_t, 2> to_kernel_{};
  Instant now_{};
  pipeline::SharedNetwork network_;
  std::array<std::unique_ptr<pipeline::Shard>, 2> shards_;
  pipeline::ShardGroup group_{&network_};
};

}  // namespace nbx::test
