#include "config/network.hpp"

#include <algorithm>

namespace nbx::config {

namespace {

struct Builder {
  const Network& network;
  [[nodiscard]] switching::CableSpec host() const { return {network.host_rate, network.propagation}; }
  [[nodiscard]] switching::CableSpec fabric() const { return {network.fabric_rate, network.propagation}; }

  switching::Topology operator()(const Rack& /*rack*/) const { return switching::rack(network.hosts, host()); }
  switching::Topology operator()(switching::LeafSpineSpec x) const {
    x.host_cable = host();
    x.fabric_cable = fabric();
    return switching::leaf_spine(x);
  }
  switching::Topology operator()(const FatTree& x) const { return switching::fat_tree(x.k, fabric()); }
  switching::Topology operator()(switching::RailSpec x) const {
    x.host_cable = host();
    x.fabric_cable = fabric();
    return switching::rail_optimized(x);
  }
  switching::Topology operator()(const Dragonfly& x) const {
    return switching::dragonfly(x.hosts_per_router, x.routers_per_group, x.global_links, fabric());
  }
};

std::uint32_t bytes(ByteCount count) { return static_cast<std::uint32_t>(count.value); }  // see queue_limits

std::uint8_t number(std::uint8_t priority) { return priority; }
std::uint8_t number(const Located<std::uint8_t>& priority) { return *priority; }

template <class Classes>
switching::ClassMap class_map(switching::Trust trust, const Classes& priorities) {
  switching::ClassMap out;
  out.trust = trust;
  for (const auto& x : priorities) {
    for (const std::uint8_t dscp : x.dscp) {
      out.of_dscp[dscp] = number(x.priority);
    }
    out.lossless |= static_cast<std::uint8_t>(x.lossless ? 1U << number(x.priority) : 0U);
  }
  return out;
}

}  // namespace

switching::ClassMap classes_of(const Network& network) { return class_map(network.trust, network.priorities); }
switching::ClassMap classes_of(const NodeClasses& classes) { return class_map(*classes.trust, classes.priorities); }

switching::SlowReceiverSpec receiver_of(const SlowReceiver& receiver, const Network& network) {
  const std::uint64_t xoff = receiver.xoff->value;
  return {.drain = receiver.drain,
          .buffer_bytes = receiver.buffer.value,
          .xoff_bytes = xoff,
          .xon_bytes = xoff - std::min(xoff, receiver.xon.value),
          .lossless = classes_of(network).lossless};
}

switching::Topology topology_of(const Network& network) { return std::visit(Builder{network}, *network.topology); }

std::vector<switching::LinkId> links_of(const switching::Topology& topology, const std::string& word,
                                        const std::vector<std::string>& names) {
  const auto called = [&](const switching::Topology::End& end) {
    std::vector<std::string> out{end.host ? topology.hosts[end.index] : topology.switches[end.index]};
    if (end.host && end.index < names.size()) {
      out.push_back(names[end.index]);
    }
    return out;
  };
  const auto names_link = [&](const std::string& text, switching::LinkId link) {
    for (const std::string& from : called(switching::sender(topology, link))) {
      for (const std::string& to : called(switching::receiver(topology, link))) {
        if (text == from + "-" + to || text == to + "-" + from || text == from + "->" + to) {
          return true;
        }
      }
    }
    return false;
  };
  std::vector<switching::LinkId> whole;
  std::vector<switching::LinkId> parallel;  // of what is before the last dot
  const std::size_t dot = word.rfind('.');
  for (switching::LinkId link = 0; link < 2 * topology.cables.size(); ++link) {
    if (names_link(word, link)) {
      whole.push_back(link);
    } else if (dot != std::string::npos && names_link(word.substr(0, dot), link)) {
      parallel.push_back(link);
    }
  }
  if (!whole.empty() || parallel.empty()) {
    return whole;
  }
  const Result<std::uint32_t> which = Scalar<std::uint32_t>::parse({word.substr(dot + 1), false});
  const std::size_t each = word.find("->") == std::string::npos ? 2 : 1;
  if (!which || *which >= parallel.size() / each) {
    return {};
  }
  const auto first = parallel.begin() + static_cast<std::ptrdiff_t>(*which * each);
  return {first, first + static_cast<std::ptrdiff_t>(each)};
}

std::string no_cable(const switching::Topology& topology, const std::string& word,
                     const std::vector<std::string>& names) {
  const bool one_way = word.find("->") != std::string::npos;
  const auto called = [&](const switching::Topology::End& end) {
    return !end.host                                               ? topology.switches[end.index]
           : end.index < names.size() && !names[end.index].empty() ? names[end.index]
                                                                   : topology.hosts[end.index];
  };
  std::vector<std::string> known;
  for (switching::LinkId link = 0; link < 2 * topology.cables.size(); ++link) {
    known.push_back(called(switching::sender(topology, link)) + (one_way ? "->" : "-") +
                    called(switching::receiver(topology, link)));
  }
  const std::string meant = did_you_mean(word, known);
  return "there is no cable '" + word + "'" +
         (meant.empty() ? "; cables are called by their ends, as leaf0-spine1, or leaf0->spine1 in one direction"
                        : meant);
}

switching::NetworkSpec spec_of(const Network& network, std::uint32_t max_frame) {
  switching::NetworkSpec out;
  out.paths = {.choice = network.path_choice, .flowlet_gap = network.flowlet_gap};
  out.polarised = network.polarised;
  switching::SwitchSpec& switches = out.switches;
  switches.buffer.size_bytes = network.buffer.value;
  switches.latency = network.latency;
  switches.pfc_quanta = network.pfc_quanta;
  if (network.watchdog) {
    switches.watchdog = {network.watchdog->detection_time, network.watchdog->restoration_time,
                         network.watchdog->action};
  }
  const BitRate fastest = std::max(network.host_rate, network.fabric_rate);
  for (const PriorityClass& x : network.priorities) {
    switching::PriorityBufferSpec& buffer = switches.buffer.priority[*x.priority];
    buffer.lossless = x.lossless;
    buffer.alpha_log2 = static_cast<std::int8_t>(-static_cast<int>(x.alpha_shift));
    buffer.reserved_bytes = bytes(x.reserved);
    buffer.queue_limit_bytes = bytes(x.queue_limit);
    if (x.lossless) {
      buffer.headroom_bytes = x.headroom
                                  ? bytes(*x.headroom)
                                  : switching::headroom_for(fastest, network.propagation, network.latency, max_frame);
      buffer.xoff_bytes = bytes(x.xoff);
      buffer.xon_bytes = bytes(x.xon);
    }
    switches.scheduler.quantum_bytes[*x.priority] = bytes(x.quantum);
    if (x.ecn) {
      switches.ecn[*x.priority] = {.enabled = true,
                                   .kmin_bytes = bytes(x.ecn->kmin),
                                   .kmax_bytes = bytes(x.ecn->kmax),
                                   .pmax_ppm = static_cast<std::uint32_t>(x.ecn->pmax.value * 1e6),
                                   .ewma_shift = x.ecn->ewma_shift};
    }
  }
  return out;
}

}  // namespace nbx::config
