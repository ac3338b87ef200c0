// Scenarios: assertions as text and against reports, changes of files by their ways, verdicts, and what they are
// printed as.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "config/change.hpp"
#include "scenario/measure.hpp"
#include "scenario/scenario.hpp"
#include "scenario/search.hpp"

namespace nbx::scenario {
namespace {

using config::Assertion;
using config::Diagnostics;
using Json = nlohmann::ordered_json;

std::optional<Assertion> parse(const std::string& text, Diagnostics& out) {
  return config::parse_assertion({text, {std::make_shared<const std::string>("s.yaml"), 7, 5}}, out);
}
Assertion assertion(const std::string& text) {
  Diagnostics out;
  auto parsed = parse(text, out);
  EXPECT_TRUE(parsed) << text << ": " << (out.empty() ? "" : out.front().message);
  return parsed.value_or(Assertion{});
}

TEST(Assertions, LimitsAreInTheUnitOfTheMetric) {
  EXPECT_EQ(assertion("jct_ratio <= 1.05").limit, 1.05);
  EXPECT_EQ(assertion("recovery<2s").limit, 2);
  EXPECT_DOUBLE_EQ(assertion("fct_p99 < 250us").limit, 250e-6);
  EXPECT_EQ(assertion("queue_peak <= 1MiB ").limit, 1048576);
  EXPECT_EQ(assertion("busbw >= 90Gb/s").limit, 90e9);
  EXPECT_DOUBLE_EQ(assertion("mark_share < 0.5%").limit, 0.005);
  EXPECT_EQ(assertion("cnp_rate > 0").limit, 0);
}

TEST(Assertions, NoneIsACountOfZeroInWords) {
  for (const char* text : {"no qp error", "no qp errors", "no qp_errors", "qp_errors == 0"}) {
    const Assertion none = assertion(text);
    EXPECT_EQ(none.metric, config::Metric::qp_errors) << text;
    EXPECT_TRUE(none.holds(0)) << text;
    EXPECT_FALSE(none.holds(1)) << text;
  }
  EXPECT_EQ(assertion("no counter.loss").counter, "loss");
}

TEST(Assertions, ComparisonsHoldAtTheirLimits) {
  const auto holds = [](const std::string& sign) {
    const Assertion compared = assertion("marks " + sign + " 5");
    return std::array{compared.holds(4), compared.holds(5), compared.holds(6)};
  };
  EXPECT_EQ(holds("<"), (std::array{true, false, false}));
  EXPECT_EQ(holds("<="), (std::array{true, true, false}));
  EXPECT_EQ(holds("=="), (std::array{false, true, false}));
  EXPECT_EQ(holds(">="), (std::array{false, true, true}));
  EXPECT_EQ(holds(">"), (std::array{false, false, true}));
}

TEST(Assertions, AMistakeIsNamedAtItsColumn) {
  const auto complaint = [](const std::string& text) {
    Diagnostics out;
    EXPECT_FALSE(parse(text, out)) << text;
    return out.size() == 1 ? std::to_string(out[0].pos.column) + ": " + out[0].message : std::string("none or many");
  };
  EXPECT_EQ(complaint("jct_ration <= 1"), "5: there is no metric 'jct_ration'; did you mean 'jct_ratio'?");
  EXPECT_EQ(complaint("recovery < 2"), "16: '2' has no unit; did you mean 2ms?");
  EXPECT_EQ(complaint("no queue peak"), "8: 'queue_peak' is not a count: compare it with a limit");
  EXPECT_EQ(complaint("marks = 5"), "11: one of '<', '<=', '==', '>=', '>' and a limit follow a metric");
  EXPECT_EQ(complaint("marks > -1"), "13: '-1' is not a number from 0");
  EXPECT_EQ(complaint("marks > 1 2"), "13: '1 2' is not a number from 0");
  EXPECT_EQ(complaint("no marks > 1"), "14: 'no' is followed by the name of something counted, and nothing else");
  EXPECT_EQ(complaint("counter.los > 0"), "5: there is no counter 'los'; did you mean 'loss'?");
  EXPECT_EQ(complaint("<= 5"), "5: an assertion begins with a metric, or with 'no': 'jct_ratio <= 1.05'");
}

/// As `nbx sim --json` has it, in the parts that are asked for.
Json simulated(double jct_us, double loss) {
  Json report = Json::parse(R"({
    "each_step": [{"start_us": 0, "us": 100, "parts": {"waiting_us": 30}},
                  {"start_us": 100, "us": 300, "parts": {"waiting_us": 12}},
                  {"start_us": 400, "us": 100, "parts": {"waiting_us": 0}}],
    "ghosts": {"counters": {"rp_cnp_handled": 3}, "drops": {"duplicate_request": 7}},
    "node": {"counters": {"rp_cnp_handled": 2}, "drops": {"network_red": 1}}})");
  report["virtual_time_us"] = jct_us;
  report["steps"]["median_us"] = jct_us / 4;
  report["ghosts"]["drops"]["loss"] = loss;
  return report;
}

double measured(const std::string& text, const Reports& reports) {
  const std::optional<double> value = measure(assertion(text), reports);
  EXPECT_TRUE(value) << text;
  return value.value_or(-1);
}

TEST(Measures, OfASimulation) {
  const Reports reports{simulated(500, 4), simulated(400, 0), std::chrono::microseconds{150}};
  EXPECT_DOUBLE_EQ(measured("jct < 1s", reports), 500e-6);
  EXPECT_DOUBLE_EQ(measured("jct_ratio < 2", reports), 1.25);
  EXPECT_DOUBLE_EQ(measured("waiting < 1s", reports), 42e-6);
  EXPECT_EQ(measured("no drops", reports), 5) << "a duplicate is not a drop of the network";
  EXPECT_EQ(measured("cnps > 0", reports), 5);
  EXPECT_DOUBLE_EQ(measured("cnp_rate > 0", reports), 5 / 500e-6);
  EXPECT_EQ(measured("counter.duplicate_request > 0", reports), 7);
  // The baseline's step takes 100 us, and the one of 300 us ends 250 us behind the failure.
  EXPECT_DOUBLE_EQ(measured("recovery < 1s", reports), 250e-6);
  EXPECT_FALSE(measure(assertion("xoffs > 0"), reports)) << "there is no network";
  EXPECT_FALSE(measure(assertion("jct_ratio < 2"), {reports.run, {}, {}}));
}

TEST(Measures, OfALiveRun) {
  const Json live = Json::parse(R"({
    "ports": [], "duration_s": 2,
    "counters": {"p0": {"qp_errors": 1, "rp_cnp_handled": 4}, "p1": {"rp_cnp_handled": 6}},
    "drops": {"p0": {"loss": 2}, "p1": {}},
    "nccl": {"steps": [{"time_ms": 3}, {"time_ms": 1}, {"time_ms": 2}]}})");
  const Reports reports{live, {}, {}};
  EXPECT_EQ(measured("no qp errors", reports), 1);
  EXPECT_EQ(measured("cnp_rate > 0", reports), 5);
  EXPECT_EQ(measured("no drops", reports), 2);
  EXPECT_DOUBLE_EQ(measured("step_time < 1s", reports), 0.002);
  EXPECT_DOUBLE_EQ(measured("step_time_max < 1s", reports), 0.003);
  EXPECT_FALSE(measure(assertion("fct_p99 < 1s"), reports));
}

