// perftest (ib_write_bw, ib_read_lat and the rest): the server. The programs' hand-shake is symmetrical and the client
// speaks first, so the server's part is to answer every item in kind: what it does not need it echoes.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "ghost/personalities/make.hpp"
#include "ghost/personalities/perftest_qp.hpp"

namespace nbx::ghost {

namespace {

/// The hand-shake with one client, whatever carries it.
class PerftestClient {
 public:
  PerftestClient(Context& context, const IpAddress& address, bool rdma_cm)
      : context_(context), address_(address), rdma_cm_(rdma_cm) {}

  [[nodiscard]] const IpAddress& address() const { return address_; }
  /// Queue pairs of this client come through the CM, behind the connection that carries the hand-shake.
  [[nodiscard]] PerftestQp* add_cm_qp() {
    qps_.push_back(std::make_unique<PerftestQp>(context_));
    return qps_.back()->qp() != nullptr ? qps_.back().get() : nullptr;
  }

  /// The answer to `item`; empty when the client cannot be served.
  std::string answer(const std::string& item) {
    const ConstBytes bytes = std::as_bytes(std::span{item});
    if (++items_ == mtu_item && item.size() == 2 && item[0] >= '1' && item[0] <= '5') {
      path_mtu_ = 128U << static_cast<unsigned>(item[0] - '0');  // enum ibv_mtu, as text
    }
    const auto end = rdma_cm_ ? decode_struct(bytes) : decode_text(bytes);
    if (!end) {
      return item;
    }
    ++destinations_;
    PerftestQp* qp = qp_of(*end);
    if (qp == nullptr) {
      return {};
    }
    // Before the traffic ib_write_bw says its destination three times, ib_write_lat four times, and -R adds two.
    const unsigned before_write_latency = rdma_cm_ ? 6 : 4;
    if (destinations_ == before_write_latency && !qp->traffic_seen()) {
      pending_start_ = qp;
    }
    const IpAddress* own = context_.identity().source_for(end->gid);
    const PerftestEnd mine = qp->end(own != nullptr ? *own : IpAddress{});
    return rdma_cm_ ? encode_struct(mine) : encode_text(mine);
  }
  /// The answer is on its way.
  void answered(Instant now) {
    if (pending_start_ != nullptr) {
      std::exchange(pending_start_, nullptr)->start_write_latency(now);
    }
  }

 private:
  PerftestQp* qp_of(const PerftestEnd& end) {
    if (rdma_cm_) {
      if (qps_.empty()) {
        qps_.push_back(std::make_unique<PerftestQp>(context_));
      }
      qps_.back()->set_peer(end);
      return qps_.back().get();
    }
    const auto known = by_remote_qpn_.find(end.qpn);
    if (known != by_remote_qpn_.end()) {
      return known->second;
    }
    auto mac = context_.neighbours.lookup(end.gid);
    if (!mac) {
      mac = context_.neighbours.lookup(address_);
    }
    const auto path = mac ? context_.path_to(end.gid, *mac) : std::nullopt;
    auto qp = std::make_unique<PerftestQp>(context_);
    if (!path || qp->qp() == nullptr) {
      return nullptr;
    }
    qp->connect(end, *path, path_mtu_);
    by_remote_qpn_[end.qpn] = qp.get();
    qps_.push_back(std::move(qp));
    return qps_.back().get();
  }

  Context& context_;
  IpAddress address_;
  bool rdma_cm_;
  std::vector<std::unique_ptr<PerftestQp>> qps_;
  std::map<std::uint32_t, PerftestQp*> by_remote_qpn_;
  static constexpr unsigned mtu_item = 4;

  unsigned items_ = 0;
  unsigned destinations_ = 0;
  std::uint32_t path_mtu_ = 1024;
  PerftestQp* pending_start_ = nullptr;
};

/// The connection that carries the hand-shake of a client with -R: one SEND per item.
class ControlQp final : public rdma::QpUser {
 public:
  ControlQp(Context& context, PerftestClient& client)
      : context_(context), client_(client), slots_(context.transport.memory(context.ghost), slot_count, slot_size) {
    qp_ = context_.transport.create_qp(context_.ghost, context_.defaults.qp_attr(), *this);
    for (std::uint64_t slot = 0; qp_ != nullptr && slot < receive_slots; ++slot) {
      post_receive(slot);
    }
  }
  ~ControlQp() {
    if (qp_ != nullptr) {
      context_.transport.destroy_qp(*qp_);
    }
  }
  ControlQp(const ControlQp&) = delete;
  ControlQp& operator=(const ControlQp&) = delete;
  ControlQp(ControlQp&&) = delete;
  ControlQp& operator=(ControlQp&&) = delete;

  [[nodiscard]] rdma::Qp* qp() noexcept { return qp_; }

 private:
  static constexpr std::uint32_t slot_size = 256;  // the longest item is a destination
  static constexpr std::uint32_t receive_slots = 8;
  static constexpr std::uint32_t slot_count = 2 * receive_slots;

