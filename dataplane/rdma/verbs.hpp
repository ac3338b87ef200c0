// The verbs that personalities are written against: libibverbs' words and values where it has them.
#pragma once

#include <cstdint>
#include <optional>

#include "base/ids.hpp"
#include "base/rank_edge.hpp"
#include "base/units.hpp"
#include "wire/opcode.hpp"
#include "wire/path.hpp"

namespace nbx::rdma {

enum class QpType : std::uint8_t { rc, uc, ud };
enum class QpState : std::uint8_t { reset, init, rtr, rts, sqe, error };  // IBTA 10.3.1

/// enum ibv_access_flags.
namespace access {
inline constexpr std::uint8_t local_write = 1;
inline constexpr std::uint8_t remote_write = 2;
inline constexpr std::uint8_t remote_read = 4;
inline constexpr std::uint8_t remote_atomic = 8;
}  // namespace access

/// enum ibv_wr_opcode.
enum class WrOpcode : std::uint8_t {
  rdma_write = 0,
  rdma_write_with_imm = 1,
  send = 2,
  send_with_imm = 3,
  rdma_read = 4,
  atomic_cmp_and_swp = 5,
  atomic_fetch_and_add = 6,
  send_with_inv = 9,
};

/// enum ibv_wc_status.
enum class WcStatus : std::uint8_t {
  success = 0,
  loc_len_err = 1,
  loc_qp_op_err = 2,
  loc_prot_err = 4,
  wr_flush_err = 5,
  bad_resp_err = 7,
  loc_access_err = 8,
  rem_inv_req_err = 9,
  rem_access_err = 10,
  rem_op_err = 11,
  retry_exc_err = 12,
  rnr_retry_exc_err = 13,
  rem_abort_err = 17,
  fatal_err = 19,
};

/// enum ibv_wc_opcode.
enum class WcOpcode : std::uint8_t {
  send = 0,
  rdma_write = 1,
  rdma_read = 2,
  comp_swap = 3,
  fetch_add = 4,
  recv = 128,
  recv_rdma_with_imm = 129,
};

/// A range of a registered region; length 0 needs no region.
struct Sge {
  std::uint64_t addr = 0;
  std::uint32_t length = 0;
  std::uint32_t lkey = 0;
};

struct SendWr {
  std::uint64_t wr_id = 0;
  WrOpcode opcode = WrOpcode::send;
  bool signaled = true;
  bool solicited = false;
  bool fence = false;
  Sge local{};
  std::uint64_t remote_addr = 0;
  std::uint32_t rkey = 0;
  std::uint32_t imm_data = 0;  // host order of the four wire bytes; the rkey to invalidate for send_with_inv
  std::uint64_t compare_add = 0;
  std::uint64_t swap = 0;
  // UD only
  wire::Path path{};
  Qpn remote_qpn{};
  std::uint32_t remote_qkey = 0;
};

struct RecvWr {
  std::uint64_t wr_id = 0;
  Sge local{};  // UD receives get the payload alone: no 40 bytes of GRH are kept
};

struct Completion {
  std::uint64_t wr_id = 0;
  WcStatus status = WcStatus::success;
  WcOpcode opcode = WcOpcode::send;
  bool has_imm = false;
  bool invalidated = false;  // imm_data is the rkey that the peer invalidated
  std::uint32_t byte_len = 0;
  std::uint32_t imm_data = 0;
  Qpn source_qpn{};    // UD receives
  IpAddress source{};  // UD receives
};

/// Attributes of a queue pair, in the words of ibv_modify_qp. Timers are IBTA codes.
struct QpAttr {
  QpType type = QpType::rc;
  Qpn qpn{};  // 0: the transport chooses
  Qpn dest_qpn{};
  wire::Path path{};  // RC and UC
  Psn sq_psn{};
  Psn rq_psn{};
  std::uint32_t path_mtu = 1024;  // bytes: 256, 512, 1024, 2048 or 4096
  std::uint16_t pkey = wire::default_pkey;
  std::uint32_t qkey = 0;                // UD
  std::uint8_t access = 0;               // access:: bits that the peer may use
  std::uint8_t timeout = 14;             // local ACK timeout: 4.096 us * 2^timeout, 0: never (9.7.6.1.3)
  std::uint8_t retry_cnt = 7;            // 0..7
  std::uint8_t rnr_retry = 7;            // 0..6; 7: without limit (9.7.5.2.8)
  std::uint8_t min_rnr_timer = 12;       // code of table 45, sent in RNR NAKs
  std::uint8_t max_rd_atomic = 16;       // outstanding READs and atomics as requester
  std::uint8_t max_dest_rd_atomic = 16;  // as responder: depth of the replay store
  std::uint32_t max_send_wr = 256;
  std::uint32_t max_recv_wr = 256;
  std::uint32_t max_outstanding_packets = 256;  // request packets in flight as requester
  bool report_writes = false;                   // call QpUser::on_write
  bool adopt_peer = false;          // `type` and `path_mtu` are guesses: the first packet that arrives tells
  bool end_to_end_credits = false;  // tell the peer how many receives are posted (9.7.7.2)
  std::optional<RankEdge> edge{};   // what it is to its user: for events and reports
};

class Qp;

/// Whoever posts to a queue pair. Calls come from the worker of the shard; a handler may post, and may destroy the
/// queue pair (which takes effect when the call has returned).
class QpUser {
 public:
  virtual void on_completion(Qp& qp, const Completion& completion, Instant now) noexcept = 0;
  /// An RDMA WRITE without immediate has arrived completely; only when attr.report_writes. `addr` and `length` are
  /// the message's.
  virtual void on_write(Qp& qp, std::uint64_t addr, std::uint32_t length, Instant now) noexcept {
    static_cast<void>(qp), static_cast<void>(addr), static_cast<void>(length), static_cast<void>(now);
  }
  /// The queue pair went to the error state; its outstanding requests have been flushed.
  virtual void on_error(Qp& qp, WcStatus cause, Instant now) noexcept = 0;

 protected:
  ~QpUser() = default;
};

/// A message that a ghost's responder took in completely, whether or not it completes a receive.
struct Delivery {
  Qpn qpn{};
  GhostId ghost = no_ghost;
  WrOpcode opcode = WrOpcode::send;  // rdma_read and the atomics: a request that was executed
  std::uint32_t length = 0;
  bool has_imm = false;
  std::uint32_t imm_data = 0;
  std::uint32_t payload_crc32 = 0;  // of the message's payload, as zlib computes it; READs: of the data returned
};

/// Told of every delivery: for replays and tests. Without one nothing is hashed.
class DeliveryObserver {
 public:
  virtual void on_delivery(const Delivery& delivery, Instant now) noexcept = 0;

 protected:
  ~DeliveryObserver() = default;
};

}  // namespace nbx::rdma
