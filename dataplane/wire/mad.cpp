// Each message is one list of fields in the notation of the standard's tables: first byte, first bit within it (0 is
// the most significant), width. The same list decodes and encodes.
#include "wire/mad.hpp"

#include <algorithm>
#include <type_traits>

namespace nbx::wire {
namespace {

constexpr std::uint8_t base_version = 1;

struct Position {
  std::size_t byte;
  unsigned bit;
  unsigned width;

  [[nodiscard]] constexpr std::size_t end() const { return (byte * 8 + bit + width + 7) / 8; }
  /// How far the field's last bit lies from the end of its last byte.
  [[nodiscard]] constexpr std::size_t shift() const { return end() * 8 - (byte * 8 + bit + width); }
};

class Reader {
 public:
  template <class Message>
  using Ref = Message&;

  explicit Reader(ConstBytes data) : data_(data) {}

  template <class T>
  void operator()(T& value, std::size_t byte, unsigned bit, unsigned width) const {
    value = static_cast<T>(get({byte, bit, width}));
  }
  void operator()(Qpn& qpn, std::size_t byte) const { qpn.value = static_cast<std::uint32_t>(get({byte, 0, 24})); }
  void operator()(Psn& psn, std::size_t byte) const { psn.value = static_cast<std::uint32_t>(get({byte, 0, 24})); }
  void operator()(IpAddress& gid, std::size_t byte) const {
    const auto raw = std::as_writable_bytes(std::span{gid.octets});
    std::ranges::copy(data_.subspan(byte, raw.size()), raw.begin());
  }
  template <std::size_t Size>
  void operator()(PrivateData<Size>& data, std::size_t byte) const {
    std::ranges::copy(data_.subspan(byte, Size), data.begin());
  }

 private:
  [[nodiscard]] std::uint64_t get(Position at) const {
    std::uint64_t bits = 0;
    for (std::size_t i = at.byte; i < at.end(); ++i) {
      bits = (bits << 8U) | std::to_integer<std::uint64_t>(data_[i]);
    }
    bits >>= at.shift();
    return at.width == 64 ? bits : bits & ((std::uint64_t{1} << at.width) - 1);
  }

  ConstBytes data_;
};

/// Writes onto bytes of zero.
class Writer {
 public:
  template <class Message>
  using Ref = const Message&;

  explicit Writer(MutableBytes data) : data_(data) {}

  template <class T>
  void operator()(const T& value, std::size_t byte, unsigned bit, unsigned width) const {
    put({byte, bit, width}, static_cast<std::uint64_t>(value));
  }
  void operator()(const Qpn& qpn, std::size_t byte) const { put({byte, 0, 24}, qpn.value); }
  void operator()(const Psn& psn, std::size_t byte) const { put({byte, 0, 24}, psn.value); }
  void operator()(const IpAddress& gid, std::size_t byte) const {
    std::ranges::copy(std::as_bytes(std::span{gid.octets}), data_.subspan(byte).begin());
  }
  template <std::size_t Size>
  void operator()(const PrivateData<Size>& data, std::size_t byte) const {
    std::ranges::copy(data, data_.subspan(byte).begin());
  }

 private:
  void put(Position at, std::uint64_t value) const {
    std::uint64_t bits = at.width == 64 ? value : value & ((std::uint64_t{1} << at.width) - 1);
    bits <<= at.shift();
    for (std::size_t i = at.end(); i-- > at.byte; bits >>= 8U) {
      data_[i] |= static_cast<std::byte>(bits);
    }
  }

