// A thread that waits for file descriptors so that no worker has to: it tells that something may be read or written,
// and does slow errands. Everything else happens where the descriptor's owner is.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/unique_fd.hpp"

namespace nbx::daemon {

class Watcher {
 public:
  Watcher();
  ~Watcher() { stop(); }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  Watcher(Watcher&&) = delete;
  Watcher& operator=(Watcher&&) = delete;

  /// Calls told(epoll events) on this thread whenever the state of `fd` changes (edge-triggered), from now on until
  /// `fd` is closed and forget() is called.
  using Told = std::function<void(std::uint32_t events)>;
  void watch(int fd, Told told);
  /// No call begins after this one returns, but one may be running.
  void forget(int fd);
  /// Has the thread run `errand`.
  void run(std::function<void()> errand);

  void stop();
  [[nodiscard]] bool stopping() const noexcept { return stopping_.load(std::memory_order_relaxed); }

 private:
  void loop();
  void wake();
  void run_errands();

  UniqueFd epoll_;
  UniqueFd wakeup_;
  std::mutex mutex_;
  std::map<int, std::shared_ptr<Told>> watched_;
  std::vector<std::function<void()>> errands_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace nbx::daemon
