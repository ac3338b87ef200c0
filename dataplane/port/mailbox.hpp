// Tasks from other threads that a worker does between two bursts. Bounded; the worker never waits: when a sender holds
// the lock it looks again in the next turn, and without mail a turn costs one relaxed load.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/units.hpp"

namespace nbx::port {

class Mailbox {
 public:
  using Task = std::function<void(Instant now)>;

  /// False when the mailbox is full: the caller tries again later.
  bool post(Task task) {
    const std::scoped_lock lock(mutex_);
    if (tasks_.size() >= tasks_max) {
      return false;
    }
    tasks_.push_back(std::move(task));
    waiting_.store(true, std::memory_order_release);
    return true;
  }

  /// Has the worker compute f(now) and waits for it. nullopt when it did not begin within `limit`; then it never will.
  /// f may refer to the caller's variables, and answers a value.
  template <class F>
  auto call(F&& f, std::chrono::milliseconds limit) -> std::optional<std::invoke_result_t<F, Instant>> {
    using Answer = std::invoke_result_t<F, Instant>;
    struct Call {
      std::mutex mutex;
      std::condition_variable changed;
      enum class State : std::uint8_t { waiting, running, done, cancelled } state = State::waiting;
      std::optional<Answer> answer;
    };
    auto call = std::make_shared<Call>();
    const auto task = [call, &f](Instant now) {
      {
        const std::scoped_lock lock(call->mutex);
        if (call->state == Call::State::cancelled) {
          return;
        }
        call->state = Call::State::running;
      }
      std::optional<Answer> answer(f(now));
      const std::scoped_lock lock(call->mutex);
      call->answer = std::move(answer);
      call->state = Call::State::done;
      call->changed.notify_one();
    };
    if (!post(task)) {
      return std::nullopt;
    }
    std::unique_lock lock(call->mutex);
    if (!call->changed.wait_for(lock, limit, [&] { return call->state != Call::State::waiting; })) {
      call->state = Call::State::cancelled;
      return std::nullopt;
    }
    call->changed.wait(lock, [&] { return call->state == Call::State::done; });
    return std::move(call->answer);
  }

  /// The worker's: does what has arrived. True when there was something.
  bool serve(Instant now) {
    if (!waiting_.load(std::memory_order_relaxed)) {
      return false;
    }
    std::deque<Task> tasks;
    {
      const std::unique_lock lock(mutex_, std::try_to_lock);
      if (!lock.owns_lock()) {
        return true;
      }
      tasks.swap(tasks_);
      waiting_.store(false, std::memory_order_relaxed);
    }
    for (Task& task : tasks) {
      task(now);
    }
    return true;
  }

 private:
  static constexpr std::size_t tasks_max = 4096;

  std::atomic<bool> waiting_{false};
  std::mutex mutex_;
  std::deque<Task> tasks_;
};

}  // namespace nbx::port
