// A running cluster: every port with its device, buffers, ghosts and worker. It is either all there or not at all.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/cluster.hpp"
#include "daemon/broker.hpp"
#include "daemon/capture_control.hpp"
#include "daemon/recorder_control.hpp"
#include "daemon/socket_streams.hpp"
#include "daemon/watcher.hpp"
#include "nccl-glue/service/service.hpp"
#include "pipeline/shard.hpp"
#include "port/eal.hpp"
#include "port/ethdev_port.hpp"
#include "port/kernel_link.hpp"
#include "port/mailbox.hpp"
#include "port/mbuf_source.hpp"
#include "port/peer_rings.hpp"
#include "port/tsc_clock.hpp"
#include "port/worker.hpp"

namespace nbx::daemon {

/// One port. The members depend on those above them. Its shard belongs to the worker while that runs: others reach it
/// through ask().
struct EmulatedPort {
  static constexpr std::chrono::milliseconds answer_limit{2000};

  /// f(shard, now) computed by the worker; nullopt when it does not answer in time.
  template <class F>
  auto ask(F&& f) {
    return mailbox.call([this, &f](Instant now) { return f(*shard, now); }, answer_limit);
  }

  config::Port config;
  pipeline::ShardPlan plan;
  Counters counters;
  port::Mailbox mailbox;
  std::unique_ptr<port::EthdevPort> device;
  std::unique_ptr<port::KernelLink> kernel;  // these two: null without an exception path
  std::unique_ptr<SocketStreams> streams;
  std::unique_ptr<capture::Tap> tap;
  std::unique_ptr<capture::Recorder> recorder;  // null: none was asked for
  std::unique_ptr<pipeline::Shard> shard;
  nccl::Service* nccl = nullptr;  // of the shard; null: this port has no NCCL ranks
  const port::Worker* worker = nullptr;
};

class Emulator {
 public:
  /// Everything up and all workers running. To be called while the process has no other thread: it forks. The error
  /// is complete for the user, with its place in the cluster file where it has one.
  static Result<std::unique_ptr<Emulator>> start(config::ClusterConfig config);
  ~Emulator();
  Emulator(const Emulator&) = delete;
  Emulator& operator=(const Emulator&) = delete;
  Emulator(Emulator&&) = delete;
  Emulator& operator=(Emulator&&) = delete;

  /// Ends workers and capture; what they leave can still be read.
  void stop();
  [[nodiscard]] bool running() const noexcept { return running_; }
  /// f(shard, now) of a port, by its worker while that runs; nullopt when it does not answer in time.
  template <class F>
  auto ask_at(EmulatedPort& port, F&& f) {
    return running_ ? port.ask(std::forward<F>(f)) : std::optional(f(*port.shard, clock_->now()));
  }
  /// f(shard), likewise.
  template <class F>
  auto ask(EmulatedPort& port, F&& f) {
    return ask_at(port, [&f](pipeline::Shard& shard, Instant) { return f(shard); });
  }

  [[nodiscard]] const config::ClusterConfig& config() const noexcept { return config_; }
  [[nodiscard]] std::vector<std::unique_ptr<EmulatedPort>>& ports() noexcept { return ports_; }
  [[nodiscard]] EmulatedPort* find_port(const std::string& name) noexcept;
  [[nodiscard]] const port::MbufSource& frames(const EmulatedPort& port) const noexcept {
    return *frames_[index(port.plan.port)];
  }
  [[nodiscard]] CaptureControl& capture() noexcept { return *capture_; }
  /// nullptr: no flight recorder.
  [[nodiscard]] RecorderControl* recorder() noexcept { return recorder_.get(); }
  [[nodiscard]] Duration uptime() const noexcept { return clock_->now() - Instant{}; }
  /// Why there is no exception path; empty when there is one.
  [[nodiscard]] const std::string& exception_path_trouble() const noexcept { return exception_path_trouble_; }

 private:
  explicit Emulator(config::ClusterConfig config) : config_(std::move(config)) {}

  void start_broker();
  std::optional<Error> start_eal();
  std::optional<Error> add_ports();
  std::optional<Error> start_capture();
  std::optional<Error> start_recorder();
  void start_workers();
  void start_worker(const std::string& name, std::optional<unsigned> core, std::vector<port::WorkerPort> served);
  void connect_to_kernel(EmulatedPort& port);
  Result<pipeline::MakeEnsemble> make_nccl(EmulatedPort& port);

  bool running_ = false;  // the workers are
  config::ClusterConfig config_;
  std::vector<pipeline::ShardPlan> plans_;
  std::string exception_path_trouble_;
  std::unique_ptr<Broker> broker_;
  std::unique_ptr<port::Eal> eal_;
  std::optional<port::TscClock> clock_;
  std::vector<std::unique_ptr<port::MbufSource>> frames_;  // by port; a frame may end in another port's hands
  std::unique_ptr<port::PeerRings> peers_;                 // null: one worker
  std::unique_ptr<pipeline::SharedNetwork> network_;       // null: each shard has what its plan says
  std::unique_ptr<Watcher> watcher_;                       // ghosts close their streams when they go
  std::vector<std::unique_ptr<EmulatedPort>> ports_;
  std::vector<std::unique_ptr<port::Worker>> workers_;  // one per port, or one for all
  std::unique_ptr<CaptureControl> capture_;
  std::unique_ptr<RecorderControl> recorder_;
};

}  // namespace nbx::daemon
