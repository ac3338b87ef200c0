// The server's queue pair of one perftest run: it takes what the client sends, and answers in the latency tests.
#pragma once

#include <memory>

#include "ghost/personalities/perftest_handshake.hpp"
#include "ghost/personalities/slots.hpp"
#include "ghost/personality.hpp"

namespace nbx::ghost {

/// What the client's first destination tells of its program. SEND tests have no rkey; READ and atomic tests have more
/// than one outstanding READ (their -o default is 16 and up). Which of bandwidth and latency it is shows later.
enum class PerftestKind : std::uint8_t { send, write, read_or_atomic };

class PerftestQp final : public rdma::QpUser, public TimerClient {
 public:
  /// Creates the queue pair in INIT with receives posted; qp() is nullptr when there is none to be had.
  explicit PerftestQp(Context& context);
  ~PerftestQp();
  PerftestQp(const PerftestQp&) = delete;
  PerftestQp& operator=(const PerftestQp&) = delete;
  PerftestQp(PerftestQp&&) = delete;
  PerftestQp& operator=(PerftestQp&&) = delete;

  [[nodiscard]] rdma::Qp* qp() noexcept { return qp_; }
  /// Connects to the client's end without a CM.
  void connect(const PerftestEnd& peer, const wire::Path& path, std::uint32_t path_mtu);
  void set_peer(const PerftestEnd& peer);
  /// What to tell the client of this end.
  [[nodiscard]] PerftestEnd end(const IpAddress& own_gid) const;
  /// The client is about to start, and waits for us to if its test is ib_write_lat.
  void start_write_latency(Instant now);
  [[nodiscard]] bool traffic_seen() const noexcept;

 private:
  static constexpr std::uint32_t receives = 512;
  static constexpr std::uint32_t region_size = 0x8000'0000;  // a sink: no memory behind it
  static constexpr std::uint32_t first_write_size = 4096;    // perftest's buffers are never smaller
  static constexpr Duration silence = std::chrono::milliseconds{10};

  void on_completion(rdma::Qp& qp, const rdma::Completion& completion, Instant now) noexcept override;
  void on_write(rdma::Qp& qp, std::uint64_t addr, std::uint32_t length, Instant now) noexcept override;
  void on_error(rdma::Qp&, rdma::WcStatus, Instant) noexcept override {}
  void on_timer(TimerNode& node, Instant now) noexcept override;
  void post_receive(std::uint64_t wr_id);
  void write_back(std::uint32_t length, Instant now);
  void send_back(Instant now);

  enum class Answering : std::uint8_t { unknown, no, yes };

  Context& context_;
  Slots region_;
  rdma::Qp* qp_ = nullptr;
  PerftestEnd peer_;
  PerftestKind kind_ = PerftestKind::write;
  Answering answering_ = Answering::unknown;
  TimerNode silence_;
  rdma::Completion last_;   // the message to answer
  std::uint8_t count_ = 0;  // of our WRITEs, as the client expects it in the last byte
  std::unique_ptr<Slots> write_data_;
};

}  // namespace nbx::ghost
