#include "nccl-glue/service/steps.hpp"

#include <algorithm>

namespace nbx::nccl {
namespace {

constexpr std::size_t period_max = 512;
constexpr std::size_t times_min = 3;

struct Repetition {
  std::size_t first = 0;
  std::size_t period = 0;  // 0: there is none
};

Repetition repetition_of(const std::vector<OperationReport>& operations) {
  const std::size_t n = operations.size();
  Repetition best;
  std::size_t most = 0;
  for (std::size_t period = 1; period <= std::min(period_max, n / times_min); ++period) {
    std::size_t first = n - period;
    while (first > 0 && operations[first - 1].operation == operations[first - 1 + period].operation) {
      --first;
    }
    const std::size_t covered = n - first;
    if (covered >= times_min * period && covered > most) {
      most = covered;
      best = {first, period};
    }
  }
  return best;
}

void add(std::vector<Firing>& all, const Firing& firing) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Firing& f) {
    return f.direction == firing.direction && f.effect == firing.effect && f.rule == firing.rule;
  });
  if (found == all.end()) {
    all.push_back(firing);
  } else {
    found->frames += firing.frames;
    found->cost += firing.cost;
  }
}

void add(StepReport& step, const OperationReport& report) {
  ++step.operations;
  step.bytes += report.operation.count * type_size(report.operation.type);
  step.in_operations += report.last_message - report.called - report.behind;
  step.shares.add(report.shares);
  for (const Firing& firing : report.firings) {
    add(step.firings, firing);
  }
  if (report.latest_by > step.latest_by) {
    step.latest_by = report.latest_by;
    step.latest_rank = report.latest_rank;
  }
}

}  // namespace

std::vector<StepReport> steps_of(const std::vector<OperationReport>& operations) {
  std::vector<StepReport> steps;
  const Repetition repetition = repetition_of(operations);
  if (repetition.period == 0) {
    return steps;
  }
  Instant begin = operations[repetition.first].called;
  for (std::size_t at = repetition.first; at + repetition.period <= operations.size(); at += repetition.period) {
    StepReport step;
    Instant end = begin;
    bool done = true;
    for (std::size_t i = at; i < at + repetition.period; ++i) {
      add(step, operations[i]);
      end = std::max(end, operations[i].last_message);
      done = done && operations[i].done;
    }
    if (!done) {
      break;
    }
    step.time = end - begin;
    begin = end;
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace nbx::nccl
