// Schedules against what NCCL itself sent, and against what must hold for any schedule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>

#include "nccl-glue/plan/channels.hpp"
#include "nccl-glue/plan/lines.hpp"
#include "nccl-glue/plan/point_to_point.hpp"
#include "nccl-glue/plan/ring.hpp"
#include "nccl-glue/plan/tree.hpp"
#include "support/nccl_messages.hpp"

namespace nbx::nccl {
namespace {

using test::Bytes;
using test::NcclFlow;

const Version& version(int code) { return **find_version(code, true); }

/// The captured program's input: element i of rank r.
float input(std::uint32_t rank, std::uint64_t i) { return static_cast<float>((i * 7 + rank * 13) % 61) - 11; }

struct Recorded {
  const char* name;
  int version;
  std::uint32_t ranks;
  std::uint8_t channels;
  Decision decision;
  std::vector<std::uint64_t> counts;  // AllReduce of so many floats, one after the other
  std::uint32_t buffer = 4U << 20U;   // NCCL_BUFFSIZE
};

void PrintTo(const Recorded& recorded, std::ostream* out) { *out << recorded.name; }

CommShape shape_of(const Recorded& recorded) {
  CommShape shape{recorded.ranks, recorded.ranks, recorded.channels, {}};
  shape.buffers.simple = recorded.buffer;
  return shape;
}

/// A message as the wire must show it.
struct Expected {
  std::uint64_t step = 0;
  std::uint64_t offset = 0;  // bytes in the vector
  std::uint32_t bytes = 0;
  std::uint32_t clear_to_send = 0;
  std::vector<std::uint32_t> contributors;  // ranks whose input is summed in it
};

std::vector<std::uint32_t> all_ranks(std::uint32_t n) {
  std::vector<std::uint32_t> ranks(n);
  std::iota(ranks.begin(), ranks.end(), 0U);
  return ranks;
}

/// What rank `from` sends on a channel in all of the capture's operations, as a ring.
std::vector<Expected> expected_ring(const Recorded& recorded, std::uint8_t channel, std::uint32_t from) {
  const CommShape shape = shape_of(recorded);
  std::vector<Expected> out;
  std::uint64_t step = 0;
  for (const std::uint64_t count : recorded.counts) {
    const PlannedOperation planned{{Collective::all_reduce, count}, recorded.decision};
    const auto placed = place(version(recorded.version), shape, {&planned, 1});
    for (const Share& share : placed->front().shares) {
      if (share.channel != channel) {
        continue;
      }
      const RingPlan plan(planned.operation, planned.decision, shape, share);
      step = plan.first_step(step);
      for (std::uint64_t i = 0; i < plan.sends(from); ++i) {
        const RingMessage m = plan.sent(from, i);
        Expected e{step, m.offset, m.bytes, plan.clear_to_send(), {}};
        for (std::uint32_t hop = 0; !m.finished && hop <= m.hops; ++hop) {
          e.contributors.push_back((from + recorded.ranks - hop) % recorded.ranks);
        }
        if (m.finished) {
          e.contributors = all_ranks(recorded.ranks);
        }
        out.push_back(e);
        step += plan.steps_per_message();
      }
    }
  }
  return out;
}

/// With two ranks a tree is one edge: up goes the child's input, down the sum.
std::vector<Expected> expected_tree(const Recorded& recorded, std::vector<std::uint32_t> contributors) {
  const CommShape shape = shape_of(recorded);
  std::vector<Expected> out;
  std::uint64_t step = 0;
  for (const std::uint64_t count : recorded.counts) {
    const PlannedOperation planned{{Collective::all_reduce, count}, recorded.decision};
    const auto placed = place(version(recorded.version), shape, {&planned, 1});
    const TreePlan plan(planned.decision, shape, placed->front().shares.front());
    for (std::uint64_t i = 0; i < plan.messages(); ++i) {
      out.push_back({step++, plan.message(i).offset, plan.message(i).bytes, plan.clear_to_send(), contributors});
    }
  }
  return out;
}

std::vector<std::uint64_t> wire_sizes(const Recorded& recorded, const std::vector<Expected>& expected) {
  std::vector<std::uint64_t> sizes;
  for (const Expected& e : expected) {
    sizes.push_back(wire_size(recorded.decision.protocol, e.bytes));
  }
  return sizes;
}

std::vector<std::uint64_t> sizes(const NcclFlow& flow) {
  std::vector<std::uint64_t> out;
  for (const test::NcclMessage& message : flow.messages) {
    out.push_back(message.data.size());
  }
  return out;
}

/// Elements as the wire must show them.
Bytes sum_of_inputs(const Expected& e) {
  std::vector<float> values(e.bytes / sizeof(float));
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (const std::uint32_t rank : e.contributors) {
      values[i] += input(rank, e.offset / sizeof(float) + i);
    }
  }
  const ConstBytes bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

void expect_flow(const Recorded& recorded, const NcclFlow& flow, const std::vector<Expected>& expected) {
  const Protocol protocol = recorded.decision.protocol;
  ASSERT_EQ(sizes(flow), wire_sizes(recorded, expected));
  ASSERT_EQ(flow.clear_to_send.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(flow.clear_to_send[i].size, expected[i].clear_to_send);
    EXPECT_EQ(flow.clear_to_send[i].address, flow.messages[i].address);
    const Bytes& lines = flow.messages[i].data;
    EXPECT_TRUE(flagged(protocol, lines, expected[i].step));
    Bytes data(expected[i].bytes);
    decode(protocol, lines, data);
    EXPECT_TRUE(data == sum_of_inputs(expected[i]));
  }
}

class Captured : public testing::TestWithParam<Recorded> {
 protected:
  std::vector<NcclFlow> flows_ = test::nccl_flows(test::read_pcap(std::string{NBX_CAPTURES} + "/" + GetParam().name));
};

class CapturedRing : public Captured {};
class CapturedTree : public Captured {};

TEST_P(CapturedRing, EveryConnectionCarriesWhatThePlanSays) {
  const Recorded& recorded = GetParam();
  ASSERT_EQ(flows_.size(), std::size_t{recorded.ranks} * recorded.channels);
  for (std::uint32_t from = 0; from < recorded.ranks; ++from) {
    for (std::uint8_t channel = 0; channel < recorded.channels; ++channel) {
      SCOPED_TRACE(testing::Message() << "rank " << from << " channel " << int{channel});
      const auto expected = expected_ring(recorded, channel, from);
      const auto flow = std::ranges::find_if(flows_, [&](const NcclFlow& f) {
        return f.from == from + 1 && f.to == (from + 1) % recorded.ranks + 1 && f.messages.size() == expected.size();
      });
      ASSERT_NE(flow, flows_.end());
      expect_flow(recorded, *flow, expected);
    }
  }
}

TEST_P(CapturedTree, UpGoesOneInputAndDownTheSum) {
  const Recorded& recorded = GetParam();
  ASSERT_EQ(flows_.size(), 2U);
  for (const NcclFlow& flow : flows_) {
    constexpr std::uint32_t root = 1;  // address
    expect_flow(recorded, flow, expected_tree(recorded, flow.from == root ? all_ranks(2) : std::vector{flow.from - 1}));
  }
}

constexpr Decision ring_simple{Algorithm::ring, Protocol::simple, 1};
constexpr Decision ring_ll{Algorithm::ring, Protocol::ll, 1};
constexpr Decision ring_ll128{Algorithm::ring, Protocol::ll128, 1};

INSTANTIATE_TEST_SUITE_P(
    Nccl, CapturedRing,
    testing::Values(Recorded{"nccl-sizes.pcap", 22809, 2, 1, ring_simple, {2, 1000, 8192}},
                    Recorded{"nccl-window.pcap", 22809, 2, 1, ring_simple, {98304}, 65536},
                    Recorded{"nccl-2channels.pcap", 22809, 2, 2, {Algorithm::ring, Protocol::simple, 2}, {1000, 98304}},
                    Recorded{"nccl-2.29.7-simple.pcap", 22907, 2, 1, ring_simple, {2, 1000, 65536}},
                    Recorded{"nccl-2.29.7-ll.pcap", 22907, 2, 1, ring_ll, {1000, 16384}},
                    Recorded{"nccl-2.29.7-ll128.pcap", 22907, 2, 1, ring_ll128, {1000, 65536}},
                    Recorded{"nccl-2.29.7-3ranks.pcap", 22907, 3, 1, ring_simple, {1000, 32768}}));
INSTANTIATE_TEST_SUITE_P(
    Nccl, CapturedTree,
    testing::Values(Recorded{
        "nccl-2.29.7-tree.pcap", 22907, 2, 1, {Algorithm::tree, Protocol::simple, 1}, {1000, 65536}}));

/// Every way to run a ring, with counts that end in the middle of everything.
class AnyRing : public testing::TestWithParam<std::tuple<Collective, Protocol, std::uint32_t, std::uint8_t>> {
 protected:
  [[nodiscard]] static CommShape shape() {
    const auto ranks = std::get<2>(GetParam());
    const auto channels = std::get<3>(GetParam());
    return {ranks, ranks, channels, {}};
  }
  static void for_each_plan(const std::function<void(const RingPlan&, const Operation&, const Share&)>& f) {
    const auto collective = std::get<0>(GetParam());
    const auto protocol = std::get<1>(GetParam());
    const auto channels = std::get<3>(GetParam());
    for (const std::uint64_t count : {1U, 1000U, 131072U, 1000003U}) {
      for (const DataType type : {DataType::u8, DataType::f64}) {
        const PlannedOperation planned{{collective, count, type}, {Algorithm::ring, protocol, channels}};
        const auto placed = place(version(22907), shape(), {&planned, 1});
        ASSERT_TRUE(placed);
        ASSERT_EQ(placed->size(), 1U);
        for (const Share& share : placed->front().shares) {
          SCOPED_TRACE(testing::Message()
                       << "count " << count << " type " << int(type) << " channel " << int{share.channel});
          f(RingPlan(planned.operation, planned.decision, shape(), share, root), planned.operation, share);
        }
      }
    }
  }
  static constexpr std::uint32_t root = 1;
};

/// Bytes of each part that messages cover, each once: sorted, without gap or overlap, from `begin` to `end`.
void expect_covered(std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges, std::uint64_t begin,
                    std::uint64_t end) {
  std::ranges::sort(ranges);
  std::uint64_t at = begin;
  for (const auto& [offset, bytes] : ranges) {
    if (bytes != 0) {
      ASSERT_EQ(offset, at);
      at += bytes;
    }
  }
  EXPECT_EQ(at, end);
}

TEST_P(AnyRing, EveryElementReachesEveryRankOnceInItsFinalForm) {
  const auto collective = std::get<0>(GetParam());
  const auto ranks = std::get<2>(GetParam());
  for_each_plan([&](const RingPlan& plan, const Operation&, const Share& share) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      std::map<std::uint32_t, std::vector<std::pair<std::uint64_t, std::uint64_t>>> unfinished, finished;
      for (std::uint64_t i = 0; i < plan.receives(rank); ++i) {
        const RingMessage m = plan.received(rank, i);
        const std::uint32_t part = collective == Collective::all_reduce ? 0 : m.part;
        (m.finished ? finished : unfinished)[part].emplace_back(m.offset, m.bytes);
      }
      const bool own_part_comes = collective == Collective::reduce_scatter;
      const bool all_parts_come = collective == Collective::all_gather;
      if (all_parts_come) {
        EXPECT_EQ(finished.size(), ranks - 1);
        EXPECT_FALSE(finished.contains(rank));
      } else if (own_part_comes) {
        EXPECT_EQ(unfinished.size(), ranks - 1);
        EXPECT_TRUE(unfinished.contains(rank));
      }
      if (collective != Collective::all_reduce) {
        for (const auto& parts : {finished, unfinished}) {
          for (const auto& [part, ranges] : parts) {
            expect_covered(ranges, share.offset, share.offset + share.bytes);
          }
        }
      } else {
        // A rank keeps the chunk that it finishes itself and passes the one that it starts: all but one chunk of each
        // phase comes in, and what it finishes is the last of the first phase.
        auto ranges = finished[0];
        for (std::uint64_t i = 0; i < plan.receives(rank); ++i) {
          const RingMessage m = plan.received(rank, i);
          if (m.position == ranks - 2) {
            EXPECT_EQ(m.part, rank);
            ranges.emplace_back(m.offset, m.bytes);
          }
        }
        expect_covered(ranges, share.offset, share.offset + share.bytes);
      }
    }
  });
}

