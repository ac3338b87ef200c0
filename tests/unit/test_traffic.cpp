// Background traffic: how large flows are, who sends to whom and when, and what becomes of them in a network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "pipeline/emulated_network.hpp"

namespace nbx::traffic {
namespace {

using namespace std::chrono_literals;
using switching::HostId;

// ---- sizes

double mean_of_points(std::span<const CdfPoint> points) {
  double mean = 0;
  for (std::size_t i = 1; i < points.size(); ++i) {
    mean += (points[i].share - points[i - 1].share) * (points[i].bytes + points[i - 1].bytes) / 2;
  }
  return mean;
}

CdfSize published(const char* name) {
  const auto points = published_sizes(name);
  return {{points.begin(), points.end()}};
}

TEST(Sizes, AreThoseOfThePublishedTables) {
  const Sizes web = published("web_search");
  EXPECT_EQ(size_at(web, 0), 1U);
  EXPECT_EQ(size_at(web, 0.15), 10'000U);
  EXPECT_EQ(size_at(web, 0.535), 88'571U) << "80,000 and a fourteenth of the way to 200,000";
  EXPECT_EQ(size_at(web, 0.70), 1'000'000U);
  EXPECT_NEAR(static_cast<double>(size_at(web, 1 - 1e-9)), 30e6, 1);
  EXPECT_EQ(size_at(published("fb_hadoop"), 0.5), 700U);
  EXPECT_TRUE(published_sizes("other").empty());
}

TEST(Sizes, MeansAreThoseOfTheDistributions) {
  constexpr std::uint32_t whole = 1U << 30U;  // one packet each
  constexpr double headers = header_bytes + 24;
  for (const char* name : {"web_search", "fb_hadoop"}) {
    const double mean = mean_of_points(published_sizes(name));
    EXPECT_NEAR((mean_line_bytes(published(name), whole) - headers) / mean, 1, 1e-3) << name;
  }
  EXPECT_NEAR((mean_line_bytes(ExponentialSize{100'000}, whole) - headers) / 1e5, 1, 1e-3);
  EXPECT_NEAR(mean_line_bytes(UniformSize{1, 4}, whole) - headers, 2.5, 1e-3);
  EXPECT_DOUBLE_EQ(mean_line_bytes(ConstantSize{1025}, 1024), 1025 + 2 * headers);
}

TEST(Sizes, UniformOnesAreEquallyLikely) {
  std::map<std::uint64_t, int> seen;
  for (int i = 0; i < 4000; ++i) {
    ++seen[size_at(UniformSize{1, 4}, i / 4000.0)];
  }
  EXPECT_THAT(seen, testing::UnorderedElementsAre(testing::Pair(1, 1000), testing::Pair(2, 1000),
                                                  testing::Pair(3, 1000), testing::Pair(4, 1000)));
}

// ---- patterns: a carrier that delivers at once, and writes down

class Notes final : public Carrier {
 public:
  struct Note {
    HostId from;
    HostId to;
    std::uint32_t size;
    Instant at;
  };
  bool carry(const Packet& packet, Instant now) noexcept override {
    notes.push_back({packet.from, packet.to, packet.size, now});
    waiting.push_back(packet);
    return true;
  }
  [[nodiscard]] BitRate port_rate(HostId /*host*/) const noexcept override { return BitRate::gbps(100); }
  void deliver(Engine& engine, Instant now) {
    while (!waiting.empty()) {
      const Packet packet = waiting.back();
      waiting.pop_back();
      engine.on_departed(packet.reference, now);
      engine.on_arrived(packet.reference, packet.size, false, now);
    }
  }
  std::vector<Note> notes;
  std::vector<Packet> waiting;
};

struct Run {
  std::vector<Notes::Note> notes;
  Stats stats;
};

Run run(const Spec& spec, Duration time, std::uint64_t seed = 1) {
  Wheel wheel;
  Notes carrier;
  Engine engine({spec}, wheel, carrier, Rng{seed});
  engine.start(Instant{});
  while (wheel.next_deadline() <= Instant{} + time) {
    const Instant now = wheel.next_deadline();
    wheel.run(now);
    carrier.deliver(engine, now);
  }
  return {carrier.notes, engine.stats(0)};
}

Spec small_flows(Pattern pattern, std::vector<HostId> from, std::vector<HostId> to) {
  return {.name = "t",
          .pattern = pattern,
          .from = std::move(from),
          .to = std::move(to),
          .rate = BitRate::gbps(10),
          .sizes = ConstantSize{1000}};
}

TEST(Patterns, OneToOneIsInOrder) {
  for (const auto& note : run(small_flows(Pattern::one_to_one, {1, 2, 3}, {4, 5, 0}), 100us).notes) {
    EXPECT_EQ(note.to, note.from == 1 ? 4U : note.from == 2 ? 5U : 0U);
  }
}

TEST(Patterns, APermutationHasOneSenderForEach) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::map<HostId, std::set<HostId>> by_sender;
    std::set<HostId> receivers;
    for (const auto& note : run(small_flows(Pattern::permutation, {1, 2, 3, 4, 5}, {}), 100us, seed).notes) {
      EXPECT_NE(note.from, note.to);
      by_sender[note.from].insert(note.to);
      receivers.insert(note.to);
    }
    EXPECT_EQ(by_sender.size(), 5U);
    EXPECT_EQ(receivers.size(), 5U);
    for (const auto& [sender, to] : by_sender) {
      EXPECT_EQ(to.size(), 1U) << sender;
    }
  }
}

TEST(Patterns, AllToAllReachesEveryOtherEquallyOften) {
  std::map<std::pair<HostId, HostId>, int> pairs;
  const auto notes = run(small_flows(Pattern::all_to_all, {1, 2, 3}, {1, 2, 3, 4}), 20ms).notes;
  for (const auto& note : notes) {
    EXPECT_NE(note.from, note.to);
    ++pairs[{note.from, note.to}];
  }
  EXPECT_EQ(pairs.size(), 9U);
  const double each = static_cast<double>(notes.size()) / 9;
  for (const auto& [pair, count] : pairs) {
    EXPECT_NEAR(count, each, 6 * std::sqrt(each)) << pair.first << " to " << pair.second;
  }
}

TEST(Patterns, AnIncastIsOfAllAtOnceAndTakesTurns) {
  const auto notes = run(small_flows(Pattern::incast, {1, 2, 3}, {0, 3}), 1ms).notes;
  std::map<Instant, std::set<HostId>> senders;
  std::map<Instant, HostId> receiver;
  for (const auto& note : notes) {
    senders[note.at].insert(note.from);
    receiver[note.at] = note.to;
  }
  ASSERT_GT(senders.size(), 100U);
  HostId expected = 0;
  for (const auto& [at, who] : senders) {
    EXPECT_EQ(receiver[at], expected);
    EXPECT_EQ(who, expected == 0 ? (std::set<HostId>{1, 2, 3}) : (std::set<HostId>{1, 2}));
    expected = expected == 0 ? 3 : 0;
  }
}

// Gaps of a Poisson process: mean and standard deviation are alike, and the rate is what was asked.
TEST(Patterns, ArrivalsArePoissonAtTheRateThatIsAsked) {
  const Spec spec = small_flows(Pattern::one_to_one, {1}, {2});
  const auto notes = run(spec, 100ms).notes;
  const double bits = (1000 + header_bytes + 24) * 8.0;
  const double expected = 10e9 * 0.1 / bits;
  EXPECT_NEAR(static_cast<double>(notes.size()), expected, 4 * std::sqrt(expected));
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 1; i < notes.size(); ++i) {
    const auto gap = static_cast<double>((notes[i].at - notes[i - 1].at).count());
    sum += gap;
    squares += gap * gap;
  }
  const double n = static_cast<double>(notes.size() - 1);
  const double mean = sum / n;
  EXPECT_NEAR(std::sqrt(squares / n - mean * mean) / mean, 1, 0.03);
}

TEST(Patterns, BeginsAndEndsAtItsTimes) {
  Spec spec = small_flows(Pattern::one_to_one, {1}, {2});
  spec.start = 1ms;
  spec.lasts = 2ms;
  const auto notes = run(spec, 10ms).notes;
  ASSERT_FALSE(notes.empty());
  EXPECT_GE(notes.front().at, Instant{} + Duration{1ms});
  EXPECT_LT(notes.back().at, Instant{} + Duration{3ms});
  EXPECT_GT(notes.back().at, Instant{} + Duration{2900us});
}

TEST(Patterns, AreAddedAndStoppedWhileItRuns) {
  Wheel wheel;
  Notes carrier;
  Engine engine({}, wheel, carrier, Rng{1});
  engine.start(Instant{});
  const auto run_until = [&](Instant end) {
    while (wheel.next_deadline() <= end) {
      const Instant now = wheel.next_deadline();
      wheel.run(now);
      carrier.deliver(engine, now);
    }
    return carrier.notes.size();
  };
  Spec spec = small_flows(Pattern::one_to_one, {1}, {2});
  spec.name = "one";
  EXPECT_TRUE(engine.add(spec, Instant{}));
  EXPECT_FALSE(engine.add(spec, Instant{})) << "it is there";
  const std::size_t first = run_until(Instant{} + 1ms);
  EXPECT_GT(first, 0U);
  EXPECT_TRUE(engine.stop("one", Instant{} + 1ms));
  EXPECT_FALSE(engine.stop("one", Instant{} + 1ms));
  EXPECT_EQ(run_until(Instant{} + 2ms), first);
  EXPECT_TRUE(engine.add(spec, Instant{} + 2ms));
  EXPECT_GT(run_until(Instant{} + 3ms), first);
  EXPECT_EQ(engine.size(), 1U) << "it took the place of the one that was over";
}

TEST(Patterns, NextToNothingIsNothing) {
  Spec spec = small_flows(Pattern::one_to_one, {1}, {2});
  spec.sizes = ConstantSize{1ULL << 40U};
  for (const std::uint64_t bits : {0U, 1U}) {
    spec.rate = BitRate{bits};
    EXPECT_TRUE(run(spec, 100ms).notes.empty());
  }
}

TEST(Patterns, OneSeedOneRun) {
  const Spec spec = small_flows(Pattern::all_to_all, {1, 2, 3}, {1, 2, 3});
  const auto first = run(spec, 1ms, 7).notes;
  const auto second = run(spec, 1ms, 7).notes;
  ASSERT_EQ(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].at, second[i].at);
    EXPECT_EQ(first[i].to, second[i].to);
  }
  EXPECT_NE(run(spec, 1ms, 8).notes.front().at, first.front().at);
}

// ---- in a network: a rack of a real node, host 0, and ghosts

class Rack final : public pipeline::EmulatedNetwork::User {
 public:
  explicit Rack(std::uint32_t ghosts, BitRate rate = BitRate::gbps(10)) {
    plan.topology = switching::rack(ghosts + 1, {rate, 1us});
    plan.spec.switches.latency = 500ns;
    plan.spec.switches.buffer.size_bytes = 1'000'000;
    for (std::uint32_t i = 1; i <= ghosts; ++i) {
      plan.ports[0].ghosts.push_back(i);
    }
  }
  const Stats& run(Duration time) {
    network = std::make_unique<pipeline::EmulatedNetwork>(plan, wheel, Rng{1});
    network->attach(PortId{0}, *this);
    network->start(Instant{});
    wheel.run(Instant{} + time);
    return network->traffic().stats(0);
  }

  pipeline::NetworkPlan plan;
  Wheel wheel;
  std::unique_ptr<pipeline::EmulatedNetwork> network;

 private:
  void on_crossed(Frame& /*frame*/, PortId /*from*/, bool /*at_node*/, Instant /*now*/) noexcept override {
    ADD_FAILURE();
  }
  void on_lost(Frame& /*frame*/, Drop /*why*/, Instant /*now*/) noexcept override { ADD_FAILURE(); }
  void on_pause(const switching::PauseFrame& /*pause*/, Instant /*now*/) noexcept override {}
  void on_class_disagreement() noexcept override { ADD_FAILURE(); }
  [[nodiscard]] GhostId addressee(const Frame& /*frame*/) const noexcept override { return no_ghost; }
};

// Three packets of 1024, 1024 and 452 bytes, each with 58 + 24 bytes more on lines of 10 Gb/s (800 ps a byte): the
// first two leave one behind the other; from the switch on the second holds up the last; two cables of 1 us and a
// switch of 500 ns.
TEST(Flows, TakeAsLongAsTheirPacketsDo) {
  Rack rack{2};
  Spec spec = small_flows(Pattern::one_to_one, {1}, {2});
  spec.sizes = ConstantSize{2500};
  spec.rate = BitRate::mbps(10);  // hardly ever two at once
  rack.plan.traffic = {spec};
  const Stats& stats = rack.run(100ms);
  ASSERT_GT(stats.completed, 10U);
  const Duration expected = Duration{(3 * (1024 + 82) + (452 + 82)) * 800} + Duration{2500ns};
  EXPECT_EQ(stats.completion_sum / static_cast<std::int64_t>(stats.completed), expected);
  EXPECT_EQ(stats.completion_max, expected);
  EXPECT_EQ(stats.delivered_bytes, stats.offered_bytes);
  EXPECT_EQ(stats.packets_sent, 3 * stats.completed);
}

TEST(Flows, OfALossyIncastAreCountedToThePacket) {
  Rack rack{8};
  Spec spec = small_flows(Pattern::incast, {1, 2, 3, 4, 5, 6, 7, 8}, {0});
  spec.sizes = ConstantSize{200'000};  // 1.6 MB at once into 1 MB that 8 ports share
  spec.rate = BitRate::gbps(1);
  spec.lasts = 20ms;
  rack.plan.traffic = {spec};
  const Stats& stats = rack.run(200ms);
  EXPECT_GT(stats.packets_dropped, 0U);
  EXPECT_GT(stats.packets_delivered, 0U);
  EXPECT_EQ(stats.packets_sent, stats.packets_delivered + stats.packets_dropped);
  EXPECT_EQ(stats.flows, stats.completed + stats.damaged);
  EXPECT_EQ(stats.packets_sent, stats.flows * 196) << "200,000 / 1024";
  EXPECT_EQ(rack.network->network().dropped(), stats.packets_dropped);
}

TEST(Flows, WithDcqcnSlowDownInsteadOfLosing) {
  for (const bool react : {false, true}) {
    Rack rack{8};
    rack.plan.spec.switches.ecn[0] = {.enabled = true, .kmin_bytes = 20'000, .kmax_bytes = 80'000, .pmax_ppm = 200'000};
    rack.plan.spec.switches.buffer.size_bytes = 4'000'000;
    Spec spec = small_flows(Pattern::incast, {1, 2, 3, 4, 5, 6, 7, 8}, {0});
    spec.sizes = ConstantSize{2'000'000};
    spec.rate = BitRate::mbps(500);
    spec.lasts = 50ms;
    if (react) {
      spec.dcqcn = *cc::dcqcn_preset("paper");
    }
    rack.plan.traffic = {spec};
    const Stats& stats = rack.run(500ms);
    EXPECT_GT(stats.packets_marked, 0U);
    EXPECT_EQ(stats.cnps != 0, react);
    EXPECT_EQ(stats.packets_dropped != 0, !react);
    EXPECT_EQ(stats.flows, stats.completed + stats.damaged);
  }
}

TEST(Flows, BeyondTheRoomDoNotBegin) {
  Rack rack{2};
  Spec spec = small_flows(Pattern::one_to_one, {1}, {2});
  spec.sizes = ConstantSize{1'000'000};
  spec.flows_max = 3;
  spec.rate = BitRate::gbps(40);  // four times what the port takes
  rack.plan.traffic = {spec};
  const Stats& stats = rack.run(50ms);
  EXPECT_GT(stats.refused, 0U);
  EXPECT_LE(stats.flows, stats.completed + stats.damaged + 3);
  EXPECT_NEAR(static_cast<double>(stats.delivered_bytes) * 8 / 0.05, 10e9, 0.02 * 10e9) << "the port is never idle";
}

TEST(Flows, WaitForRoomInTheNetwork) {
  Rack rack{2};
  rack.plan.packets = 4;
  Spec spec = small_flows(Pattern::one_to_one, {1}, {2});
  spec.sizes = ConstantSize{100'000};
  spec.rate = BitRate::gbps(1);
  spec.lasts = 10ms;
  rack.plan.traffic = {spec};
  const Stats& stats = rack.run(100ms);
  EXPECT_GT(stats.flows, 0U);
  EXPECT_EQ(stats.completed, stats.flows);
}

}  // namespace
}  // namespace nbx::traffic
