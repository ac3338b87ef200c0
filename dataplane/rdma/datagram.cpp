// Datagrams: each packet stands for itself.
//
//   in:   P_Key (admission) -> Q_Key -> a receive -> length -> stored, completed;  else dropped and counted
//         to QP1: P_Key -> the GSI Q_Key -> 256 bytes -> the handler of MADs
//   out:  checked when posted, sent by transmit(), completed when sent
#include "rdma/datagram.hpp"

#include <cstring>

#include "rdma/emit.hpp"
#include "wire/crc32.hpp"
#include "wire/ip.hpp"
#include "wire/mad.hpp"

namespace nbx::rdma {

wire::Path reply_path(const Frame& frame) noexcept {
  wire::Path path;
  path.source_mac = wire::destination_mac(frame.bytes());
  path.destination_mac = wire::source_mac(frame.bytes());
  path.source_ip = wire::destination_ip(frame.bytes(), frame.parsed);
  path.destination_ip = wire::source_ip(frame.bytes(), frame.parsed);
  path.vlan_tci = frame.parsed.vlan_tci;
  path.udp_source_port = frame.parsed.udp_source_port;
  path.traffic_class = static_cast<std::uint8_t>(frame.parsed.traffic_class & ~wire::ecn::mask);
  return path;
}

// A datagram is one packet; local faults show before it is sent.
void Datagram::post(QueuePair& qp, const SendWr& wr) noexcept {
  RequesterState& state = qp.requester;
  Wqe wqe{};
  wqe.wr_id = wr.wr_id;
  wqe.local = wr.local;
  wqe.imm_data = wr.imm_data;
  wqe.opcode = wr.opcode;
  wqe.signaled = wr.signaled;
  wqe.solicited = wr.solicited;
  wqe.status = WcStatus::success;
  if (wr.opcode != WrOpcode::send && wr.opcode != WrOpcode::send_with_imm) {
    wqe.status = WcStatus::loc_qp_op_err;
  } else if (wr.local.length > qp.attr().path_mtu) {
    wqe.status = WcStatus::loc_len_err;
  } else if (wr.local.length != 0 && core_.local_region(qp, wr.local, 0) == nullptr) {
    wqe.status = WcStatus::loc_prot_err;
  }
  // A work request whose Q_Key has the top bit set means the queue pair's own (10.2.5).
  const bool own_qkey = (wr.remote_qkey & wire::privileged_qkey_bit) != 0;
  qp.destination(state.wqes.head()) = {wr.path, wr.remote_qpn, own_qkey ? qp.attr().qkey : wr.remote_qkey};
  state.wqes.push(wqe);
  core_.activate(qp);
}

bool Datagram::transmit(QueuePair& qp, Instant now) noexcept {
  RequesterState& state = qp.requester;
  for (std::size_t budget = core_.config.burst; !state.wqes.empty(); --budget) {
    const Wqe& wqe = state.wqes.front();
    if (wqe.status != WcStatus::success) {
      const WcStatus status = wqe.status;
      core_.complete_send(qp, status, now);
      core_.fail(qp, status, now);
      return false;
    }
    if (!core_.may_start(qp, now)) {
      return false;
    }
    if (budget == 0 || !send_packet(qp, wqe, qp.destination(state.wqes.tail()), now)) {
      return true;
    }
    core_.complete_send(qp, WcStatus::success, now);
    if (qp.state() != QpState::rts) {
      return false;
    }
  }
  return false;
}

bool Datagram::send_packet(QueuePair& qp, const Wqe& wqe, const UdDestination& to, Instant now) noexcept {
  const Region* region = nullptr;
  if (wqe.local.length != 0) {
    region = core_.local_region(qp, wqe.local, 0);
    if (region == nullptr) {
      qp.requester.wqes.front().status = WcStatus::loc_prot_err;
      return false;
    }
  }
  const bool with_imm = wqe.opcode == WrOpcode::send_with_imm;
  const wire::Encapsulation encapsulation{to.path};
  const wire::BthFields bth{.opcode = with_imm ? wire::Opcode::ud_send_only_with_immediate : wire::Opcode::ud_send_only,
                            .dest_qpn = to.qpn,
                            .psn = qp.requester.next,
                            .pkey = qp.attr().pkey,
                            .solicited = wqe.solicited,
                            .mig_req = qp.nic().mig_req};
  Packet packet{core_, qp.ghost(), encapsulation, bth, wqe.local.length};
  if (!packet) {
    return false;
  }
  auto& deth = packet.header<wire::Deth>();
  deth.qkey = to.qkey;
  deth.reserved = 0;
  deth.source_qp = qp.qpn().value;
  if (with_imm) {
    packet.header<wire::ImmDt>().data = wqe.imm_data;
  }
  if (region != nullptr) {
    region->read(wqe.local.addr, packet.payload());
  }
  core_.started(qp, packet.frame_size(), now);
  packet.send(now);
  qp.requester.next = qp.requester.next.next();
  ++qp.statistics().data_frames_tx;
  qp.statistics().payload_bytes_tx += wqe.local.length;
  return true;
}

// UD has no order and no answer: whatever does not fit is dropped (9.8.3.2).
Drop Datagram::receive(QueuePair& qp, const Frame& frame, Instant now) noexcept {
  const wire::Parsed& packet = frame.parsed;
  const auto& deth = wire::extension<wire::Deth>(frame.bytes(), packet, wire::ext::deth);
  if (deth.qkey.value() != qp.attr().qkey) {
    return Drop::qkey_violation;
  }
  ++qp.statistics().data_frames_rx;
  ResponderState& state = qp.responder;
  if (state.receives.empty()) {
    return Drop::receive_missing;
  }
  const ConstBytes payload = wire::payload(frame.bytes(), packet);
  const Sge& sge = state.receives.front().local;
  if (payload.size() > qp.attr().path_mtu || payload.size() > sge.length) {
    return Drop::ud_length_error;
  }
  if (!payload.empty()) {
    Region* region = core_.local_region(qp, sge, access::local_write);
    if (region == nullptr) {
      core_.complete_receive(qp, {.status = WcStatus::loc_prot_err, .opcode = WcOpcode::recv}, now);
      core_.fail(qp, WcStatus::loc_prot_err, now);
      return Drop::request_operation_error;
    }
    region->write(sge.addr, payload);
  }
  Completion completion;
  completion.opcode = WcOpcode::recv;
  completion.byte_len = static_cast<std::uint32_t>(payload.size());
  completion.source_qpn = Qpn{deth.source_qp.value()};
  completion.source = wire::source_ip(frame.bytes(), packet);
  completion.has_imm = packet.op().has(wire::ext::immdt);
  if (completion.has_imm) {
    completion.imm_data = wire::extension<wire::ImmDt>(frame.bytes(), packet, wire::ext::immdt).data.value();
  }
  ++qp.statistics().message_complete_rx;
  qp.statistics().payload_bytes_rx += payload.size();
  core_.counters.count(Counter::rx_sends);
  if (core_.observer != nullptr) {
    core_.deliver(qp,
                  {.opcode = completion.has_imm ? WrOpcode::send_with_imm : WrOpcode::send,
                   .length = completion.byte_len,
                   .has_imm = completion.has_imm,
                   .imm_data = completion.imm_data,
                   .payload_crc32 = ~wire::crc32_update(0xffff'ffff, payload)},
                  now);
  }
  core_.complete_receive(qp, completion, now);
  return Drop::none;
}

Drop Datagram::receive_mad(GhostId ghost, const Frame& frame, Instant now) noexcept {
  const wire::Parsed& packet = frame.parsed;
  if (wire::transport_of(packet.opcode) != wire::Transport::ud) {
    return Drop::qp_transport_mismatch;
  }
  if (!pkeys_match(packet.pkey, wire::default_pkey)) {
    return Drop::pkey_mismatch;
  }
  if (wire::extension<wire::Deth>(frame.bytes(), packet, wire::ext::deth).qkey.value() != wire::gsi_qkey) {
    return Drop::qkey_violation;
  }
  const ConstBytes payload = wire::payload(frame.bytes(), packet);
  if (payload.size() < wire::mad_size) {
    return Drop::mad_malformed;
  }
  if (core_.mad_handler == nullptr) {
    return Drop::qp_unknown;
  }
  core_.mad_handler->on_mad(ghost, payload.first(wire::mad_size), reply_path(frame), now);
  return Drop::none;
}

bool Datagram::send_mad(GhostId ghost, const wire::Path& path, ConstBytes mad, Instant now) noexcept {
  Psn& psn = core_.ghost(ghost).gsi_psn;
  const wire::Encapsulation encapsulation{path};
  const wire::BthFields bth{
      .opcode = wire::Opcode::ud_send_only, .dest_qpn = gsi_qpn, .psn = psn, .mig_req = core_.ghost(ghost).nic.mig_req};
  Packet packet{core_, ghost, encapsulation, bth, mad.size()};
  if (!packet) {
    return false;
  }
  auto& deth = packet.header<wire::Deth>();
  deth.qkey = wire::gsi_qkey;
  deth.reserved = 0;
  deth.source_qp = gsi_qpn.value;
  std::memcpy(packet.payload().data(), mad.data(), mad.size());
  packet.send(now);
  psn = psn.next();
  return true;
}

}  // namespace nbx::rdma
