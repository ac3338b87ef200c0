// The transport as a whole: who exists, which role gets a packet, and whose turn it is to send.
#include "rdma/transport.hpp"

#include "rdma/core.hpp"
#include "rdma/datagram.hpp"
#include "rdma/emit.hpp"
#include "rdma/requester.hpp"
#include "rdma/responder.hpp"
#include "wire/ip.hpp"

namespace nbx::rdma {

namespace {

QueuePair& pair_of(Qp& qp) noexcept { return static_cast<QueuePair&>(qp); }

bool may_receive(QpState state) noexcept {
  return state == QpState::rtr || state == QpState::rts || state == QpState::sqe;
}

wire::Transport wire_transport(QpType type) noexcept {
  switch (type) {
    case QpType::rc:
      return wire::Transport::rc;
    case QpType::uc:
      return wire::Transport::uc;
    case QpType::ud:
      return wire::Transport::ud;
  }
  return wire::Transport::rc;
}

/// Turns that one progress() may give, in bursts.
constexpr std::size_t bursts_per_call = 8;

}  // namespace

class Transport::State final : public TimerClient {
 public:
  State(const TransportConfig& config, FramePool& pool, Wheel& wheel, Counters& counters, FrameList& out)
      : core(config, pool, wheel, counters, out) {}
  ~State() {
    while (QpLink* link = all.front()) {
      release(static_cast<QueuePair&>(*link));
    }
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  State(State&&) = delete;
  State& operator=(State&&) = delete;

  void on_timer(TimerNode& node, Instant now) noexcept override {
    requester.expire(static_cast<QueuePair&>(node), now);
  }
  /// Of the nodes that only wait for a turn.
  struct Wakeups final : TimerClient {
    explicit Wakeups(Core& core_) : core(core_) {}
    void on_timer(TimerNode& node, Instant /*now*/) noexcept override {
      core.activate(static_cast<Wakeup&>(node).qp());
    }
    Core& core;
  };

  Drop dispatch(Frame& frame, GhostId ghost, Instant now) noexcept;
  Drop receive_request(QueuePair& qp, Frame& frame, Instant now) noexcept;
  static void adopt_peer(QueuePair& qp, const wire::Parsed& packet) noexcept;
  [[nodiscard]] Drop admit(const QueuePair& qp, const Frame& frame) const noexcept;
  void send_cnp(QueuePair& qp, const Frame& frame, Instant now) noexcept;
  [[nodiscard]] Instant& next_cnp(QueuePair& qp, const IpAddress& peer) noexcept;
  void on_cnp(QueuePair& qp, Instant now) noexcept;
  bool take_turn(QueuePair& qp, Instant now) noexcept;
  [[nodiscard]] bool choose_qpn(GhostId ghost, Qpn& qpn) noexcept;
  void cancel_timers(QueuePair& qp) noexcept {
    core.wheel.cancel(qp);
    if (qp.limiter != nullptr) {
      core.wheel.cancel(*qp.limiter);
    }
    if (qp.nak_wakeup != nullptr) {
      core.wheel.cancel(*qp.nak_wakeup);
    }
  }
  void release(QueuePair& qp) noexcept;

  Core core;
  Requester requester{core};
  Responder responder{core};
  Datagram datagram{core};
  Wakeups wakeups{core};
  // Of scopes wider than a queue pair, by peer and ghost, or by ghost. They share a slot when their hashes meet.
  std::vector<Instant> shared_next_cnp = std::vector<Instant>(4096);
  List<QpLink> all;          // in order of creation; owns the queue pairs
  List<TurnLink> destroyed;  // to be released in the next progress()
};

Transport::Transport(const TransportConfig& config, FramePool& pool, Wheel& wheel, Counters& counters, FrameList& out)
    : state_(std::make_unique<State>(config, pool, wheel, counters, out)) {}

Transport::~Transport() = default;

// ---- control

void Transport::add_ghost(GhostId id, const Nic& nic) {
  NBX_CHECK(index(id) == state_->core.ghosts.size());
  state_->core.ghosts.emplace_back().nic = nic;
}

MemoryTable& Transport::memory(GhostId id) { return state_->core.ghost(id).memory; }
void Transport::set_mad_handler(MadHandler* handler) { state_->core.mad_handler = handler; }
void Transport::set_observer(DeliveryObserver* observer) { state_->core.observer = observer; }
void Transport::set_connection_observer(ConnectionObserver* observer) { state_->core.connection_observer = observer; }

bool Transport::State::choose_qpn(GhostId ghost, Qpn& qpn) noexcept {
  if (qpn.value != 0) {
    return qpn != gsi_qpn && qpn.value <= mask24 && core.table.find(ghost, qpn) == nullptr;
  }
  constexpr Qpn first{0x11};
  Qpn& next = core.ghost(ghost).next_qpn;
  do {
    qpn = next;
    next = next.value == mask24 ? first : Qpn{next.value + 1};
  } while (core.table.find(ghost, qpn) != nullptr);
  return true;
}

Qp* Transport::create_qp(GhostId ghost, const QpAttr& attr, QpUser& user) {
  QpAttr created = attr;
  if (!state_->choose_qpn(ghost, created.qpn)) {
    return nullptr;
  }
  const Nic& nic = state_->core.ghost(ghost).nic;
  auto* qp = new QueuePair(ghost, ++state_->core.ghost(ghost).qps_created, created, nic, user);
  qp->client = state_.get();
  if (const auto& limit = state_->core.config.rate_limit) {
    qp->limiter = std::make_unique<RateLimiter>(*limit, *qp, qp->statistics());
    qp->limiter->client = &state_->wakeups;
  }
  if (nic.nak_latency > Duration::zero()) {
    qp->nak_wakeup = std::make_unique<Wakeup>(*qp);
    qp->nak_wakeup->client = &state_->wakeups;
  }
  if (nic.adaptive) {
    qp->requester.adaptive.start(*nic.adaptive, created.qpn.value);
  }
  if (nic.selective()) {
    qp->responder.arrived.allocate(nic.out_of_order_packets);
  }
  state_->all.push_back(*qp);
  state_->core.table.insert(ghost, created.qpn, *qp);
  return qp;
}

bool Transport::trace_rate(Qp& qp, RateTrace* trace) noexcept {
  const QueuePair& pair = pair_of(qp);
  return pair.limiter != nullptr && pair.limiter->set_trace(trace);
}

void Transport::connect_qp(Qp& qp, const QpAttr& attr, bool ready_to_send_too) {
  QueuePair& pair = pair_of(qp);
  if (pair.state() != QpState::init) {
    return;
  }
  const QpAttr created = pair.attr();
  QpAttr& now_has = pair.attributes();
  now_has = attr;
  now_has.type = created.type;
  now_has.qpn = created.qpn;
  now_has.max_send_wr = created.max_send_wr;
  now_has.max_recv_wr = created.max_recv_wr;
  pair.mtu_shift = static_cast<std::uint8_t>(std::countr_zero(attr.path_mtu));
  pair.encapsulation = wire::Encapsulation{attr.path};

  ResponderState& responder = pair.responder;
  responder.expected = attr.rq_psn;
  responder.reads = std::make_unique<ReadAtomic[]>(attr.max_dest_rd_atomic);
  RequesterState& requester = pair.requester;
  requester.unacknowledged = requester.next = requester.sent = requester.unposted = attr.sq_psn;
  requester.retries_left = attr.retry_cnt;
  requester.rnr_retries_left = attr.rnr_retry;
  if (pair.nic().selective()) {
    requester.selective.allocate(pair.window(), attr.sq_psn);
    requester.responses.allocate(pair.window(), attr.sq_psn);
    requester.executed = attr.sq_psn;
    responder.parts.allocate(read_parts_max);
  }
  pair.set_state(ready_to_send_too ? QpState::rts : QpState::rtr);
  if (state_->core.connection_observer != nullptr) {
    state_->core.connection_observer->on_connected(qp);
  }
}

void Transport::ready_to_send(Qp& qp) {
  if (qp.state() == QpState::rtr) {
    pair_of(qp).set_state(QpState::rts);
  }
}

void Transport::set_error(Qp& qp, WcStatus cause, Instant now) noexcept {
  QueuePair& pair = pair_of(qp);
  if (pair.responder.reads != nullptr) {
    pair.responder.cancel_replies(pair.attr().max_dest_rd_atomic);
  }
  state_->core.fail(pair, cause, now);
}

void Transport::destroy_qp(Qp& qp) noexcept {
  QueuePair& pair = pair_of(qp);
  if (pair.destroyed) {
    return;
  }
  pair.destroyed = true;
  if (state_->core.connection_observer != nullptr) {
    state_->core.connection_observer->on_destroyed(qp);
  }
  pair.set_state(QpState::reset);
  state_->core.table.remove(pair.ghost(), pair.qpn());
  state_->cancel_timers(pair);
  TurnLink& link = pair;
  link.unlink();
  state_->destroyed.push_back(link);
}

void Transport::State::release(QueuePair& qp) noexcept {
  cancel_timers(qp);
  static_cast<TurnLink&>(qp).unlink();
  static_cast<QpLink&>(qp).unlink();
  core.forget_kept(qp);
  delete &qp;
}

Qp* Transport::find_qp(GhostId ghost, Qpn qpn) noexcept { return state_->core.table.find(ghost, qpn); }
std::size_t Transport::qp_count() const noexcept { return state_->core.table.size(); }

Qp* Transport::first_qp() noexcept {
  QpLink* link = state_->all.front();
  if (link == nullptr) {
    return nullptr;
  }
  auto& qp = static_cast<QueuePair&>(*link);
  return qp.destroyed ? next_qp(qp) : &qp;
}

Qp* Transport::next_qp(Qp& qp) noexcept {
  QpLink* link = &pair_of(qp);
  do {
    link = state_->all.after(*link);
  } while (link != nullptr && static_cast<QueuePair&>(*link).destroyed);
  return link == nullptr ? nullptr : &static_cast<QueuePair&>(*link);
}

// ---- data path

bool Transport::post_send(Qp& qp, const SendWr& wr, Instant /*now*/) noexcept {
  QueuePair& pair = pair_of(qp);
  if (pair.state() != QpState::rts || pair.requester.wqes.full()) {
    return false;
  }
  if (pair.attr().type == QpType::ud) {
    state_->datagram.post(pair, wr);
  } else {
    state_->requester.post(pair, wr);
  }
  return true;
}

bool Transport::post_recv(Qp& qp, const RecvWr& wr) noexcept {
  QueuePair& pair = pair_of(qp);
  const bool open = pair.state() == QpState::init || may_receive(pair.state());
  if (!open || pair.responder.receives.full()) {
    return false;
  }
  pair.responder.receives.push(wr);
  return true;
}

Drop Transport::receive(Frame& frame, GhostId ghost, Instant now) noexcept {
  state_->core.counters.count(Counter::rx_roce_packets);
  const Drop drop = state_->dispatch(frame, ghost, now);
  state_->core.counters.count(drop);
  if (!frame.linked()) {  // kept for its turn otherwise
    state_->core.pool.free(frame);
  }
  return drop;
}

Drop Transport::State::dispatch(Frame& frame, GhostId ghost, Instant now) noexcept {
  if (frame.parsed.dest_qpn == gsi_qpn) {
    return datagram.receive_mad(ghost, frame, now);
  }
  QueuePair* qp = core.table.find(ghost, frame.parsed.dest_qpn);
  if (qp == nullptr) {
    return Drop::qp_unknown;
  }
  adopt_peer(*qp, frame.parsed);
  const Drop unfit = admit(*qp, frame);
  if (unfit != Drop::none) {
    return unfit;
  }
  const wire::OpcodeTraits& op = frame.parsed.op();
  if (op.operation == wire::Operation::congestion_notification) {
    on_cnp(*qp, now);
    return Drop::none;
  }
  if ((frame.parsed.traffic_class & wire::ecn::mask) == wire::ecn::ce) {
    core.counters.count(Counter::np_ecn_marked_roce_packets);
    ++qp->statistics().ecn_ce_rx;
    send_cnp(*qp, frame, now);
  }
  if (qp->attr().type == QpType::ud) {
    return datagram.receive(*qp, frame, now);
  }
  switch (op.operation) {
    case wire::Operation::acknowledge:
    case wire::Operation::atomic_acknowledge:
    case wire::Operation::rdma_read_response:
      return requester.receive(*qp, frame, now);
    case wire::Operation::unknown:
    case wire::Operation::send:
    case wire::Operation::rdma_write:
    case wire::Operation::rdma_read_request:
    case wire::Operation::compare_swap:
    case wire::Operation::fetch_add:
    case wire::Operation::congestion_notification:
      return receive_request(*qp, frame, now);
  }
  return Drop::none;
}

// Some NICs take a gap for congestion, too.
Drop Transport::State::receive_request(QueuePair& qp, Frame& frame, Instant now) noexcept {
  const bool opens_gap = qp.reliable() && !qp.responder.gap && frame.parsed.psn.after(qp.responder.expected);
  if (opens_gap && qp.nic().cnp_on_nak) {
    send_cnp(qp, frame, now);
  }
  return responder.receive(qp, frame, now);
}

// A queue pair of attr.adopt_peer becomes what its first packet is, and learns the path MTU (256 to 4096) from its
// payload.
void Transport::State::adopt_peer(QueuePair& qp, const wire::Parsed& packet) noexcept {
  QpAttr& attr = qp.attributes();
  if (!attr.adopt_peer) {
    return;
  }
  for (const QpType type : {QpType::rc, QpType::uc, QpType::ud}) {
    if (wire::transport_of(packet.opcode) == wire_transport(type)) {
      attr.type = type;
      attr.adopt_peer = false;
    }
  }
  const std::uint32_t payload = std::bit_ceil(std::uint32_t{packet.payload_size});
  const bool fills_a_packet = packet.op().position == wire::Position::first;
  if ((fills_a_packet || payload > attr.path_mtu) && payload >= 256 && payload <= 4096) {
    attr.path_mtu = payload;
    qp.mtu_shift = static_cast<std::uint8_t>(std::countr_zero(payload));
  }
}

// Packet header validation, 9.6.1: queue pair, transport, P_Key, and the addresses of a connection.
Drop Transport::State::admit(const QueuePair& qp, const Frame& frame) const noexcept {
  if (!may_receive(qp.state())) {
    return Drop::qp_state;
  }
  const wire::Transport transport = wire::transport_of(frame.parsed.opcode);
  if (transport != wire::Transport::cnp && transport != wire_transport(qp.attr().type)) {
    return Drop::qp_transport_mismatch;
  }
  if (!pkeys_match(frame.parsed.pkey, qp.attr().pkey)) {
    return Drop::pkey_mismatch;
  }
  const bool connected = qp.attr().type != QpType::ud;
  if (connected && wire::source_ip(frame.bytes(), frame.parsed) != qp.attr().path.destination_ip) {
    return Drop::qp_peer_mismatch;
  }
  return Drop::none;
}

Instant& Transport::State::next_cnp(QueuePair& qp, const IpAddress& peer) noexcept {
  const cc::CnpScope scope = qp.nic().cnp_scope.value_or(core.config.cnp_scope);
  if (scope == cc::CnpScope::qp) {
    return qp.next_cnp;
  }
  const std::size_t key = scope == cc::CnpScope::ip ? hash_value(peer) : 0;
  return shared_next_cnp[(key + index(qp.ghost())) % shared_next_cnp.size()];
}

// The notification point of A17.9: one CNP per interval.
void Transport::State::send_cnp(QueuePair& qp, const Frame& frame, Instant now) noexcept {
  Instant& next = next_cnp(qp, wire::source_ip(frame.bytes(), frame.parsed));
  if (!qp.nic().send_cnp.value_or(core.config.send_cnp) || now < next) {
    return;
  }
  const bool datagram_from = qp.attr().type == QpType::ud;
  wire::Path path = datagram_from ? reply_path(frame) : qp.attr().path;
  path.traffic_class = core.config.cnp_traffic_class;
  Qpn to = qp.attr().dest_qpn;
  if (datagram_from) {
    to = Qpn{wire::extension<wire::Deth>(frame.bytes(), frame.parsed, wire::ext::deth).source_qp.value()};
  }
  const wire::Encapsulation encapsulation{path};
  const wire::BthFields bth{.opcode = wire::Opcode::cnp, .dest_qpn = to, .pkey = qp.attr().pkey, .becn = true};
  Packet cnp{core, qp.ghost(), encapsulation, bth, 0};
  if (!cnp) {
    return;
  }
  std::fill(cnp.payload().begin(), cnp.payload().end(), std::byte{0});
  cnp.send(now);
  next = now + qp.nic().cnp_interval.value_or(core.config.cnp_interval);
  ++qp.statistics().cnp_tx;
  core.counters.count(Counter::np_cnp_sent);
}

void Transport::State::on_cnp(QueuePair& qp, Instant now) noexcept {
  ++qp.statistics().cnp_rx;
  core.counters.count(Counter::rp_cnp_handled);
  if (qp.limiter != nullptr) {
    qp.limiter->on_cnp(now);
  }
}

bool Transport::send_mad(GhostId ghost, const wire::Path& path, ConstBytes mad, Instant now) noexcept {
  return state_->datagram.send_mad(ghost, path, mad, now);
}

bool Transport::progress(Instant now) noexcept {
  State& state = *state_;
  while (TurnLink* link = state.destroyed.pop_front()) {
    state.release(static_cast<QueuePair&>(*link));
  }
  for (std::size_t turns = bursts_per_call; turns != 0; --turns) {
    TurnLink* link = state.core.turns.pop_front();
    if (link == nullptr) {
      return false;
    }
    auto& qp = static_cast<QueuePair&>(*link);
    if (state.take_turn(qp, now)) {
      state.core.activate(qp);
    }
  }
  return !state.core.turns.empty();
}

// Replies go first: the peer waits for them.
bool Transport::State::take_turn(QueuePair& qp, Instant now) noexcept {
  if (qp.destroyed) {
    return false;
  }
  bool more = qp.reliable() && responder.respond(qp, now);
  if (qp.state() == QpState::rts) {
    const bool sends_more = qp.attr().type == QpType::ud ? datagram.transmit(qp, now) : requester.transmit(qp, now);
    more = more || sends_more;
  }
  return more;
}

}  // namespace nbx::rdma
