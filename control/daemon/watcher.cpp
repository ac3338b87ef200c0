#include "daemon/watcher.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>

namespace nbx::daemon {

Watcher::Watcher() : epoll_(epoll_create1(EPOLL_CLOEXEC)), wakeup_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = wakeup_.get()}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wakeup_.get(), &event);
  thread_ = std::thread([this] { loop(); });
}

void Watcher::stop() {
  if (thread_.joinable()) {
    stopping_.store(true, std::memory_order_relaxed);
    wake();
    thread_.join();
  }
}

void Watcher::watch(int fd, Told told) {
  {
    const std::scoped_lock lock(mutex_);
    watched_[fd] = std::make_shared<Told>(std::move(told));
  }
  epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data = {.fd = fd}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void Watcher::forget(int fd) {
  const std::scoped_lock lock(mutex_);
  watched_.erase(fd);
}

void Watcher::run(std::function<void()> errand) {
  {
    const std::scoped_lock lock(mutex_);
    errands_.push_back(std::move(errand));
  }
  wake();
}

void Watcher::wake() { eventfd_write(wakeup_.get(), 1); }

void Watcher::loop() {
  std::array<epoll_event, 64> events{};
  while (!stopping()) {
    const int n = epoll_wait(epoll_.get(), events.data(), events.size(), -1);
    for (int i = 0; i < n; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.fd == wakeup_.get()) {
        run_errands();
        continue;
      }
      std::shared_ptr<Told> told;
      {
        const std::scoped_lock lock(mutex_);
        const auto found = watched_.find(event.data.fd);
        told = found == watched_.end() ? nullptr : found->second;
      }
      if (told) {
        (*told)(event.events);
      }
    }
  }
}

void Watcher::run_errands() {
  eventfd_t count = 0;
  eventfd_read(wakeup_.get(), &count);
  std::vector<std::function<void()>> errands;
  {
    const std::scoped_lock lock(mutex_);
    errands.swap(errands_);
  }
  for (const auto& errand : errands) {
    errand();
  }
}

}  // namespace nbx::daemon