TEST(Measures, AJobWithoutAnEndIsAnErrorAndNothingElse) {
  const Reports reports{Json::parse(R"({"failure": "retry_exc_err"})"), {}, {}};
  EXPECT_EQ(measured("no qp errors", reports), 1);
  for (const char* text : {"jct < 1s", "no drops", "cnp_rate >= 0", "counter.loss >= 0", "queueing < 1s"}) {
    EXPECT_FALSE(measure(assertion(text), reports)) << text;
  }
}

config::Value tree(const std::string& text) {
  Diagnostics out;
  return *config::parse_document("c.yaml", text, out);
}

TEST(Changes, GoTheWayOfKeysNumbersAndNames) {
  config::Value root = tree("ports: [{name: p0}, {name: p1, mtu: 1500}]\nnetwork: {host_rate: 1Gb/s}\nseed: 1\n");
  const config::Value value = tree("7");
  Diagnostics out;
  for (const char* way : {"ports.p1.mtu", "ports.0.core", "network.storm.start", "seed"}) {
    EXPECT_TRUE(config::change(root, {way, value.pos}, 0, value, out)) << way;
  }
  EXPECT_EQ(root.find("ports")->value.items[1].find("mtu")->value.text, "7");
  EXPECT_EQ(root.find("ports")->value.items[0].find("core")->value.text, "7");
  EXPECT_EQ(root.find("network")->value.find("storm")->value.find("start")->value.text, "7");
  EXPECT_EQ(root.find("seed")->value.text, "7");
  for (const char* way : {"ports.p2.mtu", "ports.2.mtu", "seed.x"}) {
    EXPECT_FALSE(config::change(root, {way, value.pos}, 0, value, out)) << way;
  }
  ASSERT_EQ(out.size(), 3U);
  EXPECT_EQ(out[0].pos.column, value.pos.column + 6);
}

