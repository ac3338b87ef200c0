// The two directions of a connection between a real rank and a ghost: transfers one after the other, in the order in
// which NCCL put them on the channel.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "nccl-glue/comm/comm.hpp"
#include "nccl-glue/service/transfer.hpp"

namespace nbx::nccl {

/// What edges tell the world that they belong to.
class EdgeOwner {
 public:
  /// A message of a transfer came, or was acknowledged: what waits for it may go on.
  virtual void on_progress(const Transfer& transfer, std::uint64_t bytes, bool to_real, Instant now) noexcept = 0;
  /// A transfer has nothing more to do on an edge.
  virtual void on_transfer_done(const Transfer& transfer, Instant now) noexcept = 0;
  /// The ghosts of a transfer take or send nothing more before `until`.
  virtual void on_held(const Transfer& transfer, Instant until, Instant now) noexcept = 0;
  virtual void on_mismatch(const std::string& text, Instant now) noexcept = 0;
  /// A message came that was asked for.
  virtual void on_untaken(Instant now) noexcept = 0;

 protected:
  ~EdgeOwner() = default;
};

/// Lent to every edge.
struct EdgeTools {
  Net& net;
  Arena& arena;
  Wheel& wheel;
  EdgeOwner& owner;
};

/// How many steps of the buffer a connection has used: flags are made of it.
class StepCounter {
 public:
  explicit StepCounter(std::uint64_t at = 0) : at_(at) {}
  /// The counter at the next message, the first of an operation or not.
  std::uint64_t next(const Transfer::Steps& steps, bool first);

 private:
  std::uint64_t at_;
};

/// What a message of `bytes` has on the wire at this step.
[[nodiscard]] std::uint64_t bytes_at(std::uint64_t step, const Transfer::Steps& steps, std::uint64_t bytes);

class EdgeQueue : public TimerClient {
 public:
  /// `tag`: of the messages, the rank of their sender in NCCL's eyes.
  EdgeQueue(const EdgeTools& tools, const Edge& edge, GhostId ghost, std::uint32_t tag);
  virtual ~EdgeQueue();
  EdgeQueue(const EdgeQueue&) = delete;
  EdgeQueue& operator=(const EdgeQueue&) = delete;
  EdgeQueue(EdgeQueue&&) = delete;
  EdgeQueue& operator=(EdgeQueue&&) = delete;

  /// `edge` is the transfer's own number of this edge.
  void add(std::shared_ptr<Transfer> transfer, unsigned edge, Instant now);
  void ready(Instant now);  // the connection stands
  virtual void advance(Instant now) = 0;
  /// What the front transfer waits for, in words; empty when there is nothing to do.
  [[nodiscard]] virtual std::string waits_for() const = 0;

 protected:
  struct Task {
    std::shared_ptr<Transfer> transfer;
    unsigned edge = 0;
    std::uint64_t count = 0;
    std::uint64_t started = 0;   // posted, or handed to the network
    std::uint64_t finished = 0;  // received, or acknowledged
  };
  virtual std::uint64_t count(const Transfer& transfer, unsigned edge) const = 0;
  void wake_at(Instant when);
  void finished(Task& task, std::uint64_t bytes, Instant now);

  EdgeTools tools_;
  Edge edge_;
  GhostId ghost_;
  std::uint32_t tag_;
  std::deque<Task> tasks_;
  StepCounter steps_;
  bool connected_ = false;

 private:
  void on_timer(TimerNode& node, Instant now) noexcept override;
  TimerNode timer_;
};

/// The ghost receives.
class InEdge final : public EdgeQueue {
 public:
  using EdgeQueue::EdgeQueue;
  ~InEdge() override;
  void advance(Instant now) override;
  void received(std::uint64_t size, Instant now);
  /// Clears one message of up to `room` bytes, of whatever operation comes next; not while there is a transfer.
  void ask(std::uint64_t room, Instant now);
  /// The size of the message that was asked for, until a transfer takes it.
  [[nodiscard]] std::optional<std::uint64_t> untaken() const { return untaken_; }
  /// What the first message of a transfer would have, if it was the next.
  [[nodiscard]] std::uint64_t first_size(const Transfer& transfer, unsigned edge) const;
  [[nodiscard]] std::string waits_for() const override;

 private:
  bool post(std::uint64_t room, Instant now);
  std::uint64_t count(const Transfer& transfer, unsigned edge) const override { return transfer.messages_in(edge); }
  std::deque<Arena::Buffer> posted_;
  bool asked_ = false;  // the only one of `posted_` belongs to no transfer
  std::optional<std::uint64_t> untaken_;
};

/// The ghost sends.
class OutEdge final : public EdgeQueue {
 public:
  using EdgeQueue::EdgeQueue;
  ~OutEdge() override;
  void advance(Instant now) override;
  void sent(Instant now);
  /// The real rank has cleared a message of `size` bytes to send.
  void cleared(std::uint64_t size, Instant now);
  /// So many clear-to-sends, past or future, belong to a transfer that is added.
  void claim(std::uint64_t messages);
  /// Sizes of those that no transfer has claimed.
  [[nodiscard]] const std::deque<std::uint64_t>& unclaimed() const { return unclaimed_; }
  [[nodiscard]] std::string waits_for() const override;

 private:
  std::uint64_t count(const Transfer& transfer, unsigned edge) const override { return transfer.messages_out(edge); }
  std::deque<Outgoing> in_flight_;
  std::uint64_t claimed_ = 0;  // and not come yet
  std::deque<std::uint64_t> unclaimed_;
};

}  // namespace nbx::nccl
