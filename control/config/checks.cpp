#include "config/checks.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "config/cluster_keys.hpp"
#include "switching/check.hpp"
#include "switching/pause_storm.hpp"

namespace nbx::config {
namespace {

template <class T>
std::string text(const T& value) {
  return Scalar<T>::format(value);
}
std::string text(const std::string& value) { return value; }

/// Finds values that are there twice.
template <class T>
class Unique {
 public:
  Unique(std::string what, Diagnostics& out) : what_(std::move(what)), out_(out) {}

  void add(const T& value, const SourcePos& pos) {
    const auto [earlier, inserted] = seen_.try_emplace(value, pos);
    if (!inserted) {
      out_.push_back(
          {pos, what_ + " " + text(value) + " is there twice", {{earlier->second, "the first one is here"}}});
    }
  }
  void add(const Located<T>& value) {
    if (value.given()) {
      add(*value, value.pos);
    }
  }

 private:
  std::string what_;
  Diagnostics& out_;
  std::map<T, SourcePos> seen_;
};

const Port* find_port(const ClusterConfig& config, const std::string& name) {
  for (const Port& port : config.ports) {
    if (*port.name == name) {
      return &port;
    }
  }
  return nullptr;
}

std::vector<std::string> port_names(const ClusterConfig& config) {
  std::vector<std::string> names;
  for (const Port& port : config.ports) {
    names.push_back(*port.name);
  }
  return names;
}

/// One worker has one core.
void check_one_core(const ClusterConfig& config, Diagnostics& out) {
  const Located<std::uint32_t>* first = nullptr;
  for (const Port& port : config.ports) {
    if (!port.core) {
      continue;
    }
    if (first != nullptr && **port.core != **first) {
      out.push_back({port.core->pos,
                     "one worker serves all ports, and it is on core " + text(**first) + ", not " + text(**port.core),
                     {{first->pos, "which is said here"}}});
    }
    first = first != nullptr ? first : &*port.core;
  }
}

void check_ports(const ClusterConfig& config, Diagnostics& out) {
  constexpr std::size_t ports_max = 256;  // PortId
  Unique<std::string> names("port", out);
  Unique<std::string> devices("device", out);
  Unique<std::uint32_t> cores("core", out);
  for (const Port& port : config.ports) {
    names.add(port.name);
    devices.add(port.device);
    if (port.core && !*config.one_worker) {
      cores.add(*port.core);
    }
    check_stages(port.profile, port, config, out);
  }
  if (config.ports.size() > ports_max) {
    out.push_back({config.ports[ports_max].name.pos, "more than " + std::to_string(ports_max) + " ports"});
  }
  if (*config.one_worker) {
    check_one_core(config, out);
  }
}

/// Names, addresses and ports of nodes, real or not.
void check_identities(const ClusterConfig& config, Diagnostics& out) {
  Unique<std::string> names("node", out);
  Unique<Mac> macs("MAC address", out);
  Unique<IpAddress> ips("IP address", out);
  const auto add = [&](const Located<std::string>& name, const Located<Mac>& mac, const auto& addresses) {
    names.add(name);
    macs.add(mac);
    for (const Located<Subnet>& address : addresses) {
      if (!address->ip.is_unspecified()) {
        ips.add(address->ip, address.pos);
      }
    }
  };
  const auto check_port = [&](const Located<std::string>& port, const Located<std::string>& name) {
    if (!port.given()) {
      if (name.given()) {
        out.push_back({name.pos, "'" + *name + "' needs 'port': there is more than one"});
      }
    } else if (find_port(config, *port) == nullptr) {
      out.push_back({port.pos, "there is no port '" + *port + "'" + did_you_mean(*port, port_names(config))});
    }
  };
  for (const Node& node : config.nodes) {
    add(node.name, node.mac, node.addresses);
    if (node.port.given()) {
      check_port(node.port, node.name);
    }
  }
  for (const Ghost& ghost : config.ghosts) {
    add(ghost.name, *ghost.mac, ghost.addresses);
    check_port(ghost.port, ghost.name);
  }
}

void check_path_mtu(const QpDefaults& given, const Port& port, Diagnostics& out) {
  if (!given.path_mtu) {
    return;
  }
  const std::uint32_t largest = largest_path_mtu(*port.mtu);
  const auto path_mtu = static_cast<std::uint32_t>(**given.path_mtu);
  if (path_mtu > largest) {
    const std::string needed = std::to_string(path_mtu + path_mtu_headers);
    const SourcePos& mtu_pos = port.mtu.given() ? port.mtu.pos : port.name.pos;
    out.push_back({given.path_mtu->pos,
                   "path MTU " + std::to_string(path_mtu) + " needs IP packets of " + needed + " bytes",
                   {{mtu_pos, "the port's MTU is " + std::to_string(*port.mtu) + ", which is good for a path MTU of " +
                                  std::to_string(largest)}}});
  }
}

/// What a ghost's queue pairs may refer to.
class GhostChecker {
 public:
  GhostChecker(const Ghost& ghost, const Port& port, const ClusterConfig& config, Diagnostics& out)
      : ghost_(ghost), port_(port), config_(config), out_(out) {}

