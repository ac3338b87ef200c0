// Request packets, in the order of the checks of IBTA volume 1, 9.7.4.1:
//
//                       RC                                  UC
//   PSN     behind: answer again  ahead: NAK once     gap: message broken, until the next first packet
//      \         |                                           |
//       +--------+----- expected ----------------------------+
//                         |
//     sequence -> operation -> resources -> length -> access -> execute -> owe an ACK or a response
//         |           |            |           |         |
//         +-----------+--- RNR ----+-----------+---------+--> RC: owe a NAK; fatal ones end the queue pair
//                                                             UC: silence
//
// Invariant: `expected` moves only past packets that passed the whole chain (RC).
#include "rdma/responder.hpp"

#include "rdma/codes.hpp"
#include "rdma/emit.hpp"
#include "wire/crc32.hpp"

namespace nbx::rdma {

using Message = ResponderState::Message;

Responder::Request::Request(const Frame& frame) noexcept
    : packet(frame.parsed),
      op(frame.parsed.op()),
      bytes(frame.bytes()),
      payload(wire::payload(frame.bytes(), frame.parsed)),
      answer(frame.treatment.answer) {
  if (op.has(wire::ext::reth)) {
    const auto& reth = wire::extension<wire::Reth>(bytes, packet, wire::ext::reth);
    address = reth.virtual_address.value();
    rkey = reth.rkey.value();
    dma_length = reth.dma_length.value();
  } else if (op.has(wire::ext::atomiceth)) {
    const auto& atomic = wire::extension<wire::AtomicEth>(bytes, packet, wire::ext::atomiceth);
    address = atomic.virtual_address.value();
    rkey = atomic.rkey.value();
    dma_length = sizeof(std::uint64_t);
    swap_or_add = atomic.swap_or_add.value();
    compare = atomic.compare.value();
  }
}

Drop Responder::receive(QueuePair& qp, Frame& frame, Instant now) noexcept {
  const Request request{frame};
  ++qp.statistics().data_frames_rx;
  return qp.reliable() ? receive_reliable(qp, frame, request, now) : receive_unreliable(qp, request, now);
}

Drop Responder::receive_reliable(QueuePair& qp, Frame& frame, const Request& request, Instant now) noexcept {
  const std::int32_t distance = request.packet.psn.distance_from(qp.responder.expected);
  if (distance < 0) {
    return duplicate(qp, request);
  }
  if (distance > 0) {
    return ahead(qp, frame, now);
  }
  const Drop drop = accept(qp, request, now);
  if (drop == Drop::none && !qp.responder.kept.empty()) {
    catch_up(qp, now);
  }
  return drop;
}

// A packet with the expected PSN.
Drop Responder::accept(QueuePair& qp, const Request& request, Instant now) noexcept {
  ResponderState& state = qp.responder;
  const Psn psn = request.packet.psn;
  if (request.answer != 0) {
    return answer_event(qp, request, now);
  }
  const Drop wrong = run_checks(qp, request);
  if (wrong != Drop::none) {
    return refuse(qp, psn, wrong, now);
  }
  state.gap = false;
  state.expected =
      psn.plus(request.op.operation == wire::Operation::rdma_read_request ? qp.packets(request.dma_length) : 1);
  const bool due = qp.nic().ack_every != 0 && ++state.unanswered >= qp.nic().ack_every;
  if ((request.packet.ack_requested || due) && !request.reads()) {
    owe_ack(qp, psn);
  }
  execute(qp, request, now);
  return Drop::none;
}

// The hole is filled: what was kept behind it has its turn, up to the next one. All of it is acknowledged; and where
// the next hole is, is said to a requester that can use it. One that goes back N is sending it already.
void Responder::catch_up(QueuePair& qp, Instant now) noexcept {
  ResponderState& state = qp.responder;
  bool marked = false;
  while (!qp.destroyed && !state.kept.empty() && !state.kept.front()->parsed.psn.after(state.expected)) {
    Frame& frame = *state.kept.pop_front();
    --state.kept_size;
    --core_.kept;
    const Request request{frame};
    marked = request.packet.selective_repeat;
    // One within the PSNs of a READ's responses is nobody's.
    if (request.packet.psn == state.expected && accept(qp, request, now) == Drop::none && !request.reads()) {
      owe_ack(qp, request.packet.psn);
    }
    core_.pool.free(frame);
  }
  if (marked && !qp.destroyed && !state.gap && !state.kept.empty()) {
    tell(qp, state.kept.back()->parsed.psn, now);
  }
}

// 9.8.2.2: a gap ends the message under way, and the next first or only packet begins a new one.
Drop Responder::receive_unreliable(QueuePair& qp, const Request& request, Instant now) noexcept {
  ResponderState& state = qp.responder;
  const bool in_order = request.packet.psn == state.expected;
  state.expected = request.packet.psn.next();
  if (!in_order) {
    ++qp.statistics().frame_sequence_error;
    core_.counters.count(Counter::out_of_sequence);
  }
  const bool lost_message = state.message != Message::none && (!in_order || request.op.starts());
  if (lost_message) {
    ++qp.statistics().message_fail;
    state.message = Message::none;
  }
  if (request.op.starts()) {
    state.broken = false;
  } else if (!in_order || state.broken || state.message == Message::none) {
    state.broken = true;
    return Drop::uc_message_broken;
  }
  const Drop wrong = run_checks(qp, request);
  if (wrong != Drop::none) {
    ++qp.statistics().message_fail;
    state.message = Message::none;
    state.broken = true;
    return wrong;
  }
  execute(qp, request, now);
  return Drop::none;
}

Drop Responder::run_checks(QueuePair& qp, const Request& request) noexcept {
  static constexpr std::array<Check, 5> chain = {&Responder::check_sequence, &Responder::check_operation,
                                                 &Responder::check_resources, &Responder::check_length,
                                                 &Responder::check_access};
  for (const Check check : chain) {
    const Drop wrong = (this->*check)(qp, request);
    if (wrong != Drop::none) {
      return wrong;
    }
  }
  return Drop::none;
}

// Opcode sequence, 9.7.4.1: a message is first, middle…, last of one operation, or only.
Drop Responder::check_sequence(QueuePair& qp, const Request& request) noexcept {
  Message wanted = Message::none;
  if (!request.op.starts()) {
    wanted = request.op.operation == wire::Operation::send ? Message::send : Message::write;
  }
  return qp.responder.message == wanted ? Drop::none : Drop::request_invalid;
}

// Whether the queue pair supports the operation at all: the access that its owner allows.
Drop Responder::check_operation(QueuePair& qp, const Request& request) noexcept {
  std::uint8_t needed = 0;
  switch (request.op.operation) {
    case wire::Operation::rdma_write:
      needed = access::remote_write;
      break;
    case wire::Operation::rdma_read_request:
      needed = access::remote_read;
      break;
    case wire::Operation::compare_swap:
    case wire::Operation::fetch_add:
      needed = access::remote_atomic;
      break;
    case wire::Operation::send:
      break;
    case wire::Operation::unknown:
    case wire::Operation::rdma_read_response:
    case wire::Operation::acknowledge:
    case wire::Operation::atomic_acknowledge:
    case wire::Operation::congestion_notification:
      return Drop::request_invalid;
  }
  return (qp.attr().access & needed) == needed ? Drop::none : Drop::request_invalid;
}

// A receive for messages that take one (otherwise RNR, 9.7.5.2.8), a slot for READs and atomics: more of them
// outstanding than responder resources were agreed on is an invalid request.
Drop Responder::check_resources(QueuePair& qp, const Request& request) noexcept {
  const ResponderState& state = qp.responder;
  if (request.reads()) {
    const std::uint32_t depth = qp.attr().max_dest_rd_atomic;
    if (depth == 0) {
      return Drop::request_invalid;
    }
    const ReadAtomic& oldest = state.reads[state.reads_accepted % depth];
    return oldest.pending && !oldest.replayed ? Drop::request_invalid : Drop::none;
  }
  return request.takes_receive() && state.receives.empty() ? Drop::receive_missing : Drop::none;
}

// Packet and message lengths: every packet but the last is as long as the path MTU, the last has 1 to MTU bytes, and
// the sum is what the RETH said or fits the receive.
Drop Responder::check_length(QueuePair& qp, const Request& request) noexcept {
  ResponderState& state = qp.responder;
  const std::uint32_t mtu = qp.attr().path_mtu;
  const auto size = static_cast<std::uint32_t>(request.payload.size());
  if (request.reads()) {
    const bool aligned = !request.atomic() || request.address % sizeof(std::uint64_t) == 0;
    return aligned && request.dma_length <= message_size_max ? Drop::none : Drop::request_invalid;
  }
  if (request.op.ends() ? size > mtu : size != mtu) {
    return Drop::request_invalid;
  }
  if (request.op.position == wire::Position::last && size == 0) {
    return Drop::request_invalid;
  }
  const std::uint32_t before = request.op.starts() ? 0 : state.received;
  if (request.op.operation == wire::Operation::send) {
    const bool fits = before <= message_size_max && before + size <= state.receives.front().local.length;
    return fits ? Drop::none : Drop::request_invalid;
  }
  const std::uint32_t total = request.op.starts() ? request.dma_length : state.dma_length;
  const bool agrees = request.op.ends() ? before + size == total : before + size < total;
  return agrees && total <= message_size_max ? Drop::none : Drop::request_invalid;
}

// Protection, remote (R_Key: validity, rights and bounds of the whole message; messages of length 0 are not checked,
// 9.7.4.1) and local (the receive's buffer, which is our own fault: remote operational error).
Drop Responder::check_access(QueuePair& qp, const Request& request) noexcept {
  ResponderState& state = qp.responder;
  MemoryTable& memory = core_.memory(qp);
  if (request.op.operation == wire::Operation::send) {
    const Sge& sge = state.receives.front().local;
    if (!request.payload.empty() && core_.local_region(qp, sge, access::local_write) == nullptr) {
      return Drop::request_operation_error;
    }
    const bool stale_key =
        request.op.has(wire::ext::ieth) &&
        memory.find(wire::extension<wire::Ieth>(request.bytes, request.packet, wire::ext::ieth).rkey.value()) ==
            nullptr;
    return stale_key ? Drop::request_access_error : Drop::none;
  }
  const bool starts = request.op.starts();
  const std::uint32_t length = starts ? request.dma_length : state.dma_length;
  if (length == 0) {
    return Drop::none;
  }
  std::uint8_t needed = access::remote_write;
  if (request.reads()) {
    needed = request.atomic() ? access::remote_atomic : access::remote_read;
  }
  const Region* region = memory.find(starts ? request.rkey : state.rkey);
  const bool allowed = region != nullptr && (region->spec().access & needed) != 0 &&
                       region->contains(starts ? request.address : state.address, length);
  return allowed ? Drop::none : Drop::request_access_error;
}

void Responder::execute(QueuePair& qp, const Request& request, Instant now) noexcept {
  ResponderState& state = qp.responder;
  if (request.reads()) {
    if (request.atomic()) {
      execute_atomic(qp, request, now);
    } else {
      execute_read(qp, request, now);
    }
    return;
  }
  const bool sends = request.op.operation == wire::Operation::send;
  if (request.op.starts()) {
    state.message = sends ? Message::send : Message::write;
    state.received = 0;
    state.crc = 0xffff'ffff;
    if (!sends) {
      core_.counters.count(Counter::rx_write_requests);
    }
  }
  if (sends) {
    execute_send(qp, request);
  } else {
    execute_write(qp, request);
  }
  if (core_.observer != nullptr) {
    state.crc = wire::crc32_update(state.crc, request.payload);
  }
  state.received += static_cast<std::uint32_t>(request.payload.size());
  qp.statistics().payload_bytes_rx += request.payload.size();
  if (request.op.ends()) {
    finish_message(qp, request, now);
  }
}

void Responder::execute_send(QueuePair& qp, const Request& request) noexcept {
  if (!request.payload.empty()) {
    const Sge& sge = qp.responder.receives.front().local;
    core_.memory(qp).find(sge.lkey)->write(sge.addr + qp.responder.received, request.payload);
  }
}

void Responder::execute_write(QueuePair& qp, const Request& request) noexcept {
  ResponderState& state = qp.responder;
  if (request.op.starts()) {
    state.address = request.address;
    state.rkey = request.rkey;
    state.dma_length = request.dma_length;
  }
  if (!request.payload.empty()) {
    core_.memory(qp).find(state.rkey)->write(state.address + state.received, request.payload);
  }
}

// The last packet of a SEND or WRITE: the message counts (MSN), and a receive completes if the message takes one.
void Responder::finish_message(QueuePair& qp, const Request& request, Instant now) noexcept {
  ResponderState& state = qp.responder;
  const bool sends = state.message == Message::send;
  state.message = Message::none;
  state.msn = (state.msn + 1) & mask24;
  ++qp.statistics().message_complete_rx;

  Completion completion;
  completion.opcode = sends ? WcOpcode::recv : WcOpcode::recv_rdma_with_imm;
  completion.byte_len = state.received;
  WrOpcode opcode = sends ? WrOpcode::send : WrOpcode::rdma_write;
  if (request.op.has(wire::ext::immdt)) {
    opcode = sends ? WrOpcode::send_with_imm : WrOpcode::rdma_write_with_imm;
    completion.has_imm = true;
    completion.imm_data = wire::extension<wire::ImmDt>(request.bytes, request.packet, wire::ext::immdt).data.value();
  } else if (request.op.has(wire::ext::ieth)) {
    opcode = WrOpcode::send_with_inv;
    completion.invalidated = true;
    completion.imm_data = wire::extension<wire::Ieth>(request.bytes, request.packet, wire::ext::ieth).rkey.value();
    core_.memory(qp).find(completion.imm_data)->invalidate();
  }
  core_.deliver(qp,
                {.opcode = opcode,
                 .length = state.received,
                 .has_imm = completion.has_imm,
                 .imm_data = completion.has_imm ? completion.imm_data : 0,
                 .payload_crc32 = ~state.crc},
                now);
  if (sends) {
    core_.counters.count(Counter::rx_sends);
  }
  if (sends || completion.has_imm) {
    core_.complete_receive(qp, completion, now);
  } else if (qp.attr().report_writes) {
    qp.user().on_write(qp, state.address, state.received, now);
  }
}

void Responder::execute_read(QueuePair& qp, const Request& request, Instant now) noexcept {
  ReadAtomic& read = accept_read(qp, request);
  owe_response(qp, read);
  core_.counters.count(Counter::rx_read_requests);
  if (core_.observer == nullptr) {
    return;
  }
  std::uint32_t crc = 0xffff'ffff;
  std::array<std::byte, 4096> chunk;
  for (std::uint32_t done = 0; done < request.dma_length;) {
    const MutableBytes part = MutableBytes{chunk}.first(std::min<std::size_t>(chunk.size(), request.dma_length - done));
    core_.memory(qp).find(request.rkey)->read(request.address + done, part);
    crc = wire::crc32_update(crc, part);
    done += static_cast<std::uint32_t>(part.size());
  }
  core_.deliver(qp, {.opcode = WrOpcode::rdma_read, .length = request.dma_length, .payload_crc32 = ~crc}, now);
}

// Atomics work on a 64-bit integer in the byte order of the ghost, which is this machine's.
void Responder::execute_atomic(QueuePair& qp, const Request& request, Instant now) noexcept {
  const bool swaps = request.op.operation == wire::Operation::compare_swap;
  Region& region = *core_.memory(qp).find(request.rkey);
  std::array<std::byte, sizeof(std::uint64_t)> cell{};
  region.read(request.address, cell);
  const auto original = std::bit_cast<std::uint64_t>(cell);
  if (!swaps || original == request.compare) {
    cell = std::bit_cast<decltype(cell)>(swaps ? request.swap_or_add : original + request.swap_or_add);
    region.write(request.address, cell);
  }
  ReadAtomic& read = accept_read(qp, request);
  read.original = original;
  owe_response(qp, read);
  core_.counters.count(Counter::rx_atomic_requests);
  if (core_.observer != nullptr) {
    Be64 returned;
    returned = original;
    core_.deliver(qp,
                  {.opcode = swaps ? WrOpcode::atomic_cmp_and_swp : WrOpcode::atomic_fetch_and_add,
                   .length = sizeof(returned),
                   .payload_crc32 = ~wire::crc32_update(0xffff'ffff, std::as_bytes(std::span{&returned, 1}))},
                  now);
  }
}

// Files the request for duplicates. READs and atomics count as complete messages when they are accepted, so that their
// responses carry the new MSN (9.7.7.1).
ReadAtomic& Responder::accept_read(QueuePair& qp, const Request& request) noexcept {
  ResponderState& state = qp.responder;
  state.msn = (state.msn + 1) & mask24;
  ++qp.statistics().message_complete_rx;
  ReadAtomic& read = state.reads[state.reads_accepted++ % qp.attr().max_dest_rd_atomic];
  state.reads_pending -= read.pending ? 1 : 0;  // a replay that nobody waits for any more
  read = {};
  read.first = read.start = request.packet.psn;
  read.psns = request.atomic() ? 1 : qp.packets(request.dma_length);
  read.address = request.address;
  read.length = read.remaining = request.dma_length;
  read.rkey = request.rkey;
  read.atomic = request.atomic();
  read.msn = state.msn;
  state.ack_pending = false;  // the response acknowledges everything before it
  return read;
}

// Ahead of the expected PSN: something was lost. One NAK per gap (9.7.5.2): a second would start a second retry. A
// requester with selective repeat is told of every packet that is kept.
Drop Responder::ahead(QueuePair& qp, Frame& frame, Instant now) noexcept {
  ResponderState& state = qp.responder;
  ++qp.statistics().frame_sequence_error;
  core_.counters.count(Counter::out_of_sequence);
  const Drop drop = keep(qp, frame);
  const bool has_it = drop == Drop::none || drop == Drop::duplicate_request;
  if (state.gap) {
    return drop;
  }
  if (has_it && frame.parsed.selective_repeat) {
    tell(qp, frame.parsed.psn, now);
  } else {
    state.gap = true;
    owe_nak(qp, state.expected, wire::syndrome::nak_psn_sequence_error, now);
  }
  return drop;
}

Drop Responder::keep(QueuePair& qp, Frame& frame) noexcept {
  ResponderState& state = qp.responder;
  if (!qp.nic().selective()) {
    return Drop::out_of_seq_request;
  }
  const Psn psn = frame.parsed.psn;
  Frame* before = state.kept.back();  // from there, since most come in order behind the hole
  while (before != nullptr && psn.before(before->parsed.psn)) {
    before = state.kept.before(*before);
  }
  if (before != nullptr && before->parsed.psn == psn) {
    return Drop::duplicate_request;
  }
  if (state.kept_size == qp.nic().out_of_order_packets || core_.kept == core_.config.kept_max) {
    return Drop::out_of_order_full;
  }
  if (before == nullptr) {
    state.kept.push_front(frame);
  } else {
    state.kept.insert_after(*before, frame);
  }
  ++state.kept_size;
  ++core_.kept;
  core_.counters.count(Counter::out_of_order_kept);
  return Drop::none;
}

// IRN's NACK: what is expected, and a packet that arrived behind it.
void Responder::tell(QueuePair& qp, Psn arrived, Instant now) noexcept {
  ResponderState& state = qp.responder;
  if (!state.arrived.full()) {
    state.arrived.push(arrived);
  }
  owe_nak(qp, state.expected, wire::syndrome::nak_psn_sequence_error, now);
  state.nak_tells = true;
}

// 9.7.5.1, duplicate requests: SENDs and WRITEs are acknowledged again and not executed, READs are executed again,
// atomics get the stored answer.
Drop Responder::duplicate(QueuePair& qp, const Request& request) noexcept {
  ResponderState& state = qp.responder;
  const Psn psn = request.packet.psn;
  const std::uint32_t depth = qp.attr().max_dest_rd_atomic;
  const std::uint64_t oldest = state.reads_accepted - std::min<std::uint64_t>(state.reads_accepted, depth);
  Psn ack = state.expected.prev();
  for (std::uint64_t i = oldest; i != state.reads_accepted; ++i) {
    ReadAtomic& read = state.reads[i % depth];
    if (request.reads() && read.atomic == request.atomic() && offset(psn, read.first) < read.psns) {
      replay(qp, request, read);
      return Drop::duplicate_request;
    }
    // An ACK must not claim a READ or atomic whose response may have been lost.
    if (!request.reads() && read.first.after(psn) && !ack.before(read.first)) {
      ack = read.first.prev();
    }
  }
  // A READ or atomic that is no longer stored is dropped in silence.
  if (!request.reads() && !(state.ack_pending && state.ack_psn.after(ack))) {
    owe_ack(qp, ack);
  }
  return Drop::duplicate_request;
}

// A duplicate READ may ask for the rest only, or a part of it; it must lie within the first one, PSNs and addresses
// alike. Who asks for a part waits for the rest as well, if that is still due.
void Responder::replay(QueuePair& qp, const Request& request, ReadAtomic& read) noexcept {
  const std::uint32_t packets_before = offset(request.packet.psn, read.first);
  ReadAtomic again = read;
  again.start = request.packet.psn;
  if (!read.atomic) {
    const std::uint64_t bytes_before = std::uint64_t{packets_before} << qp.mtu_shift;
    const bool part_of_first = request.rkey == read.rkey && request.address == read.address + bytes_before &&
                               bytes_before <= read.length && request.dma_length <= read.length - bytes_before;
    if (!part_of_first) {
      return;
    }
    again.offset = static_cast<std::uint32_t>(bytes_before);
    again.remaining = request.dma_length;
  }
  again.emitted = 0;
  again.msn = qp.responder.msn;
  again.replayed = read.replayed || !read.pending;
  core_.counters.count(Counter::duplicate_replays);
  const bool rest_is_due = read.pending && !read.atomic && again.end() != read.length;
  if (rest_is_due && !qp.responder.parts.full()) {
    qp.responder.parts.push(again);
    ++qp.responder.reads_pending;
    core_.activate(qp);
    return;
  }
  if (rest_is_due) {  // with what is between
    const std::uint32_t end = std::max(again.end(), read.end());
    again.offset = std::min(again.offset, read.offset);
    again.remaining = end - again.offset;
    again.start = read.first.plus(again.offset >> qp.mtu_shift);
  }
  read = again;
  owe_response(qp, read);
}

// As if something were wrong with the request: the same answer, and what follows from it.
Drop Responder::answer_event(QueuePair& qp, const Request& request, Instant now) noexcept {
  const Psn psn = request.packet.psn;
  switch (request.answer) {
    case wire::syndrome::nak_psn_sequence_error:
      qp.responder.gap = true;
      owe_nak(qp, psn, request.answer, now);
      break;
    case wire::syndrome::nak_invalid_request:
      refuse(qp, psn, Drop::request_invalid, now);
      break;
    case wire::syndrome::nak_remote_access_error:
      refuse(qp, psn, Drop::request_access_error, now);
      break;
    case wire::syndrome::nak_remote_operational_error:
      refuse(qp, psn, Drop::request_operation_error, now);
      break;
    default:
      refuse(qp, psn, Drop::receive_missing, now);
  }
  return Drop::event;
}

// What is wrong with a request, said to the requester. All but RNR are fatal to both queue pairs (9.9.3).
Drop Responder::refuse(QueuePair& qp, Psn psn, Drop why, Instant now) noexcept {
  if (why == Drop::receive_missing) {
    qp.responder.gap = true;
    owe_nak(qp, psn, wire::syndrome::rnr_nak | (qp.attr().min_rnr_timer & wire::syndrome::value_mask), now);
    return why;
  }
  std::uint8_t syndrome = wire::syndrome::nak_invalid_request;
  WcStatus status = WcStatus::rem_inv_req_err;
  if (why == Drop::request_access_error) {
    syndrome = wire::syndrome::nak_remote_access_error;
    status = WcStatus::rem_access_err;
  } else if (why == Drop::request_operation_error) {
    syndrome = wire::syndrome::nak_remote_operational_error;
    status = WcStatus::rem_op_err;
  }
  owe_nak(qp, psn, syndrome, now);
  ++qp.statistics().message_fail;
  if (qp.responder.message == Message::send) {
    core_.complete_receive(qp, {.status = status, .opcode = WcOpcode::recv}, now);
  }
  core_.fail(qp, status, now);
  return why;
}

void Responder::owe_ack(QueuePair& qp, Psn psn) noexcept {
  qp.responder.ack_pending = true;
  qp.responder.ack_psn = psn;
  qp.responder.unanswered = 0;
  core_.activate(qp);
}

// A NAK acknowledges everything before it, and one for a later PSN makes an earlier one moot. A NIC may need time to
// report a gap.
void Responder::owe_nak(QueuePair& qp, Psn psn, std::uint8_t syndrome, Instant now) noexcept {
  ResponderState& state = qp.responder;
  const Instant due = syndrome == wire::syndrome::nak_psn_sequence_error ? now + qp.nic().nak_latency : now;
  state.nak_due = state.nak_pending ? std::min(state.nak_due, due) : due;
  state.ack_pending = false;
  state.nak_pending = true;
  state.nak_tells = false;
  state.nak_psn = psn;
  state.nak_syndrome = syndrome;
  state.nak_after = state.reads_accepted;
  core_.activate(qp);
}

void Responder::owe_response(QueuePair& qp, ReadAtomic& read) noexcept {
  if (!read.pending) {
    read.pending = true;
    ++qp.responder.reads_pending;
  }
  core_.activate(qp);
}

// In PSN order: a response or NAK tells the requester that everything before it has been answered.
bool Responder::respond(QueuePair& qp, Instant now) noexcept {
  ResponderState& state = qp.responder;
  const std::uint32_t depth = qp.attr().max_dest_rd_atomic;
  std::size_t budget = core_.config.burst;
  std::uint64_t i = state.reads_accepted - std::min<std::uint64_t>(state.reads_accepted, depth);
  while (state.reads_pending != 0 || state.nak_pending) {
    if (!state.parts.empty()) {
      if (!core_.may_start(qp, now)) {
        return false;
      }
      if (budget-- == 0 || !send_response(qp, state.parts.front(), now)) {
        return true;
      }
      if (!state.parts.front().pending) {
        state.parts.pop();
      }
      continue;
    }
    while (i != state.reads_accepted && !state.reads[i % depth].pending) {
      ++i;
    }
    if (state.nak_pending && i >= state.nak_after) {
      if (now < state.nak_due) {
        core_.wheel.arm(*qp.nak_wakeup, state.nak_due);
        return false;
      }
      if (!send_nak(qp, now)) {
        return true;
      }
      state.nak_pending = false;
    } else if (!core_.may_start(qp, now)) {
      return false;
    } else if (budget-- == 0 || !send_response(qp, state.reads[i % depth], now)) {
      return true;
    }
  }
  if (state.ack_pending) {
    if (!send_acknowledge(qp, state.ack_psn, ack_syndrome(qp), now)) {
      return true;
    }
    state.ack_pending = false;
  }
  return false;
}

std::uint8_t Responder::ack_syndrome(QueuePair& qp) const noexcept {
  return wire::syndrome::ack |
         (qp.attr().end_to_end_credits ? credit_code(qp.responder.receives.size()) : wire::syndrome::no_credit_count);
}

bool Responder::send_nak(QueuePair& qp, Instant now) noexcept {
  ResponderState& state = qp.responder;
  if (!state.nak_tells) {
    return send_acknowledge(qp, state.nak_psn, state.nak_syndrome, now);
  }
  for (; !state.arrived.empty(); state.arrived.pop()) {
    const Psn arrived = state.arrived.front();
    const bool news = arrived.after(state.expected);  // the hole may have been filled meanwhile
    if (news && !send_acknowledge(qp, state.nak_psn, state.nak_syndrome, now, arrived)) {
      return false;
    }
  }
  return true;
}

bool Responder::send_acknowledge(QueuePair& qp, Psn psn, std::uint8_t syndrome, Instant now,
                                 std::optional<Psn> arrived) noexcept {
  const wire::BthFields bth{.opcode = wire::Opcode::rc_acknowledge,
                            .dest_qpn = qp.attr().dest_qpn,
                            .psn = psn,
                            .pkey = qp.attr().pkey,
                            .mig_req = qp.nic().mig_req,
                            .selective_repeat = arrived.has_value()};
  Packet packet{core_, qp.ghost(), qp.encapsulation, bth, 0};
  if (!packet) {
    return false;
  }
  packet.aeth(syndrome, arrived ? arrived->value : qp.responder.msn);
  packet.send(now);
  switch (syndrome & wire::syndrome::type_mask) {
    case wire::syndrome::ack:
      ++qp.statistics().ack_tx;
      core_.counters.count(Counter::acks_sent);
      break;
    case wire::syndrome::rnr_nak:
      ++qp.statistics().rnr_nak_tx;
      core_.counters.count(Counter::rnr_naks_sent);
      break;
    default:
      ++qp.statistics().nak_tx;
      core_.counters.count(Counter::naks_sent);
  }
  return true;
}

// The next packet of a READ's or atomic's response. False: no frame, or the region is gone.
bool Responder::send_response(QueuePair& qp, ReadAtomic& read, Instant now) noexcept {
  const std::uint32_t size = read.atomic ? 0 : std::min(read.remaining, qp.attr().path_mtu);
  Region* region = nullptr;
  if (size != 0) {
    region = core_.memory(qp).find(read.rkey);
    if (region == nullptr) {
      const Psn psn = read.start.plus(read.emitted);
      qp.responder.cancel_replies(qp.attr().max_dest_rd_atomic);
      refuse(qp, psn, Drop::request_access_error, now);
      return false;
    }
  }
  static constexpr std::array<wire::Opcode, 4> read_opcodes = {
      wire::Opcode::rc_rdma_read_response_only, wire::Opcode::rc_rdma_read_response_first,
      wire::Opcode::rc_rdma_read_response_middle, wire::Opcode::rc_rdma_read_response_last};
  const std::uint32_t left = qp.packets(read.remaining);
  const auto where = position(read.emitted, read.emitted + left);
  wire::BthFields bth{.dest_qpn = qp.attr().dest_qpn,
                      .psn = read.start.plus(read.emitted),
                      .pkey = qp.attr().pkey,
                      .mig_req = qp.nic().mig_req};
  bth.opcode = read.atomic ? wire::Opcode::rc_atomic_acknowledge : read_opcodes[static_cast<std::size_t>(where)];
  Packet packet{core_, qp.ghost(), qp.encapsulation, bth, size};
  if (!packet) {
    return false;
  }
  if (wire::traits(bth.opcode).has(wire::ext::aeth)) {
    packet.aeth(ack_syndrome(qp), read.msn);
  }
  if (read.atomic) {
    packet.header<wire::AtomicAckEth>().original = read.original;
  }
  if (region != nullptr) {
    region->read(read.address + read.offset, packet.payload());
  }
  core_.started(qp, packet.frame_size(), now);
  packet.send(now);
  ++read.emitted;
  read.offset += size;
  read.remaining -= size;
  ++qp.statistics().data_frames_tx;
  qp.statistics().payload_bytes_tx += size;
  if (read.atomic || left == 1) {
    read.pending = false;
    --qp.responder.reads_pending;
  }
  return true;
}

}  // namespace nbx::rdma
