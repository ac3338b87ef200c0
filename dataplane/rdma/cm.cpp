// What users ask of the connection manager, what it says itself, and what time does to a connection.
#include "rdma/cm_state.hpp"

namespace nbx::rdma {

// What users ask for.

bool Cm::State::accept(ConnectionId id, Qp& qp, const AcceptParam& param, Instant now) noexcept {
  Connection* c = table_.by_id(id);
  if (c == nullptr || (c->state != CmState::req_rcvd && c->state != CmState::mra_req_sent) || qp.ghost() != c->ghost ||
      qp.attr().type != c->terms.type || param.private_data.size() > wire::CmRep{}.private_data.size()) {
    return false;
  }
  c->terms.local_qpn = qp.qpn();
  c->terms.end_to_end_credits = qp.attr().end_to_end_credits;
  c->terms.rq_psn = param.starting_psn.value_or(Psn{static_cast<std::uint32_t>(rng_.next()) & mask24});
  c->terms.responder_resources = std::min(c->terms.responder_resources, param.responder_resources);
  c->terms.initiator_depth = std::min(c->terms.initiator_depth, param.initiator_depth);
  table_.by_local_qpn.insert(c->by_local_qpn, {c->ghost, {}, qp.qpn().value});
  transport_.connect_qp(qp, connected_attr(qp.attr(), c->terms), false);
  send(*c, make_rep(c->terms, param), now);
  await_answer(*c, CmState::rep_sent, now);
  return true;
}

void Cm::State::reject(ConnectionId id, wire::RejReason reason, ConstBytes private_data, Instant now) noexcept {
  Connection* c = table_.by_id(id);
  if (c == nullptr || (c->state != CmState::req_rcvd && c->state != CmState::mra_req_sent)) {
    return;
  }
  send_rej(*c, wire::CmAnswered::req, reason, private_data, now);
  wheel_.cancel(*c);
  table_.release(*c);
}

void Cm::State::delay_answer(ConnectionId id, std::uint8_t service_timeout, Instant now) noexcept {
  Connection* c = table_.by_id(id);
  if (c == nullptr || c->state != CmState::req_rcvd) {
    return;
  }
  wire::CmMra mra;
  mra.answered = wire::CmAnswered::req;
  mra.service_timeout = std::min(service_timeout, mra_timeout_max);
  send(*c, mra, now);
  c->state = CmState::mra_req_sent;
  wheel_.arm(*c, c->due + response_time(mra.service_timeout));
}

ConnectionId Cm::State::connect(GhostId ghost, Qp& qp, const ConnectParam& param, CmUser& user, Instant now) noexcept {
  if (param.private_data.size() > req_private_data_max(param.service_id) || qp.attr().type == QpType::ud) {
    return ConnectionId::none;
  }
  Connection* c = table_.acquire();
  if (c == nullptr) {
    return ConnectionId::none;
  }
  c->client = this;
  c->active = true;
  c->ghost = ghost;
  c->user = &user;
  c->transaction_id = transaction_base_ | number(c->id);
  c->response_timeout = response_time(config_.response_timeout);
  c->max_retries = config_.max_retries;
  c->mad_path = param.path;
  c->terms = terms_of(param, qp.attr(), Psn{static_cast<std::uint32_t>(rng_.next()) & mask24});
  send(*c, make_req(param, c->terms, config_), now);
  await_answer(*c, CmState::req_sent, now);
  return c->id;
}

void Cm::State::disconnect(ConnectionId id, Instant now) noexcept {
  Connection* c = table_.by_id(id);
  if (c == nullptr) {
    return;
  }
  switch (c->state) {
    case CmState::req_sent:
    case CmState::mra_req_rcvd:  // as Linux leaves a connection that was not answered
      send_timeout_rej(*c, now);
      return end(*c, DisconnectCause::local, now);
    case CmState::req_rcvd:
    case CmState::mra_req_sent:
      send_rej(*c, wire::CmAnswered::req, wire::RejReason::consumer_reject, {}, now);
      return end(*c, DisconnectCause::local, now);
    case CmState::rep_sent:
    case CmState::mra_rep_rcvd:
    case CmState::established:
      return start_disconnect(*c, DisconnectCause::local, now);
    case CmState::idle:
    case CmState::dreq_sent:
    case CmState::timewait:
      return;
  }
}

void Cm::State::communication_established(Qp& qp, Instant now) noexcept {
  Connection* c = table_.by_local_qpn.find({qp.ghost(), {}, qp.qpn().value});
  if (c != nullptr && (c->state == CmState::rep_sent || c->state == CmState::mra_rep_rcvd)) {
    establish_passive(*c, {}, now);
  }
}

// Time and the end.

void Cm::State::await_answer(Connection& c, CmState state, Instant now) noexcept {
  c.state = state;
  c.retries_left = c.max_retries;
  arm(c, c.response_timeout, now);
}

void Cm::State::start_disconnect(Connection& c, DisconnectCause cause, Instant now) noexcept {
  c.cause = cause;
  table_.by_remote_qpn.erase(c.by_remote_qpn);  // the peer may connect it again as soon as it has the DREQ
  c.transaction_id = transaction_base_ | number(c.id);
  send(c, wire::CmDreq{.remote_qpn = c.terms.remote_qpn}, now);
  await_answer(c, CmState::dreq_sent, now);
}

/// The peer uses an id or a queue pair of this connection for another one.
void Cm::State::forgotten_by_peer(Connection& c, Instant now) noexcept {
  switch (c.state) {
    case CmState::req_rcvd:
    case CmState::mra_req_sent:
      return end(c, DisconnectCause::remote, now);
    case CmState::rep_sent:
    case CmState::mra_rep_rcvd:
    case CmState::established:
      return start_disconnect(c, DisconnectCause::remote, now);
    case CmState::idle:
    case CmState::req_sent:
    case CmState::mra_req_rcvd:
    case CmState::dreq_sent:
    case CmState::timewait:
      return;
  }
}

void Cm::State::on_timer(TimerNode& node, Instant now) noexcept {
  auto& c = static_cast<Connection&>(node);
  switch (c.state) {
    case CmState::req_sent:
    case CmState::mra_req_rcvd:
    case CmState::rep_sent:
    case CmState::mra_rep_rcvd:
    case CmState::dreq_sent:
      if (c.retries_left == 0) {
        return give_up(c, now);
      }
      --c.retries_left;
      send_again(c, {c.ghost, c.mad_path, now});
      return arm(c, c.response_timeout, now);
    case CmState::req_rcvd:  // the user has not answered
    case CmState::mra_req_sent:
      return give_up(c, now);
    case CmState::timewait:
      return table_.release(c);
    case CmState::idle:
    case CmState::established:
      return;  // unarmed
  }
}

void Cm::State::give_up(Connection& c, Instant now) noexcept {
  counters_.count(Counter::cm_timeouts);
  if (c.state != CmState::dreq_sent) {
    send_timeout_rej(c, now);
  }
  end(c, DisconnectCause::timed_out, now);
}

void Cm::State::end(Connection& c, DisconnectCause cause, std::uint16_t reason, Instant now) noexcept {
  const ConnectionId id = c.id;
  CmUser& user = *c.user;
  if (c.by_local_qpn.linked) {
    // 12.9.8.1: as long as packets of the connection may be on their way.
    arm(c, response_time(c.terms.local_ack_timeout), now);
    c.state = CmState::timewait;
    c.user = nullptr;
    table_.by_remote_qpn.erase(c.by_remote_qpn);
    table_.by_local_qpn.erase(c.by_local_qpn);
    counters_.count(Counter::cm_disconnected);
  } else {
    wheel_.cancel(c);
    table_.release(c);
  }
  user.on_disconnected(id, cause, reason, now);
}

// Messages.

void Cm::State::send_again(const Connection& c, const Source& to) noexcept {
  counters_.count(Counter::cm_retransmissions);
  transport_.send_mad(to.ghost, to.path, c.sent, to.now);
}

void Cm::State::send_rej(Connection& c, wire::CmAnswered rejected, wire::RejReason reason, ConstBytes private_data,
                         Instant now) noexcept {
  wire::CmRej rej;
  rej.rejected = rejected;
  rej.reason = reason;
  put(private_data, rej.private_data);
  counters_.count(Counter::cm_rejects_sent);
  send(c, rej, now);
}

/// Table 102, reason 4: the additional information is the GUID of the CM that timed out.
void Cm::State::send_timeout_rej(Connection& c, Instant now) noexcept {
  wire::CmRej rej;
  rej.rejected = c.state == CmState::req_rcvd || c.state == CmState::mra_req_sent ? wire::CmAnswered::req
                                                                                  : wire::CmAnswered::other;
  rej.reason = wire::RejReason::timeout;
  Be64 guid{};
  guid = ca_guid(c.mad_path.source_mac);
  rej.info_size = sizeof(guid);
  put(std::as_bytes(std::span{guid.raw}), rej.additional_info);
  counters_.count(Counter::cm_rejects_sent);
  send(c, rej, now);
}

/// A refused REQ leaves no connection, and its REJ has no local communication id.
void Cm::State::refuse(const wire::CmReq& req, const Refusal& refusal, const Source& to) noexcept {
  wire::CmRej rej;
  rej.transaction_id = req.transaction_id;
  rej.remote_comm_id = req.local_comm_id;
  rej.rejected = wire::CmAnswered::req;
  rej.reason = refusal.reason;
  rej.info_size = refusal.info_size;
  put(refusal.info, rej.additional_info);
  counters_.count(Counter::cm_rejects_sent);
  send(rej, to);
}

Cm::Cm(const CmConfig& config, Transport& transport, Wheel& wheel, Counters& counters, Rng rng)
    : state_(std::make_unique<State>(config, transport, wheel, counters, rng)) {}
Cm::~Cm() = default;

bool Cm::listen(GhostId ghost, std::uint64_t service_id, CmUser& user) {
  return state_->listen(ghost, service_id, user);
}
void Cm::unlisten(GhostId ghost, std::uint64_t service_id) { state_->unlisten(ghost, service_id); }
bool Cm::accept(ConnectionId id, Qp& qp, const AcceptParam& param, Instant now) noexcept {
  return state_->accept(id, qp, param, now);
}
void Cm::reject(ConnectionId id, wire::RejReason reason, ConstBytes private_data, Instant now) noexcept {
  state_->reject(id, reason, private_data, now);
}
void Cm::delay_answer(ConnectionId id, std::uint8_t service_timeout, Instant now) noexcept {
  state_->delay_answer(id, service_timeout, now);
}
ConnectionId Cm::connect(GhostId ghost, Qp& qp, const ConnectParam& param, CmUser& user, Instant now) noexcept {
  return state_->connect(ghost, qp, param, user, now);
}
void Cm::disconnect(ConnectionId id, Instant now) noexcept { state_->disconnect(id, now); }
void Cm::communication_established(Qp& qp, Instant now) noexcept { state_->communication_established(qp, now); }
std::size_t Cm::connections() const noexcept { return state_->connections(); }
void Cm::on_mad(GhostId ghost, ConstBytes mad, const wire::Path& reply_path, Instant now) noexcept {
  state_->receive(ghost, mad, reply_path, now);
}

}  // namespace nbx::rdma
