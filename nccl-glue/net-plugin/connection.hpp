// The two ends of a NET/IB connection, which carries data one way. NCCL's threads make requests and look at them; all
// else happens on the device's I/O thread.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "nccl-glue/net-plugin/device.hpp"
#include "nccl-glue/net-plugin/settings.hpp"
#include "nccl-glue/wire/ib.hpp"

namespace nbx::nccl::plugin {

class Connection;

struct Buffer {
  void* data = nullptr;
  std::uint32_t size = 0;
  std::uint32_t tag = 0;
  std::uint32_t key = 0;
};

/// A send, or one receive of up to eight grouped messages.
struct Request {
  enum class State : std::uint8_t { pending, done, failed };

  Connection* connection = nullptr;
  std::atomic<State> state{State::pending};  // set by the I/O thread, last
  std::uint32_t n = 1;
  std::array<Buffer, ib::grouped_max> buffers{};
  std::array<int, ib::grouped_max> sizes{};  // what arrived, or was sent
};

/// Takes a reason that a connection came to an end; any thread.
using Complaint = void (*)(const std::string& text);

class Connection : public rdma::QpUser, public Watcher {
 public:
  Connection(Device& device, const Settings& settings, Complaint complain);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  Connection(Connection&&) = delete;
  Connection& operator=(Connection&&) = delete;
  virtual ~Connection() = default;

  // NCCL's threads, one at a time.
  [[nodiscard]] Device& device() noexcept { return device_; }
  /// nullptr: as many as NET/IB allows are outstanding.
  [[nodiscard]] Request* make_request();
  void free_request(Request& request);
  /// Key of [data, +size) for this connection's requests.
  [[nodiscard]] std::uint32_t add_memory(void* data, std::size_t size);
  void remove_memory(std::uint32_t key);
  void submit(Request& request);
  /// Ends the connection. Its queue pairs answer repeated requests until the peer has closed as well, since the
  /// acknowledgement of the last message may have been lost; then it deletes itself.
  static void close(std::unique_ptr<Connection> connection);
  /// Connections of all devices that wait for their peers.
  [[nodiscard]] static int closing() noexcept { return closing_count.load(); }

  // I/O thread.
  /// Makes `n` queue pairs and describes this end; the caller adds what its role has in the metadata.
  [[nodiscard]] ib::Metadata introduce(std::size_t n);
  /// Connects to the peer with the traffic class that both ends agreed on.
  void establish(const ib::Metadata& peer, std::uint8_t traffic_class);
  /// The side connection says nothing more, but its end is the peer's.
  void watch_side(UniqueFd side);

  void on_error(rdma::Qp& qp, rdma::WcStatus cause, Instant now) noexcept final;
  void on_readable(Instant now) noexcept final;

 protected:
  virtual void start(Request& request, Instant now) = 0;
  /// Whether a peer that has closed can still be what a request waits for.
  [[nodiscard]] virtual bool waits_for_peer() const = 0;
  virtual void fail_requests() = 0;

  void fail(const std::string& why);
  /// If the peer has closed, and a request waits for it.
  void fail_without_peer();
  static void finish(Request& request, Request::State state) noexcept { request.state.store(state); }
  [[nodiscard]] const Version& version() const noexcept { return *settings_.version; }
  /// Queue pairs that one message is spread over.
  [[nodiscard]] std::uint32_t parts() const noexcept;
  /// The i-th of them for the k-th message.
  [[nodiscard]] rdma::Qp& part_qp(std::uint64_t k, std::uint32_t i) const noexcept;
  /// The peer's device, and so the key of its memory, that a queue pair of ours leads to.
  [[nodiscard]] std::size_t peer_device(const rdma::Qp& qp) const noexcept;
  [[nodiscard]] rdma::Region& add_region(MutableBytes bytes, std::uint8_t access);

  Device& device_;
  const Settings settings_;
  ib::Metadata peer_;
  std::vector<rdma::Qp*> qps_;
  bool report_writes_ = false;
  bool failed_ = false;

 private:
  void release();

  static std::atomic<int> closing_count;

  const Complaint complain_;
  std::vector<std::uint32_t> regions_;
  UniqueFd side_;
  bool peer_closed_ = false;
  bool closed_ = false;
  std::deque<Request> requests_;  // NCCL's threads only
  std::vector<Request*> free_;
};

class SendConnection final : public Connection {
 public:
  SendConnection(Device& device, const Settings& settings, Complaint complain);

  /// Adds the clear-to-send FIFO to introduce().
  [[nodiscard]] ib::Metadata introduce_sender(std::size_t n);

  void on_completion(rdma::Qp& qp, const rdma::Completion& completion, Instant now) noexcept override;
  void on_write(rdma::Qp& qp, std::uint64_t addr, std::uint32_t length, Instant now) noexcept override;

 private:
  /// Messages that share a slot of the FIFO, from the first that matches until the last is acknowledged.
  struct Slot {
    std::array<Request*, ib::grouped_max> requests{};
    std::uint32_t n = 0;            // messages of the slot; 0: not in use
    std::uint32_t outstanding = 0;  // completions awaited
  };

  void start(Request& request, Instant now) override;
  [[nodiscard]] bool waits_for_peer() const override { return !waiting_.empty(); }
  void fail_requests() override;
  /// Matches waiting sends with the slot at the head of the FIFO; true when it was used up.
  bool take_slot(Instant now);
  void transmit(Slot& slot, const std::array<ib::ClearToSend, ib::grouped_max>& elements, Instant now);
  [[nodiscard]] MutableBytes element(std::uint64_t slot, std::size_t i) noexcept;

  std::vector<std::byte> fifo_;
  std::vector<std::byte> sizes_;  // what goes to the receiver's area of sizes
  std::uint32_t sizes_key_ = 0;
  std::deque<Request*> waiting_;
  std::array<Slot, ib::slots> slots_{};
  std::uint64_t head_ = 0;  // slots used up
};

class ReceiveConnection final : public Connection {
 public:
  ReceiveConnection(Device& device, const Settings& settings, Complaint complain);

  /// Adds the area of sizes to introduce().
  [[nodiscard]] ib::Metadata introduce_receiver(std::size_t n);

  void on_completion(rdma::Qp& qp, const rdma::Completion& completion, Instant now) noexcept override;

 private:
  struct Slot {
    Request* request = nullptr;
    std::uint32_t outstanding = 0;  // queue pairs whose immediate is awaited
  };

  void start(Request& request, Instant now) override;
  [[nodiscard]] bool waits_for_peer() const override { return outstanding_ != 0; }
  void fail_requests() override;

  std::vector<std::byte> sizes_;
  std::vector<std::byte> announcements_;  // the clear-to-send elements as they were last sent
  std::uint32_t announcements_key_ = 0;
  std::array<Slot, ib::slots> slots_{};
  std::uint64_t posted_ = 0;
  std::uint32_t outstanding_ = 0;
};

}  // namespace nbx::nccl::plugin
