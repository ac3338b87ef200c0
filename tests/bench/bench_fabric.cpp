// Cost per frame of a direction of a profile, and of arming and firing a timer. A frame every 80 ns, which is 4 KiB
// packets at 400 Gb/s; the driver turns once per burst of 32. Cycles are those of the time-stamp counter.
#include <benchmark/benchmark.h>
#include <x86intrin.h>

#include <vector>

#include "fabric/impairment.hpp"
#include "frame/pool.hpp"

namespace nbx::fabric {
namespace {

using namespace std::chrono_literals;

constexpr Duration spacing = 80ns;
constexpr unsigned burst = 32;

class Recycler : public ImpairmentSink {
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
  void on_qp_error(const Frame& /*frame*/, Direction /*direction*/, GhostId /*ghost*/,
                   Instant /*now*/) noexcept override {}
  void on_silent_ghost(GhostId /*ghost*/, Instant /*until*/) noexcept override {}
  bool find_connection(Direction /*direction*/, GhostId /*ghost*/, Qpn /*dest_qpn*/,
                       events::Connection& /*out*/) noexcept override {
    return false;
  }
};

/// Events that name a PSN of one of a thousand queue pairs, and one that no packet has.
std::vector<events::Spec> armed(std::uint32_t n) {
  std::vector<events::Spec> specs;
  for (std::uint32_t i = 0; i < n; ++i) {
    specs.push_back({.name = "e" + std::to_string(i),
                     .match = {.dest_qpn = Qpn{i % 1000}, .psn_first = Psn{0x800000 + i}, .transmission = 1}});
  }
  return specs;
}

void frames(benchmark::State& state, const DirectionSpec& spec, std::uint32_t events = 0) {
  SlabSource slab{1U << 17U, 64};  // as many as wait in 5 ms with room to spare; the bytes are not what is measured
  FramePool pool{slab};
  Wheel wheel;
  Counters counters;
  Recycler sink{pool};
  Impairment impairment{spec, Rng{1}, pool, wheel, counters, sink};
  Instant now{};
  NobodyHost host;
  events::Table table{armed(events), host, now};
  if (events != 0) {
    impairment.use(&table, Direction::from_node);
  }
  std::uint32_t number = 0;
  const auto turn = [&] {
    for (unsigned i = 0; i < burst; ++i) {
      Frame& frame = *pool.alloc(64);
      frame.parsed.kind = wire::FrameKind::roce_v2;
      frame.parsed.op_class = wire::OpcodeClass::data;
      frame.parsed.l3_offset = 14;
      frame.parsed.payload_offset = 54;
      frame.parsed.payload_size = 6;
      frame.parsed.dest_qpn = Qpn{number % 1000};
      frame.parsed.psn = Psn{number++ % 0x800000};
      impairment.submit(frame, GhostId{0}, now);
      now = now + spacing;
    }
    wheel.run(now);
  };
  while (now < Instant{} + 6ms) {  // the delay line is full from here on
    turn();
  }
  const std::uint64_t released = sink.released;
  const std::uint64_t begin = __rdtsc();
  for (auto _ : state) {
    turn();
  }
  const auto cycles = static_cast<double>(__rdtsc() - begin);
  const auto n = static_cast<double>(state.iterations()) * burst;
  state.SetItemsProcessed(static_cast<std::int64_t>(n));
  state.counters["cycles/frame"] = cycles / n;
  state.counters["released"] = static_cast<double>(sink.released - released) / n;
}

DirectionSpec none() { return {}; }
DirectionSpec loss() {
  DirectionSpec spec;
  spec.loss.push_back({Match{}, Bernoulli{0.001}});
  return spec;
}
DirectionSpec delay() {
  DirectionSpec spec;
  spec.delay.push_back({Match{}, 5ms, {}, false});
  spec.delay_line_frames = 1U << 17U;
  return spec;
}
DirectionSpec jitter(bool may_reorder) {
  DirectionSpec spec = delay();
  spec.delay[0].jitter = Normal{100us};
  spec.delay[0].may_reorder = may_reorder;
  return spec;
}
DirectionSpec all() {
  DirectionSpec spec = jitter(false);
  spec.loss = loss().loss;
  spec.corrupt.push_back({Match{}, Bernoulli{0.001}, CorruptTarget::payload});
  spec.duplicate.push_back({Match{}, Bernoulli{0.001}});
  spec.ecn.push_back({Match{}, Bernoulli{0.001}, false});
  spec.rate = {BitRate::gbps(400), 1 << 20, true};
  spec.reorder.push_back({Match{}, Bernoulli{0.001}, 3, 1ms});
  return spec;
}

BENCHMARK_CAPTURE(frames, none, none());
BENCHMARK_CAPTURE(frames, events_10, none(), 10);
BENCHMARK_CAPTURE(frames, events_100, none(), 100);
BENCHMARK_CAPTURE(frames, events_10000, none(), 10'000);
BENCHMARK_CAPTURE(frames, loss, loss());
BENCHMARK_CAPTURE(frames, delay, delay());
BENCHMARK_CAPTURE(frames, jitter_in_order, jitter(false));
BENCHMARK_CAPTURE(frames, jitter_may_reorder, jitter(true));
BENCHMARK_CAPTURE(frames, all, all());

/// Timers that fire in turn and are armed again for `state.range(0)` ns later; as many as the second argument.
void timers(benchmark::State& state) {
  struct Client : TimerClient {
    void on_timer(TimerNode& node, Instant /*now*/) noexcept override {
      ++fired;
      wheel.arm(node, node.due + period);
    }
    Wheel wheel;
    Duration period{};
    std::uint64_t fired = 0;
  } client;
  client.period = std::chrono::nanoseconds{state.range(0)};
  std::vector<TimerNode> nodes(static_cast<std::size_t>(state.range(1)));
  Duration first{};
  for (TimerNode& node : nodes) {
    node.client = &client;
    first += client.period / state.range(1);
    client.wheel.arm(node, Instant{} + first);
  }
  Instant now{};
  const std::uint64_t begin = __rdtsc();
  for (auto _ : state) {
    now = now + client.period;
    client.wheel.run(now);
  }
  const auto cycles = static_cast<double>(__rdtsc() - begin);
  state.SetItemsProcessed(static_cast<std::int64_t>(client.fired));
  state.counters["cycles/timer"] = cycles / static_cast<double>(client.fired);
}
BENCHMARK(timers)
    ->ArgNames({"period_ns", "timers"})
    ->Args({1000, 1})
    ->Args({1000, 16})
    ->Args({67'000'000, 1000})
    ->Args({67'000'000, 100'000});

}  // namespace
}  // namespace nbx::fabric

BENCHMARK_MAIN();
