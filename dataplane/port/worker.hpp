// The thread of one port, or of all: the only endless loop, and the only place where a run on DPDK reads a clock.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "pipeline/shard.hpp"
#include "port/ethdev_port.hpp"
#include "port/kernel_link.hpp"
#include "port/mailbox.hpp"
#include "port/peer_rings.hpp"
#include "port/tsc_clock.hpp"

namespace nbx::port {

struct WorkerConfig {
  std::string name;
  std::optional<unsigned> core;  // pinned there
  bool own_core = false;         // nobody else needs the core: never sleep
};

/// A port that a worker serves. All of it outlives the worker; mail may arrive before that runs.
struct WorkerPort {
  PortId id{};
  EthdevPort& device;
  pipeline::Shard& shard;
  Counters& counters;  // the shard's
  Mailbox& mailbox;
  KernelLink* kernel = nullptr;  // null: no exception path
};

class Worker {
 public:
  /// `peers` leads to the ports of other workers; null: there are none, and `ports` are by PortId. `network` is that of
  /// all ports, null: there is none.
  Worker(WorkerConfig config, const TscClock& clock, std::vector<WorkerPort> ports, PeerRings* peers,
         pipeline::SharedNetwork* network)
      : config_(std::move(config)), clock_(clock), ports_(std::move(ports)), peers_(peers), network_(network) {}
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  Worker(Worker&&) = delete;
  Worker& operator=(Worker&&) = delete;

  void start();
  /// Returns when the loop has ended. Frames that were on their way are given back to the shards.
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
  static bool receive(WorkerPort& port, Instant now) noexcept;
  bool take_from_peers(WorkerPort& port, Instant now) noexcept;
  bool hand_to_peers(WorkerPort& port, Instant now) noexcept;
  static bool transmit(WorkerPort& port, Instant now) noexcept;
  [[nodiscard]] Instant next_deadline() const noexcept;
  void rest(Instant now) noexcept;
  [[nodiscard]] bool was_interrupted(Duration turn) noexcept;
  void account(Duration spent, bool worked) noexcept;
  void return_frames() noexcept;

  WorkerConfig config_;
  const TscClock& clock_;
  std::vector<WorkerPort> ports_;
  PeerRings* peers_;
  pipeline::SharedNetwork* network_;
  std::uint32_t idle_turns_ = 0;
  Duration nap_{};  // that ended the turn before
  long involuntary_switches_ = 0;
  std::atomic<std::int64_t> busy_ps_{0};
  std::atomic<std::int64_t> idle_ps_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace nbx::port
