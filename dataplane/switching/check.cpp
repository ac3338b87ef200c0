// Each rule is one function; a rule says what it saw and what that leads to.
#include "switching/check.hpp"

#include <algorithm>
#include <map>

namespace nbx::switching {
namespace {

using Findings = std::vector<Finding>;

std::string of(unsigned priority) { return "priority " + std::to_string(priority) + ": "; }
std::string bytes(std::uint64_t n) { return std::to_string(n) + " bytes"; }

void check_ramp(unsigned p, const EcnSpec& ecn, const PriorityBufferSpec& buffer, Findings& out) {
  if (!ecn.enabled) {
    return;
  }
  if (ecn.kmin_bytes > ecn.kmax_bytes) {
    out.push_back({true, of(p) + "Kmin, " + bytes(ecn.kmin_bytes) + ", is above Kmax, " + bytes(ecn.kmax_bytes)});
  }
  if (ecn.pmax_ppm > 1'000'000) {
    out.push_back({true, of(p) + "Pmax is above 1"});
  }
  if (ecn.pmax_ppm == 0 && ecn.kmin_bytes < ecn.kmax_bytes) {
    out.push_back({false, of(p) + "Pmax is 0: nothing is marked up to Kmax, everything above"});
  }
  if (!buffer.lossless && buffer.queue_limit_bytes != 0 && ecn.kmin_bytes >= buffer.queue_limit_bytes) {
    out.push_back({false, of(p) + "Kmin, " + bytes(ecn.kmin_bytes) + ", is not below the queue's limit, " +
                              bytes(buffer.queue_limit_bytes) + ": it drops before it marks"});
  }
  if (buffer.lossless && buffer.xoff_bytes != 0 && ecn.kmin_bytes >= buffer.xoff_bytes) {
    out.push_back({false, of(p) + "Kmin, " + bytes(ecn.kmin_bytes) + ", is not below xoff, " +
                              bytes(buffer.xoff_bytes) + ": one sender is paused before it is marked"});
  }
}

void check_lossless(unsigned p, const SwitchSpec& spec, const Topology& topology, std::uint32_t max_frame_bytes,
                    Findings& out) {
  const PriorityBufferSpec& buffer = spec.buffer.priority[p];
  if (!buffer.lossless) {
    return;
  }
  if (buffer.xoff_bytes != 0 && buffer.xon_bytes >= buffer.xoff_bytes) {
    out.push_back({false, of(p) + "resumes " + bytes(buffer.xon_bytes) + " below an xoff of " +
                              bytes(buffer.xoff_bytes) + ": only when all is gone"});
  }
  std::uint32_t needed = 0;
  Duration shortest = Duration::max();
  Duration longest_frame{};
  for (const Topology::Cable& cable : topology.cables) {
    needed = std::max(needed, headroom_for(cable.spec.rate, cable.spec.propagation, spec.latency, max_frame_bytes));
    shortest = std::min(shortest, pause_time(spec.pfc_quanta, cable.spec.rate));
    longest_frame =
        std::max(longest_frame, serialize_time_ceil(max_frame_bytes + spec.overhead_bytes, cable.spec.rate));
  }
  if (buffer.headroom_bytes < needed) {
    out.push_back({false, of(p) + "headroom of " + bytes(buffer.headroom_bytes) +
                              " may lose packets: " + bytes(needed) +
                              " can arrive after a pause (twice the propagation and the latency at the "
                              "link's rate, and three frames)"});
  }
  if (shortest / 2 < longest_frame) {
    out.push_back({false, of(p) + std::to_string(spec.pfc_quanta) +
                              " quanta are over before a refresh has passed a frame on the line: pauses have gaps"});
  }
}

void check_memory(const BufferSpec& spec, const Topology& topology, Findings& out) {
  const auto around = neighbours(topology);
  std::uint64_t per_port = 0;
  for (const PriorityBufferSpec& p : spec.priority) {
    per_port += p.reserved_bytes + (p.lossless ? p.headroom_bytes : 0);
  }
  for (SwitchId s = 0; s < around.size(); ++s) {
    if (!SharedBuffer::fits(spec, static_cast<PortIndex>(around[s].size()))) {
      out.push_back({true, topology.switches[s] + ": reserves and headroom take " + std::to_string(around[s].size()) +
                               " ports x " + bytes(per_port) + " = " + bytes(around[s].size() * per_port) + " of " +
                               bytes(spec.size_bytes)});
    }
  }
}

void check_cables(const Topology& topology, Findings& out) {
  std::map<HostId, int> cables;
  for (const Topology::Cable& cable : topology.cables) {
    for (const Topology::End& end : {cable.a, cable.b}) {
      if (end.host) {
        ++cables[end.index];
      }
    }
    if (cable.a.host && cable.b.host) {
      out.push_back({true, topology.hosts[cable.a.index] + " and " + topology.hosts[cable.b.index] +
                               " are connected without a switch"});
    }
    if (cable.spec.rate.unlimited()) {
      out.push_back({true, "a cable has no rate"});
    }
  }
  for (HostId h = 0; h < topology.hosts.size(); ++h) {
    if (cables[h] != 1) {
      out.push_back({true, topology.hosts[h] + " has " + std::to_string(cables[h]) + " cables; a host has one"});
    }
  }
}

}  // namespace

std::vector<Finding> check(const Topology& topology, const NetworkSpec& spec, std::uint32_t max_frame_bytes) {
  Findings out;
  check_cables(topology, out);
  check_memory(spec.switches.buffer, topology, out);
  for (unsigned p = 0; p < priorities; ++p) {
    check_ramp(p, spec.switches.ecn[p], spec.switches.buffer.priority[p], out);
    check_lossless(p, spec.switches, topology, max_frame_bytes, out);
  }
  return out;
}

}  // namespace nbx::switching
