// The failures of a profile, each begun and ended at its time.
#pragma once

#include <vector>

#include "fabric/spec.hpp"
#include "timer/wheel.hpp"

namespace nbx::pipeline {

class Schedule final : public TimerClient {
 public:
  class User {
   public:
    /// `failure` begins, and lasts until `until`.
    virtual void on_failure(const fabric::Failure& failure, Instant until, Instant now) noexcept = 0;
    /// It is over: the profile holds again.
    virtual void on_recovery(const fabric::Failure& failure, Instant now) noexcept = 0;

   protected:
    ~User() = default;
  };

  Schedule(Wheel& wheel, User& user) : wheel_(wheel), user_(user) { timer_.client = this; }
  ~Schedule() { wheel_.cancel(timer_); }
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;
  Schedule(Schedule&&) = delete;
  Schedule& operator=(Schedule&&) = delete;

  /// Replaces what was to happen, and ends what has begun; times count from `now`.
  void load(const std::vector<fabric::Failure>& failures, Instant now);
  void on_timer(TimerNode& node, Instant now) noexcept override;

 private:
  struct Step {
    Instant at{};
    std::size_t failure = 0;
    bool ends = false;
  };

  void end_what_holds(Instant now) noexcept;
  void arm() noexcept;

  Wheel& wheel_;
  User& user_;
  TimerNode timer_;
  std::vector<fabric::Failure> failures_;
  std::vector<Step> steps_;  // by time
  std::size_t next_ = 0;
};

}  // namespace nbx::pipeline
