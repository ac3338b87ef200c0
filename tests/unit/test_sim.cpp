// Jobs in virtual time: what ranks have to send, times against closed forms of an idle network, and ends that say why.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <numeric>

#include "config/load.hpp"
#include "sim/program.hpp"
#include "sim/simulation.hpp"

namespace nbx::sim {
namespace {

constexpr double overhead = 14 + 20 + 8 + 12 + 4 + 24;  // Ethernet, IPv4, UDP, BTH, ICRC; preamble, FCS, gap
constexpr double reth = 16;
constexpr double ack = 14 + 20 + 8 + 12 + 4 + 4 + 24;  // AETH instead of payload
constexpr double bytes_per_us = 100e9 / 8 / 1e6;
// Two cables of 500 ns and a switch of 600 ns.
constexpr double latency_us = 0.5 + 0.6 + 0.5;

std::string rack(unsigned ghosts, const std::string& profile = "{}") {
  return "cluster: rack\nports: [{name: p0, profile: " + profile +
         "}]\nghosts: [{name: g, count: " + std::to_string(ghosts) + ", addresses: [10.77.0.9/16], dscp: 26}]\n" +
         "network:\n  topology: rack\n  host_rate: 100Gb/s\n  propagation: 500ns\n  latency: 600ns\n";
}

Result<Outcome> outcome(const std::string& cluster_text, const std::string& job_text) {
  const config::Loaded cluster = config::parse_cluster("cluster.yaml", cluster_text);
  EXPECT_TRUE(cluster.ok()) << (cluster.ok() ? "" : cluster.diagnostics.front().message);
  const config::LoadedJob job = config::parse_job("job.yaml", job_text, ranks_of(cluster.config));
  EXPECT_TRUE(job.ok()) << (job.ok() ? "" : job.diagnostics.front().message);
  return simulate(cluster.config, job.job, {.details = true}, [](double, Instant) {});
}

double median_us(const nlohmann::ordered_json& report, std::size_t operation = 0) {
  return report["operations"][operation]["median_us"].get<double>();
}

config::JobOperation operation(const std::string& text, std::uint32_t ranks) {
  const config::LoadedJob loaded = config::parse_job("job.yaml", "job: j\neach_step: [" + text + "]\n", ranks);
  EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.diagnostics.front().message);
  return loaded.ok() ? *loaded.job.each_step.front() : config::JobOperation{};
}

TEST(Program, WhatAllSendIsWhatAllReceive) {
  for (const char* text :
       {"{all_reduce: {bytes: 10MB, channels: 3, slice: 100kB}}",
        "{all_reduce: {bytes: 10MB, channels: 3, slice: 100kB, algorithm: tree}}",
        "{all_reduce: {bytes: 1MB, algorithm: tree, group: {size: 3, stride: 2}}}",
        "{all_reduce: {bytes: 1MB, algorithm: servers, servers: 3, group: 6}}",
        "{all_reduce: {bytes: 1MB, channels: 3, slice: 4kB, dimensions: [{size: 2}, {size: 3}, {}]}}",
        "{all_reduce: {bytes: 1MB, channels: 3, dimensions: [{size: 6}, {size: 2}], schedule: balanced}}",
        "{all_gather: 1MB}", "{all_gather: {bytes: 1MB, of: rank, channels: 3}}", "{reduce_scatter: 1MB}",
        "{broadcast: {bytes: 1MB, slice: 7kB}}", "{all_to_all: 1MB}", "{send_recv: 3GiB}",
        "{flow: {from: 5, to: 2, bytes: 4B}}", "{incast: 1MB}", "{all_reduce: {bytes: 1MB, group: 4}}",
        "{all_reduce: {bytes: 1MB, group: {size: 2, stride: 3}}}", "{incast: {bytes: 1MB, group: {stride: 4}}}"}) {
    constexpr std::uint32_t ranks = 12;
    const config::JobOperation op = operation(text, ranks);
    std::vector<std::uint64_t> sent(ranks);
    std::vector<std::uint64_t> due(ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const Part part = part_of(op, rank, ranks);
      for (const Stream& stream : part.out) {
        EXPECT_NE(stream.to, rank) << text;
        sent[stream.to] += stream.messages;
      }
      due[rank] = std::accumulate(part.in.begin(), part.in.end(), std::uint64_t{0});
    }
    EXPECT_EQ(sent, due) << text;
  }
}

TEST(Program, TheBusiestHostSendsWhatNcclTestsReckon) {
  EXPECT_EQ(busiest_bytes(operation("{all_reduce: 8000000B}", 8), 8), 2U * 7 * 1'000'000);
  EXPECT_EQ(busiest_bytes(operation("{all_gather: 8000000B}", 8), 8), 7'000'000U);
  EXPECT_EQ(busiest_bytes(operation("{reduce_scatter: 8000000B}", 8), 8), 7'000'000U);
  EXPECT_EQ(busiest_bytes(operation("{all_to_all: 8000000B}", 8), 8), 7'000'000U);
  EXPECT_EQ(busiest_bytes(operation("{incast: 1000000B}", 8), 8), 7'000'000U);
  EXPECT_EQ(busiest_bytes(operation("{broadcast: 1000000B}", 8), 8), 1'000'000U);
  EXPECT_EQ(busiest_bytes(operation("{all_gather: {bytes: 1000000B, of: rank}}", 8), 8), 7'000'000U);
  EXPECT_EQ(busiest_bytes(operation("{all_reduce: {bytes: 8000000B, algorithm: servers, servers: 2}}", 8), 8),
            7U * 4'000'000 + 4'000'000);
  for (const char* schedule : {"fixed", "balanced"}) {
    EXPECT_EQ(busiest_bytes(operation("{all_reduce: {bytes: 8000000B, channels: 5, dimensions: [{size: 2}, {}], "
                                      "schedule: " +
                                          std::string(schedule) + "}}",
                                      8),
                            8),
              2U * 7 * 1'000'000);
  }
}

/// Two dimensions of the same rate, 4 x 2: the first channel has 3/4 of its bytes in the first and 1/8 in the second;
/// the second channel begins in the second, 1/2 and 3/8, and so in turns.
TEST(Program, ABalancedScheduleBeginsWhereLeastIsToBeDone) {
  const Part part = part_of(
      operation("{all_reduce: {bytes: 8MB, channels: 3, dimensions: [{size: 4}, {}], schedule: balanced}}", 8), 0, 8);
  std::string to;
  for (const Stream& stream : part.out) {
    to += std::to_string(stream.to);
  }
  EXPECT_EQ(to,
            "1441"
            "4114"
            "4114");
  const Part fixed =
      part_of(operation("{all_reduce: {bytes: 8MB, channels: 2, dimensions: [{size: 4}, {}]}}", 8), 3, 8);
  EXPECT_EQ(fixed.out[0].to, 0U);
  EXPECT_EQ(fixed.out[1].to, 7U);
  EXPECT_EQ(fixed.out[1].behind_messages, fixed.out[0].messages);
}

TEST(Sim, OnePacketTakesItsLinesCablesAndSwitchThereAndBack) {
  for (const char* flow :
       {"{from: 0, to: 1, bytes: 4096B}", "{from: 1, to: 0, bytes: 4096B}", "{from: 1, to: 2, bytes: 4096B}"}) {
    const auto done = outcome(rack(2), std::string("job: j\neach_step: [{flow: ") + flow + "}]\n");
    ASSERT_TRUE(done) << done.error().message;
    const double there = 2 * (4096 + overhead + reth) / bytes_per_us + latency_us;
    const double back = 2 * ack / bytes_per_us + latency_us;
    EXPECT_NEAR(median_us(done->report), there + back, 0.0005) << flow;
  }
}

/// Eight hosts behind two leaves, the same in one port or two: a real node and ghosts of each port at its leaf.
std::string two_leaves(bool two_ports, const std::string& more = "") {
  const std::string ghosts = ", dscp: 26}\n";
  return std::string("cluster: two-leaves\n") + "ports: [{name: p0}" + (two_ports ? ", {name: p1}" : "") +
         "]\nnodes: [{name: real0, port: p0, mac: \"52:54:00:00:01:01\", addresses: [10.77.1.1/16]}]\nghosts:\n" +
         (two_ports ? "  - {name: g, port: p0, count: 3, addresses: [10.77.0.9/16]" + ghosts +
                          "  - {name: h, port: p1, count: 3, addresses: [10.77.0.19/16]" + ghosts
                    : "  - {name: g, count: 7, addresses: [10.77.0.9/16]" + ghosts) +
         "network:\n  topology: {leaf_spine: {leaves: 2, spines: 1, hosts_per_leaf: 4}}\n  host_rate: 100Gb/s\n" +
         "  fabric_rate: 100Gb/s\n  propagation: 500ns\n  latency: 600ns\n" + more;
}

TEST(Sim, ANodeOfAnotherPortIsARankAtItsLeaf) {
  // Rank 0 is the first port's node, rank 4 the second one's.
  for (const auto& [from, to] : {std::pair{0, 4}, {4, 0}, {1, 4}, {4, 1}, {4, 6}}) {
    const std::string flow = "from: " + std::to_string(from) + ", to: " + std::to_string(to);
    const auto done = outcome(two_leaves(true), "job: j\neach_step: [{flow: {" + flow + ", bytes: 4096B}}]\n");
    ASSERT_TRUE(done) << done.error().message;
    const unsigned lines = from / 4 == to / 4 ? 2 : 4;  // of one leaf, or by the spine
    const double latency = lines * 0.5 + (lines - 1) * 0.6;
    const double there = lines * (4096 + overhead + reth) / bytes_per_us + latency;
    const double back = lines * ack / bytes_per_us + latency;
    EXPECT_NEAR(median_us(done->report), there + back, 0.0005) << flow;
  }
}

/// Where the cable of a host ends changes nothing: neither in a ring, nor under the pauses of an incast.
TEST(Sim, TwoPortsOfANetworkAreAsOne) {
  const std::string lossless = "  priorities: [{priority: 3, lossless: true, xoff: 40kB}]\n";
  for (const char* operation : {"incast: 400kB", "all_reduce: 4MiB"}) {
    const std::string job = std::string("job: j\neach_step: [{") + operation + "}]\n";
    const auto one = outcome(two_leaves(false, lossless), job);
    const auto two = outcome(two_leaves(true, lossless), job);
    ASSERT_TRUE(one) << one.error().message;
    ASSERT_TRUE(two) << two.error().message;
    EXPECT_EQ(one->report["operations"], two->report["operations"]);
    EXPECT_EQ(one->report["steps"], two->report["steps"]);
    EXPECT_EQ(one->report["network"]["queues"], two->report["network"]["queues"]);
    EXPECT_EQ(one->report["network"]["queues"][0]["pauses_obeyed"] != 0U, operation[0] == 'i');
    ASSERT_EQ(two->report["ports"].size(), 2U);
    EXPECT_EQ(two->report["ports"][1]["port"], "p1");
    const auto again = outcome(two_leaves(true, lossless), job);
    EXPECT_EQ(two->report.dump(), again->report.dump());
  }
}

TEST(Sim, SeveralPortsNeedANetworkBetweenThem) {
  const auto done = outcome(
      "cluster: c\nports: [{name: p0}, {name: p1}]\n"
      "ghosts: [{name: g, port: p0, addresses: [10.77.0.9/16]}]\n",
      "job: j\neach_step: [{all_reduce: 1MiB}]\n");
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("no network"), std::string::npos);
}

