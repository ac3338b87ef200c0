// What the peer's messages do to a connection (IBTA 12.9.5 to 12.9.8). A message that fits no connection, or not its
// state, is counted; only a DREQ is answered all the same.
#include "rdma/cm_state.hpp"

namespace nbx::rdma {

void Cm::State::receive(GhostId ghost, ConstBytes mad, const wire::Path& reply_path, Instant now) noexcept {
  const Source from{ghost, reply_path, now};
  const auto dispatch = [&](const auto& message) {
    if (message) {
      on_message(*message, from);
    } else {
      counters_.count(Drop::mad_malformed);
    }
  };
  const auto header = wire::decode_cm_header(mad);
  if (!header) {
    counters_.count(Drop::mad_malformed);
    return;
  }
  switch (header->attribute) {
    case wire::CmAttribute::req:
      return dispatch(wire::decode_req(mad));
    case wire::CmAttribute::mra:
      return dispatch(wire::decode_mra(mad));
    case wire::CmAttribute::rej:
      return dispatch(wire::decode_rej(mad));
    case wire::CmAttribute::rep:
      return dispatch(wire::decode_rep(mad));
    case wire::CmAttribute::rtu:
      return dispatch(wire::decode_rtu(mad));
    case wire::CmAttribute::dreq:
      return dispatch(wire::decode_dreq(mad));
    case wire::CmAttribute::drep:
      return dispatch(wire::decode_drep(mad));
    case wire::CmAttribute::sidr_req:
      return dispatch(wire::decode_sidr_req(mad));
    case wire::CmAttribute::sidr_rep:  // we never ask
    case wire::CmAttribute::lap:       // nor offer another path
    case wire::CmAttribute::apr:
      return unexpected();
  }
}

/// The connection that the peer means by `own_id`, if it is with that peer.
Connection* Cm::State::find_own(std::uint32_t own_id, const Source& from) noexcept {
  Connection* c = table_.by_id(ConnectionId{own_id});
  const bool known = c != nullptr && c->ghost == from.ghost && c->mad_path.destination_ip == from.path.destination_ip;
  return known ? c : nullptr;
}

/// As find_own(), and the peer's own id is right as well.
template <class Message>
Connection* Cm::State::find(const Message& message, const Source& from) noexcept {
  Connection* c = find_own(message.remote_comm_id, from);
  return c != nullptr && c->remote_id == message.local_comm_id ? c : nullptr;
}

void Cm::State::on_message(const wire::CmReq& req, const Source& from) noexcept {
  if (is_duplicate(req, from)) {
    return;
  }
  counters_.count(Counter::cm_requests);
  // 12.9.8.3.1: the peer has a new connection for a queue pair that we think is connected.
  if (Connection* stale = table_.by_remote_qpn.find({from.ghost, from.path.destination_ip, req.local_qpn.value})) {
    refuse(req, wire::RejReason::stale_connection, from);
    return forgotten_by_peer(*stale, from.now);
  }
  const auto listener = listeners_.find({from.ghost, req.service_id});
  if (listener == listeners_.end()) {
    return refuse(req, wire::RejReason::invalid_service_id, from);
  }
  if (const auto refusal = check_req(req, from.path)) {
    return refuse(req, *refusal, from);
  }
  open_passive(req, *listener->second, from);
}

bool Cm::State::is_duplicate(const wire::CmReq& req, const Source& from) noexcept {
  Connection* c = table_.by_remote_id.find({from.ghost, from.path.destination_ip, req.local_comm_id});
  if (c == nullptr) {
    return false;
  }
  if (c->terms.remote_qpn == req.local_qpn) {
    duplicate_req(*c, req, from);
  } else {
    refuse(req, wire::RejReason::duplicate_local_comm_id, from);
    forgotten_by_peer(*c, from.now);
  }
  return true;
}

void Cm::State::duplicate_req(Connection& c, const wire::CmReq& req, const Source& from) noexcept {
  seen_before();
  switch (c.state) {
    case CmState::mra_req_sent:
    case CmState::rep_sent:
      return send_again(c, from);
    case CmState::timewait:
      return refuse(req, wire::RejReason::stale_connection, from);
    case CmState::idle:
    case CmState::req_sent:
    case CmState::mra_req_rcvd:
    case CmState::req_rcvd:
    case CmState::mra_rep_rcvd:
    case CmState::established:
    case CmState::dreq_sent:
      return;
  }
}

void Cm::State::open_passive(const wire::CmReq& req, CmUser& user, const Source& from) noexcept {
  Connection* c = table_.acquire();
  if (c == nullptr) {
    return refuse(req, wire::RejReason::no_resources, from);
  }
  c->client = this;
  c->state = CmState::req_rcvd;
  c->active = false;
  c->ghost = from.ghost;
  c->user = &user;
  c->remote_id = req.local_comm_id;
  c->transaction_id = req.transaction_id;
  c->response_timeout = response_time(req.local_cm_response_timeout);
  c->max_retries = req.max_cm_retries;
  c->mad_path = from.path;
  c->terms = terms_of(req, from.path);
  table_.by_remote_id.insert(c->by_remote_id, {from.ghost, from.path.destination_ip, req.local_comm_id});
  table_.by_remote_qpn.insert(c->by_remote_qpn, {from.ghost, from.path.destination_ip, req.local_qpn.value});
  // By then the peer has stopped asking.
  arm(*c, response_time(req.remote_cm_response_timeout) * (req.max_cm_retries + 1), from.now);
  user.on_request(c->id, describe(req, from.ghost, c->terms), from.now);
}

void Cm::State::on_message(const wire::CmMra& mra, const Source& from) noexcept {
  Connection* c = find_own(mra.remote_comm_id, from);
  if (c != nullptr && c->state == CmState::req_sent && mra.answered == wire::CmAnswered::req) {
    c->state = CmState::mra_req_rcvd;
  } else if (c != nullptr && c->state == CmState::rep_sent && mra.answered == wire::CmAnswered::rep) {
    c->state = CmState::mra_rep_rcvd;
  } else if (c != nullptr && (c->state == CmState::mra_req_rcvd || c->state == CmState::mra_rep_rcvd)) {
    return seen_before();  // one MRA counts: a peer cannot delay for ever
  } else {
    return unexpected();
  }
  arm(*c, response_time(std::min(mra.service_timeout, mra_timeout_max)) + c->response_timeout, from.now);
}

void Cm::State::on_message(const wire::CmRej& rej, const Source& from) noexcept {
  // A peer that has not seen our id names the connection by its own (12.9.8.4).
  Connection* c = rej.remote_comm_id != 0
                      ? find_own(rej.remote_comm_id, from)
                      : table_.by_remote_id.find({from.ghost, from.path.destination_ip, rej.local_comm_id});
  if (c == nullptr || (c->remote_id != rej.local_comm_id && c->remote_id != 0 && rej.local_comm_id != 0)) {
    return unexpected();
  }
  if (c->state == CmState::timewait) {
    return seen_before();
  }
  if (c->state == CmState::dreq_sent) {
    return end(*c, c->cause, from.now);
  }
  end(*c, DisconnectCause::rejected, static_cast<std::uint16_t>(rej.reason), from.now);
}

void Cm::State::on_message(const wire::CmRep& rep, const Source& from) noexcept {
  Connection* c = find_own(rep.remote_comm_id, from);
  if (c == nullptr || !c->active) {
    return unexpected();
  }
  if (c->state != CmState::req_sent && c->state != CmState::mra_req_rcvd) {
    if (c->remote_id != rep.local_comm_id) {
      return unexpected();
    }
    seen_before();
    if (c->state == CmState::established) {
      send_again(*c, from);  // the RTU was lost
    }
    return;
  }
  if (rep.local_qpn <= gsi_qpn) {
    counters_.count(Drop::mad_malformed);
    return;
  }
  c->remote_id = rep.local_comm_id;
  if (Connection* stale = table_.by_remote_qpn.find({c->ghost, from.path.destination_ip, rep.local_qpn.value})) {
    constexpr auto reason = wire::RejReason::stale_connection;
    send_rej(*c, wire::CmAnswered::rep, reason, {}, from.now);
    end(*c, DisconnectCause::rejected, static_cast<std::uint16_t>(reason), from.now);
    return forgotten_by_peer(*stale, from.now);  // whatever the user has done to it: records never move
  }
  Qp* qp = transport_.find_qp(c->ghost, c->terms.local_qpn);
  if (qp == nullptr) {  // its user destroyed it meanwhile
    send_rej(*c, wire::CmAnswered::rep, wire::RejReason::consumer_reject, {}, from.now);
    return end(*c, DisconnectCause::local, from.now);
  }
  establish_active(*c, rep, *qp, from.now);
}

void Cm::State::establish_active(Connection& c, const wire::CmRep& rep, Qp& qp, Instant now) noexcept {
  wheel_.cancel(c);
  settle(c.terms, rep);
  table_.by_remote_id.insert(c.by_remote_id, {c.ghost, c.mad_path.destination_ip, c.remote_id});
  table_.by_remote_qpn.insert(c.by_remote_qpn, {c.ghost, c.mad_path.destination_ip, rep.local_qpn.value});
  table_.by_local_qpn.insert(c.by_local_qpn, {c.ghost, {}, c.terms.local_qpn.value});
  transport_.connect_qp(qp, connected_attr(qp.attr(), c.terms));
  send(c, wire::CmRtu{}, now);
  c.state = CmState::established;
  counters_.count(Counter::cm_established);
  c.user->on_established(c.id, rep.private_data, now);
}

void Cm::State::on_message(const wire::CmRtu& rtu, const Source& from) noexcept {
  Connection* c = find(rtu, from);
  if (c == nullptr || c->active) {
    return unexpected();
  }
  if (c->state == CmState::rep_sent || c->state == CmState::mra_rep_rcvd) {
    return establish_passive(*c, rtu.private_data, from.now);
  }
  seen_before();
}

void Cm::State::establish_passive(Connection& c, ConstBytes private_data, Instant now) noexcept {
  wheel_.cancel(c);
  Qp* qp = transport_.find_qp(c.ghost, c.terms.local_qpn);
  if (qp == nullptr) {  // its user destroyed it meanwhile
    return start_disconnect(c, DisconnectCause::local, now);
  }
  transport_.ready_to_send(*qp);
  c.state = CmState::established;
  counters_.count(Counter::cm_established);
  c.user->on_established(c.id, private_data, now);
}

void Cm::State::on_message(const wire::CmDreq& dreq, const Source& from) noexcept {
  wire::CmDrep drep;
  drep.transaction_id = dreq.transaction_id;
  drep.local_comm_id = dreq.remote_comm_id;
  drep.remote_comm_id = dreq.local_comm_id;
  Connection* c = find(dreq, from);
  if (c == nullptr) {  // gone already: the peer missed our DREP
    seen_before();
    return send(drep, from);
  }
  if (c->terms.local_qpn != dreq.remote_qpn) {
    return unexpected();
  }
  switch (c->state) {
    case CmState::timewait:
      seen_before();
      return send(drep, from);
    case CmState::dreq_sent:
      send(drep, from);
      return end(*c, c->cause, from.now);
    case CmState::rep_sent:  // its RTU was lost
    case CmState::mra_rep_rcvd:
    case CmState::established:
      send(drep, from);
      return end(*c, DisconnectCause::remote, from.now);
    case CmState::idle:
    case CmState::req_sent:
    case CmState::mra_req_rcvd:
    case CmState::req_rcvd:
    case CmState::mra_req_sent:
      return unexpected();
  }
}

void Cm::State::on_message(const wire::CmDrep& drep, const Source& from) noexcept {
  Connection* c = find(drep, from);
  if (c != nullptr && c->state == CmState::dreq_sent) {
    return end(*c, c->cause, from.now);
  }
  if (c != nullptr && c->state == CmState::timewait) {
    return seen_before();
  }
  unexpected();
}

/// Answered from the user's mouth each time, so nothing is kept (12.11).
void Cm::State::on_message(const wire::CmSidrReq& req, const Source& from) noexcept {
  wire::CmSidrRep rep;
  rep.transaction_id = req.transaction_id;
  rep.request_id = req.request_id;
  rep.service_id = req.service_id;
  const auto listener = listeners_.find({from.ghost, req.service_id});
  if (listener == listeners_.end()) {
    rep.status = wire::SidrStatus::service_id_unsupported;
    return send(rep, from);
  }
  const auto answer = listener->second->on_sidr(from.ghost, req.service_id, from.path, from.now);
  rep.status = answer.qpn.value == 0 ? wire::SidrStatus::rejected_by_service : wire::SidrStatus::valid;
  rep.qpn = answer.qpn;
  rep.qkey = answer.qkey;
  send(rep, from);
}

}  // namespace nbx::rdma
