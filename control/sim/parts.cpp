#include "sim/parts.hpp"

#include <algorithm>
#include <array>

namespace nbx::sim {
namespace {

enum class Kind : std::uint8_t { compute, waiting, resent, step };
constexpr std::size_t kinds = 4;

/// Time between two edges counts to the first kind that is open.
class Sweep {
 public:
  void add(Kind kind, Instant from, Instant to) {
    if (from < to) {
      edges_.push_back({from, kind, 1});
      edges_.push_back({to, kind, -1});
    }
  }
  [[nodiscard]] std::array<Duration, kinds> lengths() {
    std::sort(edges_.begin(), edges_.end(), [](const Edge& a, const Edge& b) { return a.at < b.at; });
    std::array<Duration, kinds> lengths{};
    std::array<int, kinds> open{};
    Instant since{};
    for (const Edge& edge : edges_) {
      if (open[static_cast<std::size_t>(Kind::step)] != 0) {
        const auto first = std::find_if(open.begin(), open.end(), [](int n) { return n != 0; });
        lengths[static_cast<std::size_t>(first - open.begin())] += edge.at - since;
      }
      since = edge.at;
      open[static_cast<std::size_t>(edge.kind)] += edge.change;
    }
    return lengths;
  }

 private:
  struct Edge {
    Instant at;
    Kind kind;
    int change;
  };
  std::vector<Edge> edges_;
};

bool together(const config::Group& group, std::uint32_t a, std::uint32_t b, std::uint32_t ranks) {
  const std::uint32_t span = (group.size == 0 ? ranks / group.stride : group.size) * group.stride;
  return a / span == b / span && a % group.stride == b % group.stride;
}

bool together(const config::JobOperation& operation, std::uint32_t a, std::uint32_t b, std::uint32_t ranks) {
  return std::visit(
      [&](const auto& what) {
        if constexpr (requires { what.group; }) {
          return together(what.group, a, b, ranks);
        } else if constexpr (requires { what.from; }) {
          const auto takes_part = [&](std::uint32_t rank) { return rank == *what.from || rank == *what.to; };
          return takes_part(a) && takes_part(b);
        } else {
          return false;
        }
      },
      operation.what);
}

}  // namespace

Parts::Parts(const config::Job& job, std::uint32_t ranks)
    : job_(job), ranks_(ranks), steps_(job.steps), completion_ns_(job.each_step.size()) {}

Parts::Open& Parts::open(std::uint64_t operation) {
  const auto [found, made] = open_.try_emplace(operation / operations());
  Open& step = found->second;
  if (made) {
    step.left = operations() * ranks_;
    step.spans.resize(step.left);
    step.resent.resize(ranks_);
  }
  return step;
}

void Parts::began(std::uint64_t operation, std::uint32_t rank, Instant now) {
  open(operation).spans[operation % operations() * ranks_ + rank].from = now;
}

void Parts::ended(std::uint64_t operation, std::uint32_t rank, Instant now) {
  Open& step = open(operation);
  step.spans[operation % operations() * ranks_ + rank].to = now;
  if (--step.left == 0) {
    steps_[operation / operations()] = explain(step);
    open_.erase(operation / operations());
  }
}

void Parts::on_message(std::uint64_t operation, std::uint32_t from, std::uint32_t to, Instant since, bool resent,
                       Instant now) {
  completion_ns_[operation % operations()].record(static_cast<std::uint64_t>((now - since).count()) / 1000);
  if (!resent) {
    return;
  }
  Open& step = open(operation);
  for (const std::uint32_t rank : {from, to}) {
    std::vector<Interval>& intervals = step.resent[rank];
    Interval interval{since, now};
    for (; !intervals.empty() && intervals.back().to >= interval.from; intervals.pop_back()) {
      interval.from = std::min(interval.from, intervals.back().from);
    }
    intervals.push_back(interval);
  }
}

std::uint32_t Parts::latest(const Open& step, std::size_t operation, std::uint32_t rank) const {
  std::uint32_t latest = rank;
  for (std::uint32_t other = 0; other < ranks_; ++other) {
    if (step.spans[operation * ranks_ + other].from > step.spans[operation * ranks_ + latest].from &&
        together(*job_.each_step[operation], rank, other, ranks_)) {
      latest = other;
    }
  }
  return latest;
}

StepParts Parts::explain(const Open& step) const {
  const auto by_end = [](const Interval& a, const Interval& b) { return a.to < b.to; };
  const auto by_start = [](const Interval& a, const Interval& b) { return a.from < b.from; };
  const auto last = std::max_element(step.spans.begin(), step.spans.end(), by_end);
  StepParts parts;
  parts.rank = static_cast<std::uint32_t>(static_cast<std::size_t>(last - step.spans.begin()) % ranks_);
  Sweep sweep;
  Instant begin = Instant::never();
  Duration longest_wait{};
  for (std::size_t i = 0; i < operations(); ++i) {
    const Interval& own = step.spans[i * ranks_ + parts.rank];
    begin = std::min(begin, own.from);
    if (std::holds_alternative<config::Compute>(job_.each_step[i]->what)) {
      sweep.add(Kind::compute, own.from, own.to);
      continue;
    }
    const std::uint32_t late = latest(step, i, parts.rank);
    const Instant until = std::min(own.to, step.spans[i * ranks_ + late].from);
    sweep.add(Kind::waiting, own.from, until);
    if (until - own.from > longest_wait) {
      longest_wait = until - own.from;
      parts.waited_for = late;
    }
  }
  for (const Interval& interval : step.resent[parts.rank]) {
    sweep.add(Kind::resent, interval.from, interval.to);
  }
  sweep.add(Kind::step, begin, last->to);
  const std::array<Duration, kinds> lengths = sweep.lengths();
  parts.late_start = begin - std::min_element(step.spans.begin(), step.spans.end(), by_start)->from;
  parts.compute = lengths[static_cast<std::size_t>(Kind::compute)];
  parts.waiting = lengths[static_cast<std::size_t>(Kind::waiting)];
  parts.resent = lengths[static_cast<std::size_t>(Kind::resent)];
  parts.communication = lengths[static_cast<std::size_t>(Kind::step)];
  return parts;
}

}  // namespace nbx::sim