/// A ring on an idle rack: a step is the chunk's packets on the first line, the last of them on the second, and the
/// latencies; in the end the last message is acknowledged.
TEST(Sim, AnIdleRingTakesItsClosedForm) {
  for (const unsigned ranks : {2U, 4U, 16U}) {
    constexpr unsigned packets = 64;
    const auto done = outcome(rack(ranks - 1), "job: j\nsteps: 2\neach_step: [{all_reduce: {bytes: " +
                                                   std::to_string(4096 * packets * ranks) + "B}}]\n");
    ASSERT_TRUE(done) << done.error().message;
    const double packet = (4096 + overhead) / bytes_per_us;
    const double step = (packets + 1) * packet + 2 * reth / bytes_per_us + latency_us;
    const double expected = 2 * (ranks - 1) * step + 2 * ack / bytes_per_us + latency_us;
    EXPECT_NEAR(median_us(done->report) / expected, 1, 0.001) << ranks;
  }
}

/// Of one chunk in each tree. Of two ranks each is the root of one tree and the leaf of the other. Four ranks are the
/// chains 0 - 2 - {1, 3} and 3 - 1 - {0, 2}: on its way a chunk waits for another one twice, where two of them go up
/// to one rank, and where one rank sends two down. Acknowledgements may hold up each hop.
TEST(Sim, AnIdleTreeTakesItsClosedForm) {
  const double packet = (4096 + overhead + reth) / bytes_per_us;
  const double hop = 2 * packet + latency_us;
  const double last_ack = 2 * ack / bytes_per_us + latency_us;
  for (const auto& [ranks, expected] : {std::pair{2U, 2 * hop}, {4U, 4 * hop + 2 * packet}}) {
    const auto done = outcome(rack(ranks - 1), "job: j\neach_step: [{all_reduce: {bytes: 8192B, algorithm: tree}}]\n");
    ASSERT_TRUE(done) << done.error().message;
    const double us = median_us(done->report);
    EXPECT_GE(us, expected + last_ack - 0.001) << ranks;
    EXPECT_LE(us, expected + last_ack + 4 * 3 * ack / bytes_per_us) << ranks;
  }
}

