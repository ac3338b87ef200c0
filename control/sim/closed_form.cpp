#include "sim/closed_form.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace nbx::sim {
namespace {

constexpr std::uint32_t reth = 16;
constexpr std::uint32_t aeth = 4;

std::vector<switching::HostId> hosts_by_rank(const pipeline::NetworkPlan& network) {
  std::vector<switching::HostId> hosts;
  for (const pipeline::NetworkPort& port : network.ports) {
    hosts.push_back(port.node);
    hosts.insert(hosts.end(), port.ghosts.begin(), port.ghosts.end());
  }
  return hosts;
}

}  // namespace

ClosedForm::ClosedForm(const pipeline::NetworkPlan& network, BitRate line, std::uint32_t path_mtu,
                       std::uint32_t packet_headers)
    : topology_(network.topology),
      neighbours_(switching::neighbours(network.topology)),
      ways_(switching::shortest_paths(network.topology)),
      hosts_(hosts_by_rank(network)),
      switch_latency_(network.spec.switches.latency),
      line_(line),
      path_mtu_(path_mtu),
      on_line_(packet_headers + network.spec.switches.overhead_bytes),
      sends_until_(hosts_.size()),
      receives_until_(hosts_.size()) {}

ClosedForm::Path ClosedForm::path(std::uint32_t from, std::uint32_t to) const {
  const switching::Topology::End start{.host = true, .index = hosts_[from]};
  const switching::Topology::End goal{.host = true, .index = hosts_[to]};
  const auto first = std::find_if(topology_.cables.begin(), topology_.cables.end(),
                                  [&](const auto& cable) { return cable.a == start || cable.b == start; });
  NBX_CHECK(first != topology_.cables.end());
  Path path{.slowest = line_, .others = {}, .latency = first->spec.propagation};
  std::vector<BitRate> links{first->spec.rate};
  for (switching::Topology::End at = first->a == start ? first->b : first->a; at != goal;) {
    NBX_CHECK(!at.host && !ways_[at.index][goal.index].empty());
    const switching::Neighbour& next = neighbours_[at.index][ways_[at.index][goal.index].front()];
    const switching::CableSpec& cable = topology_.cables[next.cable].spec;
    links.push_back(cable.rate);
    path.latency += switch_latency_ + cable.propagation;
    at = next.end;
  }
  const auto slowest = std::min_element(links.begin(), links.end());
  if (*slowest <= line_) {
    path.slowest = *slowest;
    links.erase(slowest);
  }
  path.others = std::move(links);
  return path;
}

Duration ClosedForm::through(const Path& path, std::uint64_t bytes, std::uint64_t packet) {
  Duration time = serialize_time_ceil(bytes, path.slowest) + path.latency;
  for (const BitRate rate : path.others) {
    time += serialize_time_ceil(packet, rate);
  }
  return time;
}

ClosedForm::Times ClosedForm::send(const Path& path, std::uint32_t from, std::uint32_t to, std::uint32_t bytes,
                                   Instant now) {
  const std::uint64_t packets = std::max<std::uint64_t>(1, (std::uint64_t{bytes} + path_mtu_ - 1) / path_mtu_);
  const std::uint64_t on_wire = bytes + packets * on_line_ + reth;
  const std::uint64_t largest = std::min(bytes, path_mtu_) + on_line_ + reth;
  const Instant start = std::max(now, sends_until_[from]);
  sends_until_[from] = start + serialize_time_ceil(on_wire, line_);
  const Instant arrived = std::max(start + through(path, on_wire, largest),
                                   receives_until_[to] + serialize_time_ceil(on_wire, path.slowest));
  receives_until_[to] = arrived;
  const std::uint64_t ack = on_line_ + aeth;
  return {arrived, arrived + through(path, ack, ack)};
}

}  // namespace nbx::sim
