#include "inspect/flow.hpp"

#include <algorithm>

namespace nbx::analysis {
namespace {

bool is_response(wire::Operation operation) {
  return operation == wire::Operation::acknowledge || operation == wire::Operation::atomic_acknowledge ||
         operation == wire::Operation::rdma_read_response;
}

/// A requester that lost READ responses asks for the rest: same end, same key, later start (9.7.5.1.3).
bool is_rest_of(const wire::Reth& rest, const wire::Reth& read) {
  const auto end = [](const wire::Reth& r) { return r.virtual_address.value() + r.dma_length.value(); };
  return rest.rkey.value() == read.rkey.value() && end(rest) == end(read) &&
         rest.virtual_address.value() > read.virtual_address.value() &&
         rest.dma_length.value() < read.dma_length.value();
}

}  // namespace

void TreatmentCounts::count(const capture::Comment& comment) noexcept {
  dropped += comment.dropped.empty() ? 0 : 1;
  delayed += comment.delay_ns ? 1 : 0;
  duplicated += comment.duplicate ? 1 : 0;
  corrupted += comment.corrupted ? 1 : 0;
  reordered += comment.reordered ? 1 : 0;
  marked += comment.ecn_marked ? 1 : 0;
}

void Flow::count(const FlowPacket& packet) {
  constexpr unsigned ecn_mask = 3;
  constexpr unsigned congestion_experienced = 3;  // RFC 3168 section 5
  if (packets == 0) {
    first_ns = packet.time_ns;
  }
  last_ns = packet.time_ns;
  ++packets;
  bytes += packet.size;
  payload_bytes += packet.parsed->payload_size;
  ++opcodes[packet.parsed->opcode];
  udp_source_port = packet.parsed->udp_source_port;
  ce_marks += (packet.parsed->traffic_class & ecn_mask) == congestion_experienced ? 1 : 0;
  icrc_good += packet.icrc == IcrcVerdict::good ? 1 : 0;
  icrc_bad += packet.icrc == IcrcVerdict::bad ? 1 : 0;
  if (packet.comment != nullptr) {
    treatment.count(*packet.comment);
  }
}

PsnWindow::Verdict Flow::see(std::unique_ptr<PsnWindow>& window, const FlowPacket& packet, std::uint64_t& again) {
  const Psn psn = packet.parsed->psn;
  if (!window) {
    window = std::make_unique<PsnWindow>(psn);
  }
  auto verdict = PsnWindow::Verdict::again;
  if (!packet.is_copy()) {  // the emulator's copy is nobody's retransmission
    verdict = window->see(psn);
    again += verdict == PsnWindow::Verdict::again ? 1 : 0;
    out_of_order += verdict == PsnWindow::Verdict::out_of_order ? 1 : 0;
    restarts += verdict == PsnWindow::Verdict::restart ? 1 : 0;
  }
  if (packet.arrived() && window->deliver(psn)) {
    goodput_bytes += packet.parsed->payload_size;
  }
  return verdict;
}

void Flow::request(const FlowPacket& packet) {
  const wire::OpcodeTraits& op = packet.parsed->op();
  const bool read = op.operation == wire::Operation::rdma_read_request;
  if (read && std::any_of(outstanding.begin(), outstanding.end(), [&packet](const Outstanding& o) {
        return o.read && packet.parsed->psn.after(o.psn) && is_rest_of(*packet.reth, *o.read);
      })) {
    retransmissions += packet.is_copy() ? 0 : 1;
    return;
  }
  const PsnWindow::Verdict verdict = see(requests, packet, retransmissions);
  if (verdict == PsnWindow::Verdict::restart) {
    outstanding.clear();
    answers_known = false;
  }
  const bool fresh = verdict == PsnWindow::Verdict::in_order || verdict == PsnWindow::Verdict::restart;
  const bool answered_for = wire::transport_of(packet.parsed->opcode) == wire::Transport::rc && op.ends();
  if (fresh && answered_for && outstanding.size() < outstanding_max) {
    outstanding.push_back({packet.parsed->psn, packet.time_ns, read ? std::optional(*packet.reth) : std::nullopt});
  }
}

void Flow::response(const FlowPacket& packet) { see(responses, packet, response_retransmissions); }

void Flow::answered(Psn psn, std::int64_t now_ns, bool read) {
  std::optional<std::int64_t> read_sent_ns;
  while (!outstanding.empty() && !outstanding.front().psn.after(psn)) {
    const Outstanding& request = outstanding.front();
    if (!request.read) {
      ack_latency.add(now_ns - request.sent_ns);
    } else if (read) {
      read_sent_ns = request.sent_ns;  // of several, the response is the latest one's
    } else {
      break;  // an acknowledgement does not answer a READ
    }
    outstanding.pop_front();
  }
  if (read_sent_ns) {
    read_latency.add(now_ns - *read_sent_ns);
  }
}

void FlowTable::add(const FlowKey& key, const FlowPacket& packet) {
  Flow& flow = flows_.try_emplace(key, key).first->second;
  flow.count(packet);
  const wire::OpcodeTraits& op = packet.parsed->op();
  const wire::Transport transport = wire::transport_of(packet.parsed->opcode);
  if (transport == wire::Transport::cnp) {
    ++flow.cnps;
  } else if (transport == wire::Transport::ud) {  // its PSNs are those of several senders, and nobody checks them
    flow.goodput_bytes += packet.arrived() && !packet.is_copy() ? packet.parsed->payload_size : 0;
  } else if (op.operation == wire::Operation::acknowledge) {
    acknowledge(flow, packet);
  } else if (is_response(op.operation)) {
    respond(flow, packet);
  } else {
    flow.request(packet);
  }
}

void FlowTable::acknowledge(Flow& flow, const FlowPacket& packet) {
  const std::uint8_t syndrome = packet.parsed->syndrome;
  const Psn psn = packet.parsed->psn;
  switch (syndrome & wire::syndrome::type_mask) {
    case wire::syndrome::ack:
      ++flow.acks;
      if (packet.arrived()) {
        if (Flow* requester = requester_of(flow, psn)) {
          requester->answered(psn, packet.time_ns, false);
        }
      }
      break;
    case wire::syndrome::rnr_nak:
      ++flow.rnr_naks;
      break;
    default:
      ++flow.naks[syndrome];
      break;
  }
}

/// A READ response acknowledges what was sent before its request; the last one answers the READ (9.7.5.1.2).
void FlowTable::respond(Flow& flow, const FlowPacket& packet) {
  flow.response(packet);
  if (!packet.arrived()) {
    return;
  }
  const Psn psn = packet.parsed->psn;
  if (Flow* requester = requester_of(flow, psn)) {
    const wire::OpcodeTraits& op = packet.parsed->op();
    if (op.ends()) {
      requester->answered(psn, packet.time_ns, true);
    } else if (op.starts()) {
      requester->answered(psn.prev(), packet.time_ns, false);
    }
  }
}

Flow* FlowTable::requester_of(Flow& flow, Psn psn) {
  if (flow.requests_of != nullptr && flow.requests_of->answers_known) {
    return flow.requests_of;
  }
  flow.requests_of = nullptr;
  std::size_t found = 0;
  Flow* same_port = nullptr;
  std::size_t found_same_port = 0;
  const FlowKey from{flow.key.interface, flow.key.destination, flow.key.source, Qpn{0}};
  for (auto it = flows_.lower_bound(from); it != flows_.end(); ++it) {
    Flow& candidate = it->second;
    if (candidate.key.interface != from.interface || candidate.key.source != from.source ||
        candidate.key.destination != from.destination) {
      break;
    }
    if (candidate.answers_known || candidate.outstanding.empty() || !candidate.requests->seen(psn)) {
      continue;
    }
    ++found;
    flow.requests_of = &candidate;
    if (candidate.udp_source_port == flow.udp_source_port) {
      ++found_same_port;
      same_port = &candidate;
    }
  }
  if (found != 1) {
    flow.requests_of = found_same_port == 1 ? same_port : nullptr;
  }
  if (flow.requests_of != nullptr) {
    flow.requests_of->answers_known = true;
  }
  return flow.requests_of;
}

}  // namespace nbx::analysis