/// Every rank but the root and the leaf of both trees is inside one tree and a leaf of the other: in all it sends the
/// vector twice, and with many chunks that is what a tree takes.
TEST(Sim, ALongTreeIsAsFastAsItsCables) {
  // Where two children send at once a switch queues.
  const std::string lossless =
      "  priorities: [{priority: 3, dscp: [24, 26], lossless: true, ecn: {kmin: 100KiB, kmax: 400KiB, pmax: 20%}}]\n";
  const auto done = outcome(rack(15) + lossless,
                            "job: j\neach_step: [{all_reduce: {bytes: 64MiB, slice: 128KiB, algorithm: tree}}]\n");
  ASSERT_TRUE(done) << done.error().message;
  const double cable = 2.0 * (64 << 20) / 4096 * (4096 + overhead) / bytes_per_us;
  EXPECT_GE(median_us(done->report), cable);
  EXPECT_LE(median_us(done->report), 1.15 * cable);
  EXPECT_NEAR(done->report["operations"][0]["ideal_us"].get<double>() / cable, 1, 0.001);
}

/// Nothing is lost by not watching: on an idle network the two ways to reckon agree, and where one rank is late.
TEST(Sim, GhostsInClosedFormTakeTheSameTime) {
  const std::string two_tiers =
      "cluster: tiers\nports: [{name: p0}]\nghosts: [{name: g, count: 31, addresses: [10.77.0.9/16], dscp: 26}]\n"
      "network:\n  topology: {leaf_spine: {leaves: 4, spines: 4, hosts_per_leaf: 8}}\n  host_rate: 100Gb/s\n"
      "  fabric_rate: 200Gb/s\n  propagation: 500ns\n  latency: 600ns\n";
  struct Row {
    const char* operation;
    double tolerance;
  };
  // Packets of a small tree wait for acknowledgements on the same cable.
  for (const auto& [operation, tolerance] :
       {Row{"{all_reduce: 8MiB}", 0.002}, Row{"{all_gather: 8MiB}", 0.002}, Row{"{send_recv: 1MiB}", 0.002},
        Row{"{all_reduce: {bytes: 64KiB, algorithm: tree}}", 0.02}}) {
    const std::string job =
        std::string("job: j\neach_step: [{compute: 100us}, ") + operation + "]\nstragglers: [{rank: 9, factor: 3}]\n";
    const auto packets = outcome(two_tiers, job);
    const auto closed = outcome(two_tiers, job + "closed_form: [2, 4..]\n");
    ASSERT_TRUE(packets && closed) << operation;
    EXPECT_NEAR(closed->report["virtual_time_us"].get<double>() / packets->report["virtual_time_us"].get<double>(), 1,
                tolerance)
        << operation;
    EXPECT_LT(closed->packets, packets->packets / 3) << operation;
  }
}

