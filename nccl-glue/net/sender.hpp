// The connecting end: has the FIFO that the peer writes its clear-to-sends to, and answers each with RDMA writes, the
// last of which carries an immediate.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>

#include "nccl-glue/net/connection.hpp"

namespace nbx::nccl {

class Sender final : public Connection, public ghost::StreamUser, public TimerClient {
 public:
  Sender(Registry& registry, const ghost::Context& context, const NetConfig& config, const Handle& handle,
         NetUser& user, Instant now);

  bool send(const NetBuffer& buffer, Instant now) noexcept override;
  [[nodiscard]] std::size_t clear_to_send() const noexcept override { return clear_.size(); }

 private:
  enum class Step : std::uint8_t { device_list, metadata };

  /// A message, or n of them that share a slot, on their way.
  struct Flight {
    std::uint32_t missing = 0;   // queue pairs that have not completed it
    std::uint32_t requests = 0;  // on each of them
    std::uint32_t messages = 0;
  };
  struct Message {
    ib::ClearToSend element;
    NetBuffer buffer;  // cut to what the peer offers
  };

  void on_timer(TimerNode& node, Instant now) noexcept override;
  void on_open(ghost::StreamId id, GhostId ghost, std::uint16_t port, const IpAddress& peer,
               Instant now) noexcept override;
  void on_bytes(ghost::StreamId id, ConstBytes bytes, Instant now) noexcept override;
  void on_close(ghost::StreamId id, Instant now) noexcept override;

  void on_item(ConstBytes item, Instant now) override;
  void on_connected(Instant now) override;
  void release() noexcept override { context_.wheel.cancel(start_); }
  [[nodiscard]] std::uint8_t traffic_class() const override { return static_cast<std::uint8_t>(peer_.traffic_class); }
  [[nodiscard]] std::uint32_t path_mtu(std::uint32_t peers) const override { return std::min(peers, config_.path_mtu); }
  void introduce(std::uint32_t peer_devices, Instant now);

  void on_write(rdma::Qp& qp, std::uint64_t addr, std::uint32_t length, Instant now) noexcept override;
  void on_completion(rdma::Qp& qp, const rdma::Completion& completion, Instant now) noexcept override;

  // The clear-to-send FIFO.
  [[nodiscard]] MutableBytes element_at(std::uint64_t slot, std::size_t i) const;
  [[nodiscard]] ib::ClearToSend read(std::uint64_t slot, std::size_t i) const;
  /// Takes the next slot; false: it is not complete, or unusable and the connection is closed.
  bool take_slot(Instant now);
  /// What was written to a slot that is not next.
  void check_order(std::uint64_t slot, Instant now);

  // Messages.
  void pump(Instant now) noexcept;
  void launch_part(std::uint64_t k, std::uint32_t count, const Choice& choice, std::uint32_t part,
                   Instant now) noexcept;
  /// Whether the immediate of the oldest `count` messages comes without data of theirs.
  [[nodiscard]] bool data_apart(std::uint32_t count) const;
  void write_sizes(std::uint64_t k, std::uint32_t count);

  Handle handle_;
  TimerNode start_;
  Step step_ = Step::device_list;
  bool opened_ = false;
  std::size_t own_qps_ = 0;

  /// From calloc: pages that no clear-to-send has touched cost nothing.
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte[], Free> fifo_memory_;
  rdma::Region* fifo_ = nullptr;
  rdma::Region* sizes_ = nullptr;  // of grouped messages, as they are sent; made for the first of them

  std::uint64_t slots_taken_ = 0;      // from the FIFO
  std::uint64_t slots_used_ = 0;       // by messages that are on their way
  std::deque<ib::ClearToSend> clear_;  // not used yet
  std::deque<Message> unsent_;         // they wait for the rest of their slot, or for room in the send queues
  std::deque<Flight> flights_;
  std::uint32_t requests_ = 0;  // of all flights: as many as on the fullest send queue, or more
};

}  // namespace nbx::nccl
