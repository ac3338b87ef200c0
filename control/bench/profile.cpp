// Stage profile: a direction of a profile, a frame every 80 ns, which is 4 KiB packets at 400 Gb/s; the driver turns
// once per burst.
#include <optional>

#include "bench/meter.hpp"
#include "fabric/impairment.hpp"
#include "frame/pool.hpp"

namespace nbx::bench {
namespace {

using namespace std::chrono_literals;
using fabric::DirectionSpec;

constexpr Duration spacing = 80ns;
constexpr Duration line_fill = 6ms;  // longer than any delay below
constexpr unsigned bursts = 2048;    // what other cases have left in the caches does not count
constexpr unsigned qps = 1000;

class Recycler final : public fabric::ImpairmentSink {
 public:
  explicit Recycler(FramePool& pool) : pool_(pool) {}
  void on_release(Frame& frame, Instant /*now*/) noexcept override {
    ++released;
    pool_.free(frame);
  }
  void on_drop(const Frame& /*frame*/, Instant /*now*/) noexcept override {}
  void on_decided(const Frame& /*frame*/, Instant /*now*/) noexcept override {}

  std::uint64_t released = 0;

 private:
  FramePool& pool_;
};

class NobodyHost final : public events::Host {
 public:
  void on_qp_error(const Frame&, fabric::Direction, GhostId, Instant) noexcept override {}
  void on_silent_ghost(GhostId, Instant) noexcept override {}
  bool find_connection(fabric::Direction, GhostId, Qpn, events::Connection&) noexcept override { return false; }
};

/// Events that name a PSN of one of the queue pairs, and one that no packet has.
std::vector<events::Spec> armed(std::uint32_t n) {
  std::vector<events::Spec> specs;
  for (std::uint32_t i = 0; i < n; ++i) {
    specs.push_back({.name = "e" + std::to_string(i),
                     .match = {.dest_qpn = Qpn{i % qps}, .psn_first = Psn{0x800000 + i}, .transmission = 1}});
  }
  return specs;
}

class Profile final : public Case {
 public:
  Profile(const char* variant, const DirectionSpec& spec, std::optional<std::uint32_t> events = {}, unsigned burst = 32)
      : Case({.stage = "profile", .variant = variant, .burst = burst, .qps = qps}),
        impairment_(spec, Rng{1}, pool_, wheel_, counters_, sink_),
        table_(armed(events.value_or(0)), host_, Instant{}) {
    if (events) {
      impairment_.use(&table_, fabric::Direction::from_node);
    }
    while (now_ < Instant{} + line_fill) {  // the delay line is full from here on
      turn();
    }
  }

  std::uint64_t round(Stopwatch& watch) override {
    watch.start();
    for (unsigned i = 0; i < bursts; ++i) {
      turn();
    }
    watch.stop();
    return std::uint64_t{bursts} * label().burst;
  }
  [[nodiscard]] std::uint64_t checksum() const override { return sink_.released; }

 private:
  void turn() {
    for (unsigned i = 0; i < label().burst; ++i) {
      Frame& frame = *pool_.alloc(64);
      frame.parsed.kind = wire::FrameKind::roce_v2;
      frame.parsed.op_class = wire::OpcodeClass::data;
      frame.parsed.l3_offset = 14;
      frame.parsed.payload_offset = 54;
      frame.parsed.payload_size = 6;
      frame.parsed.dest_qpn = Qpn{number_ % qps};
      frame.parsed.psn = Psn{number_++ % 0x800000};
      impairment_.submit(frame, GhostId{0}, now_);
      now_ = now_ + spacing;
    }
    wheel_.run(now_);
  }

  SlabSource slab_{1U << 17U, 64};  // as many as wait with room to spare; the bytes are not what is measured
  FramePool pool_{slab_};
  Wheel wheel_;
  Counters counters_;
  Recycler sink_{pool_};
  fabric::Impairment impairment_;
  NobodyHost host_;
  events::Table table_;
  Instant now_{};
  std::uint32_t number_ = 0;
};

DirectionSpec loss() {
  DirectionSpec spec;
  spec.loss.push_back({fabric::Match{}, fabric::Bernoulli{0.001}});
  return spec;
}
DirectionSpec delay() {
  DirectionSpec spec;
  spec.delay.push_back({fabric::Match{}, 5ms, {}, false});
  spec.delay_line_frames = 1U << 17U;
  return spec;
}
DirectionSpec jitter(bool may_reorder) {
  DirectionSpec spec = delay();
  spec.delay[0].jitter = fabric::Normal{100us};
  spec.delay[0].may_reorder = may_reorder;
  return spec;
}
DirectionSpec queue() {
  DirectionSpec spec;
  spec.rate = {BitRate::gbps(400), 1 << 20, true};
  return spec;
}
DirectionSpec all() {
  DirectionSpec spec = jitter(false);
  spec.loss = loss().loss;
  spec.corrupt.push_back({fabric::Match{}, fabric::Bernoulli{0.001}, fabric::CorruptTarget::payload});
  spec.duplicate.push_back({fabric::Match{}, fabric::Bernoulli{0.001}});
  spec.ecn.push_back({fabric::Match{}, fabric::Bernoulli{0.001}, false});
  spec.rate = queue().rate;
  spec.reorder.push_back({fabric::Match{}, fabric::Bernoulli{0.001}, 3, 1ms});
  return spec;
}

/// Timers that fire in turn and are armed again: the hashed wheel under delays and retransmissions.
class Timers final : public Case, TimerClient {
 public:
  explicit Timers(unsigned timers)
      : Case({.stage = "timer", .variant = std::to_string(timers) + " armed"}), nodes_(timers) {
    for (TimerNode& node : nodes_) {
      node.client = this;
      first_ += period / timers;
      wheel_.arm(node, Instant{} + first_);
    }
  }

  std::uint64_t round(Stopwatch& watch) override {
    const std::uint64_t before = fired_;
    watch.start();
    wheel_.run(now_ = now_ + period);
    watch.stop();
    return fired_ - before;
  }
  [[nodiscard]] std::uint64_t checksum() const override { return fired_; }

 private:
  static constexpr Duration period = 67ms;  // a local ACK timeout of code 14
  void on_timer(TimerNode& node, Instant /*now*/) noexcept override {
    ++fired_;
    wheel_.arm(node, node.due + period);
  }

  Wheel wheel_;
  std::vector<TimerNode> nodes_;
  Duration first_{};
  Instant now_{};
  std::uint64_t fired_ = 0;
};

}  // namespace

Cases profile_cases() {
  Cases cases;
  const auto add = [&cases](const char* variant, const DirectionSpec& spec, std::optional<std::uint32_t> events = {},
                            unsigned burst = 32) {
    cases.push_back(std::make_unique<Profile>(variant, spec, events, burst));
  };
  add("none", {});
  add("none", {}, {}, 8);
  add("none", {}, {}, 1);
  add("0 events", {}, 0);
  add("10 events", {}, 10);
  add("100 events", {}, 100);
  add("10,000 events", {}, 10'000);
  add("loss", loss());
  add("rate and ECN queue", queue());
  add("delay", delay());
  add("jitter, in order", jitter(false));
  add("jitter, may reorder", jitter(true));
  add("all", all());
  cases.push_back(std::make_unique<Timers>(1000));
  cases.push_back(std::make_unique<Timers>(100'000));
  return cases;
}

}  // namespace nbx::bench
