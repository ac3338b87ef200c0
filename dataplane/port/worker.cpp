#include "port/worker.hpp"

#include <pthread.h>
#include <rte_pause.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <utility>

namespace nbx::port {
namespace {

// How an idle worker behaves that shares its core. A sleep ends late by up to wake_margin on a loaded machine, so a
// deadline that is nearer is waited for awake.
constexpr std::uint32_t awake_turns = 256;
constexpr std::uint32_t drowsy_turns = 512;
constexpr Duration nap_short = std::chrono::microseconds{50};
constexpr Duration nap_long = std::chrono::microseconds{200};
constexpr Duration nap_min = std::chrono::microseconds{10};
constexpr Duration wake_margin = std::chrono::microseconds{60};
// A turn that takes longer may have been interrupted.
constexpr Duration long_turn = std::chrono::microseconds{10};

/// How often another thread has taken this one's core.
long involuntary_switches() noexcept {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

void sleep_for(Duration duration) noexcept {
  const timespec time{.tv_sec = 0, .tv_nsec = duration.count() / 1000};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr);
}

void prepare_thread(const WorkerConfig& config) {
  pthread_setname_np(pthread_self(), ("nbx-" + config.name).substr(0, 15).c_str());
  prctl(PR_SET_TIMERSLACK, 1);  // sleeps end when they should
  if (config.core) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(*config.core, &cores);
    pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);
  }
}

}  // namespace

void Worker::start() {
  thread_ = std::thread([this] { run(); });
}

void Worker::stop() {
  if (thread_.joinable()) {
    stopping_.store(true, std::memory_order_relaxed);
    thread_.join();
    return_frames();
  }
}

void Worker::run() {
  prepare_thread(config_);
  const RegisteredThread registration;
  Instant last = clock_.now();
  if (network_ != nullptr) {
    network_->network.start(last);
  }
  for (WorkerPort& port : ports_) {
    port.shard.start(last);
  }
  bool worked = true;
  while (!stopping_.load(std::memory_order_relaxed)) {
    const Instant now = clock_.now();
    account(now - last, worked);
    if (was_interrupted(now - last)) {
      for (WorkerPort& port : ports_) {
        port.shard.interrupted(last, now);
      }
    }
    last = now;
    worked = turn(now);
    if (worked) {
      idle_turns_ = 0;
    } else {
      rest(now);
    }
  }
}

bool Worker::turn(Instant now) {
  bool worked = false;
  for (WorkerPort& port : ports_) {
    worked |= receive(port, now);
    worked |= take_from_peers(port, now);
    worked |= port.kernel != nullptr && port.kernel->receive(port.shard, now);
    worked |= port.mailbox.serve(now);
  }
  if (network_ != nullptr) {
    network_->wheel.run(now);
  }
  for (WorkerPort& port : ports_) {
    worked |= port.shard.progress(now, port.device.has_room());
  }
  for (WorkerPort& port : ports_) {
    worked |= hand_to_peers(port, now);
  }
  for (WorkerPort& port : ports_) {
    worked |= transmit(port, now);
    worked |= port.kernel != nullptr && port.kernel->transmit(port.shard);
  }
  return worked;
}

bool Worker::receive(WorkerPort& port, Instant now) noexcept {
  FrameList burst;
  const std::size_t oversize = port.device.receive(burst, now);
  for (std::size_t i = 0; i < oversize; ++i) {
    port.counters.count(Drop::port_rx_oversize);
  }
  const bool any = !burst.empty();
  if (any) {
    port.shard.receive(burst, now);
  }
  return any;
}

bool Worker::take_from_peers(WorkerPort& port, Instant now) noexcept {
  constexpr int frames_per_turn = 32;
  bool any = false;
  for (std::uint8_t i = 0; peers_ != nullptr && i < peers_->ports(); ++i) {
    const PortId peer{i};
    for (int n = 0; peer != port.id && n < frames_per_turn; ++n) {
      Frame* frame = peers_->pop(peer, port.id);
      if (frame == nullptr) {
        break;
      }
      port.shard.receive_from_peer(*frame, peer, now);
      any = true;
    }
  }
  return any;
}

bool Worker::hand_to_peers(WorkerPort& port, Instant now) noexcept {
  const std::size_t peers = peers_ != nullptr ? peers_->ports() : ports_.size();
  bool any = false;
  for (std::uint8_t i = 0; i < peers; ++i) {
    const PortId peer{i};
    if (peer == port.id) {
      continue;
    }
    while (Frame* frame = port.shard.to_peer(peer).pop_front()) {
      any = true;
      if (peers_ == nullptr) {
        ports_[i].shard.receive_from_peer(*frame, port.id, now);
      } else if (!peers_->push(port.id, peer, *frame)) {
        port.shard.discard(*frame, Drop::peer_ring_full);
      }
    }
  }
  return any;
}

bool Worker::transmit(WorkerPort& port, Instant now) noexcept {
  FrameList refused;
  const bool any = port.device.transmit(port.shard.to_port(), refused, now);
  while (Frame* frame = refused.pop_front()) {
    port.shard.discard(*frame, Drop::port_tx_full);
  }
  return any;
}

/// Whether the thread did not run when it wanted to: another had its core, or its nap ended late. Time that a
/// hypervisor takes is not seen.
bool Worker::was_interrupted(Duration turn) noexcept {
  const Duration nap = std::exchange(nap_, Duration::zero());
  if (turn < nap + (nap == Duration::zero() ? long_turn : wake_margin)) {
    return false;
  }
  const long before = std::exchange(involuntary_switches_, involuntary_switches());
  return nap != Duration::zero() || before != involuntary_switches_;
}

Instant Worker::next_deadline() const noexcept {
  Instant next = Instant::never();
  for (const WorkerPort& port : ports_) {
    next = std::min(next, port.shard.next_deadline());
  }
  return next;
}

void Worker::rest(Instant now) noexcept {
  if (config_.own_core || ++idle_turns_ < awake_turns) {
    rte_pause();
    return;
  }
  idle_turns_ = std::min(idle_turns_, drowsy_turns);
  const Duration nap = idle_turns_ < drowsy_turns ? nap_short : nap_long;
  const Instant deadline = next_deadline();
  const Duration until_deadline = deadline == Instant::never() ? nap : deadline - now - wake_margin;
  const Duration sleep = std::min(nap, until_deadline);
  if (sleep < nap_min) {
    sched_yield();
  } else {
    nap_ = sleep;
    sleep_for(sleep);
  }
}

void Worker::account(Duration spent, bool worked) noexcept {
  std::atomic<std::int64_t>& sum = worked ? busy_ps_ : idle_ps_;
  sum.store(sum.load(std::memory_order_relaxed) + spent.count(), std::memory_order_relaxed);
}

Worker::Load Worker::load() const noexcept {
  return {Duration{busy_ps_.load(std::memory_order_relaxed)}, Duration{idle_ps_.load(std::memory_order_relaxed)}};
}

void Worker::return_frames() noexcept {
  for (WorkerPort& port : ports_) {
    FrameList frames;
    port.device.take_pending(frames);
    frames.splice_back(port.shard.to_port());
    while (Frame* frame = frames.pop_front()) {
      port.shard.release(*frame);
    }
    for (std::uint8_t i = 0; peers_ != nullptr && i < peers_->ports(); ++i) {
      while (Frame* frame = PortId{i} == port.id ? nullptr : peers_->pop(PortId{i}, port.id)) {
        port.shard.release(*frame);
      }
    }
  }
}

}  // namespace nbx::port
