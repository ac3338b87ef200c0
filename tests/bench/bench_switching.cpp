// Cost of the emulated network: cycles per packet and hop, and per step of a DCQCN sender. Packets of 4 KiB at 400 Gb/s
// cross a row of switches; what is measured is everything that a hop does: arrival, route, ramp, admission, queue,
// line, departure, flight. Cycles are those of the time-stamp counter.
#include <benchmark/benchmark.h>
#include <x86intrin.h>

#include <memory>
#include <string>
#include <vector>

#include "cc/dcqcn.hpp"
#include "cc/pacer.hpp"
#include "virtual_time/sources.hpp"
#include "virtual_time/world.hpp"

namespace nbx::virtual_time {
namespace {

using namespace std::chrono_literals;

/// A row of `hops` switches with a host at each end, and `flows` flows that fill it to 80 %.
void hops(benchmark::State& state) {
  const auto hops = static_cast<std::uint32_t>(state.range(0));
  const auto flows = static_cast<std::uint32_t>(state.range(1));
  const switching::CableSpec cable{BitRate::gbps(400), 1us};
  WorldSpec spec;
  spec.packets = 100'000;
  for (std::uint32_t s = 0; s < hops; ++s) {
    spec.topology.add_switch("s" + std::to_string(s));
    if (s != 0) {
      spec.topology.connect(s - 1, s, cable);
    }
  }
  spec.topology.connect_host(spec.topology.add_host("from"), 0, cable);
  spec.topology.connect_host(spec.topology.add_host("to"), hops - 1, cable);
  spec.network.switches.buffer.size_bytes = 32'000'000;
  spec.network.switches.buffer.priority[3] = {.lossless = true, .headroom_bytes = 1'000'000};
  spec.network.switches.ecn[3] = {true, 400'000, 1'600'000, 200'000, 0};
  World world{spec};
  const Duration interval = serialize_time_ceil(4096 + 24, cable.rate) * 10 / 8 * flows;
  std::vector<Flow*> all;
  for (std::uint32_t f = 0; f < flows; ++f) {
    all.push_back(&world.add<OpenLoopFlow>(
        FlowSpec{
            .source = 0, .destination = 1, .packet_bytes = 4096, .hash = f, .start = Instant{} + interval * f / flows},
        ArrivalSpec{.interval = interval}));
  }
  const auto delivered = [&all] {
    std::uint64_t sum = 0;
    for (const Flow* flow : all) {
      sum += flow->stats().delivered;
    }
    return sum;
  };
  world.run(Instant{} + interval * 2);
  const std::uint64_t before = delivered();
  const std::uint64_t begin = __rdtsc();
  for (auto _ : state) {
    world.run(world.now() + 10us);
  }
  const auto cycles = static_cast<double>(__rdtsc() - begin);
  const auto packets = static_cast<double>(delivered() - before);
  state.SetItemsProcessed(static_cast<std::int64_t>(packets));
  state.counters["cycles/packet"] = cycles / packets;
  state.counters["cycles/packet/hop"] = cycles / packets / hops;
}
BENCHMARK(hops)->ArgNames({"hops", "flows"})->Args({1, 1})->Args({4, 1})->Args({8, 1})->Args({4, 100'000});

/// What a DCQCN sender adds to a packet: timers made up for, byte counter, pacer. A CNP every 100 packets.
void dcqcn_sender(benchmark::State& state) {
  const cc::DcqcnParams params;
  const auto flows = static_cast<std::size_t>(state.range(0));
  struct Sender {
    explicit Sender(const cc::DcqcnParams& p) : rp(p, BitRate::gbps(400)), pacer(BitRate::gbps(400), 65'536) {}
    cc::ReactionPoint rp;
    cc::Pacer pacer;
  };
  std::vector<Sender> senders(flows, Sender{params});
  Instant now{};
  std::uint64_t n = 0;
  const std::uint64_t begin = __rdtsc();
  for (auto _ : state) {
    Sender& s = senders[n % flows];
    now = now + 82ns;
    if (++n % 100 == 0) {
      s.rp.on_cnp(now);
    }
    s.rp.on_sent(4096, now);
    s.pacer.set_rate(s.rp.current_rate(), now);
    s.pacer.sent(4096, now);
    benchmark::DoNotOptimize(s.pacer.ready_at());
  }
  state.counters["cycles/packet"] = static_cast<double>(__rdtsc() - begin) / static_cast<double>(n);
  state.counters["bytes/flow"] = sizeof(Sender);
}
BENCHMARK(dcqcn_sender)->ArgName("flows")->Arg(1)->Arg(1'000)->Arg(100'000);

}  // namespace
}  // namespace nbx::virtual_time

BENCHMARK_MAIN();
