// The ranks of a job at work: their queue pairs, what has come in, what may go out, and when each operation began and
// ended. Everything happens in callbacks of the transports and timers of the shards where the ranks live.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "ghost/personality.hpp"
#include "sim/closed_form.hpp"
#include "sim/exports.hpp"
#include "sim/parts.hpp"
#include "sim/program.hpp"
#include "sim/timeline.hpp"

namespace nbx::sim {

/// Of one operation in one step, over all ranks.
struct Span {
  Instant first_start = Instant::never();
  Instant last_end{};

  [[nodiscard]] Duration length() const noexcept { return last_end - first_start; }
};

class Ranks {
 public:
  /// Without a network there is no closed form, and two ranks need none.
  /// `on_message` is told of each that was acknowledged; it may be empty.
  Ranks(const config::Job& job, std::uint32_t ranks, std::uint32_t path_mtu, std::optional<ClosedForm> closed_form,
        std::function<void(const Message&)> on_message);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  Ranks(Ranks&&) = delete;
  Ranks& operator=(Ranks&&) = delete;

  /// The ranks from `first` on are the ghosts of a shard, in order; its context is that of any of them.
  void seat(std::uint32_t first, std::uint32_t n, const ghost::Context& context);
  /// All have a seat: makes their connections and lets them begin.
  void start(Instant now);

  [[nodiscard]] bool done() const noexcept { return done_ == ranks_.size(); }
  /// Why the job cannot go on: a queue pair failed. Empty: it can.
  [[nodiscard]] const std::string& failure() const noexcept { return failure_; }
  /// Who waits for what, in words: a few ranks.
  [[nodiscard]] std::string waiting() const;
  /// Of all messages, those that have come in.
  [[nodiscard]] double share_done() const noexcept;

  /// By step and operation.
  [[nodiscard]] const std::vector<std::vector<Span>>& spans() const noexcept { return spans_; }
  /// Of whole steps: from the first rank's start to the last one's end.
  [[nodiscard]] const std::vector<Span>& steps() const noexcept { return steps_; }
  [[nodiscard]] std::size_t queue_pairs() const noexcept { return queue_pairs_; }
  [[nodiscard]] const Parts& parts() const noexcept { return parts_; }
  /// One per queue pair that sends.
  [[nodiscard]] std::vector<Flow> flows() const;

 private:
  class Rank;
  class Connection;
  class QueuePair;
  class Shortcut;
  void connect(std::uint32_t from, std::uint32_t to, std::uint32_t lane);
  [[nodiscard]] std::unique_ptr<Connection> connect_queue_pairs(std::uint32_t from, std::uint32_t to);
  [[nodiscard]] bool closed(std::uint32_t rank) const;
  void acknowledged(std::uint64_t operation, const Message& message);
  void began(std::uint64_t operation, std::uint32_t rank, Instant now);
  void ended(std::uint64_t operation, std::uint32_t rank, Instant now);
  void fail(std::uint32_t rank, rdma::WcStatus cause, Instant now, std::optional<std::uint32_t> peer = {});
  // Operations are counted through all steps.
  [[nodiscard]] std::uint64_t operations() const noexcept { return job_.each_step.size(); }
  [[nodiscard]] const config::JobOperation& operation(std::uint64_t i) const {
    return *job_.each_step[i % operations()];
  }

  const config::Job& job_;
  std::uint32_t path_mtu_;
  std::optional<ClosedForm> closed_form_;
  std::function<void(const Message&)> on_message_;
  std::vector<std::vector<std::size_t>> waits_for_;  // by operation, others of its step
  std::vector<std::vector<std::size_t>> waited_by_;
  std::uint32_t staleness_ = 0;  // the largest of the job
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::unique_ptr<Connection>> connections_;
  std::size_t queue_pairs_ = 0;
  std::size_t done_ = 0;
  std::uint64_t messages_ = 0;  // of the whole job
  std::uint64_t received_ = 0;
  std::string failure_;
  std::vector<std::vector<Span>> spans_;
  std::vector<Span> steps_;
  Parts parts_;
};

}  // namespace nbx::sim
