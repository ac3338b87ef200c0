// The wheel against a sorted multimap: random arms, moves, cancels and runs over scales from a picosecond to weeks,
// with many ties, arming from within, and the deadline compared after every step.
#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "base/rng.hpp"
#include "timer/wheel.hpp"

namespace nbx {
namespace {

constexpr std::size_t timers = 300;

struct Timer : TimerNode {
  std::size_t id = 0;
};

/// What both sides did, and what a timer does from within when it fires: decided by a hash of (id, due) so that the
/// two sides need not share a random stream.
std::uint64_t whim(std::size_t id, Instant due) {
  return Rng{id * 0x9e37'79b9U + static_cast<std::uint64_t>(due.ps)}.next();
}

class WheelSide : public TimerClient {
 public:
  explicit WheelSide(std::int64_t start) : wheel{Instant{start}}, nodes(timers) {
    for (std::size_t i = 0; i < timers; ++i) {
      nodes[i].id = i;
      nodes[i].client = this;
    }
  }
  void on_timer(TimerNode& node, Instant /*now*/) noexcept override {
    const std::size_t id = static_cast<Timer&>(node).id;
    fired.emplace_back(id, node.due);
    const std::uint64_t w = whim(id, node.due);
    const std::size_t other = (w >> 8U) % timers;
    if (w % 4 == 0) {
      wheel.arm(nodes[other], node.due + Duration{static_cast<std::int64_t>(w >> (20 + w % 40))});
    } else if (w % 4 == 1) {
      wheel.cancel(nodes[other]);
    }
  }

  Wheel wheel;
  std::vector<Timer> nodes;
  std::vector<std::pair<std::size_t, Instant>> fired;
};

class MapSide {
 public:
  MapSide() : where_(timers, map_.end()) {}

  void arm(std::size_t id, Instant due) {
    cancel(id);
    where_[id] = map_.emplace(due, id);  // equal keys stay in the order of insertion
  }
  void cancel(std::size_t id) {
    if (where_[id] != map_.end()) {
      map_.erase(where_[id]);
      where_[id] = map_.end();
    }
  }
  void run(Instant now) {
    while (!map_.empty() && map_.begin()->first <= now) {
      const auto [due, id] = *map_.begin();
      cancel(id);
      fired.emplace_back(id, due);
      const std::uint64_t w = whim(id, due);
      const std::size_t other = (w >> 8U) % timers;
      if (w % 4 == 0) {
        arm(other, due + Duration{static_cast<std::int64_t>(w >> (20 + w % 40))});
      } else if (w % 4 == 1) {
        cancel(other);
      }
    }
  }
  [[nodiscard]] Instant next_deadline() const { return map_.empty() ? Instant::never() : map_.begin()->first; }
  [[nodiscard]] std::size_t armed() const { return map_.size(); }

  std::vector<std::pair<std::size_t, Instant>> fired;

 private:
  std::multimap<Instant, std::size_t> map_;
  std::vector<std::multimap<Instant, std::size_t>::iterator> where_;
};

class WheelOrder : public testing::TestWithParam<int> {};

TEST_P(WheelOrder, equals_a_sorted_multimap) {
  Rng rng{static_cast<std::uint64_t>(GetParam())};
  const std::int64_t start = GetParam() % 2 == 0 ? 0 : static_cast<std::int64_t>(rng.below(1U << 30U)) - (1 << 29);
  WheelSide wheel{start};
  MapSide map;
  Instant now{start};
  // A scale is a number of bits: near ties at one end, weeks (2^60 ps are 13 days) at the other.
  const auto span = [&](unsigned bits_max) {
    return static_cast<std::int64_t>(rng.next() >> (63U - rng.below(bits_max)));
  };
  for (int step = 0; step < 4000; ++step) {
    const std::size_t id = rng.below(timers);
    const std::uint64_t what = rng.below(10);
    if (what < 5) {
      const Instant due = now + Duration{span(48) - (what == 0 ? span(20) : 0)};
      wheel.wheel.arm(wheel.nodes[id], due);
      map.arm(id, due);
    } else if (what < 7) {
      wheel.wheel.cancel(wheel.nodes[id]);
      map.cancel(id);
    } else {
      const Instant next = map.next_deadline();
      if (what == 7 && next != Instant::never() && next > now) {
        now = next;
      } else if (now.ps < (std::int64_t{1} << 61)) {
        now = now + Duration{span(step % 100 == 0 ? 54 : 40)};
      }
      wheel.wheel.run(now);
      map.run(now);
    }
    ASSERT_EQ(wheel.wheel.next_deadline(), map.next_deadline()) << "step " << step;
    ASSERT_EQ(wheel.wheel.armed(), map.armed()) << "step " << step;
    ASSERT_EQ(wheel.fired.size(), map.fired.size()) << "step " << step;
  }
  EXPECT_GT(wheel.fired.size(), 500U);
  EXPECT_EQ(wheel.fired, map.fired);
}

INSTANTIATE_TEST_SUITE_P(seeds, WheelOrder, testing::Range(1, 41));

}  // namespace
}  // namespace nbx
