// The state machine of IBTA 12.9. Messages of ours above a line, the peer's below; (t) the response timer.
//
//   active   req_sent ---------RTU--------> established --DREQ--> dreq_sent ----------> timewait --(t)--> idle
//                |      REP                      |                    |     DREP or DREQ   ^
//                | MRA -> mra_req_rcvd           '------- DREP -------|--------------------|
//                |                                        DREQ        |                    |
//   passive  req_rcvd --REP--> rep_sent -----------> established      '--(t) retries gone--'
//                | MRA            |      RTU, data
//                '-> mra_req_sent '-> mra_rep_rcvd
//                                 MRA
//   REJ, or a timer whose retries are gone, ends any of them: in timewait when a queue pair was connected, else at
//   once.
//
// Invariant: every connection but an established one has an armed timer, so each ends without the peer's help.
#include "rdma/cm.hpp"

#include <algorithm>
#include <unordered_map>

#include "rdma/cm_messages.hpp"
#include "rdma/cm_table.hpp"

namespace nbx::rdma {
namespace {

constexpr std::uint8_t mra_timeout_max = 21;  // code; the longest that a peer's MRA makes us wait is 9 s

struct Service {
  GhostId ghost;
  std::uint64_t id;
  friend bool operator==(const Service&, const Service&) = default;
};
struct ServiceHash {
  std::size_t operator()(const Service& s) const noexcept {
    return std::hash<std::uint64_t>{}((s.id ^ (std::uint64_t{index(s.ghost)} << 32U)) * 0x9e37'79b9'7f4a'7c15ULL);
  }
};

template <std::size_t Size>
void put(ConstBytes from, wire::PrivateData<Size>& to) {
  std::ranges::copy(from.first(std::min(from.size(), Size)), to.begin());
}

std::uint32_t number(ConnectionId id) { return static_cast<std::uint32_t>(id); }

}  // namespace

class Cm::State final : public TimerClient {
 public:
  State(const CmConfig& config, Transport& transport, Wheel& wheel, Counters& counters, Rng rng)
      : config_(config),
        transport_(transport),
        wheel_(wheel),
        counters_(counters),
        rng_(rng),
        transaction_base_(rng_.next() << 32U),
        table_(config.connections_max, rng_) {}
  ~State() {
    table_.for_each([this](Connection& c) { wheel_.cancel(c); });
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  State(State&&) = delete;
  State& operator=(State&&) = delete;

  bool listen(GhostId ghost, std::uint64_t service_id, CmUser& user) {
    return listeners_.try_emplace({ghost, service_id}, &user).second;
  }
  void unlisten(GhostId ghost, std::uint64_t service_id) { listeners_.erase({ghost, service_id}); }
  [[nodiscard]] std::size_t connections() const noexcept { return table_.size(); }

  bool accept(ConnectionId id, Qp& qp, const AcceptParam& param, Instant now) noexcept;
  void reject(ConnectionId id, wire::RejReason reason, ConstBytes private_data, Instant now) noexcept;
  void delay_answer(ConnectionId id, std::uint8_t service_timeout, Instant now) noexcept;
  ConnectionId connect(GhostId ghost, Qp& qp, const ConnectParam& param, CmUser& user, Instant now) noexcept;
  void disconnect(ConnectionId id, Instant now) noexcept;
  void communication_established(Qp& qp, Instant now) noexcept;

  void receive(GhostId ghost, ConstBytes mad, const wire::Path& reply_path, Instant now) noexcept;
  void on_timer(TimerNode& node, Instant now) noexcept override;

 private:
  /// Who sent a message, to whom, when.
  struct Source {
    GhostId ghost;
    const wire::Path& path;
    Instant now;
  };

  void on_message(const wire::CmReq& req, const Source& from) noexcept;
  void on_message(const wire::CmMra& mra, const Source& from) noexcept;
  void on_message(const wire::CmRej& rej, const Source& from) noexcept;
  void on_message(const wire::CmRep& rep, const Source& from) noexcept;
  void on_message(const wire::CmRtu& rtu, const Source& from) noexcept;
  void on_message(const wire::CmDreq& dreq, const Source& from) noexcept;
  void on_message(const wire::CmDrep& drep, const Source& from) noexcept;
  void on_message(const wire::CmSidrReq& req, const Source& from) noexcept;

  bool is_duplicate(const wire::CmReq& req, const Source& from) noexcept;
  void duplicate_req(Connection& c, const wire::CmReq& req, const Source& from) noexcept;
  void open_passive(const wire::CmReq& req, CmUser& user, const Source& from) noexcept;
  void establish_active(Connection& c, const wire::CmRep& rep, Qp& qp, Instant now) noexcept;
  void establish_passive(Connection& c, ConstBytes private_data, Instant now) noexcept;
  void start_disconnect(Connection& c, DisconnectCause cause, Instant now) noexcept;
  void forgotten_by_peer(Connection& c, Instant now) noexcept;
  void give_up(Connection& c, Instant now) noexcept;
  void end(Connection& c, DisconnectCause cause, std::uint16_t reason, Instant now) noexcept;
  void end(Connection& c, DisconnectCause cause, Instant now) noexcept { end(c, cause, 0, now); }

  [[nodiscard]] Connection* find_own(std::uint32_t own_id, const Source& from) noexcept;
  template <class Message>
  [[nodiscard]] Connection* find(const Message& message, const Source& from) noexcept;

  template <class Message>
  void send(const Message& message, const Source& to) noexcept;
  template <class Message>
  void send(Connection& c, Message message, Instant now) noexcept;
  void send_again(const Connection& c, const Source& to) noexcept;
  void send_rej(Connection& c, wire::CmAnswered rejected, wire::RejReason reason, ConstBytes private_data,
                Instant now) noexcept;
  void send_timeout_rej(Connection& c, Instant now) noexcept;
  void refuse(const wire::CmReq& req, const Refusal& refusal, const Source& to) noexcept;
  void refuse(const wire::CmReq& req, wire::RejReason reason, const Source& to) noexcept {
    refuse(req, Refusal{.reason = reason}, to);
  }

  void arm(Connection& c, Duration wait, Instant now) noexcept { wheel_.arm(c, now + wait); }
  /// The state of a message that is sent again until it is answered.
  void await_answer(Connection& c, CmState state, Instant now) noexcept;
  void seen_before() noexcept { counters_.count(Counter::cm_duplicates); }
  void unexpected() noexcept { counters_.count(Drop::mad_unexpected); }

  CmConfig config_;
  Transport& transport_;
  Wheel& wheel_;
  Counters& counters_;
  Rng rng_;
  std::uint64_t transaction_base_;
  ConnectionTable table_;
  std::unordered_map<Service, CmUser*, ServiceHash> listeners_;
};

// Sending.

template <class Message>
void Cm::State::send(const Message& message, const Source& to) noexcept {
  std::array<std::byte, wire::mad_size> mad{};
  wire::encode(message, mad);
  transport_.send_mad(to.ghost, to.path, mad, to.now);
}

/// Fills in who we are; the message is kept to be sent again.
template <class Message>
void Cm::State::send(Connection& c, Message message, Instant now) noexcept {
  message.transaction_id = c.transaction_id;
  message.local_comm_id = number(c.id);
  if constexpr (requires { message.remote_comm_id; }) {
    message.remote_comm_id = c.remote_id;
  }
  wire::encode(message, c.sent);
  transport_.send_mad(c.ghost, c.mad_path, c.sent, now);
}

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

// Receiving.

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

// What users ask for.

bool Cm::State::accept(ConnectionId id, Qp& qp, const AcceptParam& param, Instant now) noexcept {
  Connection* c = table_.by_id(id);
  if (c == nullptr || (c->state != CmState::req_rcvd && c->state != CmState::mra_req_sent) || qp.ghost() != c->ghost ||
      qp.attr().type != c->terms.type || param.private_data.size() > wire::CmRep{}.private_data.size()) {
    return false;
  }
  c->terms.local_qpn = qp.qpn();
  c->terms.end_to_end_credits = qp.attr().end_to_end_credits;
  c->terms.local_psn = param.starting_psn.value_or(Psn{static_cast<std::uint32_t>(rng_.next()) & mask24});
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
