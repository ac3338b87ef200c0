#include "pipeline/emulated_network.hpp"

#include <deque>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/check.hpp"
#include "wire/build.hpp"
#include "wire/ip.hpp"
#include "wire/mac_control.hpp"

namespace nbx::pipeline {

namespace {

using switching::HostId;
using switching::PauseFrame;
using switching::PortIndex;

struct FramePacket final : switching::Packet {
  Frame* frame = nullptr;  // nullptr: background traffic
  PortId from{};           // of the frame
  traffic::Reference reference;
};

constexpr Drop drop_of(switching::SwitchDrop reason) {
  switch (reason) {
#define NBX_SWITCH_DROP(name, text) \
  case switching::SwitchDrop::name: \
    return Drop::network_##name;
#include "switching/drops.def"
#undef NBX_SWITCH_DROP
  }
  return Drop::none;
}

/// What ECMP sees: addresses and the UDP source port, which is a flow's entropy (A17.9.2).
std::uint32_t flow_of(const Frame& frame) noexcept {
  const wire::Parsed& p = frame.parsed;
  if (!wire::has_ip(p.kind)) {
    return 0;
  }
  std::uint64_t hash = hash_value(wire::source_ip(frame.bytes(), p));
  hash = hash * 0x9e37'79b9'7f4a'7c15ULL + hash_value(wire::destination_ip(frame.bytes(), p));
  hash = hash * 0x9e37'79b9'7f4a'7c15ULL + p.udp_source_port;
  return static_cast<std::uint32_t>(hash ^ (hash >> 32U));
}

PauseFrame pause_of(const Frame& frame) noexcept {
  const ConstBytes control = frame.bytes().subspan(frame.parsed.l3_offset);
  PauseFrame out;
  if (frame.parsed.kind == wire::FrameKind::pause) {
    out.pfc = false;
    out.quanta[0] = overlay<wire::PauseControl>(control)->quanta.value();
    return out;
  }
  const auto* pfc = overlay<wire::PfcControl>(control);
  out.class_enable = static_cast<std::uint8_t>(pfc->class_enable.value());
  for (unsigned p = 0; p < switching::priorities; ++p) {
    out.quanta[p] = pfc->quanta[p].value();
  }
  return out;
}

}  // namespace

class EmulatedNetwork::State final : public switching::PacketOwner, public traffic::Carrier, private TimerClient {
 public:
  State(const NetworkPlan& plan, Wheel& wheel, const Rng& rng)
      : wheel_(wheel),
        plan_(plan),
        slab_(std::make_unique<FramePacket[]>(plan.packets)),
        network_(wheel, *this, plan.topology, plan.spec, rng),
        traffic_(plan.traffic, wheel, *this, rng.fork("traffic")),
        link_down_until_(2 * plan.topology.cables.size()) {
    repair_.client = reroute_.client = this;
    for (std::uint32_t i = 0; i < plan.packets; ++i) {
      free_.push_back(slab_[i]);
    }
    by_host_.resize(plan.topology.hosts.size());
    for (const NetworkPort& of_plan : plan.ports) {
      Port& port = ports_.emplace_back();
      port.node = make_station(of_plan.node, port, true);
      for (const HostId ghost : of_plan.ghosts) {
        port.ghosts.push_back(make_station(ghost, port, false));
      }
      port.storm = std::make_unique<switching::PauseStorm>(wheel, to_node(of_plan.node));
    }
    for (std::uint32_t i = 0; i < plan.pins.size(); ++i) {
      const PinPlan& pin = plan.pins[i];
      pins_[pair_key(pin.from, pin.to)].push_back(i);
      for (const PinPlan::Hop& hop : pin.hops) {
        network_.pin(switching::Packet::pin_key(i + 1), pin.to, hop.at, hop.port);
      }
    }
  }

