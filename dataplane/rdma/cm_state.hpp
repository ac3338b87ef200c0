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
#pragma once

#include <unordered_map>

#include "rdma/cm.hpp"
#include "rdma/cm_messages.hpp"
#include "rdma/cm_table.hpp"

namespace nbx::rdma {

/// A communication id as the wire has it.
[[nodiscard]] inline std::uint32_t number(ConnectionId id) { return static_cast<std::uint32_t>(id); }

/// Code; the longest that an MRA makes anybody wait is 9 s.
inline constexpr std::uint8_t mra_timeout_max = 21;

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
  /// What is listened to.
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

}  // namespace nbx::rdma
