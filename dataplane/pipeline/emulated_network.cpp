#include "pipeline/emulated_network.hpp"

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
  Frame* frame = nullptr;
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

class EmulatedNetwork::State final : public switching::PacketOwner {
 public:
  State(const NetworkPlan& plan, Wheel& wheel, const Rng& rng, User& user)
      : user_(user),
        plan_(plan),
        slab_(std::make_unique<FramePacket[]>(plan.packets)),
        network_(wheel, *this, plan.topology, plan.spec, rng) {
    for (std::uint32_t i = 0; i < plan.packets; ++i) {
      free_.push_back(slab_[i]);
    }
    node_ = std::make_unique<Station>(*this, wheel, plan.node, true);
    for (const HostId host : plan.ghosts) {
      ghosts_.push_back(std::make_unique<Station>(*this, wheel, host, false));
    }
    if (plan.storm) {
      storm_ = std::make_unique<switching::PauseStorm>(wheel, to_node());
    }
  }

  void start(Instant now) noexcept {
    if (storm_) {
      storm_->start(plan_.storm->pauses, now + plan_.storm->start);
    }
  }

  /// One end of the network: a transmitter like a NIC's, which obeys the pauses of its switch.
  class Station final : public switching::Receiver, private switching::EgressPort::Owner {
   public:
    Station(State& owner, Wheel& wheel, HostId host, bool node)
        : owner_(owner),
          node_(node),
          host_(host),
          out_(wheel, *this, owner.network_.uplink(host),
               {.rate = owner.network_.host_rate(host), .overhead_bytes = owner.plan_.spec.switches.overhead_bytes}) {
      owner.network_.attach(host, *this);
    }
    void on_packet(switching::Packet& packet, PortIndex /*port*/, Instant now) noexcept override {
      owner_.arrived(static_cast<FramePacket&>(packet), node_, now);
    }
    void on_pause(const PauseFrame& frame, PortIndex /*port*/, Instant now) noexcept override {
      out_.on_pause(frame, now);
      if (node_) {
        owner_.user_.on_pause(frame, now);
      }
    }
    void send(switching::Packet& packet, Instant now) noexcept { out_.enqueue(packet, now); }
    void send_pause(const PauseFrame& frame, Instant now) noexcept { out_.send_pause(frame, now); }
    [[nodiscard]] HostId host() const noexcept { return host_; }

   private:
    void on_departed(switching::Packet& packet, Instant now) noexcept override {
      owner_.network_.uplink(host_).carry(packet, now);
    }
    State& owner_;
    bool node_;
    HostId host_;
    switching::EgressPort out_;
  };

  void send(Frame& frame, Station& from, const Station& to, Instant now) noexcept {
    auto* packet = static_cast<FramePacket*>(free_.pop_front());
    if (packet == nullptr) {
      user_.on_lost(frame, Drop::network_full, now);
      return;
    }
    const wire::Parsed& p = frame.parsed;
    const bool ip = wire::has_ip(p.kind);
    const auto dscp = static_cast<std::uint8_t>(ip ? p.traffic_class >> 2U : 64);
    const auto pcp = static_cast<std::uint8_t>(p.vlan_tci != 0 ? p.vlan_tci >> 13U : 8);
    packet->frame = &frame;
    packet->size = std::max<std::uint32_t>(frame.size, switching::pause_frame_size);
    packet->destination = to.host();
    packet->flow = flow_of(frame);
    packet->priority = plan_.classes.priority(pcp, dscp);
    packet->ecn = static_cast<switching::Ecn>(ip ? p.traffic_class & wire::ecn::mask : 0);
    from.send(*packet, now);
  }

  void arrived(FramePacket& packet, bool at_node, Instant now) noexcept {
    Frame& frame = *packet.frame;
    if (packet.ecn == switching::Ecn::ce && (frame.parsed.traffic_class & wire::ecn::mask) != wire::ecn::ce) {
      wire::mark_congestion(frame.bytes(), frame.parsed.l3_offset, frame.parsed.ipv6);
      frame.parsed.traffic_class |= wire::ecn::ce;
      frame.treatment.ecn_marked = true;
    }
    give_back(packet);
    user_.on_crossed(frame, at_node, now);
  }

  void on_dropped(switching::Packet& packet, switching::SwitchDrop reason, Instant now) noexcept override {
    auto& mine = static_cast<FramePacket&>(packet);
    Frame& frame = *mine.frame;
    give_back(mine);
    user_.on_lost(frame, drop_of(reason), now);
  }

  void give_back(FramePacket& packet) noexcept {
    packet.frame = nullptr;
    free_.push_front(packet);
  }

  /// The switch's port at the real node's cable.
  switching::EgressPort& to_node() {
    switching::EgressPort* found = nullptr;
    for (switching::SwitchId s = 0; s < network_.topology().switches.size(); ++s) {
      for (PortIndex i = 0; i < network_.at(s).ports(); ++i) {
        if (network_.peer(s, i).end == switching::Topology::End{.host = true, .index = plan_.node}) {
          found = &network_.at(s).port(i);
        }
      }
    }
    NBX_CHECK(found != nullptr);
    return *found;
  }

  User& user_;
  NetworkPlan plan_;
  std::unique_ptr<FramePacket[]> slab_;
  switching::PacketList free_;
  switching::Network network_;
  std::unique_ptr<switching::PauseStorm> storm_;
  std::unique_ptr<Station> node_;
  std::vector<std::unique_ptr<Station>> ghosts_;
};

EmulatedNetwork::EmulatedNetwork(const NetworkPlan& plan, Wheel& wheel, const Rng& rng, User& user)
    : state_(std::make_unique<State>(plan, wheel, rng, user)) {}
EmulatedNetwork::~EmulatedNetwork() = default;

void EmulatedNetwork::start(Instant now) noexcept { state_->start(now); }

void EmulatedNetwork::from_node(Frame& frame, GhostId to, Instant now) noexcept {
  state_->send(frame, *state_->node_, *state_->ghosts_[index(to)], now);
}

void EmulatedNetwork::from_ghost(Frame& frame, GhostId from, std::optional<GhostId> to, Instant now) noexcept {
  state_->send(frame, *state_->ghosts_[index(from)], to ? *state_->ghosts_[index(*to)] : *state_->node_, now);
}

void EmulatedNetwork::pause_from_node(const Frame& frame, Instant now) noexcept {
  state_->node_->send_pause(pause_of(frame), now);
}

void EmulatedNetwork::free_all(FramePool& pool) noexcept {
  for (std::uint32_t i = 0; i < state_->plan_.packets; ++i) {
    if (Frame* frame = std::exchange(state_->slab_[i].frame, nullptr); frame != nullptr) {
      pool.free(*frame);
    }
  }
}

const switching::Network& EmulatedNetwork::network() const noexcept { return state_->network_; }

}  // namespace nbx::pipeline