  void post_receive(std::uint64_t slot) {
    context_.transport.post_recv(*qp_, {.wr_id = slot, .local = slots_.sge(slot, slot_size)});
  }
  void on_completion(rdma::Qp& qp, const rdma::Completion& c, Instant now) noexcept override {
    if (c.status != rdma::WcStatus::success || c.opcode != rdma::WcOpcode::recv) {
      return;
    }
    context_.cm.communication_established(qp, now);
    const ConstBytes bytes = slots_.bytes(c.wr_id).first(c.byte_len);
    const std::string answer =
        client_.answer({reinterpret_cast<const char*>(bytes.data()), bytes.size()}).substr(0, slot_size);
    post_receive(c.wr_id);
    const std::uint64_t slot = receive_slots + next_send_++ % receive_slots;
    std::ranges::copy(std::as_bytes(std::span{answer}), slots_.bytes(slot).begin());
    const rdma::Sge sge = slots_.sge(slot, static_cast<std::uint32_t>(answer.size()));
    context_.transport.post_send(qp, {.local = sge}, now);
    client_.answered(now);
  }
  void on_error(rdma::Qp&, rdma::WcStatus, Instant) noexcept override {}

  Context& context_;
  PerftestClient& client_;
  Slots slots_;
  rdma::Qp* qp_ = nullptr;
  std::uint64_t next_send_ = 0;
};

bool is_perftest(ConstBytes first) { return first[1] == std::byte{'.'}; }  // "6.06"

class PerftestServer final : public Personality, public StreamUser, public rdma::CmUser {
 public:
  PerftestServer(const Context& context, const PerftestOptions& options) : context_(context), options_(options) {}

  void start(Instant) override {
    context_.streams.listen(context_.ghost, options_.port, *this, is_perftest);
    context_.cm.listen(context_.ghost, rdma::tcp_service_id(options_.port), *this);
  }
  [[nodiscard]] std::string status() const override {
    return "listens on TCP and rdma_cm " + std::to_string(options_.port) + ": " +
           std::to_string(streams_.size() + controls_.size()) + " open, " + std::to_string(served_) + " served";
  }

 private:
  struct OverTcp {
    PerftestItems items;
    std::unique_ptr<PerftestClient> client;
  };
  struct OverCm {
    std::unique_ptr<PerftestClient> client;
    std::unique_ptr<ControlQp> control;
  };

  // --- over TCP ---
  void on_open(StreamId id, GhostId, std::uint16_t, const IpAddress& peer, Instant) noexcept override {
    streams_[id].client = std::make_unique<PerftestClient>(context_, peer, false);
    ++served_;
  }
  void on_bytes(StreamId id, ConstBytes bytes, Instant now) noexcept override {
    OverTcp& stream = streams_.at(id);
    stream.items.append(bytes);
    for (std::string item = stream.items.next(); !item.empty(); item = stream.items.next()) {
      const std::string answer = stream.client->answer(item);
      if (answer.empty()) {
        streams_.erase(id);
        context_.streams.close(id);
        return;
      }
      context_.streams.send(id, std::as_bytes(std::span{answer}));
      stream.client->answered(now);
    }
  }
  void on_close(StreamId id, Instant) noexcept override { streams_.erase(id); }

  // --- over rdma_cm ---
  void on_request(rdma::ConnectionId id, const rdma::ConnectRequest& request, Instant now) noexcept override {
    const IpAddress& peer = request.path.destination_ip;
    const auto open = std::ranges::find_if(controls_, [&](auto& c) { return c.second.client->address() == peer; });
    rdma::Qp* qp = nullptr;
    if (open != controls_.end()) {
      PerftestQp* test = open->second.client->add_cm_qp();
      qp = test != nullptr ? test->qp() : nullptr;
    } else {
      OverCm& made = controls_[id];
      made.client = std::make_unique<PerftestClient>(context_, peer, true);
      made.control = std::make_unique<ControlQp>(context_, *made.client);
      qp = made.control->qp();
      ++served_;
    }
    if (qp == nullptr || !context_.cm.accept(id, *qp, {}, now)) {
      controls_.erase(id);
    }
  }
  void on_established(rdma::ConnectionId, ConstBytes, Instant) noexcept override {}
  void on_disconnected(rdma::ConnectionId id, rdma::DisconnectCause, std::uint16_t, Instant) noexcept override {
    controls_.erase(id);
  }
  SidrAnswer on_sidr(GhostId, std::uint64_t, const wire::Path&, Instant) noexcept override { return {}; }

  Context context_;
  PerftestOptions options_;
  std::map<StreamId, OverTcp> streams_;
  std::map<rdma::ConnectionId, OverCm> controls_;  // by the connection that carries the hand-shake
  std::uint64_t served_ = 0;
};

}  // namespace

std::unique_ptr<Personality> make(const PerftestOptions& options, const Context& context) {
  return std::make_unique<PerftestServer>(context, options);
}

}  // namespace nbx::ghost
