// What the time of each step was made of, seen from the rank that ended it last: computing, waiting for a rank that
// came late, packets sent again, and the rest of its communication. The parts and the rank's late start add up to the
// step.
#pragma once

#include <map>
#include <vector>

#include "config/job.hpp"
#include "stats/histogram.hpp"

namespace nbx::sim {

struct StepParts {
  std::uint32_t rank = 0;  // that ended last
  Duration late_start{};   // behind the first rank
  // Each instant counts to the first that holds.
  Duration compute{};
  Duration waiting{};  // it had begun a collective that the latest of its group had not
  Duration resent{};   // a message from or to it was under way of which packets had to be sent again
  Duration communication{};
  std::uint32_t waited_for = 0;  // the rank for which it waited longest, when it waited at all
};

class Parts {
 public:
  Parts(const config::Job& job, std::uint32_t ranks);

  // Operations are counted through all steps.
  void began(std::uint64_t operation, std::uint32_t rank, Instant now);
  void ended(std::uint64_t operation, std::uint32_t rank, Instant now);
  /// A message was acknowledged that its sender had given to the connection at `since`.
  void on_message(std::uint64_t operation, std::uint32_t from, std::uint32_t to, Instant since, bool resent,
                  Instant now);

  /// By step; of those that not all ranks have ended nothing yet.
  [[nodiscard]] const std::vector<StepParts>& steps() const noexcept { return steps_; }
  /// How long the messages of an operation took, in nanoseconds: "flow completion time".
  [[nodiscard]] const Histogram& completion_ns(std::size_t operation) const { return completion_ns_[operation]; }

 private:
  struct Interval {
    Instant from = Instant::never();
    Instant to{};
  };
  /// A step that some rank has begun and not all have ended.
  struct Open {
    std::vector<Interval> spans;                // [operation][rank]
    std::vector<std::vector<Interval>> resent;  // [rank], one behind the other
    std::size_t left = 0;                       // spans that have not ended
  };

  [[nodiscard]] std::size_t operations() const noexcept { return job_.each_step.size(); }
  Open& open(std::uint64_t operation);
  [[nodiscard]] StepParts explain(const Open& step) const;
  /// The latest of the ranks that work together with `rank`.
  [[nodiscard]] std::uint32_t latest(const Open& step, std::size_t operation, std::uint32_t rank) const;

  const config::Job& job_;
  std::uint32_t ranks_;
  std::map<std::uint64_t, Open> open_;  // by step
  std::vector<StepParts> steps_;
  std::vector<Histogram> completion_ns_;  // by operation
};

}  // namespace nbx::sim
