#include "pipeline/shard.hpp"

#include <string>

#include "base/check.hpp"
#include "base/overloaded.hpp"
#include "pipeline/bridge.hpp"
#include "pipeline/emulated_network.hpp"
#include "pipeline/kernel_path.hpp"
#include "pipeline/schedule.hpp"
#include "pipeline/static_endpoints.hpp"
#include "wire/build_l3.hpp"

namespace nbx::pipeline {

namespace {

using fabric::Direction;
using wire::FrameKind;

std::vector<ghost::Identity> identities(const ShardPlan& plan) {
  std::vector<ghost::Identity> ids;
  ids.reserve(plan.ghosts.size());
  for (const GhostPlan& g : plan.ghosts) {
    ids.push_back(g.identity);
  }
  return ids;
}

/// For drivers without an exception path: nobody ever connects.
class NoStreams final : public ghost::Streams {
 public:
  void listen(GhostId, std::uint16_t, ghost::StreamUser&) override {}
  ghost::StreamId connect(GhostId, const IpAddress&, std::uint16_t, ghost::StreamUser&) override {
    return ghost::StreamId::none;
  }
  void send(ghost::StreamId, ConstBytes) override {}
  void close(ghost::StreamId) override {}
};

}  // namespace

class Shard::State final : public EmulatedNetwork::User,
                           public Schedule::User,
                           public events::Host,
                           public rdma::ConnectionObserver {
 public:
  State(const ShardPlan& plan, const ShardEnvironment& environment)
      : plan_(plan),
        env_(environment),
        counters_(*environment.counters),
        rng_(Rng{plan.seed}.fork(plan.port_name)),
        pool_(*environment.frames),
        wheel_(environment.network != nullptr ? environment.network->wheel : own_wheel_),
        directory_(identities(plan)),
        transport_(plan.transport, pool_, wheel_, counters_, egress_),
        cm_(plan.cm, transport_, wheel_, counters_, rng_.fork("cm")),
        neighbours_(directory_, pool_, wheel_, counters_, egress_),
        stream_ports_(environment.streams != nullptr ? *environment.streams : no_streams_),
        static_(plan, transport_, cm_, wheel_, environment.observer),
        bridge_(plan.port, plan.ports, plan.elsewhere),
        from_node_(plan.profile.from_node, rng_.fork("from_node"), pool_, wheel_, counters_, from_node_sink_),
        to_node_(plan.profile.to_node, rng_.fork("to_node"), pool_, wheel_, counters_, to_node_sink_),
        parse_policy_{.verify_icrc = plan.profile.verify_icrc} {
    transport_.set_observer(environment.observer);
    transport_.set_mad_handler(&cm_);
    transport_.set_connection_observer(this);
    silent_until_.resize(plan.ghosts.size());
    if (environment.network != nullptr) {
      network_ = &environment.network->network;
    } else if (plan.network) {
      own_network_ = std::make_unique<EmulatedNetwork>(*plan.network, wheel_, rng_.fork("network"));
      network_ = own_network_.get();
    }
    if (network_ != nullptr) {
      network_->attach(plan.port, *this);
    }
    for (const auto& [ip, mac] : plan.neighbours) {
      neighbours_.learn(ip, mac);
    }
    for (std::uint32_t i = 0; i < plan.ghosts.size(); ++i) {
      const GhostId id{i};
      transport_.add_ghost(id, plan.ghosts[i].nic);
      personalities_.push_back(make_personalities(id));
    }
    if (environment.ensemble && !plan.ghosts.empty()) {
      ensemble_ = environment.ensemble(make_context(GhostId{0}, "ensemble"));
    }
  }

  ~State() {
    pool_.free_all(egress_);
    pool_.free_all(to_port_);
    pool_.free_all(to_kernel_);
    bridge_.free_all(pool_);
    if (network_ != nullptr) {
      network_->free_all(pool_);
    }
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  State(State&&) = delete;
  State& operator=(State&&) = delete;

  void start(Instant now) {
    load_events(now);
    schedule_.load(plan_.profile.failures, now);
    if (own_network_) {
      own_network_->start(now);
    }
    static_.start(now);
    for (auto& of_ghost : personalities_) {
      for (auto& personality : of_ghost) {
        personality->start(now);
      }
    }
    if (ensemble_) {
      ensemble_->start(now);
    }
  }

  // --- in ---

  void receive(Frame& frame, Instant now) noexcept {
    frame.arrival = now;
    counters_.count(Counter::rx_packets_phy);
    counters_.count(Counter::rx_bytes_phy, frame.size);
    const Drop malformed = wire::parse(frame.bytes(), parse_policy_, frame.parsed);
    if (malformed != Drop::none) {
      refuse(frame, malformed, now);
      return;
    }
    switch (frame.parsed.kind) {
      case FrameKind::roce_v1:
        refuse(frame, Drop::roce_v1, now);
        return;
      case FrameKind::pfc:
      case FrameKind::pause:
        counters_.count(frame.parsed.kind == FrameKind::pfc ? Counter::rx_pfc_frames : Counter::rx_pause_frames);
        record_inbound(frame, now);
        if (network_ != nullptr) {
          network_->pause_from_node(plan_.port, frame, now);
        }
        pool_.free(frame);
        return;
      case FrameKind::unparsed:
      case FrameKind::roce_v2:
      case FrameKind::arp:
      case FrameKind::icmp_echo:
      case FrameKind::nd_solicit:
      case FrameKind::nd_advert:
      case FrameKind::ip_other:
      case FrameKind::ether_other:
        break;
    }
    frame.ghost = addressee(frame);
    if (beside(frame)) {
      record_inbound(frame, now);
      deliver(frame, now);
      return;
    }
    from_node_.submit(frame, frame.ghost, now);
  }

  /// The ghosts of a port route for each other, so that a real node may reach many by one neighbour.
  [[nodiscard]] GhostId addressee(const Frame& frame) const noexcept override {
    const GhostId neighbour = directory_.by_mac(wire::destination_mac(frame.bytes()));
    if (neighbour == no_ghost || !wire::has_ip(frame.parsed.kind)) {
      return neighbour;
    }
    const IpAddress destination = wire::destination_ip(frame.bytes(), frame.parsed);
    if (directory_[neighbour].addresses.front().ip == destination) {
      return neighbour;
    }
    const GhostId routed = directory_.by_ip(destination);
    return routed == no_ghost ? neighbour : routed;
  }

  void receive_from_kernel(ConstBytes packet, Instant now) noexcept {
    const std::optional<KernelPacket> about = describe_kernel_packet(packet);
    const GhostId ghost = about ? directory_.by_ip(about->source) : no_ghost;
    if (ghost == no_ghost) {
      return;  // the kernel's own chatter, such as MLD reports from its link-local address
    }
    counters_.count(Counter::exception_tx);
    const std::optional<Mac> next_hop = neighbours_.lookup(about->destination);
    if (!next_hop) {
      neighbours_.resolve(
          ghost, about->destination, [](std::optional<Mac>, Instant) {}, now);  // TCP sends again
      send_egress(now);
      return;
    }
    Frame* frame = frame_from_kernel(packet, *about, directory_[ghost], *next_hop, pool_);
    if (frame == nullptr) {
      counters_.count(Drop::frame_pool_empty);
      return;
    }
    frame->ghost = ghost;
    egress_.push_back(*frame);
    send_egress(now);
  }

  void receive_from_peer(Frame& frame, PortId peer, Instant now) noexcept {
    bridge_.learn(wire::source_mac(frame.bytes()), peer);
    const Mac destination = wire::destination_mac(frame.bytes());
    frame.ghost = addressee(frame);
    frame.treatment = {};
    frame.arrival = now;
    if (frame.ghost != no_ghost) {
      deliver_to_ghost(frame, now);
    } else if (destination.is_multicast() && neighbours_.receive(frame, now)) {
      pool_.free(frame);
    } else {
      leave(frame, no_ghost, now);
    }
    send_egress(now);
  }

  bool progress(Instant now, bool port_has_room) noexcept {
    if (env_.network == nullptr) {
      wheel_.run(now);
    }
    send_egress(now);
    bool more = port_has_room && transport_.progress(now);
    more = send_egress(now) || more;
    if (env_.tap != nullptr) {
      env_.tap->look(now);
    }
    return more;
  }

  // --- between the fabric and the ghosts ---

  void deliver(Frame& frame, Instant now) noexcept {
    const Drop damage = frame.treatment.corrupted ? check_again(frame) : Drop::none;
    if (frame.ghost != no_ghost) {
      if (damage != Drop::none) {
        discard(frame, damage);
      } else if (network_ != nullptr && !beside(frame)) {
        network_->send(frame, {plan_.port}, {plan_.port, frame.ghost}, now);
      } else {
        deliver_to_ghost(frame, now);
      }
      return;
    }
    const Mac destination = wire::destination_mac(frame.bytes());
    if (damage == Drop::none && destination.is_multicast() && neighbours_.receive(frame, now)) {
      pool_.free(frame);
      return;
    }
    if (!bridge_.has_peers() || is_for_one_cable(destination)) {
      discard(frame, Drop::not_for_us);
    } else if (network_ == nullptr || beside(frame)) {
      bridge_.forward(frame, destination, pool_, counters_);
    } else if (!cross_to_port(frame, {plan_.port}, destination, now)) {
      cross_to_all(frame, {plan_.port}, now);
      pool_.free(frame);
    }
  }

  /// What a receiver finds wrong with a frame that the profile has damaged since it was parsed.
  [[nodiscard]] Drop check_again(Frame& frame) noexcept {
    wire::Parsed parsed;
    const Drop damage = wire::parse(frame.bytes(), parse_policy_, parsed);
    if (damage == Drop::none) {
      frame.parsed = parsed;
    }
    return damage;
  }

  void deliver_to_ghost(Frame& frame, Instant now) noexcept {
    if (is_silent(frame.ghost, now)) {
      discard(frame, Drop::silent);
      return;
    }
    record_at_ghost(frame, frame.ghost, capture::Direction::inbound, now);
    const wire::Parsed& p = frame.parsed;
    switch (p.kind) {
      case FrameKind::roce_v2:
        if (directory_.by_ip(wire::destination_ip(frame.bytes(), p)) != frame.ghost) {
          discard(frame, Drop::not_for_us);
          return;
        }
        transport_.receive(frame, frame.ghost, now);
        return;
      case FrameKind::arp:
      case FrameKind::icmp_echo:
      case FrameKind::nd_solicit:
      case FrameKind::nd_advert:
        neighbours_.receive(frame, now);
        pool_.free(frame);
        return;
      case FrameKind::ip_other:
        deliver_to_kernel(frame);
        return;
      case FrameKind::ether_other:
      case FrameKind::unparsed:
      case FrameKind::roce_v1:
      case FrameKind::pfc:
      case FrameKind::pause:
        discard(frame, Drop::not_for_us);
        return;
    }
  }

  void deliver_to_kernel(Frame& frame) noexcept {
    if (env_.streams == nullptr) {
      discard(frame, Drop::exception_path_missing);
      return;
    }
    strip_to_ip_packet(frame);
    counters_.count(Counter::exception_rx);
    to_kernel_.push_back(frame);
  }

  /// Frames that ghosts made go where their destination MAC is. True: another ghost of this shard got one.
  bool send_egress(Instant now) noexcept {
    bool delivered = false;
    while (Frame* frame = egress_.pop_front()) {
      frame->arrival = now;
      if (is_silent(frame->ghost, now)) {
        discard(*frame, Drop::silent);
        continue;
      }
      record_at_ghost(*frame, frame->ghost, capture::Direction::outbound, now);
      const Mac destination = wire::destination_mac(frame->bytes());
      if (destination != last_destination_) {
        last_destination_ = destination;
        last_ghost_ = directory_.by_mac(destination);
      }
      const EmulatedNetwork::End from{plan_.port, frame->ghost};
      const bool inside = network_ != nullptr && !beside(*frame);
      if (destination.is_multicast() && bridge_.has_peers()) {
        inside ? cross_to_all(*frame, from, now) : bridge_.copy_to_all(*frame, pool_, counters_);
      }
      if (last_ghost_ != no_ghost) {
        frame->ghost = last_ghost_;
        if (inside) {
          network_->send(*frame, from, {plan_.port, last_ghost_}, now);
        } else {
          deliver_to_ghost(*frame, now);
          delivered = true;
        }
      } else if (inside) {
        if (!cross_to_port(*frame, from, destination, now)) {
          network_->send(*frame, from, {plan_.port}, now);
        }
      } else if (bridge_.find(destination)) {
        bridge_.forward(*frame, destination, pool_, counters_);
      } else {
        leave(*frame, frame->ghost, now);
      }
    }
    return delivered;
  }

  // --- the emulated network ---

  /// Sends `frame` through the network to the port that its destination is behind. False: that is not known.
  bool cross_to_port(Frame& frame, EmulatedNetwork::End from, const Mac& destination, Instant now) noexcept {
    const std::optional<PortId> port = bridge_.find(destination);
    if (!port) {
      return false;
    }
    counters_.count(Counter::transit_packets);
    const EmulatedNetwork::End to = network_->addressee(*port, frame);
    frame.ghost = to.ghost;
    frame.treatment = {};
    frame.arrival = now;
    network_->send(frame, from, to, now);
    return true;
  }

  /// A copy for every other port, made where the frame enters (ingress replication, RFC 8365 section 9): a switch
  /// floods what is for many, or for a MAC that it does not know.
  void cross_to_all(const Frame& frame, EmulatedNetwork::End from, Instant now) noexcept {
    bridge_.for_each_copy(frame, pool_, counters_, [&](Frame& copy, PortId port) {
      counters_.count(Counter::transit_packets);
      copy.ghost = no_ghost;
      copy.treatment = {};
      copy.arrival = now;
      network_->send(copy, from, {port}, now);
    });
  }

  void on_crossed(Frame& frame, PortId from, bool at_node, Instant now) noexcept override {
    const bool from_elsewhere = from != plan_.port;
    if (from_elsewhere) {
      bridge_.learn(wire::source_mac(frame.bytes()), from);
    }
    if (from_elsewhere && wire::destination_mac(frame.bytes()).is_multicast() && neighbours_.receive(frame, now)) {
      pool_.free(frame);
    } else if (at_node) {
      to_node_.submit(frame, frame.ghost, now);
    } else {
      deliver_to_ghost(frame, now);
    }
  }
  void on_lost(Frame& frame, Drop why, Instant now) noexcept override {
    frame.treatment.dropped = why;
    record_outbound(frame, now);
    discard(frame, why);
  }
  void on_class_disagreement() noexcept override { counters_.count(Counter::class_disagreements); }
  void on_pause(const switching::PauseFrame& pause, Instant now) noexcept override {
    Frame* frame = pool_.alloc(wire::l3_frame_max);
    if (frame == nullptr) {
      counters_.count(Drop::frame_pool_empty);
      return;
    }
    constexpr Mac switch_mac{{0x02, 0x4e, 0x42, 0xff, 0xff, 0xff}};
    frame->size =
        static_cast<std::uint32_t>(wire::build_pfc(frame->bytes(), switch_mac, pause.class_enable, pause.quanta));
    counters_.count(Counter::tx_pfc_frames);
    transmit(*frame, now);
  }

  // --- events ---

  void load_events(Instant now) {
    from_node_.use(nullptr, Direction::from_node);
    to_node_.use(nullptr, Direction::to_node);
    events_.reset();
    if (plan_.profile.events.empty()) {
      return;
    }
    events_ = std::make_unique<events::Table>(plan_.profile.events, *this, now);
    transport_.for_each_qp([this](const rdma::Qp& qp) { bind(qp); });
    from_node_.use(events_.get(), Direction::from_node);
    to_node_.use(events_.get(), Direction::to_node);
  }
  static events::Connection connection_of(const rdma::Qp& qp) noexcept {
    const rdma::QpAttr& attr = qp.attr();
    return {qp.ghost(), qp.number(), attr.qpn, attr.dest_qpn, attr.rq_psn, attr.sq_psn, attr.edge};
  }
  void on_connected(const rdma::Qp& qp) override {
    rate_tracer_.on_connected(qp);
    bind(qp);
  }
  void bind(const rdma::Qp& qp) {
    if (events_ && (qp.state() == rdma::QpState::rtr || qp.state() == rdma::QpState::rts)) {
      events_->bind(connection_of(qp));
    }
  }
  void on_destroyed(const rdma::Qp& qp) override {
    if (events_) {
      events_->unbind(qp.ghost(), qp.qpn());
    }
  }
  /// The ghost's queue pair that a packet is for, or from.
  [[nodiscard]] rdma::Qp* qp_of(Direction direction, GhostId ghost, Qpn dest_qpn) noexcept {
    if (direction == Direction::from_node) {
      return ghost == no_ghost ? nullptr : transport_.find_qp(ghost, dest_qpn);
    }
    rdma::Qp* found = nullptr;
    transport_.for_each_qp(
        [&](rdma::Qp& qp) { found = qp.ghost() == ghost && qp.attr().dest_qpn == dest_qpn ? &qp : found; });
    return found;
  }
  bool find_connection(Direction direction, GhostId ghost, Qpn dest_qpn, events::Connection& out) noexcept override {
    const rdma::Qp* qp = qp_of(direction, ghost, dest_qpn);
    if (qp != nullptr) {
      out = connection_of(*qp);
    }
    return qp != nullptr;
  }
  void on_qp_error(const Frame& frame, Direction direction, GhostId ghost, Instant now) noexcept override {
    if (rdma::Qp* qp = qp_of(direction, ghost, frame.parsed.dest_qpn); qp != nullptr) {
      transport_.set_error(*qp, rdma::WcStatus::fatal_err, now);
    }
  }
  void on_failure(const fabric::Failure& failure, Instant until, Instant now) noexcept override {
    std::visit(Overloaded{[&](const fabric::LinkFailure&) { take_down(until, failure.from_node, failure.to_node); },
                          [&](const fabric::GhostFailure& dead) {
                            for (const GhostId ghost : dead.ghosts) {
                              on_silent_ghost(ghost, until);
                            }
                          },
                          [&](const fabric::RateChange& change) { change_rate(failure, change.rate, change.rate); },
                          [&](const fabric::CableFailure& cut) { take_links_down(cut.links, until, now); },
                          [&](const fabric::BufferChange& change) {
                            network_->resize_buffers(change.switches, change.size_bytes);
                          }},
               failure.what);
  }
  void on_recovery(const fabric::Failure& failure, Instant now) noexcept override {
    std::visit(Overloaded{[&](const fabric::LinkFailure&) { take_down(now, failure.from_node, failure.to_node); },
                          [&](const fabric::GhostFailure& dead) {
                            for (const GhostId ghost : dead.ghosts) {
                              silent_until_[index(ghost)] = now;
                            }
                            if (dead.back_as) {
                              come_back(dead.ghosts.front(), *dead.back_as, now);
                            }
                          },
                          [&](const fabric::RateChange&) {
                            change_rate(failure, plan_.profile.from_node.rate, plan_.profile.to_node.rate);
                          },
                          [&](const fabric::CableFailure& cut) { take_links_down(cut.links, now, now); },
                          [&](const fabric::BufferChange& change) { network_->resize_buffers(change.switches, 0); }},
               failure.what);
  }
  void come_back(GhostId ghost, const fabric::NewIdentity& as, Instant now) noexcept {
    std::vector<ghost::InterfaceAddress> addresses;
    for (const auto& [ip, prefix] : as.addresses) {
      addresses.push_back({ip, prefix});
    }
    directory_.change(ghost, as.mac.value_or(directory_[ghost].mac), addresses);
    last_destination_ = {};
    last_ghost_ = no_ghost;
    if (as.announced) {
      neighbours_.announce(ghost, now);
    }
  }
  void take_links_down(const std::vector<switching::LinkId>& links, Instant until, Instant now) noexcept {
    for (const switching::LinkId link : links) {
      network_->take_link_down(link, until, now);
    }
  }
  void change_rate(const fabric::Failure& failure, const fabric::RateSpec& from_node,
                   const fabric::RateSpec& to_node) noexcept {
    if (failure.from_node) {
      from_node_.change_rate(from_node);
    }
    if (failure.to_node) {
      to_node_.change_rate(to_node);
    }
  }
  void take_down(Instant until, bool from_node, bool to_node) noexcept {
    if (from_node) {
      from_node_.take_down(until);
    }
    if (to_node) {
      to_node_.take_down(until);
    }
  }
  void on_silent_ghost(GhostId ghost, Instant until) noexcept override {
    Instant& silent = silent_until_[index(ghost)];
    silent = std::max(silent, until);
  }
  [[nodiscard]] bool is_silent(GhostId ghost, Instant now) const noexcept {
    return ghost != no_ghost && now < silent_until_[index(ghost)];
  }

  // --- out ---

  /// The emulator's own words to the node: they are not in the network that it emulates.
  [[nodiscard]] bool beside(const Frame& frame) const noexcept {
    return plan_.beside_tcp_port != 0 && is_tcp_of(frame, plan_.beside_tcp_port);
  }
  void leave(Frame& frame, GhostId ghost, Instant now) noexcept {
    if (beside(frame)) {
      transmit(frame, now);
    } else {
      to_node_.submit(frame, ghost, now);
    }
  }

  void transmit(Frame& frame, Instant now) noexcept {
    counters_.count(Counter::tx_packets_phy);
    counters_.count(Counter::tx_bytes_phy, frame.size);
    record_outbound(frame, now);
    to_port_.push_back(frame);
  }

  void discard(Frame& frame, Drop why) noexcept {
    counters_.count(why);
    pool_.free(frame);
  }

  // --- capture ---

  void record_inbound(const Frame& frame, Instant now) noexcept {
    if (env_.tap != nullptr && env_.tap_inbound) {
      env_.tap->record(frame, capture::Direction::inbound, now);
    }
  }
  void record_outbound(const Frame& frame, Instant now) noexcept {
    if (env_.tap != nullptr) {
      env_.tap->record(frame, capture::Direction::outbound, now);
    }
  }
  void record_at_ghost(const Frame& frame, GhostId ghost, capture::Direction direction, Instant now) noexcept {
    const std::size_t i = index(ghost);
    if (i < env_.ghost_taps.size() && env_.ghost_taps[i] != nullptr) {
      env_.ghost_taps[i]->record(frame, direction, now);
    }
  }
  void refuse(Frame& frame, Drop why, Instant now) noexcept {
    frame.treatment.dropped = why;
    record_inbound(frame, now);
    discard(frame, why);
  }

  struct FromNodeSink final : fabric::ImpairmentSink {
    explicit FromNodeSink(State& s) : state(s) {}
    void on_release(Frame& frame, Instant now) noexcept override { state.deliver(frame, now); }
    void on_drop(const Frame& frame, Instant now) noexcept override { on_decided(frame, now); }
    void on_decided(const Frame& frame, Instant now) noexcept override {
      tally.record(frame.treatment);
      state.ledger_.record(frame, Direction::from_node, now);
      state.record_inbound(frame, now);
    }
    State& state;
    fabric::Tally tally;
  };
  struct ToNodeSink final : fabric::ImpairmentSink {
    explicit ToNodeSink(State& s) : state(s) {}
    void on_release(Frame& frame, Instant now) noexcept override { state.transmit(frame, now); }
    void on_drop(const Frame& frame, Instant now) noexcept override {
      on_decided(frame, now);
      state.record_outbound(frame, now);
    }
    void on_decided(const Frame& frame, Instant now) noexcept override {  // captured later
      tally.record(frame.treatment);
      state.ledger_.record(frame, Direction::to_node, now);
    }
    State& state;
    fabric::Tally tally;
  };

  std::vector<std::unique_ptr<ghost::Personality>> make_personalities(GhostId id) {
    const GhostPlan& g = plan_.ghosts[index(id)];
    std::vector<std::unique_ptr<ghost::Personality>> made;
    for (const ghost::PersonalityOptions& options : g.personalities) {
      made.push_back(ghost::make_personality(options, make_context(id, ghost::name(options))));
    }
    return made;
  }

  ghost::Context make_context(GhostId id, std::string_view role) {
    const GhostPlan& g = plan_.ghosts[index(id)];
    const std::string stream_name = g.identity.name + "/" + std::string{role};
    return {id,     directory_, transport_, cm_,        neighbours_,           stream_ports_,
            wheel_, counters_,  ledger_,    g.defaults, rng_.fork(stream_name)};
  }

  ShardPlan plan_;
  ShardEnvironment env_;
  Counters& counters_;
  Rng rng_;
  FramePool pool_;
  Wheel own_wheel_;
  Wheel& wheel_;
  std::unique_ptr<EmulatedNetwork> own_network_;  // outlives all whose timers are in the wheel beside its packets
  EmulatedNetwork* network_ = nullptr;
  Ledger ledger_;
  std::unique_ptr<events::Table> events_;
  std::vector<Instant> silent_until_;  // by ghost
  FrameList egress_;                   // made by ghosts in this turn
  FrameList to_port_;
  FrameList to_kernel_;
  NoStreams no_streams_;
  ghost::Directory directory_;
  rdma::Transport transport_;
  RateTracer rate_tracer_{transport_};
  rdma::Cm cm_;
  ghost::Neighbours neighbours_;
  ghost::StreamPorts stream_ports_;
  StaticEndpoints static_;
  Bridge bridge_;
  FromNodeSink from_node_sink_{*this};
  ToNodeSink to_node_sink_{*this};
  fabric::Impairment from_node_;
  fabric::Impairment to_node_;
  wire::ParsePolicy parse_policy_;
  Schedule schedule_{wheel_, *this};
  std::vector<std::vector<std::unique_ptr<ghost::Personality>>> personalities_;
  std::unique_ptr<ghost::Personality> ensemble_;
  Mac last_destination_{};
  GhostId last_ghost_ = no_ghost;
};

Shard::Shard(const ShardPlan& plan, const ShardEnvironment& environment) {
  NBX_CHECK(environment.frames != nullptr && environment.counters != nullptr);
  state_ = std::make_unique<State>(plan, environment);
}
Shard::~Shard() = default;

void Shard::start(Instant now) { state_->start(now); }

void Shard::receive(FrameList& burst, Instant now) noexcept {
  while (Frame* frame = burst.pop_front()) {
    state_->receive(*frame, now);
  }
  state_->send_egress(now);
}
void Shard::receive_from_kernel(ConstBytes packet, Instant now) noexcept { state_->receive_from_kernel(packet, now); }
void Shard::receive_from_peer(Frame& frame, PortId peer, Instant now) noexcept {
  state_->receive_from_peer(frame, peer, now);
}
bool Shard::progress(Instant now, bool port_has_room) noexcept { return state_->progress(now, port_has_room); }
Instant Shard::next_deadline() const noexcept { return state_->wheel_.next_deadline(); }

FrameList& Shard::to_port() noexcept { return state_->to_port_; }
FrameList& Shard::to_kernel() noexcept { return state_->to_kernel_; }
FrameList& Shard::to_peer(PortId peer) noexcept { return state_->bridge_.queue(peer); }
void Shard::discard(Frame& frame, Drop why) noexcept { state_->discard(frame, why); }
void Shard::release(Frame& frame) noexcept { state_->pool_.free(frame); }

void Shard::replace_profile(const fabric::ProfileSpec& profile, Instant now) {
  state_->from_node_.replace(profile.from_node);
  state_->to_node_.replace(profile.to_node);
  state_->parse_policy_.verify_icrc = profile.verify_icrc;
  state_->plan_.profile = profile;
  state_->load_events(now);
  state_->schedule_.load(profile.failures, now);
}
void Shard::take_down(Instant until, bool from_node, bool to_node) noexcept {
  state_->take_down(until, from_node, to_node);
}
void Shard::take_links_down(const std::vector<switching::LinkId>& links, Instant until, Instant now) noexcept {
  state_->take_links_down(links, until, now);
}
const EmulatedNetwork* Shard::network() const noexcept { return state_->network_; }
EmulatedNetwork* Shard::network() noexcept { return state_->network_; }
const events::Table* Shard::events() const noexcept { return state_->events_.get(); }
const traffic::Engine* Shard::traffic() const noexcept {
  return state_->network_ != nullptr ? &state_->network_->traffic() : nullptr;
}
RateTracer& Shard::rate_tracer() noexcept { return state_->rate_tracer_; }
const fabric::ProfileSpec& Shard::profile() const noexcept { return state_->plan_.profile; }
rdma::Transport& Shard::transport() noexcept { return state_->transport_; }
rdma::Cm& Shard::cm() noexcept { return state_->cm_; }
const ghost::Directory& Shard::directory() const noexcept { return state_->directory_; }
std::span<const std::unique_ptr<ghost::Personality>> Shard::personalities(GhostId ghost) const noexcept {
  return state_->personalities_[index(ghost)];
}
FramePool& Shard::pool() noexcept { return state_->pool_; }
const fabric::Tally& Shard::tally(Direction direction) const noexcept {
  return direction == Direction::from_node ? state_->from_node_sink_.tally : state_->to_node_sink_.tally;
}
void Shard::interrupted(Instant from, Instant until) noexcept {
  state_->from_node_.interrupted(from, until);
  state_->to_node_.interrupted(from, until);
}
fabric::DelayStats Shard::delay_stats(Direction direction) const {
  return (direction == Direction::from_node ? state_->from_node_ : state_->to_node_).delay_stats();
}

}  // namespace nbx::pipeline
