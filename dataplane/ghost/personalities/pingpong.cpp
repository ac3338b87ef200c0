// ibv_{rc,uc,ud}_pingpong of libibverbs: the server. The client sends one text record over TCP (LID, QPN, PSN, GID),
// gets one back, says "done", and then each message is answered with one of its length.
#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ghost/personalities/make.hpp"
#include "ghost/personalities/slots.hpp"
#include "ghost/personalities/text_fields.hpp"

namespace nbx::ghost {

namespace {

constexpr std::size_t gid_offset = 4 + 1 + 6 + 1 + 6 + 1;
constexpr std::size_t record_size = gid_offset + 32 + 1;
constexpr std::uint32_t pingpong_mtu = 1024;  // unless told by -m
constexpr std::uint32_t pingpong_qkey = 0x1111'1111;

/// One client: its stream's bytes so far and its queue pair.
class Pingpong final : public rdma::QpUser {
 public:
  explicit Pingpong(Context& context)
      : context_(context), buffer_(context.transport.memory(context.ghost), 1, buffer_size) {}
  ~Pingpong() {
    if (qp_ != nullptr) {
      context_.transport.destroy_qp(*qp_);
    }
  }
  Pingpong(const Pingpong&) = delete;
  Pingpong& operator=(const Pingpong&) = delete;
  Pingpong(Pingpong&&) = delete;
  Pingpong& operator=(Pingpong&&) = delete;

  [[nodiscard]] std::uint64_t frames() const { return qp_ == nullptr ? 0 : qp_->stats().data_frames_rx; }

  /// More of the stream; answers what to send back. Sets `bad` when the peer does not speak the protocol.
  std::string take(ConstBytes bytes, const IpAddress& stream_peer, bool& bad) {
    if (qp_ != nullptr) {
      return {};  // "done"
    }
    record_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (record_.size() < record_size) {
      return {};
    }
    TextFields fields{record_};
    fields.hex(4);  // LID
    const Qpn remote_qpn{static_cast<std::uint32_t>(fields.hex(6))};
    const Psn remote_psn{static_cast<std::uint32_t>(fields.hex(6))};
    IpAddress gid;
    for (std::uint8_t& octet : gid.octets) {
      octet = static_cast<std::uint8_t>(
          hex_octet(record_, gid_offset + 2 * static_cast<std::size_t>(&octet - gid.octets.data())));
    }
    bad = !fields.good() || !connect(remote_qpn, remote_psn, gid, stream_peer);
    return bad ? std::string{} : answer();
  }

 private:
  static constexpr std::uint32_t receives = 16;
  static constexpr std::uint32_t buffer_size = 4 << 20;  // shared by all receives, as in the programs: one ball in play

  static unsigned hex_octet(const std::string& text, std::size_t at) {
    return static_cast<unsigned>(TextFields{std::string_view{text}.substr(at, 2)}.hex(2));
  }

  bool connect(Qpn remote_qpn, Psn remote_psn, const IpAddress& gid, const IpAddress& stream_peer) {
    auto mac = context_.neighbours.lookup(gid);
    if (!mac) {
      mac = context_.neighbours.lookup(stream_peer);
    }
    const auto path = mac ? context_.path_to(gid, *mac) : std::nullopt;
    if (!path) {
      return false;
    }
    rdma::QpAttr attr = context_.defaults.qp_attr();
    attr.adopt_peer = true;  // the record is the same in all three programs
    attr.max_recv_wr = attr.max_send_wr = receives;
    attr.qkey = pingpong_qkey;
    attr.path_mtu = pingpong_mtu;
    attr.dest_qpn = remote_qpn;
    attr.rq_psn = remote_psn;
    attr.sq_psn = Psn{static_cast<std::uint32_t>(context_.rng.next()) & mask24};
    attr.path = *path;
    qp_ = context_.transport.create_qp(context_.ghost, attr, *this);
    if (qp_ == nullptr) {
      return false;
    }
    for (std::uint32_t i = 0; i < receives; ++i) {
      post_receive();
    }
    context_.transport.connect_qp(*qp_, attr);
    return true;
  }

  [[nodiscard]] std::string answer() const {
    std::array<char, record_size + 1> text{};
    int n = std::snprintf(text.data(), text.size(), "%04x:%06x:%06x:", 0U, qp_->qpn().value, qp_->attr().sq_psn.value);
    for (const std::uint8_t octet : qp_->attr().path.source_ip.octets) {
      n += std::snprintf(text.data() + n, text.size() - static_cast<std::size_t>(n), "%02x", octet);
    }
    return {text.data(), record_size};  // the terminating zero is part of the record
  }

