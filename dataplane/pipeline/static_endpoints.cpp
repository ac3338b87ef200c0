#include "pipeline/static_endpoints.hpp"

#include "pipeline/shard.hpp"

namespace nbx::pipeline {

/// One queue pair with its receives and its timed requests.
class StaticEndpoints::Endpoint final : public rdma::QpUser, public TimerClient {
 public:
  Endpoint(StaticEndpoints& owner, GhostId ghost, const rdma::QpAttr& attr, const Receives& receives,
           const std::vector<TimedRequest>& requests)
      : owner_(owner), ghost_(ghost), receives_(receives), requests_(requests) {
    timer_.client = this;
    qp_ = owner_.transport_.create_qp(ghost, attr, *this);
    if (qp_ == nullptr) {
      return;
    }
    if (receives_.region == 0 && receives_.size != 0) {
      const rdma::RegionSpec own{.length = std::uint64_t{receives_.count} * receives_.size,
                                 .access = rdma::access::local_write};
      if (const rdma::Region* region = owner_.transport_.memory(ghost).add(own)) {
        receives_.region = own_region_ = region->spec().key;
      }
    }
    const rdma::Region* region = owner_.transport_.memory(ghost).find(receives_.region);
    region_start_ = region != nullptr ? region->spec().addr : 0;
    for (std::uint32_t i = 0; i < receives_.count; ++i) {
      post_receive(i);
    }
  }
  ~Endpoint() {
    owner_.wheel_.cancel(timer_);
    if (own_region_ != 0) {
      owner_.transport_.memory(ghost_).remove(own_region_);
    }
  }
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  Endpoint(Endpoint&&) = delete;
  Endpoint& operator=(Endpoint&&) = delete;

  [[nodiscard]] rdma::Qp* qp() noexcept { return qp_; }

  /// From now on the requests are posted, each `at` after `start`.
  void begin(Instant start) {
    start_ = start;
    arm();
  }
  void destroy() noexcept {
    owner_.wheel_.cancel(timer_);
    if (qp_ != nullptr) {
      owner_.transport_.destroy_qp(*qp_);
      qp_ = nullptr;
    }
  }

  void on_completion(rdma::Qp& qp, const rdma::Completion& completion, Instant now) noexcept override {
    const bool received =
        completion.opcode == rdma::WcOpcode::recv || completion.opcode == rdma::WcOpcode::recv_rdma_with_imm;
    if (received && completion.status == rdma::WcStatus::success) {
      owner_.cm_.communication_established(qp, now);
      if (receives_.repost) {
        post_receive(static_cast<std::uint32_t>(completion.wr_id));
      }
    }
    if (owner_.observer_ != nullptr) {
      owner_.observer_->on_completion(ghost_, qp.qpn(), completion, now);
    }
  }
  void on_error(rdma::Qp&, rdma::WcStatus, Instant) noexcept override { owner_.wheel_.cancel(timer_); }

  void on_timer(TimerNode&, Instant now) noexcept override {
    while (next_ < requests_.size() && start_ + requests_[next_].at <= now && qp_ != nullptr) {
      owner_.transport_.post_send(*qp_, requests_[next_].wr, now);
      ++next_;
    }
    arm();
  }

 private:
  void arm() noexcept {
    if (next_ < requests_.size()) {
      owner_.wheel_.arm(timer_, start_ + requests_[next_].at);
    }
  }
  void post_receive(std::uint32_t slot) noexcept {
    const rdma::Sge into{region_start_ + std::uint64_t{slot} * receives_.size, receives_.size, receives_.region};
    owner_.transport_.post_recv(*qp_, {.wr_id = slot, .local = into});
  }

  StaticEndpoints& owner_;
  GhostId ghost_;
  Receives receives_;
  const std::vector<TimedRequest>& requests_;  // of the plan, in order of `at`
  rdma::Qp* qp_ = nullptr;
  std::uint32_t own_region_ = 0;
  std::uint64_t region_start_ = 0;
  Instant start_{};
  std::size_t next_ = 0;
  TimerNode timer_;
};

/// Accepts every REQ of one service with an Endpoint of its own.
class StaticEndpoints::Listener final : public rdma::CmUser {
 public:
  Listener(StaticEndpoints& owner, GhostId ghost, const StaticListener& plan)
      : owner_(owner), ghost_(ghost), plan_(plan) {}

  void on_request(rdma::ConnectionId id, const rdma::ConnectRequest&, Instant now) noexcept override {
    auto endpoint = std::make_unique<Endpoint>(owner_, ghost_, plan_.attr, plan_.receives, plan_.requests);
    if (endpoint->qp() == nullptr) {
      owner_.cm_.reject(id, wire::RejReason::no_qp_available, {}, now);
      return;
    }
    rdma::AcceptParam param = plan_.accept;
    param.private_data = plan_.private_data;
    Endpoint& accepted = *endpoint;
    connections_[id] = std::move(endpoint);
    if (!owner_.cm_.accept(id, *accepted.qp(), param, now)) {
      accepted.destroy();
      connections_.erase(id);
    }
  }
  void on_established(rdma::ConnectionId id, ConstBytes, Instant now) noexcept override {
    connections_.at(id)->begin(now);
  }
  void on_disconnected(rdma::ConnectionId id, rdma::DisconnectCause, std::uint16_t, Instant) noexcept override {
    const auto connection = connections_.find(id);
    if (connection != connections_.end()) {
      connection->second->destroy();
      connections_.erase(connection);
    }
  }
  SidrAnswer on_sidr(GhostId, std::uint64_t, const wire::Path&, Instant) noexcept override { return {}; }

 private:
  StaticEndpoints& owner_;
  GhostId ghost_;
  const StaticListener& plan_;
  std::map<rdma::ConnectionId, std::unique_ptr<Endpoint>> connections_;
};

StaticEndpoints::StaticEndpoints(const ShardPlan& plan, rdma::Transport& transport, rdma::Cm& cm, Wheel& wheel,
                                 Observer* observer)
    : plan_(plan), transport_(transport), cm_(cm), wheel_(wheel), observer_(observer) {}

StaticEndpoints::~StaticEndpoints() = default;

void StaticEndpoints::add_region(GhostId ghost, const StaticRegion& region) {
  rdma::Region* added = transport_.memory(ghost).add(region.spec);
  if (added == nullptr) {
    return;
  }
  const MutableBytes storage = added->storage();
  switch (region.content.kind) {
    case RegionContent::Kind::zero:
      break;
    case RegionContent::Kind::pattern:
      for (std::size_t i = 0; i < storage.size(); ++i) {
        storage[i] = std::byte{rdma::pattern_byte(region.spec.addr + i)};
      }
      break;
    case RegionContent::Kind::bytes:
      added->write(region.spec.addr, region.content.bytes);
      break;
  }
}

void StaticEndpoints::start(Instant now) {
  for (std::uint32_t i = 0; i < plan_.ghosts.size(); ++i) {
    const GhostId ghost{i};
    const GhostPlan& g = plan_.ghosts[i];
    for (const StaticRegion& region : g.regions) {
      add_region(ghost, region);
    }
    for (const StaticQp& qp : g.qps) {
      Endpoint& endpoint = endpoints_.emplace_back(*this, ghost, qp.attr, qp.receives, qp.requests);
      if (endpoint.qp() != nullptr) {
        transport_.connect_qp(*endpoint.qp(), qp.attr);
        endpoint.begin(now);
      }
    }
    for (const StaticListener& listener : g.listeners) {
      cm_.listen(ghost, listener.service_id, listeners_.emplace_back(*this, ghost, listener));
    }
  }
}

}  // namespace nbx::pipeline
