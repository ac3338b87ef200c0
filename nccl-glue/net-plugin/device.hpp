// An RNIC in user space: the transport of the emulator's ghosts, with this process as its one ghost, on a UDP link. One
// I/O thread owns all of it; NCCL's threads hand it work and never wait for the network.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "frame/pool.hpp"
#include "nccl-glue/net-plugin/settings.hpp"
#include "nccl-glue/net-plugin/udp_link.hpp"
#include "rdma/transport.hpp"

namespace nbx::nccl::plugin {

inline constexpr GhostId self{0};

/// Told when a watched descriptor is readable, on the I/O thread.
class Watcher {
 public:
  virtual void on_readable(Instant now) noexcept = 0;

 protected:
  ~Watcher() = default;
};

class Device {
 public:
  using Work = std::function<void(Instant now)>;

  /// Opens the link and starts the thread, which runs as long as the process.
  [[nodiscard]] static Result<std::unique_ptr<Device>> open(const Interface& interface);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  Device(Device&&) = delete;
  Device& operator=(Device&&) = delete;

  [[nodiscard]] const Interface& interface() const noexcept { return interface_; }
  /// The largest that a packet fits the interface with (enum ibv_mtu's sizes).
  [[nodiscard]] std::uint32_t path_mtu() const noexcept;
  /// Request packets that a queue pair may have in flight without overrunning a receiver like this one.
  [[nodiscard]] std::uint32_t window(std::uint32_t path_mtu) const noexcept;
  [[nodiscard]] std::uint16_t source_port(std::uint32_t n) const noexcept { return link_->source_port(n); }

  // For any thread. Work runs on the I/O thread, in the order given.
  void post(Work work);
  /// As post(), and waits until it has run.
  void call(const Work& work);

  // For work on the I/O thread.
  [[nodiscard]] rdma::Transport& transport() noexcept { return *transport_; }
  [[nodiscard]] rdma::MemoryTable& memory() noexcept { return transport_->memory(self); }
  void watch(int fd, Watcher& watcher);
  void unwatch(int fd);

 private:
  Device(const Interface& interface, std::unique_ptr<UdpLink> link);
  void run();
  bool turn(Instant now);
  void run_work(Instant now);
  void wait(Instant now, bool busy);
  [[nodiscard]] Instant clock() const noexcept;

  Interface interface_;
  std::unique_ptr<UdpLink> link_;
  SlabSource slab_;
  FramePool pool_;
  Wheel wheel_;
  Counters counters_;
  FrameList outgoing_;
  std::unique_ptr<rdma::Transport> transport_;
  bool blocked_ = false;  // the kernel takes no more packets for now

  UniqueFd events_;  // epoll: wake-ups, packets, side connections
  UniqueFd wake_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::vector<Work> work_;  // guarded by mutex_
  std::vector<Work> running_;
  std::thread thread_;
};

}  // namespace nbx::nccl::plugin
