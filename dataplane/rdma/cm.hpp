// The communication manager of every ghost of a shard, on QP1: IBTA volume 1 chapter 12, RDMA IP CM service annex A11.
// Duplicates are answered again, lost messages are sent again, and every exchange ends within a bounded time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/rng.hpp"
#include "rdma/transport.hpp"
#include "wire/mad.hpp"

namespace nbx::rdma {

/// A connection of this shard's CM; 0 is none. It is also the local communication id on the wire.
enum class ConnectionId : std::uint32_t { none = 0 };

/// What the peer's REQ says.
struct ConnectRequest {
  GhostId ghost = no_ghost;
  std::uint64_t service_id = 0;
  QpType type = QpType::rc;
  wire::Path path{};  // back to the peer
  Qpn remote_qpn{};
  Psn starting_psn{};
  std::uint32_t path_mtu = 1024;
  std::uint16_t pkey = wire::default_pkey;
  std::uint8_t responder_resources = 0;  // the peer's as responder
  std::uint8_t initiator_depth = 0;      // the peer's as initiator
  std::uint8_t local_ack_timeout = 0;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
  std::uint8_t remote_cm_response_timeout = 0;
  ConstBytes private_data{};  // the consumer's, behind the A11 header when the service is an RDMA IP CM service
};

struct AcceptParam {
  std::uint8_t responder_resources = 16;
  std::uint8_t initiator_depth = 16;
  std::uint8_t rnr_retry_count = 7;
  std::optional<Psn> starting_psn{};  // of the peer's requests; random when not told
  ConstBytes private_data{};
};

struct ConnectParam {
  std::uint64_t service_id = 0;  // or from_port(port) for an RDMA IP CM service
  wire::Path path{};             // to the peer, MAC resolved
  std::uint32_t path_mtu = 1024;
  std::uint8_t responder_resources = 16;
  std::uint8_t initiator_depth = 16;
  std::uint8_t local_ack_timeout = 14;
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry_count = 7;
  std::uint16_t source_port = 0;  // A11
  ConstBytes private_data{};
};

/// Service id of TCP-like port space of rdma_cm (A11.2.1).
[[nodiscard]] constexpr std::uint64_t tcp_service_id(std::uint16_t port) { return 0x0000'0000'0106'0000ULL | port; }
[[nodiscard]] constexpr std::uint64_t udp_service_id(std::uint16_t port) { return 0x0000'0000'0111'0000ULL | port; }

enum class DisconnectCause : std::uint8_t { local, remote, rejected, timed_out };

class CmUser {
 public:
  /// A REQ for a service this user listens to; answer with accept(), reject() or later.
  virtual void on_request(ConnectionId id, const ConnectRequest& request, Instant now) noexcept = 0;
  virtual void on_established(ConnectionId id, ConstBytes private_data, Instant now) noexcept = 0;
  /// The connection is over; the id is invalid after the call. `reason` is the REJ reason for rejected.
  virtual void on_disconnected(ConnectionId id, DisconnectCause cause, std::uint16_t reason, Instant now) noexcept = 0;
  /// A SIDR_REQ (UD service resolution): answer the QPN and Q_Key to give, or qpn 0 to refuse.
  struct SidrAnswer {
    Qpn qpn{};
    std::uint32_t qkey = 0;
  };
  virtual SidrAnswer on_sidr(GhostId ghost, std::uint64_t service_id, const wire::Path& path, Instant now) noexcept = 0;

 protected:
  ~CmUser() = default;
};

struct CmConfig {
  std::uint8_t response_timeout = 20;  // code: 4.096 us * 2^n
  std::uint8_t max_retries = 15;
  std::size_t connections_max = 65536;
};

class Cm final : public MadHandler {
 public:
  Cm(const CmConfig& config, Transport& transport, Wheel& wheel, Counters& counters, Rng rng);
  ~Cm();
  Cm(const Cm&) = delete;
  Cm& operator=(const Cm&) = delete;
  Cm(Cm&&) = delete;
  Cm& operator=(Cm&&) = delete;

  /// false: somebody listens there already.
  bool listen(GhostId ghost, std::uint64_t service_id, CmUser& user);
  void unlisten(GhostId ghost, std::uint64_t service_id);

  /// Passive side: connects `qp` as the REQ asks and sends REP; on_established follows with RTU or the first data.
  bool accept(ConnectionId id, Qp& qp, const AcceptParam& param, Instant now) noexcept;
  /// Passive side: refuses the REQ. The id is invalid at once, and on_disconnected does not follow.
  void reject(ConnectionId id, wire::RejReason reason, ConstBytes private_data, Instant now) noexcept;
  /// Tells the peer to wait longer (MRA).
  void delay_answer(ConnectionId id, std::uint8_t service_timeout, Instant now) noexcept;
  /// Active side: sends REQ for `qp` (INIT); on_established has connected it.
  ConnectionId connect(GhostId ghost, Qp& qp, const ConnectParam& param, CmUser& user, Instant now) noexcept;
  /// Ends the connection: on_disconnected follows with the DREP, within this call when nothing was connected yet. The
  /// queue pair stays its user's and may be destroyed right away.
  void disconnect(ConnectionId id, Instant now) noexcept;

  /// Data on a queue pair whose RTU was lost establishes the connection (12.9.6): the transport's users call this.
  void communication_established(Qp& qp, Instant now) noexcept;

  /// Everything in the table, connections in timewait included.
  [[nodiscard]] std::size_t connections() const noexcept;

  void on_mad(GhostId ghost, ConstBytes mad, const wire::Path& reply_path, Instant now) noexcept override;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace nbx::rdma
