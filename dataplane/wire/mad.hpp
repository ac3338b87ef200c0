// Communication management datagrams: IBTA volume 1, 13.4.3 (MAD header), 12.6 to 12.11 (CM messages) and annex A11
// (RDMA IP CM service). Values with every field of the message; decode() and encode() are inverse for reserved
// fields of zero.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/net.hpp"

namespace nbx::wire {

inline constexpr std::size_t mad_size = 256;
using MadBytes = std::span<std::byte, mad_size>;

struct MadHeader {
  std::uint8_t base_version;
  std::uint8_t management_class;
  std::uint8_t class_version;
  std::uint8_t method;  // R bit and method
  Be16 status;
  Be16 class_specific;
  Be64 transaction_id;
  Be16 attribute_id;
  Be16 reserved;
  Be32 attribute_modifier;

  static constexpr std::uint8_t cm_class = 0x07;  // 16.7
  static constexpr std::uint8_t cm_class_version = 2;
  static constexpr std::uint8_t method_send = 0x03;
};
static_assert(WireImage<MadHeader> && sizeof(MadHeader) == 24);

/// Table 378: attributes of the communication management class.
enum class CmAttribute : std::uint16_t {
  req = 0x0010,
  mra = 0x0011,
  rej = 0x0012,
  rep = 0x0013,
  rtu = 0x0014,
  dreq = 0x0015,
  drep = 0x0016,
  sidr_req = 0x0017,
  sidr_rep = 0x0018,
  lap = 0x0019,  // load alternate path and its answer are recognised, not decoded
  apr = 0x001a,
};
[[nodiscard]] std::string_view name(CmAttribute attribute) noexcept;

template <std::size_t Size>
using PrivateData = std::array<std::byte, Size>;

/// One path of a REQ, 12.6.5.
struct CmPath {
  std::uint16_t local_lid = 0;  // RoCE has no LIDs; rxe and mlx5 send 0xffff (permissive)
  std::uint16_t remote_lid = 0;
  IpAddress local_gid;  // the sender of the REQ
  IpAddress remote_gid;
  std::uint32_t flow_label = 0;
  std::uint8_t packet_rate = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::uint8_t sl = 0;
  bool subnet_local = false;
  std::uint8_t local_ack_timeout = 0;  // 4.096 us * 2^n
  friend bool operator==(const CmPath&, const CmPath&) = default;
};

/// Table 99.
struct CmReq {
  static constexpr CmAttribute attribute = CmAttribute::req;
  std::uint64_t transaction_id = 0;
  std::uint32_t local_comm_id = 0;
  std::uint64_t service_id = 0;
  std::uint64_t local_ca_guid = 0;
  std::uint32_t local_qkey = 0;
  Qpn local_qpn{};
  std::uint8_t responder_resources = 0;
  std::uint32_t local_eecn = 0;
  std::uint8_t initiator_depth = 0;
  std::uint32_t remote_eecn = 0;
  std::uint8_t remote_cm_response_timeout = 0;  // 4.096 us * 2^n
  std::uint8_t transport_service_type = 0;      // 0 RC, 1 UC, 2 RD, 3 see extended_transport_type
  bool end_to_end_flow_control = false;
  Psn starting_psn{};
  std::uint8_t local_cm_response_timeout = 0;
  std::uint8_t retry_count = 0;
  std::uint16_t pkey = 0;
  std::uint8_t path_mtu = 0;  // 1: 256 … 5: 4096
  bool rdc_exists = false;
  std::uint8_t rnr_retry_count = 0;  // 7: for ever
  std::uint8_t max_cm_retries = 0;
  bool srq = false;
  std::uint8_t extended_transport_type = 0;
  CmPath primary;
  CmPath alternate;
  PrivateData<92> private_data{};
  friend bool operator==(const CmReq&, const CmReq&) = default;
};

/// Table 103.
struct CmRep {
  static constexpr CmAttribute attribute = CmAttribute::rep;
  std::uint64_t transaction_id = 0;
  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  std::uint32_t local_qkey = 0;
  Qpn local_qpn{};
  std::uint32_t local_eecn = 0;
  Psn starting_psn{};
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t target_ack_delay = 0;
  std::uint8_t failover_accepted = 0;
  bool end_to_end_flow_control = false;
  std::uint8_t rnr_retry_count = 0;
  bool srq = false;
  std::uint64_t local_ca_guid = 0;
  PrivateData<196> private_data{};
  friend bool operator==(const CmRep&, const CmRep&) = default;
};

/// Table 104.
struct CmRtu {
  static constexpr CmAttribute attribute = CmAttribute::rtu;
  std::uint64_t transaction_id = 0;
  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  PrivateData<224> private_data{};
  friend bool operator==(const CmRtu&, const CmRtu&) = default;
};

/// Which message a REJ or an MRA answers (12.6.6, 12.6.7).
enum class CmAnswered : std::uint8_t { req = 0, rep = 1, other = 2 };  // other: none (REJ), LAP (MRA)

/// Table 102.
enum class RejReason : std::uint16_t {
  no_qp_available = 1,
  no_eec_available = 2,
  no_resources = 3,
  timeout = 4,
  unsupported_request = 5,
  invalid_comm_id = 6,
  invalid_comm_instance = 7,
  invalid_service_id = 8,
  invalid_transport_type = 9,
  stale_connection = 10,
  rdc_does_not_exist = 11,
  primary_remote_gid = 12,
  primary_remote_lid = 13,
  invalid_primary_sl = 14,
  invalid_primary_traffic_class = 15,
  invalid_primary_hop_limit = 16,
  invalid_primary_packet_rate = 17,
  alternate_remote_gid = 18,
  alternate_remote_lid = 19,
  invalid_alternate_sl = 20,
  invalid_alternate_traffic_class = 21,
  invalid_alternate_hop_limit = 22,
  invalid_alternate_packet_rate = 23,
  port_and_cm_redirection = 24,
  port_redirection = 25,
  invalid_path_mtu = 26,
  insufficient_responder_resources = 27,
  consumer_reject = 28,
  rnr_retry_count_invalid = 29,
  duplicate_local_comm_id = 30,
  invalid_class_version = 31,
  invalid_primary_flow_label = 32,
  invalid_alternate_flow_label = 33,
};

/// Table 101.
struct CmRej {
  static constexpr CmAttribute attribute = CmAttribute::rej;
  std::uint64_t transaction_id = 0;
  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  CmAnswered rejected = CmAnswered::req;
  std::uint8_t info_size = 0;  // bytes of additional_info that count
  RejReason reason{};
  PrivateData<72> additional_info{};
  PrivateData<148> private_data{};
  friend bool operator==(const CmRej&, const CmRej&) = default;
};

/// Table 100.
struct CmMra {
  static constexpr CmAttribute attribute = CmAttribute::mra;
  std::uint64_t transaction_id = 0;
  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  CmAnswered answered = CmAnswered::req;
  std::uint8_t service_timeout = 0;  // 4.096 us * 2^n
  PrivateData<222> private_data{};
  friend bool operator==(const CmMra&, const CmMra&) = default;
};

/// Table 105.
struct CmDreq {
  static constexpr CmAttribute attribute = CmAttribute::dreq;
  std::uint64_t transaction_id = 0;
  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  Qpn remote_qpn{};
  PrivateData<220> private_data{};
  friend bool operator==(const CmDreq&, const CmDreq&) = default;
};

/// Table 106.
struct CmDrep {
  static constexpr CmAttribute attribute = CmAttribute::drep;
  std::uint64_t transaction_id = 0;
  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  PrivateData<224> private_data{};
  friend bool operator==(const CmDrep&, const CmDrep&) = default;
};

/// 12.11.1.1.
struct CmSidrReq {
  static constexpr CmAttribute attribute = CmAttribute::sidr_req;
  std::uint64_t transaction_id = 0;
  std::uint32_t request_id = 0;
  std::uint16_t pkey = 0;
  std::uint64_t service_id = 0;
  PrivateData<216> private_data{};
  friend bool operator==(const CmSidrReq&, const CmSidrReq&) = default;
};

/// 12.11.1.2.
enum class SidrStatus : std::uint8_t {
  valid = 0,
  service_id_unsupported = 1,
  rejected_by_service = 2,
  no_qp_available = 3,
  redirected = 4,
  version_unsupported = 5,
};

struct CmSidrRep {
  static constexpr CmAttribute attribute = CmAttribute::sidr_rep;
  std::uint64_t transaction_id = 0;
  std::uint32_t request_id = 0;
  SidrStatus status = SidrStatus::valid;
  std::uint8_t info_size = 0;
  Qpn qpn{};
  std::uint64_t service_id = 0;
  std::uint32_t qkey = 0;
  PrivateData<72> additional_info{};
  PrivateData<136> private_data{};
  friend bool operator==(const CmSidrRep&, const CmSidrRep&) = default;
};

struct CmHeader {
  CmAttribute attribute{};
  std::uint64_t transaction_id = 0;
};
/// What CM message `mad` is; nothing when it is shorter than a MAD, of another class, version or method, or of an
/// attribute that is not a CM message.
[[nodiscard]] std::optional<CmHeader> decode_cm_header(ConstBytes mad) noexcept;

/// The message, if `mad` is one.
[[nodiscard]] std::optional<CmReq> decode_req(ConstBytes mad) noexcept;
[[nodiscard]] std::optional<CmRep> decode_rep(ConstBytes mad) noexcept;
[[nodiscard]] std::optional<CmRtu> decode_rtu(ConstBytes mad) noexcept;
[[nodiscard]] std::optional<CmRej> decode_rej(ConstBytes mad) noexcept;
[[nodiscard]] std::optional<CmMra> decode_mra(ConstBytes mad) noexcept;
[[nodiscard]] std::optional<CmDreq> decode_dreq(ConstBytes mad) noexcept;
[[nodiscard]] std::optional<CmDrep> decode_drep(ConstBytes mad) noexcept;
[[nodiscard]] std::optional<CmSidrReq> decode_sidr_req(ConstBytes mad) noexcept;
[[nodiscard]] std::optional<CmSidrRep> decode_sidr_rep(ConstBytes mad) noexcept;

/// Writes the whole MAD, reserved fields as zero. A value wider than its field is truncated to it.
void encode(const CmReq& message, MadBytes mad) noexcept;
void encode(const CmRep& message, MadBytes mad) noexcept;
void encode(const CmRtu& message, MadBytes mad) noexcept;
void encode(const CmRej& message, MadBytes mad) noexcept;
void encode(const CmMra& message, MadBytes mad) noexcept;
void encode(const CmDreq& message, MadBytes mad) noexcept;
void encode(const CmDrep& message, MadBytes mad) noexcept;
void encode(const CmSidrReq& message, MadBytes mad) noexcept;
void encode(const CmSidrRep& message, MadBytes mad) noexcept;

/// The head of the private data of a REQ or SIDR_REQ of the RDMA IP CM service, A11.4. The consumer's private data
/// follows it: 56 bytes of a REQ, 180 of a SIDR_REQ.
struct RdmaIpCm {
  static constexpr std::size_t size = 36;
  std::uint8_t major_version = 0;
  std::uint8_t minor_version = 0;
  std::uint16_t source_port = 0;
  IpAddress source_ip;  // both of one family, which is the IP version on the wire
  IpAddress destination_ip;
  friend bool operator==(const RdmaIpCm&, const RdmaIpCm&) = default;
};
[[nodiscard]] std::optional<RdmaIpCm> decode_rdma_ip_cm(ConstBytes private_data) noexcept;
void encode(const RdmaIpCm& header, std::span<std::byte, RdmaIpCm::size> private_data) noexcept;

/// Service ids of the RDMA IP CM service, A11.3: 0x00000000'01PPpppp.
enum class PortSpace : std::uint16_t { tcp = 0x0106, udp = 0x0111 };

[[nodiscard]] constexpr std::uint64_t service_id_of(PortSpace space, std::uint16_t port) {
  return (static_cast<std::uint64_t>(space) << 16U) | port;
}
struct RdmaPort {
  PortSpace space{};
  std::uint16_t port = 0;
  friend bool operator==(const RdmaPort&, const RdmaPort&) = default;
};
/// Nothing when `service_id` is of no port space.
[[nodiscard]] constexpr std::optional<RdmaPort> rdma_port_of(std::uint64_t service_id) {
  const auto space = service_id >> 16U;
  const auto port = static_cast<std::uint16_t>(service_id);
  if (space == static_cast<std::uint64_t>(PortSpace::tcp)) {
    return RdmaPort{PortSpace::tcp, port};
  }
  if (space == static_cast<std::uint64_t>(PortSpace::udp)) {
    return RdmaPort{PortSpace::udp, port};
  }
  return std::nullopt;
}

}  // namespace nbx::wire