  MutableBytes data_;
};

template <class F>
void path_fields(const F& f, typename F::template Ref<CmPath> m, std::size_t base) {
  f(m.local_lid, base, 0, 16);
  f(m.remote_lid, base + 2, 0, 16);
  f(m.local_gid, base + 4);
  f(m.remote_gid, base + 20);
  f(m.flow_label, base + 36, 0, 20);
  f(m.packet_rate, base + 39, 2, 6);
  f(m.traffic_class, base + 40, 0, 8);
  f(m.hop_limit, base + 41, 0, 8);
  f(m.sl, base + 42, 0, 4);
  f(m.subnet_local, base + 42, 4, 1);
  f(m.local_ack_timeout, base + 43, 0, 5);
}

template <class F>
void fields(const F& f, typename F::template Ref<CmReq> m) {
  f(m.local_comm_id, 0, 0, 32);
  f(m.service_id, 8, 0, 64);
  f(m.local_ca_guid, 16, 0, 64);
  f(m.local_qkey, 28, 0, 32);
  f(m.local_qpn, 32);
  f(m.responder_resources, 35, 0, 8);
  f(m.local_eecn, 36, 0, 24);
  f(m.initiator_depth, 39, 0, 8);
  f(m.remote_eecn, 40, 0, 24);
  f(m.remote_cm_response_timeout, 43, 0, 5);
  f(m.transport_service_type, 43, 5, 2);
  f(m.end_to_end_flow_control, 43, 7, 1);
  f(m.starting_psn, 44);
  f(m.local_cm_response_timeout, 47, 0, 5);
  f(m.retry_count, 47, 5, 3);
  f(m.pkey, 48, 0, 16);
  f(m.path_mtu, 50, 0, 4);
  f(m.rdc_exists, 50, 4, 1);
  f(m.rnr_retry_count, 50, 5, 3);
  f(m.max_cm_retries, 51, 0, 4);
  f(m.srq, 51, 4, 1);
  f(m.extended_transport_type, 51, 5, 3);
  path_fields(f, m.primary, 52);
  path_fields(f, m.alternate, 96);
  f(m.private_data, 140);
}

template <class F>
void fields(const F& f, typename F::template Ref<CmRep> m) {
  f(m.local_comm_id, 0, 0, 32);
  f(m.remote_comm_id, 4, 0, 32);
  f(m.local_qkey, 8, 0, 32);
  f(m.local_qpn, 12);
  f(m.local_eecn, 16, 0, 24);
  f(m.starting_psn, 20);
  f(m.responder_resources, 24, 0, 8);
  f(m.initiator_depth, 25, 0, 8);
  f(m.target_ack_delay, 26, 0, 5);
  f(m.failover_accepted, 26, 5, 2);
  f(m.end_to_end_flow_control, 26, 7, 1);
  f(m.rnr_retry_count, 27, 0, 3);
  f(m.srq, 27, 3, 1);
  f(m.local_ca_guid, 28, 0, 64);
  f(m.private_data, 36);
}

template <class F>
void fields(const F& f, typename F::template Ref<CmRtu> m) {
  f(m.local_comm_id, 0, 0, 32);
  f(m.remote_comm_id, 4, 0, 32);
  f(m.private_data, 8);
}

template <class F>
void fields(const F& f, typename F::template Ref<CmRej> m) {
  f(m.local_comm_id, 0, 0, 32);
  f(m.remote_comm_id, 4, 0, 32);
  f(m.rejected, 8, 0, 2);
  f(m.info_size, 9, 0, 7);
  f(m.reason, 10, 0, 16);
  f(m.additional_info, 12);
  f(m.private_data, 84);
}

template <class F>
void fields(const F& f, typename F::template Ref<CmMra> m) {
  f(m.local_comm_id, 0, 0, 32);
  f(m.remote_comm_id, 4, 0, 32);
  f(m.answered, 8, 0, 2);
  f(m.service_timeout, 9, 0, 5);
  f(m.private_data, 10);
}

template <class F>
void fields(const F& f, typename F::template Ref<CmDreq> m) {
  f(m.local_comm_id, 0, 0, 32);
  f(m.remote_comm_id, 4, 0, 32);
  f(m.remote_qpn, 8);
  f(m.private_data, 12);
}

template <class F>
void fields(const F& f, typename F::template Ref<CmDrep> m) {
  f(m.local_comm_id, 0, 0, 32);
  f(m.remote_comm_id, 4, 0, 32);
  f(m.private_data, 8);
}

template <class F>
void fields(const F& f, typename F::template Ref<CmSidrReq> m) {
  f(m.request_id, 0, 0, 32);
  f(m.pkey, 4, 0, 16);
  f(m.service_id, 8, 0, 64);
  f(m.private_data, 16);
}

template <class F>
void fields(const F& f, typename F::template Ref<CmSidrRep> m) {
  f(m.request_id, 0, 0, 32);
  f(m.status, 4, 0, 8);
  f(m.info_size, 5, 0, 8);
  f(m.qpn, 8);
  f(m.service_id, 12, 0, 64);
  f(m.qkey, 20, 0, 32);
  f(m.additional_info, 24);
  f(m.private_data, 96);
}

template <class Message>
std::optional<Message> decode(ConstBytes mad) noexcept {
  const auto header = decode_cm_header(mad);
  if (!header || header->attribute != Message::attribute) {
    return std::nullopt;
  }
  Message message;
  message.transaction_id = header->transaction_id;
  fields(Reader{mad.subspan(sizeof(MadHeader))}, message);
  return message;
}

template <class Message>
void encode_message(const Message& message, MadBytes mad) noexcept {
  std::ranges::fill(mad, std::byte{0});
  auto& header = *mutable_overlay<MadHeader>(mad);
  header.base_version = base_version;
  header.management_class = MadHeader::cm_class;
  header.class_version = MadHeader::cm_class_version;
  header.method = MadHeader::method_send;
  header.transaction_id = message.transaction_id;
  header.attribute_id = static_cast<std::uint16_t>(Message::attribute);
  fields(Writer{mad.subspan(sizeof(MadHeader))}, message);
}

}  // namespace

std::string_view name(CmAttribute attribute) noexcept {
  switch (attribute) {
    case CmAttribute::req:
      return "REQ";
    case CmAttribute::mra:
      return "MRA";
    case CmAttribute::rej:
      return "REJ";
    case CmAttribute::rep:
      return "REP";
    case CmAttribute::rtu:
      return "RTU";
    case CmAttribute::dreq:
      return "DREQ";
    case CmAttribute::drep:
      return "DREP";
    case CmAttribute::sidr_req:
      return "SIDR_REQ";
    case CmAttribute::sidr_rep:
      return "SIDR_REP";
    case CmAttribute::lap:
      return "LAP";
    case CmAttribute::apr:
      return "APR";
  }
  return {};
}

std::optional<CmHeader> decode_cm_header(ConstBytes mad) noexcept {
  if (mad.size() < mad_size) {
    return std::nullopt;
  }
  const auto& header = *overlay<MadHeader>(mad);
  const CmHeader result{static_cast<CmAttribute>(header.attribute_id.value()), header.transaction_id.value()};
  if (header.base_version != base_version || header.management_class != MadHeader::cm_class ||
      header.class_version != MadHeader::cm_class_version || header.method != MadHeader::method_send ||
      name(result.attribute).empty()) {
    return std::nullopt;
  }
  return result;
}

std::optional<CmReq> decode_req(ConstBytes mad) noexcept { return decode<CmReq>(mad); }
std::optional<CmRep> decode_rep(ConstBytes mad) noexcept { return decode<CmRep>(mad); }
std::optional<CmRtu> decode_rtu(ConstBytes mad) noexcept { return decode<CmRtu>(mad); }
std::optional<CmRej> decode_rej(ConstBytes mad) noexcept { return decode<CmRej>(mad); }
std::optional<CmMra> decode_mra(ConstBytes mad) noexcept { return decode<CmMra>(mad); }
std::optional<CmDreq> decode_dreq(ConstBytes mad) noexcept { return decode<CmDreq>(mad); }
std::optional<CmDrep> decode_drep(ConstBytes mad) noexcept { return decode<CmDrep>(mad); }
std::optional<CmSidrReq> decode_sidr_req(ConstBytes mad) noexcept { return decode<CmSidrReq>(mad); }
std::optional<CmSidrRep> decode_sidr_rep(ConstBytes mad) noexcept { return decode<CmSidrRep>(mad); }

void encode(const CmReq& message, MadBytes mad) noexcept { encode_message(message, mad); }
void encode(const CmRep& message, MadBytes mad) noexcept { encode_message(message, mad); }
void encode(const CmRtu& message, MadBytes mad) noexcept { encode_message(message, mad); }
void encode(const CmRej& message, MadBytes mad) noexcept { encode_message(message, mad); }
void encode(const CmMra& message, MadBytes mad) noexcept { encode_message(message, mad); }
void encode(const CmDreq& message, MadBytes mad) noexcept { encode_message(message, mad); }
void encode(const CmDrep& message, MadBytes mad) noexcept { encode_message(message, mad); }
void encode(const CmSidrReq& message, MadBytes mad) noexcept { encode_message(message, mad); }
void encode(const CmSidrRep& message, MadBytes mad) noexcept { encode_message(message, mad); }

namespace {
/// A11.4: an IPv4 address lies in the last four of its sixteen bytes, behind zeros.
IpAddress from_wire(const IpAddress& raw, bool ipv4) noexcept { return ipv4 ? IpAddress::v4(raw.v4_value()) : raw; }
IpAddress to_wire(IpAddress a) noexcept {
  if (a.is_v4()) {
    a.octets[10] = a.octets[11] = 0;
  }
  return a;
}
constexpr unsigned source_ip_at = 4;
constexpr unsigned destination_ip_at = 20;
}  // namespace

std::optional<RdmaIpCm> decode_rdma_ip_cm(ConstBytes private_data) noexcept {
  if (private_data.size() < RdmaIpCm::size) {
    return std::nullopt;
  }
  const Reader f{private_data};
  RdmaIpCm header;
  unsigned ip_version = 0;
  f(header.major_version, 0, 0, 4);
  f(header.minor_version, 0, 4, 4);
  f(ip_version, 1, 0, 4);
  if (ip_version != 4 && ip_version != 6) {
    return std::nullopt;
  }
  f(header.source_port, 2, 0, 16);
  f(header.source_ip, source_ip_at);
  f(header.destination_ip, destination_ip_at);
  header.source_ip = from_wire(header.source_ip, ip_version == 4);
  header.destination_ip = from_wire(header.destination_ip, ip_version == 4);
  return header;
}

void encode(const RdmaIpCm& header, std::span<std::byte, RdmaIpCm::size> private_data) noexcept {
  std::ranges::fill(private_data, std::byte{0});
  const Writer f{private_data};
  f(header.major_version, 0, 0, 4);
  f(header.minor_version, 0, 4, 4);
  f(header.destination_ip.is_v4() ? 4U : 6U, 1, 0, 4);
  f(header.source_port, 2, 0, 16);
  f(to_wire(header.source_ip), source_ip_at);
  f(to_wire(header.destination_ip), destination_ip_at);
}

}  // namespace nbx::wire
