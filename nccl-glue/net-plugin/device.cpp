#include "nccl-glue/net-plugin/device.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <ctime>

#include "nccl-glue/wire/ib.hpp"
#include "wire/build.hpp"

namespace nbx::nccl::plugin {

namespace {

constexpr std::size_t frames = 4096;
constexpr std::size_t frame_capacity = wire::Encapsulation::size_max + 4096 + 128;
constexpr std::size_t receive_turns = 8;  // batches per turn: work and timers are not starved
/// IPv6, UDP, BTH, RETH, ImmDt and ICRC: the most that a packet has around its payload.
constexpr std::uint32_t packet_overhead = 40 + 8 + 12 + 16 + 4 + 4;

void watch_fd(int events, int fd, Watcher* watcher) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = watcher;
  epoll_ctl(events, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

Result<std::unique_ptr<Device>> Device::open(const Interface& interface) {
  auto link = UdpLink::open(interface.address);
  if (!link) {
    return link.error();
  }
  std::unique_ptr<Device> device(new Device(interface, std::move(*link)));
  if (!device->events_ || !device->wake_) {
    return Error{std::string{"cannot create an event queue: "} + std::strerror(errno)};
  }
  // NCCL's program handles its own signals: none are taken here.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  device->thread_ = std::thread([d = device.get()] { d->run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return device;
}

Device::Device(const Interface& interface, std::unique_ptr<UdpLink> link)
    : interface_(interface),
      link_(std::move(link)),
      slab_(frames, frame_capacity),
      pool_(slab_),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  transport_ = std::make_unique<rdma::Transport>(rdma::TransportConfig{}, pool_, wheel_, counters_, outgoing_);
  transport_->add_ghost(self);
  watch_fd(events_.get(), wake_.get(), nullptr);
  watch_fd(events_.get(), link_->receive_fd(), nullptr);
}

Device::~Device() {
  if (thread_.joinable()) {
    stopping_ = true;
    post([](Instant) {});
    thread_.join();
  }
  pool_.free_all(outgoing_);
}

std::uint32_t Device::path_mtu() const noexcept {
  std::uint32_t best = 256;
  for (const std::uint32_t mtu : {512U, 1024U, 2048U, 4096U}) {
    best = mtu + packet_overhead <= interface_.mtu ? mtu : best;
  }
  return best;
}

std::uint32_t Device::window(std::uint32_t path_mtu) const noexcept {
  // A kernel accounts for about twice a packet's bytes; several connections share the buffer.
  constexpr std::size_t sharing = 8;
  const std::size_t packets = link_->receive_buffer() / (2 * std::size_t{path_mtu} * sharing);
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(packets, 8, 128));
}

void Device::post(Work work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    if (work_.size() > 1) {
      return;  // woken already
    }
  }
  const std::uint64_t one = 1;
  static_cast<void>(write(wake_.get(), &one, sizeof one));
}

void Device::call(const Work& work) {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  post([&](Instant now) {
    work(now);
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_one();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
}

void Device::watch(int fd, Watcher& watcher) { watch_fd(events_.get(), fd, &watcher); }

void Device::unwatch(int fd) { epoll_ctl(events_.get(), EPOLL_CTL_DEL, fd, nullptr); }

Instant Device::clock() const noexcept {
  // Instant's range of 106 days is longer than a job; steady_clock counts from the start of the machine.
  static const auto epoch = std::chrono::steady_clock::now();
  return Instant{} + std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now() - epoch);
}

void Device::run() {
  while (!stopping_) {
    const Instant now = clock();
    wait(now, turn(now));
  }
}

void Device::run_work(Instant now) {
  {
    const std::lock_guard lock(mutex_);
    running_.swap(work_);
  }
  for (const Work& work : running_) {
    work(now);
  }
  running_.clear();
}

/// One round of everything; true when there is more to do at once.
bool Device::turn(Instant now) {
  run_work(now);
  FrameList incoming;
  bool more = false;
  for (std::size_t i = 0; i < receive_turns; ++i) {
    more = link_->receive(pool_, counters_, now, incoming) != 0;
    while (Frame* frame = incoming.pop_front()) {
      transport_->receive(*frame, self, now);
    }
    if (!more) {
      break;
    }
  }
  wheel_.run(now);
  if (!blocked_) {
    more = transport_->progress(now) || more;
  }
  blocked_ = !link_->send(outgoing_, pool_, counters_);
  return more && !blocked_;
}

void Device::wait(Instant now, bool busy) {
  timespec timeout{};
  const Instant due = wheel_.next_deadline();
  constexpr std::int64_t ps_per_second = 1'000'000'000'000;
  const std::int64_t left = busy || due < now ? 0 : (due - now).count();
  timeout.tv_sec = left / ps_per_second;
  timeout.tv_nsec = (left % ps_per_second) / 1000;
  std::array<pollfd, 2> fds{{{.fd = events_.get(), .events = POLLIN, .revents = 0},
                             {.fd = blocked_ ? link_->blocked_fd() : -1, .events = POLLOUT, .revents = 0}}};
  if (ppoll(fds.data(), fds.size(), due == Instant::never() && !busy ? nullptr : &timeout, nullptr) <= 0 ||
      (fds[0].revents & POLLIN) == 0) {
    return;
  }
  std::array<epoll_event, 32> ready{};
  const int n = epoll_wait(events_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  for (int i = 0; i < n; ++i) {
    if (ready[static_cast<std::size_t>(i)].data.ptr != nullptr) {
      static_cast<Watcher*>(ready[static_cast<std::size_t>(i)].data.ptr)->on_readable(now);
    }
  }
  std::uint64_t wakes = 0;
  static_cast<void>(read(wake_.get(), &wakes, sizeof wakes));
}

}  // namespace nbx::nccl::plugin
