// Schedules against what NCCL itself sent, and against what must hold for any schedule.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

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

}  // namespace
}  // namespace nbx::nccl
