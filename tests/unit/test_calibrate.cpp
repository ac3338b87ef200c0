// nbx calibrate: what it reads, medians and errors against values worked out by hand, and ranks that end badly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "calibrate/compare.hpp"
#include "calibrate/ranks.hpp"

namespace nbx::calibrate {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

std::string probe_result(const std::string& times) {
  return R"({"results": [{"collective": "all_reduce", "size": 65536, "type": "float", "redop": "sum",
    "out_of_place": {"time": 1, "times": )" +
         times + R"(}, "in_place": {"time": 1}}]})";
}

TEST(Calibrate, ReadsWhatTheProbePrints) {
  const auto times = read_times(probe_result("[1.5, 2]"));
  ASSERT_TRUE(times) << times.error().message;
  EXPECT_EQ(*times, (Times{{{"all_reduce float sum", 65536}, {1.5, 2}}}));
}

TEST(Calibrate, ReadsStepsOfAnyProgram) {
  const auto times = read_times(R"({"times": {"step": [10, 20], "evaluation": [7]}})");
  ASSERT_TRUE(times) << times.error().message;
  EXPECT_EQ(*times, (Times{{{"evaluation", 0}, {7}}, {{"step", 0}, {10, 20}}}));
}

TEST(Calibrate, SaysWhatItCannotRead) {
  EXPECT_THAT(read_times("ssh: no route to host").error().message, HasSubstr("neither a result of nbx-probe"));
  EXPECT_THAT(read_times(R"({"times": [1]})").error().message, HasSubstr("neither a result of nbx-probe"));
  EXPECT_THAT(read_times(probe_result("[]")).error().message, HasSubstr("--each"));
}

TEST(Calibrate, MedianAndQuartilesAreThoseOfTheSortedTimes) {
  // Of 1 to 5 the median is 3, the quartiles are 2 and 4: 2 / 3 of the median apart.
  const Sample odd = summary({5, 1, 4, 2, 3});
  EXPECT_DOUBLE_EQ(odd.median, 3);
  EXPECT_NEAR(odd.spread, 66.667, 0.001);
  EXPECT_EQ(odd.repeats, 5U);
  EXPECT_DOUBLE_EQ(summary({1, 100, 2, 3}).median, 2.5);  // one late call does not matter
}

TEST(Calibrate, ErrorsAreInPercentOfTheRealTime) {
  const Times real{{{"a", 1024}, {100, 100, 100}}, {{"b", 1024}, {50}}};
  const Times ghosts{{{"a", 1024}, {101, 102, 90}}, {{"c", 1024}, {50}}};
  const Comparison comparison = compare(real, ghosts);
  ASSERT_EQ(comparison.rows.size(), 1U);
  EXPECT_NEAR(comparison.rows[0].error(), 1, 1e-9);
  EXPECT_NEAR(comparison.worst_error(), 1, 1e-9);
  EXPECT_THAT(comparison.only_one, ElementsAre(Subject{"b", 1024}, Subject{"c", 1024}));
  EXPECT_TRUE(to_json(comparison, 1.5)["within"]);
  EXPECT_FALSE(to_json(comparison, 0.5)["within"]);
  EXPECT_FALSE(to_json(compare(real, {}), 100)["within"]);  // nothing was compared
}

TEST(Calibrate, AGapIsAConstantAndAPartThatGrows) {
  // Ghosts are early by 30 us and by 4 us per MiB.
  Times real;
  Times ghosts;
  for (const std::uint64_t mib : {1, 4, 16}) {
    const double time = 1000.0 * static_cast<double>(mib);
    real[{"a", mib << 20U}] = {time};
    ghosts[{"a", mib << 20U}] = {time - 30 - 4.0 * static_cast<double>(mib)};
  }
  const auto gap = compare(real, ghosts).gap("a");
  ASSERT_TRUE(gap);
  EXPECT_NEAR(gap->per_call, 30, 1e-6);
  EXPECT_NEAR(gap->per_mib, 4, 1e-6);
  EXPECT_FALSE(compare({{{"a", 1}, {1}}}, {{{"a", 1}, {1}}}).gap("a"));
}

TEST(Calibrate, TheTableNamesSizesAndWhatIsBeyond) {
  std::ostringstream out;
  print(compare({{{"a", 65536}, {100}}, {{"step", 0}, {100}}}, {{{"a", 65536}, {103}}, {{"step", 0}, {100}}}), 2, out);
  EXPECT_THAT(out.str(), HasSubstr("a, 64 KiB"));
  EXPECT_THAT(out.str(), HasSubstr("+3.00 %  beyond"));
  EXPECT_THAT(out.str(), HasSubstr("worst error 3.00 %"));
}

Result<std::string> run(const std::vector<std::string>& commands, seconds limit = seconds{60}) {
  return run_ranks(commands, limit, [](std::chrono::milliseconds) {});
}

TEST(CalibrateRanks, WhatRankZeroPrintsComesBack) {
  const auto output = run({"echo zero", "echo one; echo noise >&2"});
  ASSERT_TRUE(output) << output.error().message;
  EXPECT_EQ(*output, "zero\n");
}

TEST(CalibrateRanks, TheRankThatFailedIsNamedWithItsWordsAndTheOthersEnd) {
  const auto output = run({"sleep 1000", "echo no such link >&2; exit 3"});
  ASSERT_FALSE(output);
  EXPECT_THAT(output.error().message, HasSubstr("rank 1 ended with exit status 3"));
  EXPECT_THAT(output.error().message, HasSubstr("no such link"));
}

TEST(CalibrateRanks, NoRunLastsLongerThanItsLimit) {
  const auto output = run({"echo waiting >&2; sleep 1000"}, seconds{1});
  ASSERT_FALSE(output);
  EXPECT_THAT(output.error().message, HasSubstr("not over after 1 s"));
  EXPECT_THAT(output.error().message, HasSubstr("waiting"));
}

TEST(CalibrateRanks, CommandsNameTheirRank) {
  EXPECT_EQ(filled_in("ssh node{rank} p {rank} {ranks} /tmp/{run}", 2, 4, "x1"), "ssh node2 p 2 4 /tmp/x1");
}

}  // namespace
}  // namespace nbx::calibrate