  void check() {
    check_path_mtu(ghost_.qp_defaults, port_, out_);
    check_regions();
    Unique<Qpn> qpns("queue pair", out_);
    for (const StaticQp& qp : ghost_.qps) {
      qpns.add(qp.qpn);
      check_qp(qp);
    }
    Unique<std::uint64_t> services("service", out_);
    for (const Located<ghost::PersonalityOptions>& personality : ghost_.personalities) {
      if (const auto* source = std::get_if<ghost::SourceOptions>(&*personality)) {
        check_source(*source, personality.pos);
      }
    }
    for (const Located<Listener>& listener : ghost_.listen) {
      services.add(service_id(*listener), listener.pos);
      check_listener(*listener);
    }
  }

 private:
  /// A ghost has the data of its largest message in memory.
  void check_source(const ghost::SourceOptions& source, const SourcePos& pos) {
    const std::uint64_t largest = source.sizes ? traffic::largest(*source.sizes) : 0;
    if (largest > ghost::SourceOptions::message_max) {
      out_.push_back({pos, "'sizes' has messages of " + text(ByteCount{largest}) + "; a source sends 1GiB at most"});
    }
  }

  static std::uint64_t service_id(const Listener& listener) {
    const auto* tcp = std::get_if<TcpPort>(&listener.service);
    return tcp != nullptr ? rdma::tcp_service_id(tcp->port) : std::get<ServiceId>(listener.service).id;
  }

  const Region* find_region(std::uint32_t key) const {
    const auto found = std::find_if(ghost_.memory.begin(), ghost_.memory.end(),
                                    [key](const Region& region) { return *region.key == key; });
    return found == ghost_.memory.end() ? nullptr : &*found;
  }

  void check_regions() {
    Unique<std::uint32_t> keys("key", out_);
    for (const Region& region : ghost_.memory) {
      keys.add(region.key);
      if (region.length->value - 1 > std::numeric_limits<std::uint64_t>::max() - *region.addr) {
        out_.push_back({region.length.pos, "the region goes beyond the last address"});
        continue;
      }
      check_content(region);
      check_overlap(region);
    }
  }

  /// Memory of two regions is not shared, as it would be on a real node.
  void check_overlap(const Region& region) {
    for (const Region& earlier : ghost_.memory) {
      if (&earlier == &region) {
        return;
      }
      const bool apart =
          *region.addr - *earlier.addr >= earlier.length->value && *earlier.addr - *region.addr >= region.length->value;
      if (!apart && region.backing == rdma::Backing::memory && earlier.backing == rdma::Backing::memory) {
        out_.push_back({region.addr.pos,
                        "the region overlaps another one: each has memory of its own, so they would not agree",
                        {{earlier.addr.pos, "the other one is here"}}});
      }
    }
  }