/// Counters of both shards.
std::uint64_t counted(const nlohmann::ordered_json& report, const char* name, const char* kind = "counters") {
  return report["ghosts"][kind].value(name, std::uint64_t{0}) + report["node"][kind].value(name, std::uint64_t{0});
}

/// One packet in two hundred is lost, data and answers alike.
TEST(Sim, SelectiveRepeatSendsAgainWhatWasLost) {
  const std::string job = "job: j\neach_step: [{flow: {from: 0, to: 1, bytes: 16MB}}]\n";
  std::map<std::string, std::uint64_t> again;
  std::map<std::string, double> us;
  for (const char* nic : {"ib-spec", "irn"}) {
    std::string cluster = rack(1, "{from_node: {loss: 0.5%}, to_node: {loss: 0.5%}}");
    cluster.replace(cluster.find("dscp: 26"), 8, std::string("dscp: 26, nic: ") + nic);
    const auto done = outcome(cluster, job);
    ASSERT_TRUE(done) << done.error().message;
    again[nic] = counted(done->report, "retransmitted_packets");
    us[nic] = median_us(done->report);
    const std::uint64_t lost = counted(done->report, "loss", "drops");
    EXPECT_GT(lost, 10U);
    EXPECT_EQ(counted(done->report, "selective_repeat_fallbacks"), 0U);
    if (nic == std::string("irn")) {
      EXPECT_LE(again[nic], lost + 5) << "a lost NAK may cost a packet";
      EXPECT_GT(counted(done->report, "out_of_order_kept"), lost);
    }
  }
  EXPECT_GT(again["ib-spec"], 10 * again["irn"]);
  EXPECT_GT(us["ib-spec"], us["irn"]);
}

