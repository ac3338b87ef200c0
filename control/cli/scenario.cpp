// `nbx scenario`: what has to hold of a job on a cluster when things go wrong.
#include "scenario/scenario.hpp"

#include <array>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>

#include "cli/command.hpp"
#include "cli/progress.hpp"

namespace nbx::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Input {
  std::vector<std::string> files;
  bool json = false;
  std::string junit;
  std::string report;
  std::string baseline;
};

Result<Json> read_json(const std::string& path) {
  std::ifstream in(path);
  Json doc = Json::parse(in, nullptr, false);
  return doc.is_object() ? Result<Json>(std::move(doc)) : Error{"'" + path + "' is not a report in JSON"};
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
  app.add_option("FILE", input->files, "scenario files")->required();
  app.add_flag("--json", input->json, "print verdicts and reports as JSON");
  app.add_option("--junit", input->junit, "write the verdicts to this file, as JUnit's XML");
  auto* report =
      app.add_option("--report", input->report, "judge this report, of nbxd or nbx sim, instead of simulating");
  app.add_option("--baseline", input->baseline, "with --report: the report of a run without the faults")->needs(report);
  app.footer("Example: nbx scenario profiles/scenarios/*.yaml --junit verdicts.xml");
  return [input] { return run(*input); };
}

}  // namespace nbx::cli
