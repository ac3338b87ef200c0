#include "pipeline/schedule.hpp"

#include <algorithm>

namespace nbx::pipeline {

void Schedule::load(const std::vector<fabric::Failure>& failures, Instant now) {
  wheel_.cancel(timer_);
  end_what_holds(now);
  failures_ = failures;
  steps_.clear();
  next_ = 0;
  for (std::size_t i = 0; i < failures_.size(); ++i) {
    const Instant begin = now + failures_[i].at;
    steps_.push_back({begin, i, false});
    if (failures_[i].lasts != Duration::zero()) {
      steps_.push_back({begin + failures_[i].lasts, i, true});
    }
  }
  std::stable_sort(steps_.begin(), steps_.end(), [](const Step& a, const Step& b) { return a.at < b.at; });
  arm();
}

void Schedule::end_what_holds(Instant now) noexcept {
  for (std::size_t begun = 0; begun < next_; ++begun) {
    const auto ended = [&](const Step& step) { return step.ends && step.failure == steps_[begun].failure; };
    if (!steps_[begun].ends &&
        std::none_of(steps_.begin(), steps_.begin() + static_cast<std::ptrdiff_t>(next_), ended)) {
      user_.on_recovery(failures_[steps_[begun].failure], now);
    }
  }
}

void Schedule::on_timer(TimerNode& /*node*/, Instant /*now*/) noexcept {
  const Step& step = steps_[next_++];
  const fabric::Failure& failure = failures_[step.failure];
  if (step.ends) {
    user_.on_recovery(failure, step.at);
  } else {
    user_.on_failure(failure, failure.lasts == Duration::zero() ? Instant::never() : step.at + failure.lasts, step.at);
  }
  arm();
}

void Schedule::arm() noexcept {
  if (next_ != steps_.size()) {
    wheel_.arm(timer_, steps_[next_].at);
  }
}

}  // namespace nbx::pipeline
