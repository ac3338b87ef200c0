// Steps are found in sequences of operations written down by hand.
#include <gtest/gtest.h>

#include "nccl-glue/service/steps.hpp"

namespace nbx::nccl {
namespace {

using std::chrono::milliseconds;

/// One operation per letter, told apart by their counts: called every 10 ms, 4 ms long.
std::vector<OperationReport> sequence(const std::string& letters) {
  std::vector<OperationReport> out;
  for (const char letter : letters) {
    OperationReport report;
    report.operation.count = static_cast<std::uint64_t>(letter);
    report.operation.type = DataType::f32;
    report.called = Instant{} + static_cast<int>(out.size() + 1) * milliseconds{10};
    report.last_message = report.called + milliseconds{4};
    report.shares[Cause::recovery] = milliseconds{1};
    report.firings = {{.effect = Effect::loss, .rule = 1, .frames = 2, .cost = milliseconds{1}}};
    report.done = true;
    out.push_back(report);
  }
  return out;
}

std::vector<std::size_t> sizes(const std::string& letters) {
  std::vector<std::size_t> out;
  for (const StepReport& step : steps_of(sequence(letters))) {
    out.push_back(step.operations);
  }
  return out;
}

using Sizes = std::vector<std::size_t>;

TEST(Steps, ARepetitionIsFoundBehindWhatCameBefore) {
  EXPECT_EQ(sizes("xyabbabbabb"), (Sizes{3, 3, 3}));
  EXPECT_EQ(sizes("aaaaa"), (Sizes{1, 1, 1, 1, 1}));
}
TEST(Steps, TheShortestRepetitionIsTheStep) { EXPECT_EQ(sizes("abababababab"), (Sizes{2, 2, 2, 2, 2, 2})); }
TEST(Steps, AStepThatIsNotCompleteIsLeftOut) { EXPECT_EQ(sizes("abcabcabcab"), (Sizes{3, 3, 3})); }
TEST(Steps, TwiceIsNotEnough) {
  EXPECT_EQ(sizes("abcdabcd"), Sizes{});
  EXPECT_EQ(sizes(""), Sizes{});
}

TEST(Steps, AStepLastsFromTheEndOfTheOneBefore) {
  const std::vector<StepReport> steps = steps_of(sequence("ababab"));
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(steps[0].time, milliseconds{14});
  EXPECT_EQ(steps[1].time, milliseconds{20});
  EXPECT_EQ(steps[1].in_operations, milliseconds{8});
  EXPECT_EQ(steps[1].shares[Cause::recovery], milliseconds{2});
  EXPECT_EQ(steps[1].bytes, 4U * ('a' + 'b'));
  ASSERT_EQ(steps[1].firings.size(), 1U);
  EXPECT_EQ(steps[1].firings[0].frames, 4U);
  EXPECT_EQ(steps[1].firings[0].cost, milliseconds{2});
}

}  // namespace
}  // namespace nbx::nccl
