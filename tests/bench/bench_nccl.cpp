// Cost of one slice of a ring AllReduce through all ghosts of a communicator: a message taken in, its way through
// n - 1 ghosts reckoned, a message given out. It must not grow with n. Cycles are those of the time-stamp counter.
#include <benchmark/benchmark.h>
#include <x86intrin.h>

#include <cstring>

#include "nccl-glue/service/ring_transfer.hpp"
#include "support/shard_rig.hpp"

namespace nbx::nccl {
namespace {

constexpr std::uint32_t slice = 4096;  // and path MTU

void slices(benchmark::State& state, Protocol protocol, std::vector<Straggler> stragglers) {
  const auto ranks = static_cast<std::uint32_t>(state.range(0));
  test::ShardRig shard(test::one_ghost_plan());
  Arena arena(shard.shard().transport(), 1ULL << 30U);
  ServiceOptions options;
  options.delay.hop = {.latency = std::chrono::microseconds{2}, .rate = {100'000'000'000}};
  options.delay.stragglers = std::move(stragglers);
  const auto delay = make_delay_model(options.delay, slice, 1);
  const std::uint64_t bytes = ranks * slice;
  PlannedOperation planned;
  planned.operation = {.collective = Collective::all_reduce, .count = bytes / 4, .type = DataType::f32};
  planned.decision.protocol = protocol;
  const CommShape shape{.ranks = ranks, .nodes = ranks, .channels = 1};
  const RingPlan plan(planned.operation, planned.decision, shape, {.offset = 0, .bytes = bytes, .chunk = slice});
  Payloads payloads(arena, options, ranks);
  const auto rank_at = [ranks](std::uint32_t distance) { return static_cast<std::int32_t>(ranks - 1 - distance); };

  std::uint64_t done = 0;
  std::uint64_t cycles = 0;
  std::uint64_t sum = 0;
  for (auto _ : state) {
    state.PauseTiming();
    RingPlace place{.last = ranks - 1, .length = ranks - 1, .ranks = ranks, .rank_at = rank_at};
    RunReadiness readiness(**delay, static_cast<std::int32_t>(ranks), 0, Instant{1}, rank_at, ranks - 1);
    RingTransfer transfer(planned, plan, std::move(place), std::move(readiness), **delay, payloads);
    const std::uint64_t in = transfer.messages_in(0);
    const std::uint64_t out = transfer.messages_out(0);
    state.ResumeTiming();
    const std::uint64_t begin = __rdtsc();
    std::uint64_t sent = 0;
    for (std::uint64_t i = 0; i <= in; ++i) {
      while (sent < out && transfer.ready(0, sent) != Instant::never()) {
        const Outgoing message = transfer.take(0, sent, sent);
        std::uint64_t first = 0;
        std::memcpy(&first, arena.bytes(message.buffer).data(), sizeof first);
        sum += first;
        if (!message.shared) {
          arena.give_back(message.buffer);
        }
        ++sent;
      }
      if (i < in) {
        const Transfer::Offer offer = transfer.offer(0, i);
        transfer.received(0, i,
                          {.buffer = *arena.take(offer.room),
                           .size = offer.size,
                           .arrival = Instant{} + std::chrono::microseconds{i}});
      }
    }
    cycles += __rdtsc() - begin;
    done += sent;
    if (sent != out) {
      state.SkipWithError("messages are missing");
    }
  }
  benchmark::DoNotOptimize(sum);
  state.SetItemsProcessed(static_cast<std::int64_t>(done));
  state.counters["cycles/slice"] = static_cast<double>(cycles) / static_cast<double>(done);
}

void simple(benchmark::State& state) { slices(state, Protocol::simple, {}); }
void low_latency(benchmark::State& state) { slices(state, Protocol::ll, {}); }
void straggler(benchmark::State& state) {
  slices(state, Protocol::simple, {{.rank = 2, .delay = std::chrono::milliseconds{1}}});
}

BENCHMARK(simple)->Arg(4)->Arg(64)->Arg(1024)->Arg(10000);
BENCHMARK(low_latency)->Arg(4)->Arg(64)->Arg(1024)->Arg(10000);
BENCHMARK(straggler)->Arg(4)->Arg(64)->Arg(1024)->Arg(10000);

}  // namespace
}  // namespace nbx::nccl

BENCHMARK_MAIN();
