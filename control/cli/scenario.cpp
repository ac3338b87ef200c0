// `nbx scenario`: what has to hold of a job on a cluster when things go wrong.
#include "scenario/scenario.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>

#include "cli/command.hpp"
#include "cli/progress.hpp"
#include "report/to_json.hpp"
#include "scenario/compare.hpp"
#include "scenario/live.hpp"

namespace nbx::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Input {
  std::vector<std::string> files;
  bool json = false;
  std::string junit;
  std::string report;
  std::string baseline;
  bool live = false;
  std::string program;
  std::vector<std::string> compare;
};

Result<Json> read_json(const std::string& path, bool verdicts = false) {
  std::ifstream in(path);
  Json doc = Json::parse(in, nullptr, false);
  return (verdicts ? doc.is_array() : doc.is_object())
             ? Result<Json>(std::move(doc))
             : Error{"'" + path + "' is not " + (verdicts ? "verdicts" : "a report") + " in JSON"};
}

/// nbxd, which is beside this binary.
std::string nbxd() {
  std::error_code error;
  return (std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "nbxd").string();
}

Result<scenario::Verdict> run_live(const std::string& file, const config::LoadedScenario& loaded, const Input& input) {
  scenario::LiveRun live{
      .nbxd = nbxd(), .file = file, .program = input.program, .limit = loaded.scenario.limit, .without_faults = true};
  Result<Json> baseline = Json();
  if (scenario::needs_baseline(loaded)) {
    baseline = scenario::run_live(live);
  }
  live.without_faults = false;
  Result<Json> report = baseline ? scenario::run_live(live) : baseline;
  if (!report) {
    return report.error();
  }
  return scenario::judge(file, loaded, std::move(*report), std::move(*baseline));
}

int compare(const Input& input) {
  const auto a = read_json(input.compare[0], true);
  const auto b = read_json(input.compare[1], true);
  const auto rows = !a ? a : !b ? b : scenario::compare(*a, *b);
  if (!rows) {
    std::cerr << "nbx scenario: " << rows.error().message << '\n';
    return exit_usage;
  }
  if (input.json) {
    std::cout << rows->dump(2) << '\n';
  } else {
    report::print_text(std::cout, {{"a", input.compare[0]}, {"b", input.compare[1]}, {"assertions", *rows}});
  }
  const bool same =
      std::all_of(rows->begin(), rows->end(), [](const Json& row) { return row["a_holds"] == row["b_holds"]; });
  return same ? 0 : exit_failed;
}

/// Of one file; nothing when it is wrong, which has been said.
std::optional<scenario::Verdict> verdict_of(const std::string& file, const Input& input) {
  const config::LoadedScenario loaded = config::load_scenario(file);
  for (const auto* diagnostics : {&loaded.warnings, &loaded.diagnostics}) {
    for (const config::Diagnostic& diagnostic : *diagnostics) {
      std::cerr << diagnostic;
    }
  }
  if (!loaded.ok()) {
    return std::nullopt;
  }
  const auto give_up = [&](const std::string& why) {
    std::cerr << "nbx scenario: " << file << ": " << why << '\n';
    return std::nullopt;
  };
  if (input.live) {
    auto verdict = run_live(file, loaded, input);
    return verdict ? std::optional(std::move(*verdict)) : give_up(verdict.error().message);
  }
  if (input.report.empty()) {
    Progress progress("nbx scenario");
    auto verdict = scenario::run(file, loaded, [&](const std::string& run, double done) {
      std::array<char, 16> text{};
      std::snprintf(text.data(), text.size(), ": %.1f %%", done * 100);
      progress.say(run + text.data());
    });
    return verdict ? std::optional(std::move(*verdict)) : give_up(verdict.error().message);
  }
  auto report = read_json(input.report);
  auto baseline = input.baseline.empty() ? Result<Json>(Json()) : read_json(input.baseline);
  if (!report || !baseline) {
    return give_up((report ? baseline : report).error().message);
  }
  return scenario::judge(file, loaded, std::move(*report), std::move(*baseline));
}

int run(const Input& input) {
  std::vector<scenario::Verdict> verdicts;
  bool sound = true;
  bool holds = true;
  for (const std::string& file : input.files) {
    if (auto verdict = verdict_of(file, input)) {
      holds = holds && verdict->holds();
      verdicts.push_back(std::move(*verdict));
    } else {
      sound = false;
    }
  }
  if (!input.junit.empty()) {
    std::ofstream out(input.junit);
    if (!(out << scenario::junit_xml(verdicts))) {
      std::cerr << "nbx scenario: cannot write '" << input.junit << "'\n";
      return exit_usage;
    }
  }
  Json all = Json::array();
  for (const scenario::Verdict& verdict : verdicts) {
    if (input.json) {
      all.push_back(to_json(verdict));
    } else {
      print_text(std::cout, verdict);
    }
  }
  if (input.json) {
    std::cout << all.dump(2) << '\n';
  }
  return !sound ? exit_usage : holds ? 0 : exit_failed;
}

}  // namespace

Body scenario(CLI::App& app) {
  auto input = std::make_shared<Input>();
  auto* files = app.add_option("FILE", input->files, "scenario files");
  app.add_flag("--json", input->json, "print verdicts and reports as JSON");
  app.add_option("--junit", input->junit, "write the verdicts to this file, as JUnit's XML");
  auto* report =
      app.add_option("--report", input->report, "judge this report, of nbxd or nbx sim, instead of simulating");
  app.add_option("--baseline", input->baseline, "with --report: the report of a run without the faults")->needs(report);
  auto* live = app.add_flag("--live", input->live,
                            "start nbxd with the scenario's cluster, and run PROGRAM in the place of the job");
  live->excludes(report);
  app.add_option("--program", input->program, "what runs on the real nodes: a line for sh")->needs(live);
  app.add_option("--compare", input->compare, "put two outputs of --json beside each other")
      ->expected(2)
      ->excludes(files);
  app.footer(
      "Example: nbx scenario profiles/scenarios/*.yaml --junit verdicts.xml\n"
      "         nbx scenario ping.yaml --live --json --program 'ssh node0 ping -c 9 10.77.0.9' > live.json\n"
      "         nbx scenario --compare simulated.json live.json");
  return [input] {
    if (!input->compare.empty()) {
      return compare(*input);
    }
    if (input->files.empty() || (input->live && input->program.empty())) {
      std::cerr << "nbx scenario: " << (input->files.empty() ? "FILE is required" : "--live needs a --program") << '\n';
      return exit_usage;
    }
    return run(*input);
  };
}

}  // namespace nbx::cli
