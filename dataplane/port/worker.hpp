// The thread of one port: the only endless loop, and the only place where a run on DPDK reads a clock.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "pipeline/shard.hpp"
#include "port/ethdev_port.hpp"
#include "port/kernel_link.hpp"
#include "port/mailbox.hpp"
#include "port/peer_rings.hpp"
#include "port/tsc_clock.hpp"

namespace nbx::port {

struct WorkerConfig {
  PortId id{};
  std::string name;
  std::optional<unsigned> core;  // pinned there
  bool own_core = false;         // nobody else needs the core: never sleep
};

/// What a worker works with; all outlive it. Mail may arrive before the worker runs.
struct WorkerParts {
  const TscClock& clock;
  EthdevPort& port;
  pipeline::Shard& shard;
  Counters& counters;  // the shard's
  PeerRings& peers;
  Mailbox& mailbox;
  KernelLink* kernel = nullptr;  // null: no exception path
};

class Worker {
 public:
  Worker(WorkerConfig config, const WorkerParts& parts) : config_(std::move(config)), parts_(parts) {}
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  Worker(Worker&&) = delete;
  Worker& operator=(Worker&&) = delete;

  void start();
  /// Returns when the loop has ended. Frames that were on their way are given back to the shard.
  void stop();

  struct Load {
    Duration busy{};  // in turns that moved something
    Duration idle{};
  };
  /// Readable from any thread.
  [[nodiscard]] Load load() const noexcept;

 private:
  void run();
  bool turn(Instant now);
  bool receive(Instant now) noexcept;
  bool take_from_peers(Instant now) noexcept;
  bool hand_to_peers() noexcept;
  bool transmit(Instant now) noexcept;
  void rest(Instant now) noexcept;
  [[nodiscard]] bool was_interrupted(Duration turn) noexcept;
  void account(Duration spent, bool worked) noexcept;
  void return_frames() noexcept;

  WorkerConfig config_;
  WorkerParts parts_;
  std::uint32_t idle_turns_ = 0;
  Duration nap_{};  // that ended the turn before
  long involuntary_switches_ = 0;
  std::atomic<std::int64_t> busy_ps_{0};
  std::atomic<std::int64_t> idle_ps_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace nbx::port
