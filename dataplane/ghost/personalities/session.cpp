#include "ghost/personalities/session.hpp"

#include "wire/mad.hpp"

namespace nbx::ghost {

void Session::close() noexcept {
  if (qp_ != nullptr) {
    context_.transport.destroy_qp(*qp_);
    qp_ = nullptr;
  }
}

bool Session::prepare() {
  rdma::QpAttr attr = context_.defaults.qp_attr();
  adjust(attr);
  qp_ = context_.transport.create_qp(context_.ghost, attr, *this);
  if (qp_ != nullptr) {
    post_receives();
  }
  return qp_ != nullptr;
}

void Session::on_completion(rdma::Qp& qp, const rdma::Completion& completion, Instant now) noexcept {
  if (completion.status != rdma::WcStatus::success) {
    if (completion.status != rdma::WcStatus::wr_flush_err) {
      fail();
    }
    return;
  }
  if (completion.opcode == rdma::WcOpcode::recv || completion.opcode == rdma::WcOpcode::recv_rdma_with_imm) {
    context_.cm.communication_established(qp, now);
    received(completion, now);
  } else {
    sent(completion, now);
  }
}

void Session::on_error(rdma::Qp&, rdma::WcStatus, Instant now) noexcept {
  fail();
  disconnect(now);
}

std::string SessionTally::text() const {
  return std::to_string(open) + " open, " + std::to_string(succeeded) + " done, " + std::to_string(failed) + " failed";
}

void Service::start(Instant) { context_.cm.listen(context_.ghost, rdma::tcp_service_id(port_), *this); }

std::string Service::status() const { return "listens on " + std::to_string(port_) + ": " + tally_.text(); }

void Service::on_request(rdma::ConnectionId id, const rdma::ConnectRequest&, Instant now) noexcept {
  auto session = make_(context_);
  if (!session->prepare()) {
    context_.cm.reject(id, wire::RejReason::no_qp_available, {}, now);
    return;
  }
  session->set_connection(id);
  const rdma::AcceptParam param{.private_data = session->private_data()};
  rdma::Qp& qp = session->qp();
  sessions_[id] = std::move(session);
  ++tally_.open;
  if (!context_.cm.accept(id, qp, param, now)) {
    --tally_.open;
    sessions_.erase(id);
  }
}

void Service::on_established(rdma::ConnectionId id, ConstBytes private_data, Instant now) noexcept {
  sessions_.at(id)->opened(private_data, now);
}

void Service::on_disconnected(rdma::ConnectionId id, rdma::DisconnectCause, std::uint16_t, Instant) noexcept {
  const auto found = sessions_.find(id);
  if (found != sessions_.end()) {
    tally_.closed(*found->second);
    found->second->close();
    last_closed_ = std::move(found->second);
    sessions_.erase(found);
  }
}

Caller::Caller(const Context& context, const std::string& peer, std::uint16_t port, Duration start, MakeSession make)
    : context_(context),
      peer_(parse_ip(peer).value_or(IpAddress{})),
      port_(port),
      start_(start),
      make_(std::move(make)) {
  timer_.client = this;
}

Caller::~Caller() { context_.wheel.cancel(timer_); }

void Caller::start(Instant now) { context_.wheel.arm(timer_, now + start_); }

std::string Caller::status() const {
  if (tally_.succeeded + tally_.failed + tally_.open != 0) {
    return "called " + to_string(peer_) + ": " + tally_.text();
  }
  return (over_ ? "gave up calling " : "calls ") + to_string(peer_) + ", attempt " + std::to_string(attempts_);
}

void Caller::on_timer(TimerNode&, Instant now) noexcept {
  if (++attempts_ > attempts_max) {
    over_ = true;
    return;
  }
  if (const auto mac = context_.neighbours.lookup(peer_)) {
    call(*mac, now);
    return;
  }
  const auto resolved = [this, still = std::weak_ptr{alive_}](std::optional<Mac> mac, Instant at) {
    if (still.expired()) {
      return;
    }
    mac ? call(*mac, at) : try_again(at);
  };
  context_.neighbours.resolve(context_.ghost, peer_, resolved, now);
}

void Caller::call(const Mac& mac, Instant now) {
  const auto path = context_.path_to(peer_, mac);
  auto session = make_(context_);
  if (!path || !session->prepare()) {
    over_ = true;
    return;
  }
  rdma::ConnectParam param;
  param.service_id = rdma::tcp_service_id(port_);
  param.path = *path;
  param.path_mtu = context_.defaults.path_mtu;
  param.local_ack_timeout = context_.defaults.timeout;
  param.retry_count = context_.defaults.retry_cnt;
  param.rnr_retry_count = context_.defaults.rnr_retry;
  session_ = std::move(session);
  const rdma::ConnectionId id = context_.cm.connect(context_.ghost, session_->qp(), param, *this, now);
  if (id == rdma::ConnectionId::none) {
    try_again(now);
    return;
  }
  session_->set_connection(id);
}

void Caller::try_again(Instant now) { context_.wheel.arm(timer_, now + std::chrono::seconds{1}); }

void Caller::on_established(rdma::ConnectionId, ConstBytes private_data, Instant now) noexcept {
  established_ = true;
  ++tally_.open;
  session_->opened(private_data, now);
}

void Caller::on_disconnected(rdma::ConnectionId, rdma::DisconnectCause, std::uint16_t, Instant now) noexcept {
  if (!established_) {
    try_again(now);
    return;
  }
  over_ = true;
  tally_.closed(*session_);
  // The session stays until we go: it may be on the stack. Its queue pair goes now.
  session_->close();
}

}  // namespace nbx::ghost
