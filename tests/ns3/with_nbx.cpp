// The workload in the emulator's network (dataplane/switching) in virtual time. Prints each flow, and packets by wall
// time.
#include <chrono>
#include <cstring>

#include "ns3/workload.hpp"
#include "virtual_time/world.hpp"

namespace {

using namespace nbx;
using namespace nbx::virtual_time;

std::int64_t ns(Instant at) { return at.ps / 1000; }
Instant at_ns(std::int64_t n) { return Instant{} + std::chrono::nanoseconds{n}; }

class PlayedFlow final : public virtual_time::Flow {
 public:
  PlayedFlow(World& world, const FlowSpec& spec, workload::Arrivals arrivals, workload::Meter& meter)
      : Flow(world, spec), arrivals_(arrivals), meter_(&meter) {}

 private:
  void on_timer(TimerNode& node, Instant /*now*/) noexcept override {
    const Instant now = node.due;
    if (now != spec().start) {
      meter_->sent(ns(now));
      (void)send_data(spec().packet_bytes, now);  // the program fails when the pool was empty
    }
    wake_at(at_ns(arrivals_.next()));
  }
  void on_data(SimPacket& /*packet*/, Instant now) noexcept override { meter_->received(ns(now)); }

  workload::Arrivals arrivals_;
  workload::Meter* meter_;
};

switching::Topology network(bool leaf_spine) {
  const switching::CableSpec cable{BitRate::gbps(10), std::chrono::nanoseconds{workload::cable_ns}};
  if (leaf_spine) {
    return switching::leaf_spine({.leaves = workload::leaves,
                                  .spines = workload::spines,
                                  .hosts_per_leaf = workload::hosts_per_leaf,
                                  .host_cable = cable,
                                  .fabric_cable = cable});
  }
  switching::Topology topology;
  topology.add_switch("left");
  topology.add_switch("right");
  for (unsigned h = 0; h < 8; ++h) {
    topology.connect_host(topology.add_host("h" + std::to_string(h)), h < 4 ? 0 : 1, cable);
  }
  topology.connect(0, 1, cable);
  return topology;
}

/// By spine `to` mod the number of spines.
void pin(World& world, const workload::Flow& flow, unsigned hash) {
  const switching::SwitchId leaf = flow.from / workload::hosts_per_leaf;
  const std::string spine = "spine" + std::to_string(flow.to % workload::spines);
  const switching::Topology& topology = world.network().topology();
  for (switching::PortIndex port = 0; port < world.network().at(leaf).ports(); ++port) {
    const switching::Topology::End& end = world.network().peer(leaf, port).end;
    if (!end.host && topology.switches[end.index] == spine) {
      world.network().pin(hash, flow.to, leaf, port);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool leaf_spine = argc > 1 && std::strcmp(argv[1], "leaf_spine") == 0;
  WorldSpec spec;
  spec.topology = network(leaf_spine);
  spec.network.switches.overhead_bytes = 0;
  spec.network.switches.buffer.size_bytes = 1'000'000'000;
  World world{spec};
  const auto flows = leaf_spine ? workload::leaf_spine() : workload::dumbbell();
  std::vector<workload::Meter> meters(flows.size());
  for (unsigned i = 0; i < flows.size(); ++i) {
    if (leaf_spine) {
      pin(world, flows[i], i);
    }
    world.add<PlayedFlow>(
        FlowSpec{
            .source = flows[i].from, .destination = flows[i].to, .packet_bytes = workload::packet_bytes, .hash = i},
        workload::Arrivals(i, flows[i].load), meters[i]);
  }
  const auto began = std::chrono::steady_clock::now();
  world.run(at_ns(workload::until_ns));
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::uint64_t packets = 0;
  for (unsigned i = 0; i < flows.size(); ++i) {
    meters[i].print(flows[i]);
    packets += meters[i].packets();
  }
  std::printf("wall %.6f %llu\n", wall, static_cast<unsigned long long>(packets));
  return world.pool().exhausted() == 0 ? 0 : 1;
}
