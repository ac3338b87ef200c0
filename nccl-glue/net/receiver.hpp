// The listening end: posts receives, tells the sender of each by an RDMA write into its clear-to-send FIFO, and takes
// messages as they complete, in order.
#pragma once

#include <deque>

#include "nccl-glue/net/acceptor.hpp"
#include "nccl-glue/net/connection.hpp"

namespace nbx::nccl {

class Receiver final : public Connection {
 public:
  Receiver(Registry& registry, Acceptor& acceptor, const ghost::Context& context, const NetConfig& config,
           NetUser& user);

  /// The password of the side connection.
  [[nodiscard]] std::uint64_t magic() const { return magic_; }
  /// The sender has connected and said its hello.
  void accept(ghost::StreamId stream);

  bool post(const NetBuffer& buffer, std::uint32_t tag, Instant now) noexcept override;

 private:
  enum class Step : std::uint8_t { device_list, metadata, ready };

  struct Receive {
    std::uint32_t missing = 0;  // immediates, one per queue pair
    std::uint32_t offered = 0;
    std::uint32_t size = 0;
    bool sized = false;
  };

  void on_item(ConstBytes item, Instant now) override;
  void on_connected(Instant now) override;
  void release() noexcept override;
  [[nodiscard]] std::uint8_t traffic_class() const override;
  [[nodiscard]] std::uint32_t path_mtu(std::uint32_t peers) const override { return peers; }
  void on_completion(rdma::Qp& qp, const rdma::Completion& completion, Instant now) noexcept override;

  void expect_metadata();
  void report_complete(Instant now);

  Acceptor& acceptor_;
  std::uint64_t magic_;
  Step step_ = Step::device_list;
  rdma::Region* sizes_ = nullptr;     // where the sender would write the sizes of grouped receives
  rdma::Region* elements_ = nullptr;  // clear-to-sends as they are sent, one per slot
  std::deque<Receive> receives_;      // outstanding
  std::uint64_t completed_ = 0;       // the number of the first of them
};

}  // namespace nbx::nccl
