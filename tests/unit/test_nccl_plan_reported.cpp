// Schedules against what NCCL 2.29.7 reported of itself: the order of a group's operations and their channels
// (NCCL_DEBUG_SUBSYS=TUNING), and the bytes and messages that a network plugin counted on each connection.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "nccl-glue/plan/channels.hpp"
#include "nccl-glue/plan/point_to_point.hpp"
#include "nccl-glue/plan/ring.hpp"
#include "nccl-glue/plan/tree.hpp"

namespace nbx::nccl {
namespace {

const Version& version() { return **find_version(22907); }

std::vector<std::string> lines_of(const std::string& name) {
  std::ifstream in(std::string{NBX_CAPTURES} + "/" + name);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  return lines;
}

const std::map<std::string, Collective> collectives{{"AllReduce", Collective::all_reduce},
                                                    {"AllGather", Collective::all_gather},
                                                    {"ReduceScatter", Collective::reduce_scatter},
                                                    {"Broadcast", Collective::broadcast},
                                                    {"Reduce", Collective::reduce},
                                                    {"SendRecv", Collective::send}};
const std::map<std::string, Protocol> protocols{
    {"LL", Protocol::ll}, {"LL128", Protocol::ll128}, {"Simple", Protocol::simple}};

std::string name_of(Collective collective) {
  return std::ranges::find(collectives, collective, &std::pair<const std::string, Collective>::second)->first;
}

/// "AllReduce/max/1000": a call on floats.
Operation parse_call(const std::string& text) {
  std::istringstream in(text);
  std::string collective, op, count;
  std::getline(in, collective, '/');
  std::getline(in, op, '/');
  std::getline(in, count);
  return {collectives.at(collective), std::stoull(count), DataType::f32, op == "max" ? RedOp::max : RedOp::sum};
}

TEST(Reported, GroupsRunInThisOrderOnTheseChannels) {
  CommShape shape;
  Decision decision;
  std::vector<std::string> expected;  // what is planned for the group being read
  std::size_t at = 0;
  std::size_t operations = 0;
  for (const std::string& line : lines_of("nccl-2.29.7-groups.txt")) {
    std::istringstream in(line);
    std::string word;
    in >> word;
    if (word == "communicator") {
      int channels = 0;
      int decided = 0;
      std::string protocol;
      in >> word >> word >> word >> channels >> word >> decided >> word >> word >> protocol;
      shape.channels = static_cast<std::uint8_t>(channels);
      decision = {Algorithm::ring, protocols.at(protocol), static_cast<std::uint8_t>(decided)};
    } else if (word == "group") {
      ASSERT_EQ(at, expected.size());
      std::vector<PlannedOperation> group;
      while (in >> word) {
        group.push_back({parse_call(word), decision});
      }
      expected.clear();
      at = 0;
      const auto placed = place(version(), shape, group);
      ASSERT_TRUE(placed);
      for (const auto& [index, shares] : *placed) {
        const Operation& operation = group[index].operation;
        std::ostringstream text;
        text << "  " << name_of(operation.collective) << ' ' << operation.count << " channels "
             << int{shares.front().channel} << ".." << int{shares.back().channel};
        expected.push_back(text.str());
      }
    } else {
      ASSERT_LT(at, expected.size());
      EXPECT_EQ(line, expected[at++]);
      ++operations;
    }
  }
  EXPECT_EQ(operations, 307U);
}

/// Bytes and messages of one connection.
using Total = std::pair<std::uint64_t, std::uint64_t>;

void add_ring(std::vector<Total>& totals, const PlannedOperation& planned, const CommShape& shape, const Share& share) {
  const RingPlan plan(planned.operation, planned.decision, shape, share);
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
    std::uint64_t bytes = 0;
    for (std::uint64_t i = 0; i < plan.sends(rank); ++i) {
      bytes += plan.wire_bytes(plan.sent(rank, i).bytes);
    }
    if (plan.sends(rank) != 0) {
      totals.emplace_back(bytes, plan.sends(rank));
    }
  }
}

void add_tree(std::vector<Total>& totals, const Decision& decision, const CommShape& shape, const Share& share) {
  const TreePlan plan(decision, shape, share);
  std::uint64_t bytes = 0;
  for (std::uint64_t i = 0; i < plan.messages(); ++i) {
    bytes += plan.wire_bytes(plan.message(i).bytes);
  }
  totals.insert(totals.end(), 2 * (shape.ranks - 1), {bytes, plan.messages()});
}

void add_parts(std::vector<Total>& totals, const PointToPointShape& shape, std::uint64_t bytes) {
  for (const PointToPointPart& part : point_to_point_parts(shape, bytes)) {
    totals.insert(totals.end(), shape.ranks, {part.bytes, part.messages()});  // each rank sends to the next one
  }
}

TEST(Reported, ConnectionsCarrySoManyBytesInSoManyMessages) {
  std::size_t runs = 0;
  for (const std::string& line : lines_of("nccl-2.29.7-totals.txt")) {
    SCOPED_TRACE(line);
    std::istringstream in(line);
    std::string collective, algorithm, protocol;
    std::uint64_t count = 0;
    CommShape shape;
    int channels = 0;
    int decided = 0;
    in >> collective >> count >> shape.ranks >> channels >> decided >> algorithm >> protocol;
    shape.nodes = shape.ranks;
    shape.channels = static_cast<std::uint8_t>(channels);
    const PlannedOperation planned{{collectives.at(collective), count},
                                   {algorithm == "Tree" ? Algorithm::tree : Algorithm::ring, protocols.at(protocol),
                                    static_cast<std::uint8_t>(decided)}};
    std::vector<Total> totals;
    if (planned.operation.collective == Collective::send) {
      add_parts(totals, {shape.ranks, shape.channels, planned.decision.channels, 131072}, count * sizeof(float));
    } else {
      const auto placed = place(version(), shape, {&planned, 1});
      ASSERT_TRUE(placed);
      for (const Share& share : placed->front().shares) {
        if (planned.decision.algorithm == Algorithm::tree) {
          add_tree(totals, planned.decision, shape, share);
        } else {
          add_ring(totals, planned, shape, share);
        }
      }
    }
    std::ranges::sort(totals);
    std::vector<Total> counted;
    char slash = 0;
    for (Total total; in >> total.first >> slash >> total.second;) {
      counted.push_back(total);
    }
    EXPECT_EQ(totals, counted);
    ++runs;
  }
  EXPECT_EQ(runs, 56U);
}

}  // namespace
}  // namespace nbx::nccl