  void post_receive() { context_.transport.post_recv(*qp_, {.local = buffer_.sge(0, buffer_size)}); }
  void on_completion(rdma::Qp& qp, const rdma::Completion& c, Instant now) noexcept override {
    if (c.status != rdma::WcStatus::success) {
      return;
    }
    if (c.opcode != rdma::WcOpcode::recv) {
      post_receive();
      return;
    }
    rdma::SendWr back{.local = buffer_.sge(0, c.byte_len)};
    if (qp.attr().type == rdma::QpType::ud) {
      back.path = qp.attr().path;
      back.remote_qpn = c.source_qpn;
      back.remote_qkey = pingpong_qkey;
    }
    context_.transport.post_send(qp, back, now);
  }
  void on_error(rdma::Qp&, rdma::WcStatus, Instant) noexcept override {}

  Context& context_;
  Slots buffer_;
  std::string record_;
  rdma::Qp* qp_ = nullptr;
};

bool is_pingpong(ConstBytes first) { return first[4] == std::byte{':'}; }  // behind the LID

class PingpongServer final : public Personality, public StreamUser, public TimerClient {
 public:
  PingpongServer(const Context& context, const PingpongOptions& options) : context_(context), options_(options) {
    idle_check_.client = this;
  }
  ~PingpongServer() override { context_.wheel.cancel(idle_check_); }
  PingpongServer(const PingpongServer&) = delete;
  PingpongServer& operator=(const PingpongServer&) = delete;
  PingpongServer(PingpongServer&&) = delete;
  PingpongServer& operator=(PingpongServer&&) = delete;

  void start(Instant) override { context_.streams.listen(context_.ghost, options_.port, *this, is_pingpong); }
  [[nodiscard]] std::string status() const override {
    return "listens on TCP " + std::to_string(options_.port) + ": " +
           std::to_string(clients_.size() + detached_.size()) + " open, " + std::to_string(served_) + " served";
  }

 private:
  struct Client {
    IpAddress peer;
    std::unique_ptr<Pingpong> pingpong;
  };

  void on_open(StreamId id, GhostId, std::uint16_t, const IpAddress& peer, Instant) noexcept override {
    clients_[id] = {peer, std::make_unique<Pingpong>(context_)};
    ++served_;
  }
  void on_bytes(StreamId id, ConstBytes bytes, Instant) noexcept override {
    Client& client = clients_.at(id);
    bool bad = false;
    const std::string answer = client.pingpong->take(bytes, client.peer, bad);
    if (bad) {
      clients_.erase(id);
      context_.streams.close(id);
    } else if (!answer.empty()) {
      context_.streams.send(id, std::as_bytes(std::span{answer}));
    }
  }
  /// The programs close the stream once both are connected, and say nothing when they end: a queue pair without
  /// traffic between two checks is taken for abandoned.
  void on_close(StreamId id, Instant now) noexcept override {
    const auto found = clients_.find(id);
    if (found == clients_.end()) {
      return;
    }
    detached_.push_back({std::move(found->second.pingpong), 0});
    clients_.erase(found);
    if (!idle_check_.linked()) {
      context_.wheel.arm(idle_check_, now + idle_check_period);
    }
  }
  void on_timer(TimerNode&, Instant now) noexcept override {
    std::erase_if(detached_, [](Detached& d) {
      const std::uint64_t before = std::exchange(d.frames, d.pingpong->frames());
      return before == d.frames;
    });
    if (!detached_.empty()) {
      context_.wheel.arm(idle_check_, now + idle_check_period);
    }
  }

  static constexpr Duration idle_check_period = std::chrono::seconds{20};

  struct Detached {
    std::unique_ptr<Pingpong> pingpong;
    std::uint64_t frames = 0;  // at the last check
  };

  Context context_;
  PingpongOptions options_;
  std::map<StreamId, Client> clients_;
  std::vector<Detached> detached_;
  TimerNode idle_check_;
  std::uint64_t served_ = 0;
};

}  // namespace

std::unique_ptr<Personality> make(const PingpongOptions& options, const Context& context) {
  return std::make_unique<PingpongServer>(context, options);
}

}  // namespace nbx::ghost