/// Eight to one through 500 kB of buffer, with the same timers and window: what is kept need not be sent again.
TEST(Sim, AnIncastThatLosesIsShorterWithSelectiveRepeat) {
  std::map<std::string, std::uint64_t> again;
  std::map<std::string, double> us;
  for (const char* recovery : {"go_back_n", "selective_repeat"}) {
    const std::string nic = testing::TempDir() + recovery + ".yaml";
    std::ofstream{nic} << "nic: n\nrto: {}\nbdp_cap: 32\nrecovery: " << recovery << "\n";
    const auto done = outcome(
        "cluster: rack\nports: [{name: p0}]\nghosts: [{name: g, count: 8, addresses: [10.77.0.9/16], nic: " + nic +
            "}]\nnetwork: {topology: rack, host_rate: 40Gb/s, propagation: 2us, buffer: 500kB}\n",
        "job: j\neach_step: [{incast: 1MB}]\n");
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_GT(done->report["ghosts"]["drops"].value("network_dynamic_threshold", 0), 100);
    again[recovery] = counted(done->report, "retransmitted_packets");
    us[recovery] = median_us(done->report);
  }
  EXPECT_LT(again["selective_repeat"], again["go_back_n"] * 2 / 3);
  EXPECT_LT(us["selective_repeat"], us["go_back_n"]);
}

TEST(Sim, TheRealNodeIsWatched) {
  const config::LoadedJob job =
      config::parse_job("job.yaml", "job: j\neach_step: [{compute: 1us}]\nclosed_form: [0..3, 9, 2..1]\n", 8);
  ASSERT_EQ(job.diagnostics.size(), 1U);
  EXPECT_EQ(job.diagnostics[0].message, "'2..1' ends before it begins");
  const config::LoadedJob other =
      config::parse_job("job.yaml", "job: j\neach_step: [{compute: 1us}]\nclosed_form: [0..3, 9]\n", 8);
  ASSERT_EQ(other.diagnostics.size(), 2U);
  EXPECT_EQ(other.diagnostics[0].message, "rank 0 is the real node: it sends packets");
  EXPECT_EQ(other.diagnostics[1].pos.column, 21U);
}

TEST(Sim, ComputingOverlapsWhatIsBesideIt) {
  const auto alone = outcome(rack(1), "job: j\neach_step: [{compute: 1ms}, {all_reduce: 4MiB}]\n");
  const auto beside = outcome(rack(1), "job: j\neach_step: [{compute: 1ms}, {all_reduce: 4MiB, beside: true}]\n");
  ASSERT_TRUE(alone && beside);
  EXPECT_NEAR(alone->report["steps"]["median_us"].get<double>(), 1000 + median_us(alone->report, 1), 0.001);
  EXPECT_NEAR(beside->report["steps"]["median_us"].get<double>(), 1000, 0.001);
}

TEST(Sim, OperationsWaitForThoseThatTheyName) {
  const auto done = outcome(rack(1),
                            "job: j\nsteps: 2\neach_step:\n  - {compute: 1ms, name: a}\n"
                            "  - {compute: 2ms, name: b, after: []}\n  - {compute: 1ms, name: c, after: [a]}\n"
                            "  - {compute: 1ms, name: d, after: [b, c]}\n");
  ASSERT_TRUE(done);
  EXPECT_DOUBLE_EQ(done->report["steps"]["median_us"].get<double>(), 3000);
  EXPECT_DOUBLE_EQ(done->report["each_step"][1]["operations"][3]["start_us"].get<double>(), 5000);
}

