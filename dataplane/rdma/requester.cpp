// The send queue, as PSNs:
//
//      completed  | acknowledged .. outstanding ..... |  not sent   | not posted
//   --------------+---------------------+-------------+-------------+-----------
//        WQE tail ^ unacknowledged      ^ next        ^ sent        ^ unposted
//                                         (cursor: its WQE)
//
// next == sent, except while packets are sent again: go-back-N sets next back to unacknowledged, which may lie in the
// middle of a message; the opcode follows from the position. A READ takes the PSNs of its response packets, and is
// asked for again from the first one missing. Requests complete in order, so unacknowledged is always in WQE tail.
// Selective repeat sends single packets again, before `next` and without moving it, and asks for the missing parts of a
// READ alone; after a timeout it goes back as well, past what the peer has told to have.
#include "rdma/requester.hpp"

#include "rdma/codes.hpp"
#include "rdma/emit.hpp"

namespace nbx::rdma {

using Waiting = RequesterState::Waiting;

namespace {

constexpr std::uint8_t uc_opcode_bit = 0x20;

constexpr wire::Opcode by_position(wire::Position where, wire::Opcode first, wire::Opcode middle, wire::Opcode last,
                                   wire::Opcode only) {
  switch (where) {
    case wire::Position::first:
      return first;
    case wire::Position::middle:
      return middle;
    case wire::Position::last:
      return last;
    case wire::Position::only:
      return only;
  }
  return only;
}

constexpr wire::Opcode rc_opcode(WrOpcode opcode, wire::Position where) {
  using enum wire::Opcode;
  switch (opcode) {
    case WrOpcode::send:
      return by_position(where, rc_send_first, rc_send_middle, rc_send_last, rc_send_only);
    case WrOpcode::send_with_imm:
      return by_position(where, rc_send_first, rc_send_middle, rc_send_last_with_immediate,
                         rc_send_only_with_immediate);
    case WrOpcode::send_with_inv:
      return by_position(where, rc_send_first, rc_send_middle, rc_send_last_with_invalidate,
                         rc_send_only_with_invalidate);
    case WrOpcode::rdma_write:
      return by_position(where, rc_rdma_write_first, rc_rdma_write_middle, rc_rdma_write_last, rc_rdma_write_only);
    case WrOpcode::rdma_write_with_imm:
      return by_position(where, rc_rdma_write_first, rc_rdma_write_middle, rc_rdma_write_last_with_immediate,
                         rc_rdma_write_only_with_immediate);
    case WrOpcode::rdma_read:
      return rc_rdma_read_request;
    case WrOpcode::atomic_cmp_and_swp:
      return rc_compare_swap;
    case WrOpcode::atomic_fetch_and_add:
      return rc_fetch_add;
  }
  return rc_send_only;
}

// How many responses are missing from the one at `psn` on, without a gap.
std::uint32_t missing(const SelectiveRepeat& responses, Psn psn, Psn end) noexcept {
  std::uint32_t n = 1;
  while (psn.plus(n) != end && !responses.arrived(psn.plus(n))) {
    ++n;
  }
  return n;
}

void note_executed(RequesterState& state, Psn end) noexcept {
  state.executed = state.executed.before(end) ? end : state.executed;
}

// `length`: of what the request moves from `bytes_before` on.
void fill_headers(Packet& packet, const Wqe& wqe, std::uint8_t headers, std::uint32_t bytes_before,
                  std::uint32_t length) noexcept {
  if ((headers & wire::ext::reth) != 0) {
    auto& reth = packet.header<wire::Reth>();
    reth.virtual_address = wqe.remote_addr + bytes_before;
    reth.rkey = wqe.rkey;
    reth.dma_length = length;
  }
  if ((headers & wire::ext::atomiceth) != 0) {
    const bool swaps = wqe.opcode == WrOpcode::atomic_cmp_and_swp;
    auto& atomic = packet.header<wire::AtomicEth>();
    atomic.virtual_address = wqe.remote_addr;
    atomic.rkey = wqe.rkey;
    atomic.swap_or_add = swaps ? wqe.swap : wqe.compare_add;
    atomic.compare = swaps ? wqe.compare_add : 0;
  }
  if ((headers & wire::ext::immdt) != 0) {
    packet.header<wire::ImmDt>().data = wqe.imm_data;
  }
  if ((headers & wire::ext::ieth) != 0) {
    packet.header<wire::Ieth>().rkey = wqe.imm_data;
  }
}

}  // namespace

// ---- sending

// What is wrong with a request before it is sent. It fails when its turn to complete comes.
WcStatus Requester::check(QueuePair& qp, const SendWr& wr) noexcept {
  Wqe probe{};
  probe.opcode = wr.opcode;
  if (probe.reads() && (!qp.reliable() || qp.attr().max_rd_atomic == 0)) {
    return WcStatus::loc_qp_op_err;
  }
  if (wr.opcode == WrOpcode::send_with_inv && !qp.reliable()) {
    return WcStatus::loc_qp_op_err;
  }
  if (probe.atomic() ? wr.local.length != sizeof(std::uint64_t) : wr.local.length > message_size_max) {
    return WcStatus::loc_len_err;
  }
  const std::uint8_t needed = probe.reads() ? access::local_write : std::uint8_t{0};
  if (wr.local.length != 0 && core_.local_region(qp, wr.local, needed) == nullptr) {
    return WcStatus::loc_prot_err;
  }
  return WcStatus::success;
}

void Requester::post(QueuePair& qp, const SendWr& wr) noexcept {
  RequesterState& state = qp.requester;
  Wqe wqe{};
  wqe.wr_id = wr.wr_id;
  wqe.local = wr.local;
  wqe.remote_addr = wr.remote_addr;
  wqe.compare_add = wr.compare_add;
  wqe.swap = wr.swap;
  wqe.rkey = wr.rkey;
  wqe.imm_data = wr.imm_data;
  wqe.opcode = wr.opcode;
  wqe.status = check(qp, wr);
  wqe.signaled = wr.signaled;
  wqe.solicited = wr.solicited;
  wqe.fence = wr.fence;
  wqe.first = state.unposted;
  wqe.psns = wqe.atomic() ? 1 : qp.packets(wr.local.length);
  state.unposted = wqe.end();
  state.wqes.push(wqe);
  core_.activate(qp);
}

bool Requester::transmit(QueuePair& qp, Instant now) noexcept {
  RequesterState& state = qp.requester;
  std::size_t budget = core_.config.burst;
  while (qp.state() == QpState::rts) {
    if (const Again again = find_again(state); again.wqe != nullptr) {
      if (state.waiting == Waiting::pause || !core_.may_start(qp, now)) {
        return false;
      }
      if (budget-- == 0) {
        return true;
      }
      if (!send_packet(qp, *again.wqe, again.known, now)) {
        return again.wqe->status == WcStatus::success;
      }
      continue;
    }
    if (state.cursor == state.wqes.head()) {
      return false;
    }
    Wqe& wqe = state.wqes[state.cursor];
    const bool again = state.next.before(state.sent) && state.selective.in_use();
    if (again && !wqe.reads() && state.selective.arrived(state.next)) {  // a READ's responses may be what was lost
      pass(qp, wqe, now);
      continue;
    }
    if (wqe.status != WcStatus::success) {
      if (state.cursor == state.wqes.tail()) {
        fail_oldest(qp, wqe.status, now);
      }
      return false;
    }
    if (!may_send(qp, wqe) || !core_.may_start(qp, now)) {
      return false;
    }
    if (budget-- == 0) {
      return true;
    }
    if (!send_packet(qp, wqe, nullptr, now)) {
      return wqe.status == WcStatus::success || state.cursor == state.wqes.tail();
    }
  }
  return false;
}

// Why the next packet has to wait: for the end of a pause, for the window, for fenced or too many READs and
// atomics, for credits.
bool Requester::may_send(const QueuePair& qp, const Wqe& wqe) const noexcept {
  if (!qp.reliable()) {
    return true;
  }
  const RequesterState& state = qp.requester;
  if (state.waiting == Waiting::pause || state.in_flight >= qp.window()) {
    return false;
  }
  const std::uint32_t psns = wqe.opcode == WrOpcode::rdma_read ? offset(wqe.end(), state.next) : 1;
  if (offset(state.next, state.unacknowledged) + psns > psn_window) {
    return false;
  }
  if (wqe.fence && state.reads_in_flight != 0) {
    return false;
  }
  if (wqe.reads() && state.reads_in_flight >= qp.attr().max_rd_atomic) {
    return false;
  }
  return !(wqe.needs_receive() && beyond_credit(state) && state.in_flight != 0);
}

// 9.7.7.2: a request beyond the limit sequence number is limited: one packet at a time, to learn of new credits.
// Requests are numbered (SSN) from 1, as the peer's MSN counts them.
bool Requester::beyond_credit(const RequesterState& state) const noexcept {
  const Psn ssn{(state.cursor + 1) & mask24};
  return state.credit_limited && ssn.after(Psn{state.credit_limit});
}

// The next packet that is lost for certain, `known->lost` of the request in the answer: one of a request, or the first
// of a READ's responses that are missing.
Requester::Again Requester::find_again(RequesterState& state) noexcept {
  SelectiveRepeat& requests = state.selective;
  if (!requests.in_use()) {
    return {};
  }
  if (requests.lost.before(state.executed)) {
    requests.lost = state.executed;
  }
  for (SelectiveRepeat* known : {&requests, &state.responses}) {
    const bool of_requests = known == &requests;
    while (known->lost.before(known->lost_end)) {
      if (static_cast<std::int32_t>(known->request - state.wqes.tail()) < 0) {
        known->request = state.wqes.tail();
      }
      Wqe& wqe = state.wqes[known->request];
      if (offset(known->lost, wqe.first) >= wqe.psns) {
        ++known->request;
      } else if (!known->arrived(known->lost) &&
                 (of_requests ? !wqe.reads() || known->lost == wqe.first : wqe.reads())) {
        return {&wqe, known};
      } else {
        known->lost = wqe.reads() == of_requests ? wqe.end() : known->lost.next();
      }
    }
  }
  return {};
}

// One packet of `wqe`: `next`, or with `known` the one that it has as lost. False: no frame, or the local memory is
// gone.
bool Requester::send_packet(QueuePair& qp, Wqe& wqe, SelectiveRepeat* known, Instant now) noexcept {
  RequesterState& state = qp.requester;
  const Psn psn = known != nullptr ? known->lost : state.next;
  const std::uint32_t i = offset(psn, wqe.first);
  const std::uint32_t bytes_before = i << qp.mtu_shift;
  const std::uint32_t size = wqe.reads() ? 0 : std::min(wqe.local.length - bytes_before, qp.attr().path_mtu);
  const Region* region = nullptr;
  if (size != 0) {
    region = core_.local_region(qp, wqe.local, 0);
    if (region == nullptr) {
      wqe.status = WcStatus::loc_prot_err;
      return false;
    }
  }
  const auto where = wqe.reads() ? wire::Position::only : position(i, wqe.psns);
  auto opcode = static_cast<std::uint8_t>(rc_opcode(wqe.opcode, where));
  if (!qp.reliable()) {
    opcode |= uc_opcode_bit;
  }
  const wire::OpcodeTraits& op = wire::traits(opcode);
  // AckReq at the end of each message, twice per window or as the NIC does, whenever the next packet has to wait for
  // the answer, and for what fills a hole.
  const std::uint32_t half_window = qp.window() / 2;
  const std::uint32_t every =
      qp.nic().ack_request_every == 0 ? half_window : std::min(half_window, qp.nic().ack_request_every);
  const bool limited = wqe.needs_receive() && beyond_credit(state);
  const bool ack_request =
      qp.reliable() && (op.ends() || limited || known != nullptr || state.unrequested + 1 >= every);
  const wire::BthFields bth{.opcode = static_cast<wire::Opcode>(opcode),
                            .dest_qpn = qp.attr().dest_qpn,
                            .psn = psn,
                            .pkey = qp.attr().pkey,
                            .solicited = wqe.solicited && op.ends(),
                            .ack_request = ack_request,
                            .mig_req = qp.nic().mig_req,
                            .selective_repeat = qp.reliable() && state.selective.in_use()};
  Packet packet{core_, qp.ghost(), qp.encapsulation, bth, size};
  if (!packet) {
    return false;
  }
  std::uint32_t psns = 1;
  std::uint32_t length = wqe.local.length - bytes_before;
  if (wqe.reads()) {
    psns = known != nullptr ? missing(state.responses, psn, wqe.end()) : offset(wqe.end(), psn);
    length = std::min(length, psns << qp.mtu_shift);
  }
  fill_headers(packet, wqe, op.headers, bytes_before, length);
  if (region != nullptr) {
    region->read(wqe.local.addr + bytes_before, packet.payload());
  }
  core_.started(qp, packet.frame_size(), now);
  packet.send(now);
  state.unrequested = ack_request ? 0 : state.unrequested + 1;
  count_packet(qp, psn, size);
  if (known != nullptr) {
    known->lost = psn.plus(psns);
  } else {
    pass(qp, wqe, now);
  }
  const auto& rto = qp.nic().rto;
  const bool longer = rto && state.waiting == Waiting::acknowledgement && state.in_flight == rto->low_packets + 1;
  if (qp.reliable() && (state.waiting == Waiting::nothing || longer)) {
    restart_timer(qp, now);
  }
  return true;
}

void Requester::count_packet(QueuePair& qp, Psn psn, std::uint32_t payload_size) noexcept {
  const RequesterState& state = qp.requester;
  QpStats& stats = qp.statistics();
  ++stats.data_frames_tx;
  stats.payload_bytes_tx += payload_size;
  if (offset(psn, state.unacknowledged) < offset(state.sent, state.unacknowledged)) {
    ++stats.data_frames_retransmitted;
    core_.counters.count(Counter::retransmitted_packets);
  }
}

// `next` has been sent, or need not be.
void Requester::pass(QueuePair& qp, const Wqe& wqe, Instant now) noexcept {
  RequesterState& state = qp.requester;
  state.next = wqe.opcode == WrOpcode::rdma_read ? wqe.end() : state.next.next();
  const bool whole = state.next == wqe.end();
  if (!qp.reliable()) {  // done as soon as it is sent (9.8.1)
    state.sent = state.unacknowledged = state.next;
    if (whole) {
      ++state.cursor;
      core_.complete_send(qp, WcStatus::success, now);
    }
    return;
  }
  if (state.sent == state.unacknowledged) {
    state.progress = now;
  }
  if (offset(state.next, state.unacknowledged) > offset(state.sent, state.unacknowledged)) {
    state.sent = state.next;
  }
  ++state.in_flight;
  state.reads_in_flight += wqe.reads() ? 1 : 0;
  state.cursor += whole ? 1 : 0;
}

// ---- completing

Drop Requester::receive(QueuePair& qp, const Frame& frame, Instant now) noexcept {
  const RequesterState& state = qp.requester;
  const wire::Parsed& packet = frame.parsed;
  const auto operation = packet.op().operation;
  const bool outstanding = offset(packet.psn, state.unacknowledged) < offset(state.sent, state.unacknowledged);
  if (operation == wire::Operation::acknowledge) {
    const auto& aeth = wire::extension<wire::Aeth>(frame.bytes(), packet, wire::ext::aeth);
    return outstanding || packet.psn == state.unacknowledged.prev() ? receive_acknowledge(qp, packet, aeth, now)
                                                                    : Drop::response_stale;
  }
  if (!outstanding) {
    return Drop::response_stale;
  }
  return operation == wire::Operation::atomic_acknowledge ? receive_atomic_acknowledge(qp, frame, now)
                                                          : receive_read_response(qp, frame, now);
}

// An ACK of the last acknowledged PSN carries nothing but credits (9.7.7.2: unsolicited acknowledge).
Drop Requester::receive_acknowledge(QueuePair& qp, const wire::Parsed& packet, const wire::Aeth& aeth,
                                    Instant now) noexcept {
  const bool outstanding = packet.psn != qp.requester.unacknowledged.prev();
  switch (packet.syndrome & wire::syndrome::type_mask) {
    case wire::syndrome::ack:
      ++qp.statistics().ack_rx;
      core_.counters.count(Counter::acks_received);
      note_credit(qp, packet.syndrome, aeth.msn.value());
      if (outstanding && acknowledge_before(qp, packet.psn.next(), now) == Implied::response_missing) {
        return implied_nak(qp, packet.psn.next(), now);
      }
      core_.activate(qp);
      return Drop::none;
    case wire::syndrome::rnr_nak:
      return outstanding ? receive_rnr_nak(qp, packet, now) : Drop::response_stale;
    case wire::syndrome::nak:
      return outstanding ? receive_nak(qp, packet, aeth.msn.value(), now) : Drop::response_stale;
    default:
      return Drop::response_malformed;  // reserved, 9.7.5.2.1
  }
}

Drop Requester::receive_nak(QueuePair& qp, const wire::Parsed& packet, std::uint32_t msn, Instant now) noexcept {
  WcStatus status = WcStatus::success;
  switch (packet.syndrome) {
    case wire::syndrome::nak_psn_sequence_error:
      core_.counters.count(Counter::packet_seq_err);
      break;
    case wire::syndrome::nak_invalid_request:
    case wire::syndrome::nak_invalid_rd_request:
      core_.counters.count(Counter::req_remote_invalid_request);
      status = WcStatus::rem_inv_req_err;
      break;
    case wire::syndrome::nak_remote_access_error:
      core_.counters.count(Counter::req_remote_access_errors);
      status = WcStatus::rem_access_err;
      break;
    case wire::syndrome::nak_remote_operational_error:
      status = WcStatus::rem_op_err;
      break;
    default:
      return Drop::response_malformed;
  }
  ++qp.statistics().nak_rx;
  // A NAK acknowledges everything before it. A READ without its response says that the fault is not of the oldest.
  const Implied implied = acknowledge_before(qp, packet.psn, now);
  if (status == WcStatus::success && qp.requester.selective.in_use()) {
    if (packet.selective_repeat) {
      const Drop drop = implied == Implied::response_missing ? implied_nak(qp, packet.psn, now) : Drop::none;
      learn_of(qp, qp.requester.selective, Psn{msn}, Psn{msn}, now);
      return drop;
    }
    core_.counters.count(Counter::selective_repeat_fallbacks);
  }
  if (status == WcStatus::success || implied == Implied::response_missing) {
    // The peer reports a gap once: only a copy of that report finds nothing sent since.
    qp.requester.retrying = qp.requester.retrying && qp.requester.next == qp.requester.unacknowledged;
    retry(qp, now, qp.nic().retransmission_latency);
  } else if (qp.state() == QpState::rts) {
    fail_oldest(qp, status, now);
  }
  return Drop::none;
}

// 9.7.5.2.8: wait as long as the receiver asks, then go on from the request that it refused.
Drop Requester::receive_rnr_nak(QueuePair& qp, const wire::Parsed& packet, Instant now) noexcept {
  RequesterState& state = qp.requester;
  ++qp.statistics().rnr_nak_rx;
  core_.counters.count(Counter::rnr_naks_received);
  acknowledge_before(qp, packet.psn, now);
  if (qp.state() != QpState::rts || state.waiting == Waiting::pause) {
    return Drop::none;
  }
  constexpr std::uint8_t without_limit = 7;
  if (qp.attr().rnr_retry != without_limit) {
    if (state.rnr_retries_left == 0) {
      core_.counters.count(Counter::rnr_nak_retry_err);
      fail_oldest(qp, WcStatus::rnr_retry_exc_err, now);
      return Drop::none;
    }
    --state.rnr_retries_left;
  }
  rewind(qp);
  if (state.selective.in_use()) {
    state.selective.forget(state.unacknowledged);  // refused, if the peer had it
  }
  state.retrying = false;
  wait_until(qp, Waiting::pause, now + rnr_timer(packet.syndrome & wire::syndrome::value_mask));
  return Drop::none;
}

// 9.7.5.1.1: the response must be the one expected next; one ahead of it implies that one was lost. Selective repeat
// takes it nevertheless.
Drop Requester::receive_read_response(QueuePair& qp, const Frame& frame, Instant now) noexcept {
  RequesterState& state = qp.requester;
  const wire::Parsed& packet = frame.parsed;
  const bool early = acknowledge_before(qp, packet.psn, now) == Implied::response_missing;
  if (early && !state.responses.in_use()) {
    return implied_nak(qp, packet.psn, now);
  }
  if (early && state.responses.arrived(packet.psn)) {
    return Drop::response_stale;
  }
  if (early && !state.responses.remembers(packet.psn)) {
    return Drop::response_out_of_order;  // missed when one that is remembered comes
  }
  if (qp.state() != QpState::rts || state.wqes.empty()) {
    return Drop::none;
  }
  std::uint32_t request = state.wqes.tail();
  while (offset(packet.psn, state.wqes[request].first) >= state.wqes[request].psns) {
    ++request;  // it is outstanding, so there is one
  }
  const Wqe& wqe = state.wqes[request];
  const std::uint32_t i = offset(packet.psn, wqe.first);
  const std::uint32_t bytes_before = i << qp.mtu_shift;
  const bool last = i + 1 == wqe.psns;
  const ConstBytes payload = wire::payload(frame.bytes(), packet);
  // A response that was asked for again starts with FIRST or ONLY in the middle of the message, and a part of it ends
  // with LAST or ONLY there.
  const std::uint32_t expected_size = last ? wqe.local.length - bytes_before : qp.attr().path_mtu;
  const bool ack = (packet.syndrome & wire::syndrome::type_mask) == wire::syndrome::ack;
  const bool ends = packet.op().ends() && (last || !state.responses.in_use());
  if (wqe.opcode != WrOpcode::rdma_read || ends != last || payload.size() != expected_size || !ack) {
    return Drop::response_malformed;
  }
  if (packet.op().has(wire::ext::aeth)) {
    note_credit(qp, packet.syndrome, wire::extension<wire::Aeth>(frame.bytes(), packet, wire::ext::aeth).msn.value());
  }
  if (!payload.empty()) {
    Region* region = core_.local_region(qp, wqe.local, access::local_write);
    if (region == nullptr) {
      fail_oldest(qp, WcStatus::loc_prot_err, now);
      return Drop::none;
    }
    region->write(wqe.local.addr + bytes_before, payload);
  }
  ++qp.statistics().data_frames_rx;
  qp.statistics().payload_bytes_rx += payload.size();
  if (early) {
    core_.counters.count(Counter::out_of_order_kept);
    note_executed(state, packet.psn.next());
    learn_of(qp, state.responses, packet.psn, packet.psn, now);
    return Drop::none;
  }
  take_expected(qp, now);
  return Drop::none;
}

// The response that is expected next, and what was behind it.
void Requester::take_expected(QueuePair& qp, Instant now) noexcept {
  RequesterState& state = qp.requester;
  take_response(qp, now);
  if (state.responses.in_use() && state.executed.after(state.unacknowledged)) {
    acknowledge_before(qp, state.executed, now);
  }
  core_.activate(qp);
}

void Requester::take_response(QueuePair& qp, Instant now) noexcept {
  RequesterState& state = qp.requester;
  const Psn to = state.unacknowledged.next();
  const bool last = to == state.wqes.front().end();
  advance(qp, to, last ? 1 : 0, last ? 1 : 0, now);
  if (last) {
    complete(qp, now);
  }
}

Drop Requester::receive_atomic_acknowledge(QueuePair& qp, const Frame& frame, Instant now) noexcept {
  RequesterState& state = qp.requester;
  const wire::Parsed& packet = frame.parsed;
  if (acknowledge_before(qp, packet.psn, now) == Implied::response_missing) {
    return implied_nak(qp, packet.psn.next(), now);
  }
  if (qp.state() != QpState::rts || state.wqes.empty()) {
    return Drop::none;
  }
  const Wqe& wqe = state.wqes.front();
  const bool ack = (packet.syndrome & wire::syndrome::type_mask) == wire::syndrome::ack;
  if (!wqe.atomic() || !ack) {
    return Drop::response_malformed;
  }
  note_credit(qp, packet.syndrome, wire::extension<wire::Aeth>(frame.bytes(), packet, wire::ext::aeth).msn.value());
  Region* region = core_.local_region(qp, wqe.local, access::local_write);
  if (region == nullptr) {
    fail_oldest(qp, WcStatus::loc_prot_err, now);
    return Drop::none;
  }
  const auto& atomic = wire::extension<wire::AtomicAckEth>(frame.bytes(), packet, wire::ext::atomicacketh);
  const std::uint64_t original = atomic.original.value();
  region->write(wqe.local.addr, std::as_bytes(std::span{&original, 1}));
  ++qp.statistics().data_frames_rx;
  take_expected(qp, now);
  return Drop::none;
}

// Takes everything before `end` as executed by the peer. Stops at a READ or atomic: only its own response completes it.
Requester::Implied Requester::acknowledge_before(QueuePair& qp, Psn end, Instant now) noexcept {
  RequesterState& state = qp.requester;
  while (state.unacknowledged != end && qp.state() == QpState::rts) {
    const Wqe& wqe = state.wqes.front();
    if (wqe.reads()) {
      if (!state.responses.first_arrived()) {
        return Implied::response_missing;
      }
      take_response(qp, now);
      continue;
    }
    const std::uint32_t acknowledged = offset(end, state.unacknowledged);
    const std::uint32_t of_this = offset(wqe.end(), state.unacknowledged);
    const std::uint32_t packets = std::min(acknowledged, of_this);
    advance(qp, state.unacknowledged.plus(packets), packets, 0, now);
    if (packets == of_this) {
      complete(qp, now);
    }
  }
  return Implied::executed;
}

// Progress: PSNs up to `to` are done with, among them `packets` request packets, `reads` of them READs or atomics.
void Requester::advance(QueuePair& qp, Psn to, std::uint32_t packets, std::uint32_t reads, Instant now) noexcept {
  RequesterState& state = qp.requester;
  if (offset(to, state.unacknowledged) > offset(state.next, state.unacknowledged)) {
    // What was about to be sent again has been acknowledged after all.
    state.next = to;
    state.in_flight = state.reads_in_flight = 0;
    while (state.cursor != state.wqes.head() &&
           offset(to, state.wqes[state.cursor].first) >= state.wqes[state.cursor].psns) {
      ++state.cursor;
    }
  } else {
    state.in_flight -= packets;
    state.reads_in_flight -= reads;
  }
  if (state.selective.in_use()) {
    state.selective.acknowledge(to);
    state.responses.acknowledge(to);
    note_executed(state, to);
  }
  state.unacknowledged = to;
  state.retrying = false;
  state.retries_left = qp.attr().retry_cnt;
  state.rnr_retries_left = qp.attr().rnr_retry;
  state.waiting = Waiting::nothing;
  state.progress = now;
  if (qp.nic().adaptive) {
    state.adaptive.on_progress(*qp.nic().adaptive);
  }
  restart_timer(qp, now);
}

void Requester::complete(QueuePair& qp, Instant now) noexcept { core_.complete_send(qp, WcStatus::success, now); }

void Requester::note_credit(QueuePair& qp, std::uint8_t syndrome, std::uint32_t msn) noexcept {
  RequesterState& state = qp.requester;
  const std::uint8_t code = syndrome & wire::syndrome::value_mask;
  state.credit_limited = code != wire::syndrome::no_credit_count;
  if (state.credit_limited) {
    state.credit_limit = (msn + credit_counts[code]) & mask24;
  }
}

// ---- retrying

// Everything before `executed` was, and a response of it is missing.
Drop Requester::implied_nak(QueuePair& qp, Psn executed, Instant now) noexcept {
  if (qp.requester.responses.in_use()) {
    note_executed(qp.requester, executed);
    learn_of(qp, qp.requester.responses, qp.requester.unacknowledged, executed, now);
  } else if (qp.state() == QpState::rts && !qp.requester.retrying) {
    core_.counters.count(Counter::implied_nak_seq_err);
    retry(qp, now, qp.nic().retransmission_latency);
  }
  return Drop::response_out_of_order;
}

// A packet behind the hole arrived: what is missing before `lost_end` has to be sent again.
void Requester::learn_of(QueuePair& qp, SelectiveRepeat& known, Psn arrived, Psn lost_end, Instant now) noexcept {
  RequesterState& state = qp.requester;
  if (qp.state() != QpState::rts || offset(arrived, state.unacknowledged) >= offset(state.sent, state.unacknowledged)) {
    return;
  }
  const bool idle = find_again(state).wqe == nullptr;
  // What is behind `next` is sent in any case.
  known.learn(arrived, lost_end.before(state.next) ? lost_end : state.next);
  if (idle && find_again(state).wqe != nullptr && state.waiting != Waiting::pause &&
      qp.nic().retransmission_latency > Duration::zero()) {
    wait_until(qp, Waiting::pause, now + qp.nic().retransmission_latency);
  }
  core_.activate(qp);
}

// Of timers that do not follow the queue pair's, the retries are limited by the time without progress, at least one
// timeout.
bool Requester::exhausted(const QueuePair& qp, Instant now) noexcept {
  return qp.nic().adaptive || qp.nic().rto ? now >= qp.requester.progress + total_timeout(qp)
                                           : qp.requester.retries_left == 0;
}

Duration Requester::total_timeout(const QueuePair& qp) noexcept {
  const auto& adaptive = qp.nic().adaptive;
  return adaptive && adaptive->total_timeout
             ? adaptive->time_base * (std::int64_t{1} << *adaptive->total_timeout)
             : ack_timeout(qp.attr().timeout) * std::max<std::int64_t>(qp.attr().retry_cnt, 1);
}

// Once per loss: what is still on its way from before the retry must not start another. Begins after `latency`.
void Requester::retry(QueuePair& qp, Instant now, Duration latency) noexcept {
  RequesterState& state = qp.requester;
  if (qp.state() != QpState::rts || state.retrying || state.waiting == Waiting::pause) {
    return;
  }
  if (exhausted(qp, now)) {
    core_.counters.count(Counter::retries_exceeded);
    fail_oldest(qp, WcStatus::retry_exc_err, now);
    return;
  }
  state.retries_left -= state.retries_left == 0 ? 0 : 1;
  state.retrying = true;
  rewind(qp);
  if (latency > Duration::zero()) {
    wait_until(qp, Waiting::pause, now + latency);
  } else {
    restart_timer(qp, now);
  }
}

void Requester::rewind(QueuePair& qp) noexcept {
  RequesterState& state = qp.requester;
  state.next = state.unacknowledged;
  state.cursor = state.wqes.tail();
  state.in_flight = state.reads_in_flight = state.unrequested = 0;
  for (SelectiveRepeat* known : {&state.selective, &state.responses}) {
    known->lost = known->lost_end = state.next;
    known->request = state.cursor;
  }
  core_.activate(qp);
}

void Requester::fail_oldest(QueuePair& qp, WcStatus status, Instant now) noexcept {
  qp.responder.cancel_replies(qp.attr().max_dest_rd_atomic);
  core_.complete_send(qp, status, now);
  core_.fail(qp, status, now);
}

void Requester::expire(QueuePair& qp, Instant now) noexcept {
  RequesterState& state = qp.requester;
  if (state.waiting == Waiting::nothing) {
    return;
  }
  if (now < state.deadline) {  // progress was made after the timer was armed
    core_.wheel.arm(qp, state.deadline);
    return;
  }
  const Waiting waited = state.waiting;
  state.waiting = Waiting::nothing;
  if (waited == Waiting::pause) {
    core_.activate(qp);
    return;
  }
  ++qp.statistics().timeouts;
  core_.counters.count(Counter::local_ack_timeout_err);
  state.retrying = false;
  if (qp.nic().adaptive) {
    state.adaptive.on_timeout(*qp.nic().adaptive);
  }
  retry(qp, now, {});
}

// 9.7.6.1.3: the timer runs while packets are outstanding, and starts anew with each sign of progress.
void Requester::restart_timer(QueuePair& qp, Instant now) noexcept {
  RequesterState& state = qp.requester;
  if (qp.attr().timeout == 0 || state.unacknowledged == state.sent) {
    state.waiting = Waiting::nothing;
    return;
  }
  const Duration timeout = ack_timeout(qp.attr().timeout);
  Instant deadline = now + timeout * qp.nic().timeout_factor;
  if (qp.nic().adaptive) {
    deadline = std::min(now + std::min(state.adaptive.current(*qp.nic().adaptive), timeout),
                        state.progress + total_timeout(qp));
  } else if (const auto& rto = qp.nic().rto) {
    deadline = std::min(now + (state.in_flight <= rto->low_packets ? rto->low : rto->high),
                        state.progress + total_timeout(qp));
  }
  wait_until(qp, Waiting::acknowledgement, deadline);
}

// The wheel is touched only when the node is not armed or armed too late; expire() sees to the rest.
void Requester::wait_until(QueuePair& qp, Waiting why, Instant deadline) noexcept {
  qp.requester.waiting = why;
  qp.requester.deadline = deadline;
  TimerNode& node = qp;
  if (!node.linked() || deadline < node.due) {
    core_.wheel.arm(node, deadline);
  }
}

}  // namespace nbx::rdma