  void check_content(const Region& region) {
    if (!region.content) {
      return;
    }
    if (region.backing != rdma::Backing::memory) {
      out_.push_back({region.content->pos, "only backing 'memory' has content"});
      return;
    }
    const std::size_t size = bytes_of(**region.content).size();
    if (size > region.length->value) {
      out_.push_back({region.content->pos,
                      "content of " + std::to_string(size) + " bytes",
                      {{region.length.pos, "the region has " + std::to_string(region.length->value)}}});
    }
  }

  void check_qp(const StaticQp& qp) {
    check_path_mtu(qp.keys.timing, port_, out_);
    check_receives(qp.receives);
    for (const Request& request : qp.requests) {
      check_request(request, *qp.type);
    }
    const Located<IpAddress>& peer = qp.peer->address;
    if (!peer.given() || peer->is_unspecified()) {
      return;
    }
    const bool same_family = std::any_of(ghost_.addresses.begin(), ghost_.addresses.end(),
                                         [&](const auto& address) { return address->ip.is_v4() == peer->is_v4(); });
    if (!same_family && !peer->is_link_local_v6()) {
      out_.push_back({peer.pos, "the ghost has no " + std::string(peer->is_v4() ? "IPv4" : "IPv6") + " address"});
    }
    if (!peer_mac(*qp.peer, config_)) {
      out_.push_back({qp.peer.pos, "peer needs 'mac': no node has the address " + to_string(*peer)});
    }
  }

  void check_listener(const Listener& listener) {
    constexpr std::size_t rep_private_data_max = 196;  // IBTA table 107
    check_path_mtu(listener.keys.timing, port_, out_);
    check_receives(listener.receives);
    for (const Request& request : listener.requests) {
      check_request(request, *listener.type);
    }
    if (*listener.type == rdma::QpType::ud) {
      out_.push_back({listener.type.pos, "connections are rc or uc"});
    }
    if (listener.private_data) {
      const std::size_t size = bytes_of(**listener.private_data).size();
      if (size > rep_private_data_max) {
        out_.push_back({listener.private_data->pos, std::to_string(size) + " bytes of private data; a REP holds " +
                                                        std::to_string(rep_private_data_max)});
      }
    }
  }

  void check_receives(const Receives& receives) {
    if (!receives.region) {
      return;
    }
    const Region* region = find_region(**receives.region);
    const std::uint64_t bytes = std::uint64_t{receives.count} * receives.size;
    if (region == nullptr) {
      out_.push_back({receives.region->pos, "no region has this key"});
    } else if (bytes > region->length->value) {
      out_.push_back({receives.region->pos,
                      std::to_string(receives.count) + " receives of " + std::to_string(receives.size) +
                          " bytes need " + std::to_string(bytes),
                      {{region->length.pos, "the region has " + std::to_string(region->length->value)}}});
    }
  }

  void check_request(const Request& request, rdma::QpType type) {
    using enum rdma::WrOpcode;
    const rdma::WrOpcode op = *request.op;
    const bool is_send = op == send || op == send_with_imm || op == send_with_inv;
    const bool is_atomic = op == atomic_cmp_and_swp || op == atomic_fetch_and_add;
    const bool allowed =
        type == rdma::QpType::rc || (type == rdma::QpType::uc ? !is_atomic && op != rdma_read && op != send_with_inv
                                                              : op == send || op == send_with_imm);
    if (!allowed) {  // IBTA table 36
      out_.push_back({request.op.pos, text(op) + " is not for " + text(type)});
    }
    if (!is_send && !request.remote) {
      out_.push_back({request.op.pos, text(op) + " needs 'remote'"});
    }
    if ((is_atomic || op == rdma_read) && !request.local) {
      out_.push_back({request.op.pos, text(op) + " needs 'local'"});
    }
    if (request.local) {
      check_local(*request.local, is_atomic);
    }
  }

