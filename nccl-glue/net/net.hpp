// NCCL's NET/IB transport as ghosts play it: listen, connect, the side connection, clear-to-send FIFO, and messages as
// RDMA WRITE WITH IMMEDIATE. A connection carries data one way: the listener receives, the connector sends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/rank_edge.hpp"
#include "ghost/personality.hpp"
#include "nccl-glue/wire/version.hpp"

namespace nbx::nccl {

using Handle = std::array<std::byte, 128>;
enum class NetId : std::uint32_t { none = 0 };

/// What a ghost puts into its side of a connection.
struct NetConfig {
  const Version* version = nullptr;
  std::uint16_t port = 0;               // TCP port of the side connections, the same at every ghost
  std::uint32_t path_mtu = 4096;        // active MTU that it reports
  std::uint8_t timeout = 20;            // NCCL_IB_TIMEOUT
  std::uint8_t retry_cnt = 7;           // NCCL_IB_RETRY_CNT
  std::uint8_t qps_per_connection = 1;  // NCCL_IB_QPS_PER_CONNECTION, equal at both ends; a receiver takes the peer's
  bool split_data_on_qps = false;       // NCCL_IB_SPLIT_DATA_ON_QPS, equal at both ends
  bool adaptive_routing = false;        // NCCL_IB_ADAPTIVE_ROUTING: data and immediate apart,
  std::uint32_t adaptive_routing_threshold = 8192;   // above this size (NCCL_IB_AR_THRESHOLD)
  std::uint8_t traffic_class = 0;                    // NCCL_IB_TC: a sender's rules both ends
  std::uint8_t service_level = 0;                    // NCCL_IB_SL, likewise
  std::optional<std::uint8_t> fifo_traffic_class{};  // NCCL_IB_FIFO_TC: of what a receiver sends
  std::optional<RankEdge> edge{};                    // what its queue pairs are called
};

/// Memory of a ghost that a message lies in: part of a region of its MemoryTable.
struct NetBuffer {
  std::uint64_t addr = 0;
  std::uint32_t key = 0;
  std::uint64_t size = 0;
};

/// Calls come from the worker of the shard; a handler may call the net, close included.
class NetUser {
 public:
  /// Both ends are RTS. `tag_unused` of a receiver: none; messages may be posted or sent.
  virtual void on_ready(NetId id, Instant now) noexcept = 0;
  /// Receiver: the oldest posted receive is complete with `size` bytes.
  virtual void on_received(NetId id, std::uint64_t size, Instant now) noexcept = 0;
  /// Sender: the peer has cleared one more message of up to `size` bytes with `tag` (the sender's rank).
  virtual void on_clear_to_send(NetId id, std::uint64_t size, std::uint32_t tag, Instant now) noexcept = 0;
  /// Sender: the oldest message sent is acknowledged; its buffer may be used again.
  virtual void on_sent(NetId id, Instant now) noexcept = 0;
  /// Closed by the peer (`why` empty) or failed. The id is invalid after the call.
  virtual void on_closed(NetId id, std::string_view why, Instant now) noexcept = 0;

 protected:
  ~NetUser() = default;
};

/// Every NET/IB connection of the ghosts behind one port.
class Net {
 public:
  /// `any` is the context of any ghost of the shard: connections name theirs by GhostId.
  explicit Net(const ghost::Context& any);
  ~Net();
  Net(const Net&) = delete;
  Net& operator=(const Net&) = delete;
  Net(Net&&) = delete;
  Net& operator=(Net&&) = delete;

  /// A receiver at `ghost`: fills the handle that the sender needs.
  NetId listen(GhostId ghost, const NetConfig& config, NetUser& user, Handle& handle);
  /// A sender at `ghost` to the receiver that made `handle`. Failures arrive by on_closed.
  NetId connect(GhostId ghost, const NetConfig& config, const Handle& handle, NetUser& user, Instant now);

  /// Receiver: posts a receive of up to buffer.size bytes and writes the clear-to-send, tagged with the real sender's
  /// rank. In order. False: 256 are outstanding already.
  bool post(NetId id, const NetBuffer& buffer, std::uint32_t tag, Instant now) noexcept;
  /// Sender: uses the oldest clear-to-send; buffer.size bytes, cut to what the peer offers. False: there is none.
  bool send(NetId id, const NetBuffer& buffer, Instant now) noexcept;
  [[nodiscard]] std::size_t clear_to_send(NetId id) const noexcept;  // how many
  void close(NetId id) noexcept;
  /// Its packets are booked on `account` as long as the connection stands.
  void book(NetId id, Account& account);
  /// The first data queue pair, for reports; 0 when there is none yet.
  [[nodiscard]] Qpn qpn(NetId id) const noexcept;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace nbx::nccl
