// Connections that personalities make through the CM: a Session is one of them, a Service accepts them, a Caller makes
// one and tries again until the real node listens.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ghost/personality.hpp"

namespace nbx::ghost {

class Session : public rdma::QpUser {
 public:
  explicit Session(const Context& context) : context_(context) {}
  virtual ~Session() { close(); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  Session(Session&&) = delete;
  Session& operator=(Session&&) = delete;

  /// Creates the queue pair and posts what must be posted before the peer may send. False: no queue pair to be had.
  bool prepare();
  /// Gives the queue pair back.
  void close() noexcept;
  void set_connection(rdma::ConnectionId id) noexcept { connection_ = id; }
  [[nodiscard]] rdma::Qp& qp() noexcept { return *qp_; }

  /// The connection stands.
  virtual void opened(ConstBytes peer_private_data, Instant now) = 0;
  [[nodiscard]] virtual ConstBytes private_data() const { return {}; }
  /// Whether everything that the session was for has been done, and nothing was wrong.
  [[nodiscard]] virtual bool succeeded() const { return !failed_; }

 protected:
  /// Adjusts the attributes that Context::defaults give.
  virtual void adjust(rdma::QpAttr& attr) const { static_cast<void>(attr); }
  virtual void post_receives() = 0;
  /// A receive has completed well; `completion.wr_id` is what it was posted with.
  virtual void received(const rdma::Completion& completion, Instant now) = 0;
  /// A request has completed well.
  virtual void sent(const rdma::Completion& completion, Instant now) = 0;

  bool post_send(const rdma::SendWr& wr, Instant now) noexcept {
    return qp_ != nullptr && context_.transport.post_send(*qp_, wr, now);
  }
  bool post_recv(std::uint64_t wr_id, const rdma::Sge& into) noexcept {
    return qp_ != nullptr && context_.transport.post_recv(*qp_, {.wr_id = wr_id, .local = into});
  }
  void disconnect(Instant now) noexcept { context_.cm.disconnect(connection_, now); }
  /// What the peer sent is not what it had to be.
  void fail() noexcept { failed_ = true; }

  const Context& context_;
  rdma::ConnectionId connection_ = rdma::ConnectionId::none;

 private:
  void on_completion(rdma::Qp& qp, const rdma::Completion& completion, Instant now) noexcept final;
  void on_error(rdma::Qp& qp, rdma::WcStatus cause, Instant now) noexcept final;

  rdma::Qp* qp_ = nullptr;
  bool failed_ = false;
};

using MakeSession = std::function<std::unique_ptr<Session>(const Context&)>;

/// How many sessions there were, and how they ended.
struct SessionTally {
  std::uint64_t open = 0;
  std::uint64_t succeeded = 0;
  std::uint64_t failed = 0;

  void closed(const Session& session) noexcept {
    --open;
    ++(session.succeeded() ? succeeded : failed);
  }
  [[nodiscard]] std::string text() const;
};

class Service final : public Personality, public rdma::CmUser {
 public:
  Service(const Context& context, std::uint16_t port, MakeSession make)
      : context_(context), port_(port), make_(std::move(make)) {}

  void start(Instant now) override;
  [[nodiscard]] std::string status() const override;

 private:
  void on_request(rdma::ConnectionId id, const rdma::ConnectRequest& request, Instant now) noexcept override;
  void on_established(rdma::ConnectionId id, ConstBytes private_data, Instant now) noexcept override;
  void on_disconnected(rdma::ConnectionId id, rdma::DisconnectCause cause, std::uint16_t reason,
                       Instant now) noexcept override;
  SidrAnswer on_sidr(GhostId, std::uint64_t, const wire::Path&, Instant) noexcept override { return {}; }

  Context context_;
  std::uint16_t port_;
  MakeSession make_;
  std::map<rdma::ConnectionId, std::unique_ptr<Session>> sessions_;
  std::unique_ptr<Session> last_closed_;  // may still be on the stack
  SessionTally tally_;
};

/// Calls `peer` from `start` on, once a second until it accepts.
class Caller final : public Personality, public rdma::CmUser, public TimerClient {
 public:
  Caller(const Context& context, const std::string& peer, std::uint16_t port, Duration start, MakeSession make);
  ~Caller() override;
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;
  Caller(Caller&&) = delete;
  Caller& operator=(Caller&&) = delete;

  void start(Instant now) override;
  [[nodiscard]] std::string status() const override;

 private:
  static constexpr unsigned attempts_max = 120;

  void on_timer(TimerNode& node, Instant now) noexcept override;
  void call(const Mac& mac, Instant now);
  void try_again(Instant now);
  void on_request(rdma::ConnectionId, const rdma::ConnectRequest&, Instant) noexcept override {}
  void on_established(rdma::ConnectionId id, ConstBytes private_data, Instant now) noexcept override;
  void on_disconnected(rdma::ConnectionId id, rdma::DisconnectCause cause, std::uint16_t reason,
                       Instant now) noexcept override;
  SidrAnswer on_sidr(GhostId, std::uint64_t, const wire::Path&, Instant) noexcept override { return {}; }

  Context context_;
  IpAddress peer_;
  std::uint16_t port_;
  Duration start_;
  MakeSession make_;
  TimerNode timer_;
  unsigned attempts_ = 0;
  bool established_ = false;
  bool over_ = false;
  std::unique_ptr<Session> session_;
  std::shared_ptr<int> alive_ = std::make_shared<int>();  // a resolution may answer after we are gone
  SessionTally tally_;
};

}  // namespace nbx::ghost