TEST(Ranges, KeepTheDecimalsInWhichTheyAreWritten) {
  const auto range = parse_range("profile.both.loss=0%..2.50%");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->path, "profile.both.loss");
  EXPECT_EQ(range->text(range->good), "0.00%");
  EXPECT_EQ(range->text(range->bad), "2.50%");
  EXPECT_EQ(range->text(7), "0.07%");
  EXPECT_EQ(parse_range("cluster.network.host_rate=100Gb/s..25Gb/s")->text(30), "30Gb/s");
  for (const char* wrong : {"a", "a=1", "a=1ms..2us", "a=x..2", "a=1.2.3..4"}) {
    EXPECT_FALSE(parse_range(wrong)) << wrong;
  }
}

TEST(WorstCase, IsTheFirstValueThatRaisesEnough) {
  // Doubles from 37 on, and fails from 80 on.
  const auto step_time = [](const std::string& value) -> Result<std::optional<double>> {
    const int x = std::stoi(value);
    return x >= 80 ? std::optional<double>() : std::optional(x >= 37 ? 2.0 : 1.0);
  };
  const auto up = smallest_that_raises(*parse_range("x=0us..100us"), 0.1, step_time);
  ASSERT_TRUE(up);
  EXPECT_EQ(up->value, "37us");
  EXPECT_LE(up->tried.size(), 2U + 7U);
  const auto to_the_end = smallest_that_raises(*parse_range("x=0us..100us"), 1.5, step_time);
  ASSERT_TRUE(to_the_end);
  EXPECT_EQ(to_the_end->value, "80us") << "a job without an end is slower than any";
  const auto down = smallest_that_raises(*parse_range("x=36us..1us"), 0.1, step_time);
  ASSERT_TRUE(down);
  EXPECT_FALSE(down->value);
  EXPECT_FALSE(smallest_that_raises(*parse_range("x=90us..100us"), 0.1, step_time));
}

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "nbx-scenario-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    write(
        "cluster.yaml",
        "cluster: rack\nports: [{name: p0, profile: ideal}]\nghosts: [{name: g, count: 3, addresses: [10.77.0.9/16]}]\n"
        "network: {topology: rack}\n");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  Verdict verdict(const std::string& text) {
    const std::string file = write("scenario.yaml", text);
    const config::LoadedScenario loaded = config::load_scenario(file);
    EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.diagnostics.front().message);
    auto verdict = run(file, loaded, [](const std::string&, double) {});
    EXPECT_TRUE(verdict);
    return verdict ? *verdict : Verdict{};
  }
  static constexpr const char* head =
      "scenario: s\ncluster: cluster.yaml\njob: {job: j, steps: 4, each_step: [{all_reduce: 1MiB}]}\n";

 private:
  std::filesystem::path folder_;
};

TEST_F(Files, TheFaultsAreNotInTheBaseline) {
  const Verdict slow = verdict(std::string(head) +
                               "changes: {job.steps: 2}\nfaults: {cluster.network.host_rate: 50Gb/s}\n"
                               "assert: [jct_ratio > 1.8, jct_ratio < 2.1, no drops]\n");
  EXPECT_TRUE(slow.holds());
  EXPECT_EQ(slow.report["steps"]["count"], 2);
  EXPECT_EQ(slow.baseline["steps"]["count"], 2);
}

TEST_F(Files, TheSameFileGivesTheSameVerdict) {
  const std::string text =
      std::string(head) + "faults: {profile.both.loss: 1%}\nassert: [retransmissions > 0, jct_ratio > 1]\n";
  const Verdict first = verdict(text);
  EXPECT_TRUE(first.holds()) << to_json(first)["assertions"];
  EXPECT_EQ(to_json(first).dump(), to_json(verdict(text)).dump());
}

TEST_F(Files, AJobThatFailsFailsItsAssertions) {
  const Verdict lost =
      verdict(std::string(head) + "faults: {profile.both.loss: 100%}\nassert: [no qp error, jct < 1s]\n");
  EXPECT_FALSE(lost.checks[0].holds);
  EXPECT_FALSE(lost.checks[1].holds);
  const std::string xml = junit_xml({lost});
  EXPECT_NE(xml.find("tests=\"2\" failures=\"2\""), std::string::npos) << xml;
  EXPECT_NE(xml.find("name=\"jct &lt; 1s\""), std::string::npos) << xml;
  EXPECT_NE(xml.find("retry_exc_err"), std::string::npos) << xml;
}

}  // namespace
}  // namespace nbx::scenario
