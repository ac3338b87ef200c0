#include "plan/plan.hpp"

#include <algorithm>
#include <optional>

#include "base/overloaded.hpp"
#include "config/checks.hpp"

namespace nbx::plan {
namespace {

using config::ClusterConfig;

template <class E>
std::uint8_t bits(const std::vector<E>& flags) {
  unsigned all = 0;
  for (const E flag : flags) {
    all |= static_cast<unsigned>(flag);
  }
  return static_cast<std::uint8_t>(all);
}

template <class Strong, class T>
void take(T& target, const std::optional<config::Located<Strong>>& given) {
  if (given) {
    target = static_cast<T>(**given);
  }
}
template <class T>
void take(T& target, const std::optional<T>& given) {
  target = given.value_or(target);
}

/// What the file gives, over `target`: a ghost::QpDefaults or an rdma::QpAttr.
template <class Target>
void take_timing(Target& target, const config::QpDefaults& given) {
  take(target.path_mtu, given.path_mtu);
  take(target.timeout, given.timeout);
  take(target.retry_cnt, given.retry_cnt);
  take(target.rnr_retry, given.rnr_retry);
  take(target.min_rnr_timer, given.min_rnr_timer);
}

rdma::QpAttr make_attr(const config::QpKeys& keys, rdma::QpType type, const ghost::QpDefaults& defaults) {
  rdma::QpAttr attr;
  attr.type = type;
  attr.path_mtu = defaults.path_mtu;
  attr.timeout = defaults.timeout;
  attr.retry_cnt = defaults.retry_cnt;
  attr.rnr_retry = defaults.rnr_retry;
  attr.min_rnr_timer = defaults.min_rnr_timer;
  take_timing(attr, keys.timing);
  attr.pkey = keys.pkey;
  attr.qkey = keys.qkey;
  attr.access = bits(keys.access);
  attr.max_rd_atomic = keys.max_rd_atomic;
  attr.max_dest_rd_atomic = keys.max_dest_rd_atomic;
  attr.max_send_wr = keys.max_send_wr;
  attr.max_recv_wr = keys.max_recv_wr;
  attr.max_outstanding_packets = keys.max_outstanding_packets;
  attr.end_to_end_credits = keys.end_to_end_credits;
  return attr;
}

std::vector<pipeline::TimedRequest> make_requests(const std::vector<config::Request>& requests,
                                                  const rdma::QpAttr& attr) {
  std::vector<pipeline::TimedRequest> out;
  for (const config::Request& request : requests) {
    rdma::SendWr wr;
    wr.wr_id = request.wr_id;
    wr.opcode = *request.op;
    wr.signaled = request.signaled;
    wr.solicited = request.solicited;
    wr.fence = request.fence;
    if (request.local) {
      wr.local = {request.local->addr, request.local->length, *request.local->key};
    }
    if (request.remote) {
      wr.remote_addr = request.remote->addr;
      wr.rkey = request.remote->rkey;
    }
    wr.imm_data = wr.opcode == rdma::WrOpcode::send_with_inv ? request.invalidate : request.imm;
    wr.compare_add = wr.opcode == rdma::WrOpcode::atomic_fetch_and_add ? request.add : request.compare;
    wr.swap = request.swap;
    if (attr.type == rdma::QpType::ud) {
      wr.path = attr.path;
      wr.remote_qpn = attr.dest_qpn;
      wr.remote_qkey = attr.qkey;
    }
    out.push_back({request.at, wr});
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  return out;
}

pipeline::Receives make_receives(const config::Receives& receives) {
  return {receives.count, receives.size, receives.region ? **receives.region : 0, receives.repost};
}

pipeline::StaticQp make_qp(const config::StaticQp& qp, const ghost::Identity& ghost, const ghost::QpDefaults& defaults,
                           const ClusterConfig& config) {
  pipeline::StaticQp out;
  out.attr = make_attr(qp.keys, *qp.type, defaults);
  out.attr.qpn = *qp.qpn;
  out.attr.dest_qpn = qp.peer->qpn;
  out.attr.sq_psn = qp.sq_psn;
  out.attr.rq_psn = qp.rq_psn;
  wire::Path& path = out.attr.path;
  path.source_mac = ghost.mac;
  path.destination_mac = config::peer_mac(*qp.peer, config).value_or(Mac{});
  path.destination_ip = *qp.peer->address;
  if (const IpAddress* own = ghost.source_for(path.destination_ip)) {
    path.source_ip = *own;
  }
  path.vlan_tci = qp.vlan.value_or(ghost.vlan_tci);
  path.udp_source_port = qp.udp_source_port;
  path.traffic_class = ghost.traffic_class;
  path.hop_limit = qp.hop_limit;
  out.receives = make_receives(qp.receives);
  out.requests = make_requests(qp.requests, out.attr);
  return out;
}

pipeline::StaticListener make_listener(const config::Listener& listener, const ghost::QpDefaults& defaults) {
  pipeline::StaticListener out;
  if (const auto* tcp = std::get_if<config::TcpPort>(&listener.service)) {
    out.service_id = rdma::tcp_service_id(tcp->port);
  } else {
    out.service_id = std::get<config::ServiceId>(listener.service).id;
  }
  out.attr = make_attr(listener.keys, *listener.type, defaults);
  out.attr.qpn = listener.qpn.value_or(Qpn{});
  out.accept.starting_psn = listener.rq_psn;
  out.accept.responder_resources = listener.responder_resources;
  out.accept.initiator_depth = listener.initiator_depth;
  out.accept.rnr_retry_count = listener.rnr_retry_count;
  if (listener.private_data) {
    out.private_data = config::bytes_of(**listener.private_data);
  }
  out.receives = make_receives(listener.receives);
  out.requests = make_requests(listener.requests, out.attr);
  return out;
}

pipeline::StaticRegion make_region(const config::Region& region) {
  pipeline::StaticRegion out;
  out.spec = {*region.addr, region.length->value, *region.key, bits(region.access), region.backing};
  if (!region.content) {
    return out;
  }
  using Kind = pipeline::RegionContent::Kind;
  if (std::holds_alternative<config::Pattern>(**region.content)) {
    out.content.kind = Kind::pattern;
  } else if (!std::holds_alternative<config::Zero>(**region.content)) {
    out.content = {Kind::bytes, config::bytes_of(**region.content)};
  }
  return out;
}

pipeline::GhostPlan make_ghost(const config::Ghost& ghost, const config::Port& port, const ClusterConfig& config) {
  pipeline::GhostPlan out;
  out.nic = ghost.behaviour;
  out.identity.name = *ghost.name;
  out.identity.mac = **ghost.mac;
  for (const auto& address : ghost.addresses) {
    out.identity.addresses.push_back({address->ip, address->prefix});
  }
  out.identity.add_link_local();
  out.identity.vlan_tci = ghost.vlan;
  out.identity.traffic_class = static_cast<std::uint8_t>(ghost.dscp << 2U | static_cast<unsigned>(ghost.ecn));
  out.defaults.path_mtu = config::largest_path_mtu(*port.mtu);
  take_timing(out.defaults, ghost.qp_defaults);
  for (const auto& personality : ghost.personalities) {
    out.personalities.push_back(*personality);
  }
  for (const config::Region& region : ghost.memory) {
    out.regions.push_back(make_region(region));
  }
  for (const config::StaticQp& qp : ghost.qps) {
    out.qps.push_back(make_qp(qp, out.identity, out.defaults, config));
  }
  for (const auto& listener : ghost.listen) {
    out.listeners.push_back(make_listener(*listener, out.defaults));
  }
  return out;
}

std::optional<rdma::RateLimit> make_rate_limit(const config::Transport& transport) {
  if (transport.line_rate.unlimited()) {
    return std::nullopt;
  }
  rdma::RateLimit out{.line = transport.line_rate};
  if (transport.dcqcn) {
    out.dcqcn = (*transport.dcqcn)->params;
  }
  return out;
}

traffic::Spec make_traffic(const config::Traffic& traffic, const ClusterConfig& config,
                           const switching::ClassMap& classes) {
  constexpr std::uint8_t untagged = 8;
  traffic::Spec out;
  out.name = *traffic.name;
  out.pattern = *traffic.pattern;
  out.from = config::hosts_named(traffic.from, config);
  out.to = config::hosts_named(traffic.to, config);
  const BitRate line = config.network->host_rate;
  out.rate = std::visit(Overloaded{[](BitRate rate) { return rate; },
                                   [line](const config::Load& load) {
                                     return BitRate{static_cast<std::uint64_t>(
                                         load.share.value * static_cast<double>(line.bits_per_second))};
                                   }},
                        traffic.rate);
  out.sizes = traffic.sizes;
  out.packet_bytes = traffic.packet_bytes;
  out.priority = classes.priority(untagged, traffic.dscp);
  out.ecn = static_cast<switching::Ecn>(traffic.ecn);
  out.start = traffic.start;
  out.lasts = traffic.lasts;
  if (traffic.dcqcn) {
    out.dcqcn = traffic.dcqcn->params;
  }
  out.flows_max = traffic.flows_max;
  return out;
}

pipeline::StormPlan make_storm(const config::Storm& storm) {
  pipeline::StormPlan out;
  for (const std::uint8_t priority : storm.priorities) {
    out.pauses.class_enable |= static_cast<std::uint8_t>(1U << priority);
  }
  out.pauses.quanta = storm.quanta;
  out.pauses.period = storm.period;
  out.pauses.duration = storm.duration;
  out.start = storm.start;
  return out;
}

void add_pins(const config::Pin& pin, const ClusterConfig& config, pipeline::NetworkPlan& out) {
  const auto ports = switching::neighbours(out.topology);
  std::vector<pipeline::PinPlan::Hop> hops;
  for (const auto& word : pin.path) {
    const switching::LinkId link = config::links_of(out.topology, *word, config::host_names(config)).front();
    const switching::SwitchId at = switching::sender(out.topology, link).index;
    const auto port = std::find_if(ports[at].begin(), ports[at].end(),
                                   [&](const switching::Neighbour& neighbour) { return neighbour.cable == link / 2; });
    hops.push_back({at, static_cast<switching::PortIndex>(port - ports[at].begin())});
  }
  for (const switching::HostId from : config::hosts_named(pin.from, config)) {
    for (const switching::HostId to : config::hosts_named(pin.to, config)) {
      out.pins.push_back({from, to, pin.source_port, hops});
    }
  }
}

std::optional<pipeline::SlowPlan> make_slow(const config::Ghost& ghost, const config::Network& network) {
  for (const config::SlowReceiver& receiver : network.slow_receivers) {
    const auto names = [&](const auto& word) { return config::names_ghost(*word, *ghost.name); };
    if (std::any_of(receiver.ghosts.begin(), receiver.ghosts.end(), names)) {
      return pipeline::SlowPlan{config::receiver_of(receiver, network), receiver.lasts};
    }
  }
  return std::nullopt;
}

std::vector<pipeline::NetworkPort> make_network_ports(const ClusterConfig& config) {
  const config::Network& network = *config.network;
  std::vector<pipeline::NetworkPort> out;
  switching::HostId id = 0;
  for (const config::NetworkHost& host : config::hosts_of(config)) {
    if (host.ghost == nullptr) {
      out.push_back({.name = *host.port->name, .node = id, .ghosts = {}, .storm = {}, .receivers = {}});
      if (network.storm && (config.ports.size() == 1 || *(*network.storm)->port == *host.port->name)) {
        out.back().storm = make_storm(**network.storm);
      }
    } else {
      out.back().ghosts.push_back(id);
      out.back().receivers.push_back(make_slow(*host.ghost, network));
    }
    ++id;
  }
  return out;
}

pipeline::NetworkPlan make_network(const ClusterConfig& config) {
  const config::Network& network = *config.network;
  pipeline::NetworkPlan out;
  out.topology = config::topology_of(network);
  out.spec = config::spec_of(network, config::largest_frame(config));
  out.ports = make_network_ports(config);
  out.classes = config::classes_of(network);
  if (network.node_classes) {
    out.node_classes = config::classes_of(**network.node_classes);
  }
  out.packets = network.frames;
  for (const config::Traffic& traffic : config.traffic) {
    out.traffic.push_back(make_traffic(traffic, config, out.classes));
  }
  for (const config::Pin& pin : network.pins) {
    add_pins(pin, config, out);
  }
  out.reroute_after = network.reroute_after;
  return out;
}

std::vector<std::pair<Mac, PortId>> macs_elsewhere(const config::Port& port, const ClusterConfig& config) {
  std::vector<std::pair<Mac, PortId>> out;
  const auto add = [&](const std::string& name, const Mac& mac) {
    for (std::size_t i = 0; i < config.ports.size() && name != *port.name; ++i) {
      if (*config.ports[i].name == name) {
        out.emplace_back(mac, PortId{static_cast<std::uint8_t>(i)});
      }
    }
  };
  for (const config::Node& node : config.nodes) {
    add(*node.port, *node.mac);
  }
  for (const config::Ghost& ghost : config.ghosts) {
    add(*ghost.port, **ghost.mac);
  }
  return out;
}

pipeline::ShardPlan make_plan(const config::Port& port, PortId id, const ClusterConfig& config) {
  pipeline::ShardPlan out;
  out.port = id;
  out.port_name = *port.name;
  out.seed = config.seed;
  out.mtu = *port.mtu;
  for (const config::Ghost* ghost : ghosts_of(config, port)) {
    out.ghosts.push_back(make_ghost(*ghost, port, config));
  }
  for (const config::Node& node : config.nodes) {
    for (const auto& address : node.addresses) {
      out.neighbours.emplace_back(address->ip, *node.mac);
    }
  }
  out.elsewhere = macs_elsewhere(port, config);
  out.profile = make_profile(port.profile, port, config);
  if (config.network) {
    out.network = make_network(config);
  }
  out.transport.send_cnp = config.transport.cnp;
  out.transport.cnp_interval = config.transport.cnp_interval;
  out.transport.cnp_scope = config.transport.cnp_scope;
  out.transport.rate_limit = make_rate_limit(config.transport);
  out.transport.kept_max = config::kept_frames(config, port);
  out.transport.cnp_traffic_class = static_cast<std::uint8_t>(config.transport.cnp_dscp << 2U);
  out.cm = config.cm;
  out.beside_tcp_port = config.nccl ? config.nccl->options.announce_port : std::uint16_t{0};
  out.ports = static_cast<std::uint32_t>(config.ports.size());
  return out;
}

}  // namespace

std::vector<const config::Ghost*> ghosts_of(const ClusterConfig& config, const config::Port& port) {
  std::vector<const config::Ghost*> out;
  for (const config::Ghost& ghost : config.ghosts) {
    if (*ghost.port == *port.name) {
      out.push_back(&ghost);
    }
  }
  return out;
}

std::optional<nccl::ServiceOptions> make_nccl(const ClusterConfig& config, const config::Port& port) {
  if (!config.nccl) {
    return std::nullopt;
  }
  nccl::ServiceOptions out = config.nccl->options;
  out.seed = config.seed;
  out.path_mtu = config::largest_path_mtu(*port.mtu);
  const auto ghosts = ghosts_of(config, port);
  for (std::size_t i = 0; i < ghosts.size(); ++i) {
    if (ghosts[i]->group == *config.nccl->ghosts) {
      out.hosts.push_back(GhostId{static_cast<std::uint32_t>(i)});
    }
  }
  return out.hosts.empty() ? std::nullopt : std::optional{std::move(out)};
}

std::vector<pipeline::ShardPlan> make_plans(const ClusterConfig& config) {
  std::vector<pipeline::ShardPlan> out;
  for (std::size_t i = 0; i < config.ports.size(); ++i) {
    out.push_back(make_plan(config.ports[i], PortId{static_cast<std::uint8_t>(i)}, config));
  }
  return out;
}

}  // namespace nbx::plan