  void start(Instant now) {
    traffic_.start(now);
    for (std::size_t p = 0; p < ports_.size(); ++p) {
      const NetworkPort& of_plan = plan_.ports[p];
      if (of_plan.storm) {
        set_storm(ports_[p], of_plan.storm, now);
      }
      for (std::size_t i = 0; i < of_plan.receivers.size(); ++i) {
        ports_[p].ghosts[i]->set_slow(of_plan.receivers[i], now);
      }
    }
  }

  ~State() {
    wheel_.cancel(repair_);
    wheel_.cancel(reroute_);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  State(State&&) = delete;
  State& operator=(State&&) = delete;

  void take_link_down(switching::LinkId link, Instant until, Instant now) noexcept {
    link_down_until_[link] = until;
    set_links(now);
  }

  struct Port;

  /// One end of the network: a transmitter like a NIC's, which obeys the pauses of its switch.
  class Station final : public switching::Receiver,
                        private switching::EgressPort::Owner,
                        private switching::SlowReceiver::Owner,
                        private TimerClient {
   public:
    Station(State& owner, HostId host, Port& port, bool node)
        : owner_(owner),
          port_(port),
          node_(node),
          host_(host),
          out_(owner.wheel_, *this, owner.network_.uplink(host),
               {.rate = owner.network_.host_rate(host), .overhead_bytes = owner.plan_.spec.switches.overhead_bytes}) {
      owner.network_.attach(host, *this);
      slow_until_.client = this;
    }
    ~Station() { owner_.wheel_.cancel(slow_until_); }
    Station(const Station&) = delete;
    Station& operator=(const Station&) = delete;
    Station(Station&&) = delete;
    Station& operator=(Station&&) = delete;

    /// Cold.
    void set_slow(const std::optional<SlowPlan>& slow, Instant now) {
      end_slow(now);
      if (slow) {
        slow_ = std::make_unique<switching::SlowReceiver>(owner_.wheel_,
                                                          static_cast<switching::SlowReceiver::Owner&>(*this), out_,
                                                          owner_.plan_.spec.switches.pfc_quanta, slow->spec);
        is_slow_ = true;
        if (slow->lasts != Duration::zero()) {
          owner_.wheel_.arm(slow_until_, now + slow->lasts);
        }
      }
    }
    void on_packet(switching::Packet& packet, PortIndex /*port*/, Instant now) noexcept override {
      if (!is_slow_) {
        owner_.arrived(static_cast<FramePacket&>(packet), *this, now);
      } else if (!slow_->receive(packet, now)) {
        owner_.lose(static_cast<FramePacket&>(packet), Drop::network_receiver_full, now);
      }
    }
    void on_pause(const PauseFrame& frame, PortIndex /*port*/, Instant now) noexcept override {
      out_.on_pause(frame, now);
      if (node_) {
        port_.paused.on_frame(frame, out_.rate(), now);
        port_.user->on_pause(frame, now);
      }
    }
    void send(switching::Packet& packet, Instant now) noexcept { out_.enqueue(packet, now); }
    void send_pause(const PauseFrame& frame, Instant now) noexcept { out_.send_pause(frame, now); }
    [[nodiscard]] HostId host() const noexcept { return host_; }
    [[nodiscard]] Port& port() noexcept { return port_; }
    [[nodiscard]] bool is_node() const noexcept { return node_; }
    [[nodiscard]] const switching::SlowReceiver* slow() const noexcept { return slow_.get(); }

    // Of a ghost: the priorities of what it has sent to the real node, the latest among them.
    std::uint8_t sends_in = 0;
    std::uint8_t sent_in = 0;

   private:
    void on_timer(TimerNode& node, Instant /*now*/) noexcept override { end_slow(node.due); }
    void end_slow(Instant now) noexcept {
      owner_.wheel_.cancel(slow_until_);
      if (std::exchange(is_slow_, false)) {
        slow_->stop(now);
      }
    }
    void on_drained(switching::Packet& packet, Instant now) noexcept override {
      owner_.arrived(static_cast<FramePacket&>(packet), *this, now);
    }
    void on_departed(switching::Packet& packet, Instant now) noexcept override {
      const auto& mine = static_cast<FramePacket&>(packet);
      if (mine.frame == nullptr) {
        owner_.traffic_.on_departed(mine.reference, now);
      }
    }
    State& owner_;
    Port& port_;
    bool node_;
    HostId host_;
    switching::EgressPort out_;
    std::unique_ptr<switching::SlowReceiver> slow_;  // also when it is over: for the report
    bool is_slow_ = false;
    TimerNode slow_until_;
  };

  using PriorityPairs = std::array<std::array<std::uint64_t, switching::priorities>, switching::priorities>;

  struct Port {
    User* user = nullptr;
    std::unique_ptr<Station> node;
    std::vector<std::unique_ptr<Station>> ghosts;
    std::unique_ptr<switching::PauseStorm> storm;
    switching::PauseTracks paused;  // the real node, by this network
    switching::PauseTracks pauses_of_node;
    std::array<PriorityPairs, 2> differences{};  // from the node, to it; [here][at the node]
    PriorityPairs other_than_ghosts{};           // from the node; [here][the ghost's latest]
  };

  std::unique_ptr<Station> make_station(HostId host, Port& port, bool node) {
    auto station = std::make_unique<Station>(*this, host, port, node);
    by_host_[host] = station.get();
    return station;
  }

  static void set_storm(Port& port, const std::optional<StormPlan>& storm, Instant now) noexcept {
    if (storm) {
      port.storm->start(storm->pauses, now + storm->start);
    } else if (port.storm->blows(now)) {
      port.storm->stop(now);
    }
  }

  /// What the priority of a frame is taken from.
  struct Marks {
    std::uint8_t pcp;
    std::uint8_t dscp;
  };
  static Marks marks_of(const wire::Parsed& p) noexcept {
    return {static_cast<std::uint8_t>(p.vlan_tci != 0 ? p.vlan_tci >> 13U : 8),
            static_cast<std::uint8_t>(wire::has_ip(p.kind) ? p.traffic_class >> 2U : 64)};
  }

  /// A frame between two ends, one of them a real node, of `priority` here.
  void compare_classes(const wire::Parsed& p, Station& from, Station& to, std::uint8_t priority) noexcept {
    if (plan_.node_classes) {
      const Marks marks = marks_of(p);
      const std::uint8_t of_node = plan_.node_classes->priority(marks.pcp, marks.dscp);
      for (const bool from_node : {true, false}) {
        Station& end = from_node ? from : to;
        if (end.is_node() && of_node != priority) {
          ++end.port().differences[from_node ? 0 : 1][priority][of_node];
          end.port().user->on_class_disagreement();
        }
      }
    }
    if (p.kind != wire::FrameKind::roce_v2 || wire::transport_of(p.opcode) == wire::Transport::cnp) {
      return;  // notifications have a class of their own
    }
    if (!from.is_node()) {
      from.sends_in |= static_cast<std::uint8_t>(1U << priority);
      from.sent_in = priority;
    } else if (!to.is_node() && to.sends_in != 0 && ((to.sends_in >> priority) & 1U) == 0) {
      ++from.port().other_than_ghosts[priority][to.sent_in];
      from.port().user->on_class_disagreement();
    }
  }

  void send(Frame& frame, PortId sender, Station& from, Station& to, Instant now) noexcept {
    auto* packet = static_cast<FramePacket*>(free_.pop_front());
    if (packet == nullptr) {
      to.port().user->on_lost(frame, Drop::network_full, now);
      return;
    }
    const wire::Parsed& p = frame.parsed;
    const Marks marks = marks_of(p);
    packet->frame = &frame;
    packet->from = sender;
    packet->size = std::max<std::uint32_t>(frame.size, switching::pause_frame_size);
    packet->destination = to.host();
    packet->flow = flow_of(frame);
    packet->pin = pin_of(from.host(), to.host(), wire::has_ip(p.kind) ? p.udp_source_port : std::uint16_t{0});
    packet->priority = plan_.classes.priority(marks.pcp, marks.dscp);
    packet->ecn = static_cast<switching::Ecn>(wire::has_ip(p.kind) ? p.traffic_class & wire::ecn::mask : 0);
    if (from.is_node() || to.is_node()) {
      compare_classes(p, from, to, packet->priority);
    }
    from.send(*packet, now);
  }

  static constexpr std::uint64_t pair_key(HostId from, HostId to) noexcept { return std::uint64_t{from} << 32U | to; }
  /// Packet::pin of a frame; background traffic has no source port.
  [[nodiscard]] std::uint32_t pin_of(HostId from, HostId to, std::uint16_t source_port) const noexcept {
    if (pins_.empty()) {
      return 0;
    }
    if (const auto of_pair = pins_.find(pair_key(from, to)); of_pair != pins_.end()) {
      for (const std::uint32_t i : of_pair->second) {
        if (plan_.pins[i].source_port.value_or(source_port) == source_port) {
          return i + 1;
        }
      }
    }
    return 0;
  }

  bool carry(const traffic::Packet& wish, Instant now) noexcept override {
    auto* packet = static_cast<FramePacket*>(free_.pop_front());
    if (packet == nullptr) {
      return false;
    }
    packet->frame = nullptr;
    packet->reference = wish.reference;
    packet->size = wish.size;
    packet->destination = wish.to;
    packet->flow = wish.hash;
    packet->pin = pin_of(wish.from, wish.to, 0);
    packet->priority = wish.priority;
    packet->ecn = wish.ecn;
    by_host_[wish.from]->send(*packet, now);
    return true;
  }
  [[nodiscard]] BitRate port_rate(HostId host) const noexcept override { return network_.host_rate(host); }
  [[nodiscard]] Station& station(const End& end) noexcept {
    Port& port = ports_[index(end.port)];
    return end.ghost == no_ghost ? *port.node : *port.ghosts[index(end.ghost)];
  }

  void arrived(FramePacket& packet, Station& at, Instant now) noexcept {
    if (packet.frame == nullptr) {
      const traffic::Reference reference = packet.reference;
      const std::uint32_t size = packet.size;
      const bool congested = packet.ecn == switching::Ecn::ce;
      give_back(packet);
      traffic_.on_arrived(reference, size, congested, now);
      return;
    }
    Frame& frame = *packet.frame;
    if (packet.ecn == switching::Ecn::ce && (frame.parsed.traffic_class & wire::ecn::mask) != wire::ecn::ce) {
      wire::mark_congestion(frame.bytes(), frame.parsed.l3_offset, frame.parsed.ipv6);
      frame.parsed.traffic_class |= wire::ecn::ce;
      frame.treatment.ecn_marked = true;
    }
    const PortId from = packet.from;
    give_back(packet);
    at.port().user->on_crossed(frame, from, at.is_node(), now);
  }

  void on_dropped(switching::Packet& packet, switching::SwitchDrop reason, Instant now) noexcept override {
    lose(static_cast<FramePacket&>(packet), drop_of(reason), now);
  }

  void lose(FramePacket& packet, Drop why, Instant now) noexcept {
    Frame* const frame = packet.frame;
    const traffic::Reference reference = packet.reference;
    Station& to = *by_host_[packet.destination];
    give_back(packet);
    if (frame == nullptr) {
      traffic_.on_dropped(reference, now);
    } else {
      to.port().user->on_lost(*frame, why, now);
    }
  }

  void on_timer(TimerNode& node, Instant now) noexcept override {
    if (&node == &repair_) {
      set_links(now);
    } else {
      network_.reroute();
    }
  }

  /// Each link as its time says, and the timer for the next that comes back. Cold.
  void set_links(Instant now) noexcept {
    Instant next = Instant::never();
    bool changed = false;
    for (switching::LinkId link = 0; link < link_down_until_.size(); ++link) {
      const bool up = link_down_until_[link] <= now;
      if (up != network_.link(link).up()) {
        network_.link(link).set_up(up, now);
        changed = true;
      }
      next = up ? next : std::min(next, link_down_until_[link]);
    }
    wheel_.cancel(repair_);
    if (next != Instant::never()) {
      wheel_.arm(repair_, next);
    }
    if (changed && plan_.reroute_after) {
      wheel_.arm(reroute_, now + *plan_.reroute_after);
    }
  }

  void give_back(FramePacket& packet) noexcept {
    packet.frame = nullptr;
    free_.push_front(packet);
  }

  /// The switch's port at a real node's cable.
  switching::EgressPort& to_node(HostId node) {
    switching::EgressPort* found = nullptr;
    for (switching::SwitchId s = 0; s < network_.topology().switches.size(); ++s) {
      for (PortIndex i = 0; i < network_.at(s).ports(); ++i) {
        if (network_.peer(s, i).end == switching::Topology::End{.host = true, .index = node}) {
          found = &network_.at(s).port(i);
        }
      }
    }
    NBX_CHECK(found != nullptr);
    return *found;
  }

  static void add_differences(std::vector<NetworkReport::ClassDifference>& out, const PriorityPairs& frames,
                              bool from_node, bool of_node) {
    for (unsigned network = 0; network < switching::priorities; ++network) {
      for (unsigned other = 0; other < switching::priorities; ++other) {
        if (frames[network][other] != 0) {
          out.push_back({from_node, of_node, network, other, frames[network][other]});
        }
      }
    }
  }

  /// "leaf0 port 3 (to spine1)"
  [[nodiscard]] std::string place(switching::SwitchId s, PortIndex port) const {
    const switching::Topology& topology = network_.topology();
    const switching::Topology::End& end = network_.peer(s, port).end;
    return topology.switches[s] + " port " + std::to_string(port) + " (to " +
           (end.host ? topology.hosts[end.index] : topology.switches[end.index]) + ")";
  }

  [[nodiscard]] NetworkReport report(Instant now) const {
    NetworkReport out;
    for (std::size_t i = 0; i < ports_.size(); ++i) {
      const Port& port = ports_[i];
      NetworkReport::Node& node = out.nodes.emplace_back();
      node.port = plan_.ports[i].name;
      node.to_node = port.paused;
      node.from_node = port.pauses_of_node;
      add_differences(node.classes, port.differences[0], true, true);
      add_differences(node.classes, port.differences[1], false, true);
      add_differences(node.classes, port.other_than_ghosts, true, false);
      for (const auto& ghost : port.ghosts) {
        if (const switching::SlowReceiver* slow = ghost->slow(); slow != nullptr) {
          out.receivers.push_back({network_.topology().hosts[ghost->host()], slow->counters(), slow->pauses()});
        }
      }
    }
    for (switching::SwitchId s = 0; s < network_.topology().switches.size(); ++s) {
      for (PortIndex i = 0; i < network_.at(s).ports(); ++i) {
        const switching::PfcWatchdog& watchdog = network_.at(s).watchdog(i);
        if (watchdog.storms_detected() != 0) {
          out.watchdogs.push_back({place(s, i), watchdog.storms_detected(), watchdog.storms_restored()});
        }
        out.xoffs += network_.at(s).pfc(i).xoffs();
      }
    }
    for (unsigned p = 0; p < switching::priorities; ++p) {
      if (NetworkReport::Queues queues = queues_of(p); queues.admitted != 0) {
        out.queues.push_back(std::move(queues));
      }
    }
    if (const auto cycle = switching::find_deadlock(network_, now)) {
      out.deadlock = switching::describe(network_, *cycle);
    }
    return out;
  }

  [[nodiscard]] NetworkReport::Queues queues_of(unsigned priority) const {
    NetworkReport::Queues out;
    out.priority = priority;
    for (switching::SwitchId s = 0; s < network_.topology().switches.size(); ++s) {
      const switching::SwitchCounters& counters = network_.at(s).counters();
      out.admitted += counters.admitted[priority];
      out.marked += counters.marked[priority];
      for (const auto& reason : counters.drops) {
        out.dropped += reason[priority];
      }
      for (PortIndex i = 0; i < network_.at(s).ports(); ++i) {
        const switching::EgressCounters& port = network_.at(s).port(i).counters(priority);
        out.pauses += port.rx_pause;
        out.paused += port.rx_pause_duration;
        if (port.queue_peak_bytes > out.peak_bytes) {
          out.peak_bytes = port.queue_peak_bytes;
          out.peak_at = place(s, i);
        }
      }
    }
    return out;
  }

  void pause_from_node(Port& port, const PauseFrame& frame, Instant now) noexcept {
    port.pauses_of_node.on_frame(frame, network_.host_rate(port.node->host()), now);
    port.node->send_pause(frame, now);
  }

  Wheel& wheel_;
  NetworkPlan plan_;
  std::unique_ptr<FramePacket[]> slab_;
  switching::PacketList free_;
  switching::Network network_;
  traffic::Engine traffic_;
  std::vector<Instant> link_down_until_;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> pins_;  // of the plan, by the pair
  TimerNode repair_;
  TimerNode reroute_;
  std::vector<Station*> by_host_;
  std::deque<Port> ports_;  // do not move
};

EmulatedNetwork::EmulatedNetwork(const NetworkPlan& plan, Wheel& wheel, const Rng& rng)
    : state_(std::make_unique<State>(plan, wheel, rng)) {}
EmulatedNetwork::~EmulatedNetwork() = default;

void EmulatedNetwork::attach(PortId port, User& user) noexcept { state_->ports_[index(port)].user = &user; }
void EmulatedNetwork::start(Instant now) { state_->start(now); }

void EmulatedNetwork::send(Frame& frame, End from, End to, Instant now) noexcept {
  state_->send(frame, from.port, state_->station(from), state_->station(to), now);
}

EmulatedNetwork::End EmulatedNetwork::addressee(PortId port, const Frame& frame) const noexcept {
  return {port, state_->ports_[index(port)].user->addressee(frame)};
}

void EmulatedNetwork::pause_from_node(PortId port, const Frame& frame, Instant now) noexcept {
  state_->pause_from_node(state_->ports_[index(port)], pause_of(frame), now);
}

void EmulatedNetwork::take_link_down(switching::LinkId link, Instant until, Instant now) noexcept {
  state_->take_link_down(link, until, now);
}

void EmulatedNetwork::set_storm(PortId port, const std::optional<StormPlan>& storm, Instant now) noexcept {
  State::set_storm(state_->ports_[index(port)], storm, now);
}

void EmulatedNetwork::set_receiver(PortId port, GhostId ghost, const std::optional<SlowPlan>& slow, Instant now) {
  state_->station({port, ghost}).set_slow(slow, now);
}

traffic::Engine& EmulatedNetwork::traffic() noexcept { return state_->traffic_; }

void EmulatedNetwork::resize_buffers(const std::vector<std::uint32_t>& switches, std::uint64_t size_bytes) noexcept {
  const std::uint64_t size = size_bytes == 0 ? state_->plan_.spec.switches.buffer.size_bytes : size_bytes;
  for (const std::uint32_t s : switches) {
    state_->network_.at(s).resize_buffer(size);
  }
}

void EmulatedNetwork::free_all(FramePool& pool) noexcept {
  for (std::uint32_t i = 0; i < state_->plan_.packets; ++i) {
    if (Frame* frame = std::exchange(state_->slab_[i].frame, nullptr); frame != nullptr) {
      pool.free(*frame);
    }
  }
}

const switching::Network& EmulatedNetwork::network() const noexcept { return state_->network_; }
const traffic::Engine& EmulatedNetwork::traffic() const noexcept { return state_->traffic_; }
NetworkReport EmulatedNetwork::report(Instant now) const { return state_->report(now); }

}  // namespace nbx::pipeline