  void check_local(const LocalRange& local, bool is_atomic) {
    const Region* region = find_region(*local.key);
    if (region == nullptr) {
      out_.push_back({local.key.pos, "no region has this key"});
      return;
    }
    const std::uint64_t offset = local.addr - *region->addr;
    if (local.addr < *region->addr || offset > region->length->value || local.length > region->length->value - offset) {
      out_.push_back({local.key.pos, "the range is not within the region", {{region->addr.pos, "the region is here"}}});
    }
    if (is_atomic && local.length != 8) {
      out_.push_back({local.key.pos, "an atomic needs 8 bytes, not " + std::to_string(local.length)});
    }
  }

  const Ghost& ghost_;
  const Port& port_;
  const ClusterConfig& config_;
  Diagnostics& out_;
};

/// How many ghosts the section names, all of one port.
std::size_t count_hosts(const Nccl& nccl, const ClusterConfig& config, Diagnostics& out) {
  std::vector<std::string> names;
  const Ghost* first = nullptr;
  std::size_t count = 0;
  for (const Ghost& ghost : config.ghosts) {
    names.push_back(ghost.group);
    if (ghost.group != *nccl.ghosts) {
      continue;
    }
    ++count;
    if (first == nullptr) {
      first = &ghost;
    } else if (*ghost.port != *first->port) {
      out.push_back({nccl.ghosts.pos, "'" + *nccl.ghosts + "' are ghosts of different ports"});
    }
  }
  if (count == 0) {
    out.push_back({nccl.ghosts.pos, "no ghost is called '" + *nccl.ghosts + "'" + did_you_mean(*nccl.ghosts, names)});
  }
  return count;
}

void check_priorities(const Network& network, Diagnostics& out) {
  std::set<unsigned> priorities;
  std::set<unsigned> dscps;
  for (const PriorityClass& x : network.priorities) {
    if (!priorities.insert(*x.priority).second) {
      out.push_back({x.priority.pos, "priority " + std::to_string(*x.priority) + " is there already"});
    }
    for (const std::uint8_t dscp : x.dscp) {
      if (!dscps.insert(dscp).second) {
        out.push_back({x.priority.pos, "DSCP " + std::to_string(dscp) + " belongs to another priority already"});
      }
    }
    if (x.ecn && x.ecn->kmin.value > x.ecn->kmax.value) {
      out.push_back({x.priority.pos, "'kmin' is more than 'kmax'"});
    }
    if (x.lossless && x.queue_limit.value != 0) {
      out.push_back({x.priority.pos, "'queue_limit' is for lossy priorities; 'xoff' pauses a lossless one"});
    }
    if (!x.lossless && (x.headroom || x.xoff.value != 0)) {
      out.push_back({x.priority.pos, std::string(x.headroom ? "'headroom'" : "'xoff'") +
                                         " is for lossless priorities; 'queue_limit' ends a lossy queue"});
    }
  }
}

void warn(const SourcePos& pos, const std::string& text, Diagnostics& warnings) {
  warnings.push_back({.pos = pos, .message = text, .severity = Severity::warning});
}

void check_storm(const Network& network, const ClusterConfig& config, std::uint32_t max_frame, Diagnostics& out,
                 Diagnostics& warnings) {
  const Storm& storm = **network.storm;
  if (!storm.port.given() && config.ports.size() > 1) {
    out.push_back({network.storm->pos, "a storm needs 'port': there is more than one"});
  } else if (storm.port.given() && find_port(config, *storm.port) == nullptr) {
    out.push_back(
        {storm.port.pos, "there is no port '" + *storm.port + "'" + did_you_mean(*storm.port, port_names(config))});
  }
  const Duration pause = switching::pause_time(storm.quanta, network.host_rate);
  const Duration period = storm.period == Duration::zero() ? pause / 2 : storm.period;
  if (!switching::storm_is_gapless(storm.quanta, period, network.host_rate, max_frame)) {
    const Duration late = serialize_time_ceil(max_frame + ethernet_overhead_bytes, network.host_rate);
    warn(network.storm->pos,
         "the storm may have gaps: a pause of " + text(storm.quanta) + " quanta lasts " + text(pause) +
             ", the next one comes after " + text(period) + " and up to " + text(late) +
             " later, behind a frame on the line",
         warnings);
  }
}

/// Ghosts that are named, and buffers that lose nothing.
void check_receivers(const Network& network, const ClusterConfig& config, std::uint32_t max_frame, Diagnostics& out,
                     Diagnostics& warnings) {
  std::vector<std::string> names;
  for (const Ghost& ghost : config.ghosts) {
    names.push_back(*ghost.name);
  }
  std::set<std::string> slow;
  for (const SlowReceiver& receiver : network.slow_receivers) {
    if (receiver.ghosts.empty()) {
      continue;
    }
    for (const Located<std::string>& word : receiver.ghosts) {
      bool known = false;
      for (const std::string& name : names) {
        if (names_ghost(*word, name)) {
          known = true;
          if (!slow.insert(name).second) {
            out.push_back({word.pos, "'" + name + "' is a slow receiver already"});
          }
        }
      }
      if (!known) {
        out.push_back({word.pos, "there is no ghost '" + *word + "'" + did_you_mean(*word, names)});
      }
    }
    const SourcePos& pos = receiver.xoff.given() ? receiver.xoff.pos : receiver.ghosts.front().pos;
    const std::uint64_t xoff = receiver.xoff->value;
    const std::uint64_t headroom =
        switching::headroom_for(network.host_rate, network.propagation, Duration::zero(), max_frame);
    if (receiver.xon.value >= xoff) {
      warn(pos,
           "a slow receiver resumes " + text(receiver.xon.value) + " bytes below an 'xoff' of " + text(xoff) +
               ": only when all is gone",
           warnings);
    }
    if (xoff >= receiver.buffer.value) {
      out.push_back({pos, "'xoff' is not less than 'buffer'"});
    } else if (receiver.buffer.value - xoff < headroom && classes_of(network).lossless != 0) {
      warn(pos,
           "a slow receiver has " + text(receiver.buffer.value - xoff) + " bytes above 'xoff'; " + text(headroom) +
               " can arrive after a pause (twice the propagation at the cable's rate, and three frames)",
           warnings);
    }
  }
}

void check_network(const Network& network, const ClusterConfig& config, Diagnostics& out, Diagnostics& warnings) {
  const SourcePos& pos = network.topology.pos;
  check_priorities(network, out);
  if (config.ports.empty()) {
    return;
  }
  if (config.ports.size() > 1 && !*config.one_worker) {
    out.push_back({config.one_worker.pos, "the ports of a network have one worker"});
  }
  const auto* tree = std::get_if<FatTree>(&*network.topology);
  if (tree != nullptr && tree->k % 2 != 0) {
    out.push_back({pos, "'k' of a fat tree is even"});
    return;
  }
  const switching::Topology topology = topology_of(network);
  if (topology.hosts.size() < network.hosts) {
    out.push_back(
        {pos, "the topology has " + std::to_string(topology.hosts.size()) + " hosts; " +
                  (config.ports.size() == 1 ? "the real node" : std::to_string(config.ports.size()) + " real nodes") +
                  " and " + std::to_string(config.ghosts.size()) + " ghosts need " + std::to_string(network.hosts)});
    return;
  }
  const std::uint32_t max_frame = largest_frame(config);
  for (const switching::Finding& finding : switching::check(topology, spec_of(network, max_frame), max_frame)) {
    if (finding.fatal) {
      out.push_back({pos, finding.text});
    } else {
      warn(pos, finding.text, warnings);
    }
  }
  check_receivers(network, config, max_frame, out, warnings);
  check_names(topology, config, out);
  check_pins(network, topology, config, out);
  if (network.storm) {
    check_storm(network, config, max_frame, out, warnings);
  }
  if (network.node_classes) {
    for (const std::string& line : switching::disagreements("the real node", classes_of(**network.node_classes),
                                                            "the network", classes_of(network))) {
      warn(network.node_classes->pos, line, warnings);
    }
  }
}

/// Rates that a line does not have.
void check_dcqcn(const cc::DcqcnParams& params, BitRate line, const SourcePos& pos, Diagnostics& warnings) {
  const auto beyond = [&](std::uint32_t mbps, const std::string& key, const std::string& effect) {
    if (BitRate::mbps(mbps).bits_per_second > line.bits_per_second) {
      warn(pos, "'" + key + "' is " + text(BitRate::mbps(mbps)) + " and the line has " + text(line) + ": " + effect,
           warnings);
    }
  };
  beyond(params.rp_max_rate, "rp_max_rate", "flows go at the line's rate");
  beyond(params.rp_rate_to_set_on_first_cnp, "rp_rate_to_set_on_first_cnp", "the first CNP changes nothing");
  beyond(params.rp_min_rate, "rp_min_rate", "no CNP lowers a rate");
}

void check_traffic(const Traffic& traffic, const ClusterConfig& config, Diagnostics& out, Diagnostics& warnings) {
  const SourcePos& pos = traffic.pattern.pos;
  if (!config.network) {
    out.push_back({pos, "traffic needs a network"});
    return;
  }
  for (const auto* names : {&traffic.from, &traffic.to}) {
    for (const Located<std::string>& name : *names) {
      if (hosts_named(name, config).empty()) {
        out.push_back({name.pos, "no ghost is called '" + *name + "'"});
        return;
      }
    }
  }
  const std::vector<NetworkHost> hosts = hosts_of(config);
  for (const Located<std::string>& name : traffic.from) {
    const auto named = hosts_named(name, config);
    if (std::any_of(named.begin(), named.end(), [&](switching::HostId id) { return hosts[id].ghost == nullptr; })) {
      out.push_back({name.pos, "the real node sends what it wants: 'from' names ghosts"});
    }
  }
  const auto from = hosts_named(traffic.from, config);
  const auto to = hosts_named(traffic.to, config);
  const bool permutation = *traffic.pattern == traffic::Pattern::permutation;
  if (permutation && !traffic.to.empty()) {
    out.push_back({traffic.to.front().pos, "the receivers of a permutation are its senders"});
  }
  if (*traffic.pattern == traffic::Pattern::one_to_one && from.size() != to.size()) {
    out.push_back({pos, std::to_string(from.size()) + " senders and " + std::to_string(to.size()) + " receivers"});
  }
  for (std::size_t i = 0; *traffic.pattern == traffic::Pattern::one_to_one && i < std::min(from.size(), to.size());
       ++i) {
    if (from[i] == to[i]) {
      out.push_back({pos, "a ghost would send to itself"});
      break;
    }
  }
  const bool alone = from.size() == 1 && to == from;
  if (from.empty() || (permutation && from.size() < 2) || (!permutation && alone)) {
    out.push_back({pos, "there is nobody to send to"});
  }
  if (traffic.dcqcn) {
    check_dcqcn(traffic.dcqcn->params, config.network->host_rate, pos, warnings);
  }
  if (const auto* load = std::get_if<Load>(&traffic.rate); load != nullptr && load->share.value <= 0) {
    out.push_back({pos, "'load' is more than 0"});
  }
  if (const auto* sizes = std::get_if<traffic::UniformSize>(&traffic.sizes);
      sizes != nullptr && sizes->min > sizes->max) {
    out.push_back({pos, "'min' is more than 'max'"});
  }
}

void check_nccl(const Nccl& nccl, const ClusterConfig& config, Diagnostics& out) {
  const std::size_t hosts = count_hosts(nccl, config, out);
  const nccl::ServiceOptions& options = nccl.options;
  Unique<std::uint32_t> real("rank", out);
  for (const auto& rank : nccl.real) {
    real.add(rank);
    if (options.ranks != 0 && *rank >= options.ranks) {
      out.push_back({rank.pos, "rank " + text(*rank) + " of a world of " + text(options.ranks)});
    }
  }
  if (!nccl.real.empty() && options.ranks > nccl.real.size() && hosts != 0) {
    const std::size_t ghosts = options.ranks - nccl.real.size();
    const std::size_t needed = (ghosts + options.ranks_per_node - 1) / options.ranks_per_node;
    if (needed > hosts) {
      out.push_back({nccl.ghosts.pos, std::to_string(ghosts) + " ghost ranks, " + text(options.ranks_per_node) +
                                          " per node, need " + std::to_string(needed) + " ghosts; '" + *nccl.ghosts +
                                          "' are " + std::to_string(hosts)});
    }
  }
  if ((options.filling == nccl::Filling::file) != nccl.file.has_value()) {
    out.push_back({nccl.file ? nccl.file->pos : nccl.ghosts.pos, "'filling: file' and 'file' belong together"});
  }
  const auto& table = options.delay.table;
  if (!std::is_sorted(table.begin(), table.end(), [](const auto& a, const auto& b) { return a.bytes < b.bytes; })) {
    out.push_back({nccl.ghosts.pos, "the rows of 'hop_table' are not in rising order of bytes"});
  }
  if (options.announce_port >= options.port_base && options.announce_port < options.port_base + 64) {
    out.push_back({nccl.ghosts.pos, "'announce_port' is one of the 64 ports from 'port_base' on"});
  }
}

}  // namespace

void check_cluster(const ClusterConfig& config, Diagnostics& out, Diagnostics& warnings) {
  check_ports(config, out);
  check_identities(config, out);
  check_names(config, out);
  for (const Ghost& ghost : config.ghosts) {
    if (const Port* port = find_port(config, *ghost.port)) {
      GhostChecker(ghost, *port, config, out).check();
    }
  }
  check_memory(config, out);
  if (config.transport.dcqcn && config.transport.line_rate.unlimited()) {
    out.push_back({config.transport.dcqcn->pos, "'dcqcn' needs 'line_rate', the rate that it starts from"});
  } else if (config.transport.dcqcn) {
    check_dcqcn((*config.transport.dcqcn)->params, config.transport.line_rate, config.transport.dcqcn->pos, warnings);
  }
  if (config.network) {
    check_network(*config.network, config, out, warnings);
  }
  Unique<std::string> traffic("traffic", out);
  for (const Traffic& each : config.traffic) {
    traffic.add(each.name);
    check_traffic(each, config, out, warnings);
  }
  if (config.nccl) {
    check_nccl(*config.nccl, config, out);
  }
  // What has no place follows from a value that is missing or wrong, which has been said.
  const auto without_place = [](const auto& said) { return said.pos.file == nullptr; };
  std::erase_if(out, without_place);
  std::erase_if(warnings, without_place);
  for (Diagnostic& diagnostic : out) {
    std::erase_if(diagnostic.notes, without_place);
  }
}

std::uint32_t largest_frame(const ClusterConfig& config) {
  std::uint32_t mtu = 0;
  for (const Port& port : config.ports) {
    mtu = std::max(mtu, *port.mtu);
  }
  return mtu + frame_headers;
}

std::uint32_t largest_path_mtu(std::uint32_t mtu) {
  std::uint32_t path_mtu = 4096;
  while (path_mtu > 256 && path_mtu + path_mtu_headers > mtu) {
    path_mtu /= 2;
  }
  return path_mtu;
}

}  // namespace nbx::config
