// What a host does for its own addresses, done for every ghost. A peer is learned when it speaks to a ghost, or of
// itself when a ghost waits for it or knows it already (RFC 826, RFC 4861 7.2.5), so strangers cannot fill the cache.
#include "ghost/neighbours.hpp"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "wire/build_l3.hpp"
#include "wire/ip.hpp"

namespace nbx::ghost {
namespace {

// RFC 4861 section 10: MAX_MULTICAST_SOLICIT and RETRANS_TIMER; Linux has the same for ARP.
constexpr unsigned questions_max = 3;
constexpr Duration question_interval = std::chrono::seconds{1};
constexpr std::size_t peers_max = 65536;

struct IpHash {
  std::size_t operator()(const IpAddress& ip) const noexcept { return hash_value(ip); }
};

bool in_prefix(const IpAddress& ip, const InterfaceAddress& of) {
  if (ip.is_v4() != of.ip.is_v4()) {
    return false;
  }
  const unsigned bits = of.ip.is_v4() ? 96U + of.prefix : of.prefix;
  const std::size_t bytes = bits / 8;
  const auto mask = static_cast<std::uint8_t>(0xff00U >> (bits % 8));
  return std::equal(ip.octets.begin(), ip.octets.begin() + static_cast<std::ptrdiff_t>(bytes), of.ip.octets.begin()) &&
         (bytes == ip.octets.size() || ((ip.octets[bytes] ^ of.ip.octets[bytes]) & mask) == 0);
}

/// The address that `ghost` asks from: on the peer's link if it can be, in any case of its family.
const InterfaceAddress* source_for(const Identity& ghost, const IpAddress& peer) {
  const auto on_link = std::ranges::find_if(ghost.addresses, [&](const auto& a) { return in_prefix(peer, a); });
  if (on_link != ghost.addresses.end()) {
    return &*on_link;
  }
  const auto any = std::ranges::find_if(ghost.addresses, [&](const auto& a) { return a.ip.is_v4() == peer.is_v4(); });
  return any == ghost.addresses.end() ? nullptr : &*any;
}

}  // namespace

class Neighbours::State final : public TimerClient {
 public:
  State(const Directory& directory, FramePool& pool, Wheel& wheel, Counters& counters, FrameList& out)
      : directory_(directory), pool_(pool), wheel_(wheel), counters_(counters), out_(out) {}
  ~State() {
    for (auto& [peer, question] : questions_) {
      wheel_.cancel(question);
    }
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  State(State&&) = delete;
  State& operator=(State&&) = delete;

  bool receive(const Frame& frame, Instant now) noexcept {
    switch (frame.parsed.kind) {
      case wire::FrameKind::arp:
        return receive_arp(frame, now);
      case wire::FrameKind::nd_solicit:
        return receive_solicit(frame, now);
      case wire::FrameKind::nd_advert:
        receive_advert(frame);
        return false;
      case wire::FrameKind::icmp_echo:
        return receive_echo(frame, now);
      case wire::FrameKind::unparsed:
      case wire::FrameKind::roce_v2:
      case wire::FrameKind::roce_v1:
      case wire::FrameKind::pfc:
      case wire::FrameKind::pause:
      case wire::FrameKind::ip_other:
      case wire::FrameKind::ether_other:
        return false;
    }
    return false;
  }

  [[nodiscard]] std::optional<Mac> lookup(const IpAddress& peer) const noexcept {
    if (const GhostId ghost = directory_.by_ip(peer); ghost != no_ghost) {
      return directory_[ghost].mac;
    }
    const auto at = peers_.find(peer);
    return at == peers_.end() ? std::nullopt : std::optional{at->second};
  }

  void resolve(GhostId ghost, const IpAddress& peer, Resolved done, Instant now) {
    if (const auto known = lookup(peer)) {
      done(known, now);
      return;
    }
    if (source_for(directory_[ghost], peer) == nullptr) {
      done(std::nullopt, now);
      return;
    }
    Question& question = questions_[peer];
    question.waiting.push_back(std::move(done));
    if (question.waiting.size() == 1) {
      question.client = this;
      question.ghost = ghost;
      question.peer = peer;
      ask(question, now);
    }
  }

  void announce(GhostId ghost, Instant now) noexcept {
    for (const InterfaceAddress& address : directory_[ghost].addresses) {
      emit(ghost, now, wire::l3_frame_max, [&](MutableBytes out) {
        const wire::LinkIdentity self = link_identity(ghost, address.ip);
        return address.ip.is_v4() ? wire::build_arp_request(out, self, address.ip)
                                  : wire::build_nd_announcement(out, self);
      });
    }
  }

  void learn(const IpAddress& peer, const Mac& mac) noexcept {
    if (mac.is_multicast() || peer.is_unspecified() || directory_.by_ip(peer) != no_ghost) {
      return;
    }
    if (peers_.size() == peers_max && !peers_.contains(peer)) {
      peers_.erase(peers_.begin());
    }
    peers_[peer] = mac;
    const auto question = questions_.find(peer);
    if (question != questions_.end()) {
      wheel_.arm(question->second, Instant{});  // whoever waits hears of it in the wheel's next turn
    }
  }

  void on_timer(TimerNode& node, Instant now) noexcept override {
    auto& question = static_cast<Question&>(node);
    const std::optional<Mac> known = lookup(question.peer);
    if (!known && question.asked < questions_max) {
      ask(question, now);
      return;
    }
    const std::vector<Resolved> waiting = std::move(question.waiting);
    questions_.erase(question.peer);
    for (const Resolved& done : waiting) {
      done(known, now);
    }
  }

 private:
  struct Question final : TimerNode {
    GhostId ghost = no_ghost;
    IpAddress peer{};
    unsigned asked = 0;
    std::vector<Resolved> waiting;
  };

  /// RFC 826's merge: what is said by somebody we know, or wait for, is true.
  void update(const IpAddress& peer, const Mac& mac) noexcept {
    if (peers_.contains(peer) || questions_.contains(peer)) {
      learn(peer, mac);
    }
  }

  bool receive_arp(const Frame& frame, Instant now) noexcept {
    const auto& arp = *overlay<wire::ArpPacket>(frame.bytes().subspan(frame.parsed.l3_offset));
    const IpAddress sender =
        arp.sender_ip.value() == 0 ? IpAddress{} : IpAddress::v4(arp.sender_ip.value());  // zero: a probe, RFC 5227
    const IpAddress target = IpAddress::v4(arp.target_ip.value());
    const GhostId ghost = directory_.by_ip(target);
    if (ghost == no_ghost) {
      update(sender, arp.sender_mac);
      return false;
    }
    learn(sender, arp.sender_mac);
    if (arp.operation.value() != wire::ArpPacket::request) {
      return false;
    }
    counters_.count(Counter::arp_requests_answered);
    emit(ghost, now, wire::l3_frame_max, [&](MutableBytes out) {
      return wire::build_arp_reply(out, frame.bytes(), frame.parsed, link_identity(ghost, target));
    });
    return true;
  }

  bool receive_solicit(const Frame& frame, Instant now) noexcept {
    const IpAddress target = neighbor_target(frame);
    const GhostId ghost = directory_.by_ip(target);
    if (ghost == no_ghost) {
      return false;
    }
    if (const auto mac = wire::neighbor_mac(frame.bytes(), frame.parsed)) {
      learn(wire::source_ip(frame.bytes(), frame.parsed), *mac);
    }
    counters_.count(Counter::nd_solicits_answered);
    emit(ghost, now, wire::l3_frame_max, [&](MutableBytes out) {
      return wire::build_nd_advert(out, frame.bytes(), frame.parsed, link_identity(ghost, target));
    });
    return true;
  }

  void receive_advert(const Frame& frame) noexcept {
    // A unicast advertisement may leave its option out (RFC 4861 4.4): it came from the target itself.
    const auto mac = wire::neighbor_mac(frame.bytes(), frame.parsed);
    update(neighbor_target(frame), mac.value_or(wire::source_mac(frame.bytes())));
  }

  bool receive_echo(const Frame& frame, Instant now) noexcept {
    const GhostId ghost = directory_.by_ip(wire::destination_ip(frame.bytes(), frame.parsed));
    if (ghost == no_ghost) {
      return false;
    }
    counters_.count(Counter::icmp_echoes_answered);
    emit(ghost, now, frame.size,
         [&](MutableBytes out) { return wire::build_echo_reply(out, frame.bytes(), frame.parsed); });
    return true;
  }

  void ask(Question& question, Instant now) noexcept {
    const IpAddress own = source_for(directory_[question.ghost], question.peer)->ip;
    emit(question.ghost, now, wire::l3_frame_max, [&](MutableBytes out) {
      const wire::LinkIdentity self = link_identity(question.ghost, own);
      return question.peer.is_v4() ? wire::build_arp_request(out, self, question.peer)
                                   : wire::build_nd_solicit(out, self, question.peer);
    });
    ++question.asked;
    wheel_.arm(question, now + question_interval);
  }

  /// `build` fills a buffer of `room` bytes and answers the size of the frame; 0: nothing to send.
  template <class Build>
  void emit(GhostId ghost, Instant now, std::size_t room, Build&& build) noexcept {
    Frame* frame = pool_.alloc(room);
    if (frame == nullptr) {
      counters_.count(Drop::frame_pool_empty);
      return;
    }
    frame->size = static_cast<std::uint32_t>(build(frame->bytes()));
    if (frame->size == 0) {
      pool_.free(*frame);
      return;
    }
    constexpr wire::ParsePolicy own_work{
        .verify_icrc = false, .verify_ipv4_checksum = false, .verify_udp_checksum = false};
    static_cast<void>(wire::parse(frame->bytes(), own_work, frame->parsed));
    frame->ghost = ghost;
    frame->arrival = now;
    out_.push_back(*frame);
  }

  [[nodiscard]] wire::LinkIdentity link_identity(GhostId ghost, const IpAddress& ip) const noexcept {
    return {directory_[ghost].mac, ip, directory_[ghost].vlan_tci};
  }
  [[nodiscard]] static IpAddress neighbor_target(const Frame& frame) noexcept {
    return overlay<wire::NeighborMessage>(frame.bytes().subspan(frame.parsed.l4_offset))->target;
  }

  const Directory& directory_;
  FramePool& pool_;
  Wheel& wheel_;
  Counters& counters_;
  FrameList& out_;
  std::unordered_map<IpAddress, Mac, IpHash> peers_;
  std::unordered_map<IpAddress, Question, IpHash> questions_;
};

Neighbours::Neighbours(const Directory& directory, FramePool& pool, Wheel& wheel, Counters& counters, FrameList& out)
    : state_(std::make_unique<State>(directory, pool, wheel, counters, out)) {}
Neighbours::~Neighbours() = default;

bool Neighbours::receive(const Frame& frame, Instant now) noexcept { return state_->receive(frame, now); }
std::optional<Mac> Neighbours::lookup(const IpAddress& peer) const noexcept { return state_->lookup(peer); }
void Neighbours::resolve(GhostId ghost, const IpAddress& peer, Resolved done, Instant now) {
  state_->resolve(ghost, peer, std::move(done), now);
}
void Neighbours::announce(GhostId ghost, Instant now) noexcept { state_->announce(ghost, now); }
void Neighbours::learn(const IpAddress& peer, const Mac& mac) noexcept { state_->learn(peer, mac); }

}  // namespace nbx::ghost
