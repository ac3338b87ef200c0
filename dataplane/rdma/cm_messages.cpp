// IBTA 12.6; where the standard leaves a value open, Linux's choice.
#include "rdma/cm_messages.hpp"

namespace nbx::rdma {
namespace {

constexpr std::uint16_t permissive_lid = 0xffff;  // A16.5.1: RoCE has no LIDs
constexpr std::uint8_t hop_limit_default = 64;
constexpr std::uint8_t target_ack_delay = 15;  // 134 ms: what soft-RoCE says, longer than any ghost needs

/// Linux: the label of two queue pairs that agreed on none; the same from either end (rdma_calc_flow_label).
std::uint32_t flow_label_of(Qpn a, Qpn b) {
  std::uint64_t v = std::uint64_t{a.value} * b.value;
  v ^= v >> 20U;
  v ^= v >> 40U;
  return static_cast<std::uint32_t>(v & 0xf'ffffU);
}

void choose_source_port(CmTerms& terms) {
  const std::uint32_t label = terms.path.flow_label;
  terms.path.udp_source_port =
      wire::udp_source_port_of(label != 0 ? label : flow_label_of(terms.local_qpn, terms.remote_qpn));
}

std::uint8_t mtu_code(std::uint32_t bytes) { return static_cast<std::uint8_t>(std::bit_width(bytes / 256)); }

Refusal refusal(wire::RejReason reason, ConstBytes info = {}) {
  Refusal r{.reason = reason, .info_size = static_cast<std::uint8_t>(info.size())};
  put(info, r.info);
  return r;
}

}  // namespace

std::optional<Refusal> check_req(const wire::CmReq& req, const wire::Path& reply_path) noexcept {
  using enum wire::RejReason;
  if (req.transport_service_type > 1) {  // neither RC nor UC
    return refusal(invalid_transport_type);
  }
  if (req.path_mtu < 1 || req.path_mtu > 5) {
    return refusal(invalid_path_mtu, std::array{std::byte{5}});
  }
  if (req.primary.remote_gid != reply_path.source_ip) {
    return refusal(primary_remote_gid, std::as_bytes(std::span{reply_path.source_ip.octets}));
  }
  if (req.local_qpn <= gsi_qpn || (req.pkey & 0x7fffU) == 0) {  // 10.2.4.4, 10.9.1.1
    return refusal(unsupported_request);
  }
  if (wire::rdma_port_of(req.service_id) && !wire::decode_rdma_ip_cm(req.private_data)) {
    return refusal(consumer_reject);  // Linux: the service is the consumer that does not understand
  }
  return std::nullopt;
}

CmTerms terms_of(const wire::CmReq& req, const wire::Path& reply_path) noexcept {
  CmTerms terms;
  terms.type = req.transport_service_type == 0 ? QpType::rc : QpType::uc;
  terms.remote_qpn = req.local_qpn;
  terms.sq_psn = req.starting_psn;
  terms.path_mtu = 128U << req.path_mtu;
  terms.pkey = req.pkey;
  terms.responder_resources = req.initiator_depth;
  terms.initiator_depth = req.responder_resources;
  terms.local_ack_timeout = req.primary.local_ack_timeout;
  terms.retry_count = req.retry_count;
  terms.rnr_retry_count = req.rnr_retry_count;
  terms.alternate_path = !req.alternate.local_gid.is_unspecified() || req.alternate.local_lid != 0;
  terms.path = reply_path;
  terms.path.destination_ip = req.primary.local_gid;
  terms.path.flow_label = req.primary.flow_label;
  terms.path.traffic_class = req.primary.traffic_class;
  terms.path.hop_limit = req.primary.hop_limit == 0 ? hop_limit_default : req.primary.hop_limit;
  return terms;
}

CmTerms terms_of(const ConnectParam& param, const QpAttr& attr, Psn starting_psn) noexcept {
  CmTerms terms;
  terms.type = attr.type;
  terms.local_qpn = attr.qpn;
  terms.rq_psn = starting_psn;
  terms.path_mtu = param.path_mtu;
  terms.pkey = attr.pkey;
  terms.responder_resources = param.responder_resources;
  terms.initiator_depth = param.initiator_depth;
  terms.local_ack_timeout = param.local_ack_timeout;
  terms.retry_count = param.retry_count;
  terms.rnr_retry_count = param.rnr_retry_count;
  terms.end_to_end_credits = attr.end_to_end_credits;
  terms.path = param.path;
  const auto port = wire::rdma_port_of(param.service_id);
  if (port && terms.path.flow_label == 0) {  // as Linux labels the flow of two ports
    terms.path.flow_label = (param.source_port * 31U + port->port) & 0xf'ffffU;
  }
  return terms;
}

void settle(CmTerms& terms, const wire::CmRep& rep) noexcept {
  terms.remote_qpn = rep.local_qpn;
  terms.sq_psn = rep.starting_psn;
  terms.responder_resources = std::min(terms.responder_resources, rep.initiator_depth);
  terms.initiator_depth = std::min(terms.initiator_depth, rep.responder_resources);
  terms.rnr_retry_count = rep.rnr_retry_count;
}

ConnectRequest describe(const wire::CmReq& req, GhostId ghost, const CmTerms& terms) noexcept {
  ConnectRequest request;
  request.ghost = ghost;
  request.service_id = req.service_id;
  request.type = terms.type;
  request.path = terms.path;
  request.remote_qpn = req.local_qpn;
  request.starting_psn = req.starting_psn;
  request.path_mtu = terms.path_mtu;
  request.pkey = req.pkey;
  request.responder_resources = req.responder_resources;
  request.initiator_depth = req.initiator_depth;
  request.local_ack_timeout = req.primary.local_ack_timeout;
  request.retry_count = req.retry_count;
  request.rnr_retry_count = req.rnr_retry_count;
  request.remote_cm_response_timeout = req.remote_cm_response_timeout;
  request.private_data = req.private_data;
  if (wire::rdma_port_of(req.service_id)) {
    request.private_data = request.private_data.subspan(wire::RdmaIpCm::size);
  }
  return request;
}

std::size_t req_private_data_max(std::uint64_t service_id) noexcept {
  const std::size_t all = wire::CmReq{}.private_data.size();
  return wire::rdma_port_of(service_id) ? all - wire::RdmaIpCm::size : all;
}

wire::CmReq make_req(const ConnectParam& param, const CmTerms& terms, const CmConfig& config) noexcept {
  wire::CmReq req;
  req.service_id = param.service_id;
  req.local_ca_guid = ca_guid(param.path.source_mac);
  req.local_qpn = terms.local_qpn;
  req.responder_resources = param.responder_resources;
  req.initiator_depth = param.initiator_depth;
  req.remote_cm_response_timeout = config.response_timeout;
  req.transport_service_type = terms.type == QpType::uc ? 1 : 0;
  req.end_to_end_flow_control = terms.end_to_end_credits;
  req.starting_psn = terms.rq_psn;
  req.local_cm_response_timeout = config.response_timeout;
  req.retry_count = param.retry_count;
  req.pkey = terms.pkey;
  req.path_mtu = mtu_code(param.path_mtu);
  req.rnr_retry_count = param.rnr_retry_count;
  req.max_cm_retries = config.max_retries;
  req.primary.local_lid = permissive_lid;
  req.primary.remote_lid = permissive_lid;
  req.primary.local_gid = terms.path.source_ip;
  req.primary.remote_gid = terms.path.destination_ip;
  req.primary.flow_label = terms.path.flow_label;
  req.primary.traffic_class = terms.path.traffic_class;
  req.primary.hop_limit = terms.path.hop_limit;
  req.primary.local_ack_timeout = param.local_ack_timeout;
  std::size_t consumer_at = 0;
  if (wire::rdma_port_of(param.service_id)) {
    const wire::RdmaIpCm header{.source_port = param.source_port,
                                .source_ip = terms.path.source_ip,
                                .destination_ip = terms.path.destination_ip};
    wire::encode(header, std::span{req.private_data}.first<wire::RdmaIpCm::size>());
    consumer_at = wire::RdmaIpCm::size;
  }
  put(param.private_data, req.private_data, consumer_at);
  return req;
}

wire::CmRep make_rep(const CmTerms& terms, const AcceptParam& param) noexcept {
  wire::CmRep rep;
  rep.local_qpn = terms.local_qpn;
  rep.starting_psn = terms.rq_psn;
  rep.responder_resources = terms.responder_resources;
  rep.initiator_depth = terms.initiator_depth;
  rep.target_ack_delay = target_ack_delay;
  rep.failover_accepted = terms.alternate_path ? 1 : 0;  // 12.6.8.7: failover is not supported
  rep.end_to_end_flow_control = terms.end_to_end_credits;
  rep.rnr_retry_count = param.rnr_retry_count;
  rep.local_ca_guid = ca_guid(terms.path.source_mac);
  put(param.private_data, rep.private_data);
  return rep;
}

QpAttr connected_attr(const QpAttr& created, const CmTerms& terms) noexcept {
  CmTerms chosen = terms;
  choose_source_port(chosen);
  QpAttr attr = created;
  attr.dest_qpn = chosen.remote_qpn;
  attr.path = chosen.path;
  attr.sq_psn = chosen.sq_psn;
  attr.rq_psn = chosen.rq_psn;
  attr.path_mtu = chosen.path_mtu;
  attr.pkey = chosen.pkey;
  attr.timeout = chosen.local_ack_timeout;
  attr.retry_cnt = chosen.retry_count;
  attr.rnr_retry = chosen.rnr_retry_count;
  attr.max_rd_atomic = chosen.initiator_depth;
  attr.max_dest_rd_atomic = chosen.responder_resources;
  return attr;
}

std::uint64_t ca_guid(const Mac& mac) noexcept {
  const IpAddress link_local = link_local_from_mac(mac);  // its lower half is the EUI-64
  std::uint64_t guid = 0;
  for (std::size_t i = 8; i < 16; ++i) {
    guid = (guid << 8U) | link_local.octets[i];
  }
  return guid;
}

Duration response_time(std::uint8_t code) noexcept {
  constexpr std::int64_t unit_ps = 4'096'000;
  return Duration{unit_ps << std::clamp<unsigned>(code, 10, 21)};
}

}  // namespace nbx::rdma