TEST_P(AnyRing, AMessageStemsFromTheSamePieceWherever) {
  const auto ranks = std::get<2>(GetParam());
  for_each_plan([&](const RingPlan& plan, const Operation&, const Share&) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      for (std::uint64_t i = 0; i < plan.sends(rank); ++i) {
        const RingMessage out = plan.sent(rank, i);
        for (std::uint32_t run = 1; run < ranks; ++run) {
          const auto source = plan.source(rank, i, run);
          EXPECT_EQ(source.has_value(), out.hops >= run);
          if (source) {
            const std::uint32_t first = (rank + ranks - run + 1) % ranks;
            ASSERT_LT(*source, plan.receives(first));
            RingMessage in = plan.received(first, *source);
            EXPECT_EQ(in.hops + run, out.hops);
            EXPECT_TRUE(out.finished || !in.finished);
            in.hops = out.hops;
            in.position = out.position;
            in.finished = out.finished;
            EXPECT_EQ(in, out);
          }
        }
      }
    }
  });
}

TEST_P(AnyRing, NoMessageExceedsWhatTheReceiverOffers) {
  for_each_plan([&](const RingPlan& plan, const Operation&, const Share&) {
    for (std::uint32_t rank = 0; rank < shape().ranks; ++rank) {
      for (std::uint64_t i = 0; i < plan.sends(rank); ++i) {
        EXPECT_LE(plan.wire_bytes(plan.sent(rank, i).bytes), plan.clear_to_send());
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Nccl, AnyRing,
                         testing::Combine(testing::Values(Collective::broadcast, Collective::reduce,
                                                          Collective::all_gather, Collective::reduce_scatter,
                                                          Collective::all_reduce),
                                          testing::Values(Protocol::ll, Protocol::ll128, Protocol::simple),
                                          testing::Values(2U, 3U, 5U),
                                          testing::Values(std::uint8_t{1}, std::uint8_t{4})));

TEST(RingPlan, AChainStartsAtTheRootAndEndsBeforeIt) {
  const CommShape shape{4, 4, 1, {}};
  const Share share{0, 0, 4000, 524288};
  const RingPlan broadcast({Collective::broadcast, 1000}, ring_simple, shape, share, 2);
  const RingPlan reduction({Collective::reduce, 1000}, ring_simple, shape, share, 2);
  EXPECT_EQ((std::array{broadcast.sends(2), broadcast.sends(3), broadcast.sends(0), broadcast.sends(1)}),
            (std::array<std::uint64_t, 4>{1, 1, 1, 0}));
  EXPECT_EQ((std::array{reduction.sends(2), reduction.sends(3), reduction.sends(0), reduction.sends(1)}),
            (std::array<std::uint64_t, 4>{0, 1, 1, 1}));
  EXPECT_EQ(broadcast.sent(1 + 3 - 4, 0).hops, 2U);
  EXPECT_EQ(reduction.sent(1, 0).hops, 2U);
}

TEST(RingPlan, FourStepOperationsStartAtAMultipleOfFour) {
  const CommShape shape{2, 2, 1, {}};
  const Share share{0, 0, 4000, 2097152};
  const RingPlan simple({Collective::all_reduce, 1000}, ring_simple, shape, share);
  EXPECT_EQ(simple.first_step(0), 0U);
  EXPECT_EQ(simple.first_step(5), 8U);
  EXPECT_EQ(simple.steps_per_message(), 2U);
  EXPECT_EQ(simple.clear_to_send(), 1048576U);
  const RingPlan low_latency({Collective::all_reduce, 1000}, ring_ll, shape, share);
  EXPECT_EQ(low_latency.first_step(5), 5U);
  EXPECT_EQ(low_latency.steps_per_message(), 1U);
  EXPECT_EQ(low_latency.clear_to_send(), 65536U);
}

TEST(RingPlan, AnsweringCostsTheSameWithTenThousandRanks) {
  const std::uint32_t n = 10000;
  const CommShape shape{n, n, 1, {}};
  const PlannedOperation planned{{Collective::all_reduce, 1ULL << 32U}, ring_simple};
  const auto placed = place(version(22907), shape, {&planned, 1});
  const RingPlan plan(planned.operation, ring_simple, shape, placed->front().shares.front());
  const std::uint64_t last = plan.sends(17) - 1;
  EXPECT_EQ(plan.sent(17, last).part, (17 + 2U * n - 1 - (2 * (n - 1) - 1)) % n);
  EXPECT_EQ(plan.source(17, last, n - 1), last - 2ULL * (n - 1));
}

// What NCCL 2.29.7 reports of itself (NCCL_DEBUG_SUBSYS=TUNING) or moves (bytes per connection), two hosts and more.
std::vector<Share> shares(int code, const CommShape& shape, Collective collective, std::uint64_t count,
                          Decision decision) {
  const PlannedOperation planned{{collective, count}, decision};
  const auto placed = place(version(code), shape, {&planned, 1});
  return placed ? placed->front().shares : std::vector<Share>{};
}

TEST(Channels, SharesAreDisjointAndWhole) {
  for (const Version& v : versions()) {
    for (const std::uint64_t count : {1U, 17U, 1000U, 9000U, 131072U, 1000003U, 50000000U}) {
      for (const std::uint8_t channels : {1, 2, 3, 4, 16, 32}) {
        const CommShape shape{4, 4, 32, {}};
        const auto cut =
            shares(v.code, shape, Collective::all_reduce, count, {Algorithm::ring, Protocol::ll, channels});
        std::uint64_t at = 0;
        ASSERT_LE(cut.size(), channels);
        for (std::size_t i = 0; i < cut.size(); ++i) {
          EXPECT_EQ(cut[i].channel, i);
          EXPECT_EQ(cut[i].offset, at);
          EXPECT_GT(cut[i].bytes, 0U);
          at += cut[i].bytes;
        }
        EXPECT_EQ(at, count * 4);
      }
    }
  }
}

TEST(Channels, SmallOperationsUseFewAndEarlierReleasesMore) {
  const CommShape shape{2, 2, 4, {}};
  const Decision decision{Algorithm::ring, Protocol::simple, 4};
  EXPECT_EQ(shares(22907, shape, Collective::all_reduce, 4096, decision).size(), 1U);  // 32 KiB of traffic: one cell
  EXPECT_EQ(shares(22809, shape, Collective::all_reduce, 4096, decision).size(), 2U);  // cells of 16 KiB of traffic
  EXPECT_EQ(shares(22203, shape, Collective::all_reduce, 4096, decision).size(), 4U);
}

TEST(Channels, AGroupFillsOneChannelAfterTheOther) {
  const CommShape shape{2, 2, 2, {}};
  const Decision decision{Algorithm::ring, Protocol::simple, 2};
  const std::array group{PlannedOperation{{Collective::all_reduce, 65536}, decision},
                         PlannedOperation{{Collective::all_reduce, 0}, decision},
                         PlannedOperation{{Collective::all_reduce, 65536}, decision}};
  const auto placed = place(version(22907), shape, group);
  ASSERT_TRUE(placed);
  ASSERT_EQ(placed->size(), 2U);
  EXPECT_EQ(placed->at(0).index, 0U);  // equal sizes keep their order
  EXPECT_EQ(placed->at(1).index, 2U);
  ASSERT_EQ(placed->at(0).shares.size(), 1U);
  ASSERT_EQ(placed->at(1).shares.size(), 1U);
  EXPECT_EQ(placed->at(0).shares[0].channel, 0);
  EXPECT_EQ(placed->at(1).shares[0].channel, 1);
}

TEST(Channels, AGroupRunsFunctionByFunctionFromSmallToLarge) {
  const CommShape shape{2, 2, 1, {}};
  const std::array group{PlannedOperation{{Collective::all_reduce, 100000}, ring_simple},
                         PlannedOperation{{Collective::reduce, 1000}, ring_simple},
                         PlannedOperation{{Collective::all_reduce, 1000}, ring_simple},
                         PlannedOperation{{Collective::all_reduce, 2000, DataType::f32, RedOp::max}, ring_simple}};
  const auto placed = place(version(22907), shape, group);
  ASSERT_TRUE(placed);
  std::vector<std::size_t> order;
  for (const Placement& p : *placed) {
    order.push_back(p.index);
  }
  EXPECT_EQ(order, (std::vector<std::size_t>{2, 0, 3, 1}));
}

TEST(Channels, WhatCannotBePlacedIsNamed) {
  const CommShape shape{2, 2, 1, {}};
  const auto error = [&](int code, std::vector<PlannedOperation> group) {
    const auto placed = place(version(code), shape, group);
    return placed ? "" : placed.error().message;
  };
  EXPECT_THAT(error(22907, {{{Collective::send, 1}, ring_simple}}), testing::HasSubstr("send"));
  EXPECT_THAT(error(22907, {{{Collective::all_reduce, 1}, {Algorithm::ring, Protocol::simple, 2}}}),
              testing::HasSubstr("2 channels in a communicator of 1"));
}

TEST(TreePlan, DeepTreesGetSmallerLl128Chunks) {
  const auto chunk = [](std::uint32_t nodes, std::uint64_t count) {
    const CommShape shape{nodes, nodes, 1, {}};
    return shares(22907, shape, Collective::all_reduce, count, {Algorithm::tree, Protocol::ll128, 1}).front().chunk;
  };
  EXPECT_EQ(chunk(2, 1000), 17280U);     // 576000 / 32, rounded down to whole warp slices of 1920
  EXPECT_EQ(chunk(2, 1000003), 71040U);  // 576000 / 8: 55 chunks are enough
  EXPECT_EQ(chunk(2, 100000000), 576000U);
}

TEST(PointToPoint, PartsAndMessagesAddUp) {
  for (const std::uint64_t bytes : {0U, 1U, 4000U, 32768U, 131071U, 131072U, 1048575U, 1048576U, 4000012U}) {
    for (const std::uint8_t channels : {1, 2, 8, 32}) {
      const PointToPointShape shape{2, channels, channels, 131072};
      std::uint64_t at = 0;
      for (const PointToPointPart& part : point_to_point_parts(shape, bytes)) {
        EXPECT_EQ(part.offset, at);
        for (std::uint64_t i = 0; i < part.messages(); ++i) {
          EXPECT_LE(part.message_bytes(i), part.message);
          at += part.message_bytes(i);
        }
      }
      EXPECT_EQ(at, bytes);
    }
  }
}

TEST(PointToPoint, MessagesGrowWithTheWhole) {
  const PointToPointShape shape{2, 1, 1, 131072};
  const auto message = [&](std::uint64_t bytes) { return point_to_point_parts(shape, bytes).front().message; };
  EXPECT_EQ(message(131071), 32768U);
  EXPECT_EQ(message(131072), 65536U);
  EXPECT_EQ(message(1048575), 65536U);
  EXPECT_EQ(message(1048576), 131072U);
  const PointToPointShape odd{2, 1, 1, 100000};  // the kernel knows only four significant bits of it
  EXPECT_EQ(point_to_point_parts(odd, 10000000).front().message, 98304U);
}

TEST(PointToPoint, InEveryRoundEachRankSendsToOneAndReceivesFromOne) {
  for (const auto& node : {std::vector<std::uint32_t>{0, 1, 2, 3, 4},
                           {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1},
                           {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2},
                           {0, 0, 1, 1, 1, 1},
                           {0, 1, 0, 1}}) {
    const PointToPointSchedule schedule(node, 8);
    const auto n = static_cast<std::uint32_t>(node.size());
    for (std::uint32_t from = 0; from < n; ++from) {
      std::vector<std::uint32_t> to_seen, from_seen;
      for (std::uint32_t to = 0; to < n; ++to) {
        to_seen.push_back(schedule.round(from, to));
        from_seen.push_back(schedule.round(to, from));
      }
      std::ranges::sort(to_seen);
      std::ranges::sort(from_seen);
      EXPECT_EQ(to_seen, all_ranks(n));
      EXPECT_EQ(from_seen, all_ranks(n));
      EXPECT_EQ(schedule.round(from, from), 0U);
    }
  }
}

TEST(PointToPoint, RanksOfANodeTakeTurnsWhateverTheirNumbers) {
  const PointToPointSchedule dealt(std::vector<std::uint32_t>{0, 1, 0, 1}, 8);  // the nodes have ranks 0, 2 and 1, 3
  EXPECT_EQ(dealt.round(0, 2), 1U);
  EXPECT_EQ(dealt.round(0, 1), 2U);
  EXPECT_EQ(dealt.round(0, 3), 3U);
}

TEST(PointToPoint, RoundsAreSpreadOverChannelsBitReversed) {
  const PointToPointSchedule schedule(all_ranks(8), 8);
  const PointToPointShape shape{8, 8, 2, 131072};
  EXPECT_EQ(schedule.channel(shape, 0, 0), 0);
  EXPECT_EQ(schedule.channel(shape, 1, 0), 4);
  EXPECT_EQ(schedule.channel(shape, 1, 1), 5);
  EXPECT_EQ(schedule.channel(shape, 3, 1), 7);
  EXPECT_EQ(schedule.channel(shape, 7, 1), 0);
}

}  // namespace
}  // namespace nbx::nccl