/// Rank 1 takes 1.5 ms for a clock, the others 1 ms. They begin clock k after k of their own, and when that of
/// `staleness` clocks before the last is over everywhere, which rank 1 ends at 1.5 ms (k - staleness).
TEST(Sim, StaleWorkersAreAheadByTheirBoundOnly) {
  for (const unsigned staleness : {0U, 3U}) {
    const auto done = outcome(rack(3),
                              "job: j\nsteps: 16\neach_step:\n  - {compute: 1ms}\n"
                              "  - {all_reduce: {bytes: 4096B, algorithm: servers}, staleness: " +
                                  std::to_string(staleness) + "}\nstragglers: [{rank: 1, factor: 1.5}]\n");
    ASSERT_TRUE(done) << done.error().message;
    for (const unsigned clock : {6U, 15U}) {
      const double bound = 1500.0 * (clock - staleness);
      EXPECT_NEAR(done->report["each_step"][clock]["start_us"].get<double>(), std::max(1000.0 * clock, bound), 150)
          << staleness << ' ' << clock;
    }
  }
}

/// One server of four ranks: three packets come in on one cable, and three go out.
TEST(Sim, AnIdleServerTakesItsClosedForm) {
  const auto done = outcome(rack(3), "job: j\neach_step: [{all_reduce: {bytes: 4096B, algorithm: servers}}]\n");
  ASSERT_TRUE(done) << done.error().message;
  const double packet = (4096 + overhead + reth) / bytes_per_us;
  const double last_ack = 2 * ack / bytes_per_us + latency_us;
  const double expected = 2 * (4 * packet + latency_us) + last_ack;
  EXPECT_GE(median_us(done->report), expected - 0.001);
  EXPECT_LE(median_us(done->report), expected + 3 * ack / bytes_per_us);
}

TEST(Sim, AStragglerHoldsUpTheRing) {
  const auto done = outcome(
      rack(3),
      "job: j\nsteps: 4\neach_step: [{compute: 1ms}, {all_reduce: 1MiB}]\nstragglers: [{rank: 2, factor: 1.5}]\n");
  ASSERT_TRUE(done);
  const auto even = outcome(rack(3), "job: j\nsteps: 4\neach_step: [{compute: 1ms}, {all_reduce: 1MiB}]\n");
  ASSERT_TRUE(even);
  EXPECT_NEAR(done->report["virtual_time_us"].get<double>() - even->report["virtual_time_us"].get<double>(), 4 * 500,
              100);
}

TEST(Sim, TheSameFilesGiveTheSameReport) {
  const std::string cluster = rack(7, "{both: {loss: 1%}}");
  const std::string job = "job: j\nsteps: 2\neach_step: [{all_reduce: 1MiB}, {all_to_all: 1MiB}]\n";
  const auto first = outcome(cluster, job);
  const auto second = outcome(cluster, job);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->report.dump(), second->report.dump());
  EXPECT_GT(first->report["ghosts"]["drops"]["loss"].get<std::uint64_t>(), 0U)
      << "the profile holds at the node's cable";
}

TEST(Sim, AJobThatCannotGoOnSaysWhy) {
  const auto lost = outcome(rack(1, "{both: {loss: 100%}}"), "job: j\neach_step: [{all_reduce: 1MiB}]\n");
  ASSERT_FALSE(lost);
  EXPECT_NE(lost.error().message.find("retry"), std::string::npos) << lost.error().message;
  const auto no_network =
      outcome("cluster: c\nports: [{name: p0}]\nghosts: [{name: g, count: 2, addresses: [10.77.0.9/24]}]\n",
              "job: j\neach_step: [{all_reduce: 1MiB}]\n");
  ASSERT_FALSE(no_network);
  EXPECT_NE(no_network.error().message.find("network"), std::string::npos);
}

TEST(Sim, ANetworkThatHoldsTooFewFramesEndsTheJob) {
  const std::string job = "job: j\neach_step: [{incast: 4MiB}]\n";
  const auto full = outcome(rack(8) + "  buffer: 1GiB\n  frames: 1024\n", job);
  ASSERT_FALSE(full);
  EXPECT_NE(full.error().message.find("8 connections of 256 packets in flight may have 2048"), std::string::npos)
      << full.error().message;
  EXPECT_NE(full.error().message.find("`frames: 2048`"), std::string::npos) << full.error().message;
  const auto advised = outcome(rack(8) + "  buffer: 1GiB\n  frames: 2048\n", job);
  EXPECT_TRUE(advised) << (advised ? "" : advised.error().message);
}

