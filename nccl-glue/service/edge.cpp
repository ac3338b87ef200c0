#include "nccl-glue/service/edge.hpp"

#include <algorithm>
#include <utility>

#include "nccl-glue/plan/lines.hpp"
#include "nccl-glue/service/payload.hpp"

namespace nbx::nccl {
namespace {

constexpr Duration arena_retry = std::chrono::milliseconds{1};

std::string between(const Edge& edge) {
  const std::string ghost = "ghost rank " + std::to_string(edge.ghost_rank);
  const std::string real = "real rank " + std::to_string(edge.real_rank);
  return (edge.to_real ? ghost + " -> " + real : real + " -> " + ghost) + ", channel " + std::to_string(edge.channel);
}

}  // namespace

std::uint64_t StepCounter::next(const Transfer::Steps& steps, bool first) {
  if (first) {
    at_ = (at_ + steps.align - 1) / steps.align * steps.align;
  }
  return std::exchange(at_, at_ + steps.per_message);
}

std::uint64_t bytes_at(std::uint64_t step, const Transfer::Steps& steps, std::uint64_t bytes) {
  return steps.whole != 0 && sends_whole_step(Protocol::ll, step) ? steps.whole : bytes;
}

EdgeQueue::EdgeQueue(const EdgeTools& tools, const Edge& edge, GhostId ghost, std::uint32_t tag)
    : tools_(tools), edge_(edge), ghost_(ghost), tag_(tag) {
  timer_.client = this;
}

EdgeQueue::~EdgeQueue() { tools_.wheel.cancel(timer_); }

void EdgeQueue::add(std::shared_ptr<Transfer> transfer, unsigned edge, Instant now) {
  const std::uint64_t messages = count(*transfer, edge);
  if (messages == 0) {
    tools_.owner.on_transfer_done(*transfer, now);
    return;
  }
  tasks_.push_back({.transfer = std::move(transfer), .edge = edge, .count = messages});
  advance(now);
}

void EdgeQueue::ready(Instant now) {
  connected_ = true;
  advance(now);
}

void EdgeQueue::wake_at(Instant when) { tools_.wheel.arm(timer_, when); }

void EdgeQueue::on_timer(TimerNode& /*node*/, Instant now) noexcept { advance(now); }

void EdgeQueue::finished(Task& task, std::uint64_t bytes, Instant now) {
  const std::shared_ptr<Transfer> transfer = task.transfer;
  const bool last = ++task.finished == task.count;
  if (last) {
    tasks_.pop_front();
  }
  tools_.owner.on_progress(*transfer, bytes, edge_.to_real, now);
  if (last) {
    tools_.owner.on_transfer_done(*transfer, now);
  }
}

InEdge::~InEdge() {
  for (const Arena::Buffer& buffer : posted_) {
    tools_.arena.give_back(buffer);
  }
}

bool InEdge::post(std::uint64_t room, Instant now) {
  const auto buffer = tools_.arena.take(room);
  if (!buffer) {
    wake_at(now + arena_retry);
    return false;
  }
  if (!tools_.net.post(edge_.net, tools_.arena.at(ghost_, *buffer), tag_, now)) {
    tools_.arena.give_back(*buffer);
    return false;
  }
  posted_.push_back(*buffer);
  return true;
}

void InEdge::ask(std::uint64_t room, Instant now) {
  if (connected_ && tasks_.empty() && !asked_) {
    asked_ = post(room, now);
  }
}

std::uint64_t InEdge::first_size(const Transfer& transfer, unsigned edge) const {
  const Transfer::Steps steps = transfer.steps();
  return bytes_at(StepCounter{steps_}.next(steps, true), steps, transfer.offer(edge, 0).size);
}

void InEdge::advance(Instant now) {
  if (!connected_) {
    return;
  }
  if (asked_ && !tasks_.empty()) {
    asked_ = false;
    ++tasks_.front().started;
    if (untaken_) {
      received(*std::exchange(untaken_, std::nullopt), now);
      return;
    }
  }
  // The first task that is not posted completely: tasks before it wait for messages only.
  for (Task& task : tasks_) {
    while (task.started < task.count) {
      if (posted_.size() >= task.transfer->window()) {
        return;
      }
      const Instant open = task.transfer->open(task.edge);
      if (open > now) {
        if (open != Instant::never()) {
          wake_at(open);
          tools_.owner.on_held(*task.transfer, open, now);
        }
        return;
      }
      if (!post(task.transfer->offer(task.edge, task.started).room, now)) {
        return;
      }
      ++task.started;
    }
  }
}

void InEdge::received(std::uint64_t size, Instant now) {
  if (asked_) {
    untaken_ = size;
    tools_.owner.on_untaken(now);
    return;
  }
  if (tasks_.empty() || posted_.empty()) {
    return;
  }
  Task& task = tasks_.front();
  const Transfer::Offer offer = task.transfer->offer(task.edge, task.finished);
  const Transfer::Steps steps = task.transfer->steps();
  const std::uint64_t due = bytes_at(steps_.next(steps, task.finished == 0), steps, offer.size);
  const Message message{.buffer = posted_.front(), .size = offer.size, .arrival = now};
  posted_.pop_front();
  if (size != due) {
    tools_.arena.give_back(message.buffer);
    tools_.owner.on_mismatch(between(edge_) + ": message " + std::to_string(task.finished + 1) + " of " +
                                 std::to_string(task.count) + " has " + std::to_string(size) +
                                 " bytes; the schedule says " + std::to_string(due),
                             now);
    return;
  }
  task.transfer->received(task.edge, task.finished, message);
  finished(task, size, now);
  advance(now);
}

std::string InEdge::waits_for() const {
  if (tasks_.empty()) {
    return {};
  }
  const Task& task = tasks_.front();
  return between(edge_) + ": " + std::to_string(task.finished) + " of " + std::to_string(task.count) +
         " messages came, " + std::to_string(posted_.size()) + " receives posted" +
         (connected_ ? "" : "; the connection does not stand");
}

OutEdge::~OutEdge() {
  for (const Outgoing& outgoing : in_flight_) {
    if (!outgoing.shared) {
      tools_.arena.give_back(outgoing.buffer);
    }
  }
}

void OutEdge::advance(Instant now) {
  if (!connected_) {
    return;
  }
  for (Task& task : tasks_) {
    while (task.started < task.count) {
      const Instant due = task.transfer->ready(task.edge, task.started);
      if (due > now) {
        if (due != Instant::never()) {
          wake_at(due);
          tools_.owner.on_held(*task.transfer, due, now);
        }
        return;
      }
      if (tools_.net.clear_to_send(edge_.net) == 0) {
        return;
      }
      const Transfer::Steps steps = task.transfer->steps();
      const std::uint64_t step = steps_.next(steps, task.started == 0);
      Outgoing outgoing = task.transfer->take(task.edge, task.started, step);
      if (const std::uint64_t bytes = bytes_at(step, steps, outgoing.size); bytes != outgoing.size) {
        outgoing = with_empty_lines(tools_.arena, outgoing, bytes, step);
      }
      Arena::Buffer used = outgoing.buffer;
      used.size = outgoing.size;
      ++task.started;
      in_flight_.push_back(outgoing);
      if (!tools_.net.send(edge_.net, tools_.arena.at(ghost_, used), now)) {
        return;  // the connection has failed: on_closed follows
      }
    }
  }
}

void OutEdge::sent(Instant now) {
  if (tasks_.empty() || in_flight_.empty()) {
    return;
  }
  const Outgoing outgoing = in_flight_.front();
  in_flight_.pop_front();
  if (!outgoing.shared) {
    tools_.arena.give_back(outgoing.buffer);
  }
  finished(tasks_.front(), outgoing.size, now);
}

void OutEdge::cleared(std::uint64_t size, Instant now) {
  if (claimed_ > 0) {
    --claimed_;
  } else {
    unclaimed_.push_back(size);
  }
  advance(now);
}

void OutEdge::claim(std::uint64_t messages) {
  claimed_ += messages;
  while (claimed_ > 0 && !unclaimed_.empty()) {
    unclaimed_.pop_front();
    --claimed_;
  }
}

std::string OutEdge::waits_for() const {
  if (tasks_.empty()) {
    return {};
  }
  const Task& task = tasks_.front();
  return between(edge_) + ": " + std::to_string(task.finished) + " of " + std::to_string(task.count) +
         " messages acknowledged, " + std::to_string(task.started) + " sent, " +
         std::to_string(connected_ ? tools_.net.clear_to_send(edge_.net) : 0) + " cleared to send" +
         (connected_ ? "" : "; the connection does not stand");
}

}  // namespace nbx::nccl