TEST(Sim, AJobMayFailWhilePacketsAreUnderWay) {
  std::string cluster = rack(32);
  cluster.replace(cluster.find("topology: rack"), 14, "topology: rack\n  buffer: 128KiB");
  const auto done = outcome(cluster, "job: j\neach_step: [{incast: 4MiB}]\n");
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("retry_exc_err"), std::string::npos) << done.error().message;
}

TEST(Sim, PartsAddUpToTheirStepAndNameWhomTheyWaitedFor) {
  // Rank 2 comes 500 us late to the ring; the others wait.
  const auto done = outcome(rack(3),
                            "job: j\nsteps: 3\neach_step: [{compute: 1ms}, {all_reduce: 4MiB}]\n"
                            "stragglers: [{rank: 2, factor: 1.5}]\n");
  ASSERT_TRUE(done) << done.error().message;
  for (const auto& step : done->report["each_step"]) {
    const auto& parts = step["parts"];
    double sum = 0;
    for (const char* part :
         {"late_start_us", "compute_us", "waiting_us", "retransmission_us", "transfer_us", "queueing_us"}) {
      sum += parts[part].get<double>();
    }
    EXPECT_NEAR(sum, step["us"].get<double>(), 0.001);
    if (parts["last_rank"] != 2) {
      EXPECT_EQ(parts["waited_for_rank"], 2);
      EXPECT_GT(parts["waiting_us"].get<double>(), 300);
    }
  }
  const auto lossy =
      outcome(rack(1, "{both: {loss: 1%}}"), "job: j\neach_step: [{flow: {from: 1, to: 0, bytes: 4MiB}}]\n");
  ASSERT_TRUE(lossy) << lossy.error().message;
  const auto& parts = lossy->report["each_step"][0]["parts"];
  EXPECT_DOUBLE_EQ(parts["retransmission_us"].get<double>(), lossy->report["each_step"][0]["us"].get<double>());
}

TEST(Sim, QueuesAndMessagesAreToldInBoundedRoom) {
  const auto done = outcome(rack(3), "job: j\nsteps: 2\neach_step: [{incast: 8MiB}, {compute: 10ms}]\n");
  ASSERT_TRUE(done) << done.error().message;
  const auto& timeline = done->report["timeline"];
  EXPECT_LE(timeline["queued_bytes"].size(), 512U);
  EXPECT_GE(timeline["queued_bytes"].size(), 128U);
  EXPECT_NEAR(timeline["interval_us"].get<double>() * static_cast<double>(timeline["queued_bytes"].size()),
              done->report["virtual_time_us"].get<double>(), timeline["interval_us"].get<double>());
  const auto deepest = done->report["network"]["queues"][0]["peak_bytes"].get<double>();
  EXPECT_GT(deepest, 1e6);
  const auto& messages = done->report["completion_times"][0];
  EXPECT_EQ(messages["messages"], 6);
  EXPECT_EQ(messages["cdf"].back()[0], messages["max_us"]);
}

TEST(Sim, AJobForOtherRanksIsRefusedAtItsPlace) {
  const config::LoadedJob job = config::parse_job(
      "job.yaml",
      "job: j\neach_step:\n  - all_reduce: {bytes: 1MiB, group: 3}\n  - flow: {from: 0, to: 9, bytes: 1B}\n", 8);
  ASSERT_EQ(job.diagnostics.size(), 2U);
  EXPECT_EQ(job.diagnostics[0].pos.line, 3U);
  EXPECT_EQ(job.diagnostics[1].message, "there is no rank 9: the cluster has ranks 0 to 7");
  const config::LoadedJob shape =
      config::parse_job("job.yaml",
                        "job: j\neach_step:\n  - all_reduce: {bytes: 1MiB, algorithm: servers, servers: 5, group: 4}\n"
                        "  - all_reduce: {bytes: 1MiB, dimensions: [{size: 3}, {}]}\n",
                        8);
  ASSERT_EQ(shape.diagnostics.size(), 2U);
  EXPECT_EQ(shape.diagnostics[0].message, "5 servers in a group of 4 ranks");
  EXPECT_EQ(shape.diagnostics[1].message, "the sizes of its dimensions do not come to a group of 8 ranks");
}

}  // namespace
}  // namespace nbx::sim
