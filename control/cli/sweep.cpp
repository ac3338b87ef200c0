// `nbx sweep` and `nbx worst`: a scenario with other values, one after the other, or looking for the one that hurts.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>

#include "cli/command.hpp"
#include "cli/progress.hpp"
#include "report/to_json.hpp"
#include "scenario/scenario.hpp"
#include "scenario/search.hpp"
#include "sim/simulation.hpp"

namespace nbx::cli {
namespace {

using Json = nlohmann::ordered_json;
using Values = std::vector<std::pair<std::string, std::string>>;  // way, value

/// "a,b,{c: 1, d: 2}": commas within brackets do not separate.
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
    if (c == ',' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

/// The scenario with these values as further faults; nothing when that is wrong, which has been said.
std::optional<config::LoadedScenario> load(const std::string& file, const Values& values) {
  config::Diagnostics problems;
  const config::Changes changes = config::parse_changes("command line", values, problems);
  config::LoadedScenario loaded = config::load_scenario(file, changes);
  problems.insert(problems.end(), loaded.diagnostics.begin(), loaded.diagnostics.end());
  for (const config::Diagnostic& problem : problems) {
    std::cerr << problem;
  }
  return problems.empty() ? std::optional(std::move(loaded)) : std::nullopt;
}

struct SweepInput {
  std::string file;
  std::vector<std::string> ways;
  bool json = false;
  std::string csv;
};

struct Point {
  Values values;
  scenario::Verdict verdict;
};

/// Every combination, the last way fastest.
Result<std::vector<Values>> combinations(const std::vector<std::string>& ways) {
  std::vector<Values> all(1);
  for (const std::string& way : ways) {
    const std::size_t equals = way.find('=');
    if (equals == std::string::npos) {
      return Error{"'" + way + "' is not PATH=VALUE,VALUE..."};
    }
    std::vector<Values> more;
    for (const Values& before : all) {
      for (const std::string& value : split(way.substr(equals + 1))) {
        more.push_back(before);
        more.back().emplace_back(way.substr(0, equals), value);
      }
    }
    all = std::move(more);
  }
  return all;
}

Json row_of(const Point& point) {
  Json row;
  for (const auto& [way, value] : point.values) {
    row[way] = value;
  }
  row["holds"] = point.verdict.holds();
  return row;
}

Json point_json(const Point& point) {
  Json row = row_of(point);
  row["assertions"] = scenario::to_json(point.verdict)["assertions"];
  return row;
}

void print_table(const std::vector<Point>& points) {
  Json rows = Json::array();
  for (const Point& point : points) {
    Json row = row_of(point);
    for (const scenario::Check& check : point.verdict.checks) {
      row[check.assertion.text] = (check.measured ? format(*check.measured, check.assertion.unit()) : "not known") +
                                  std::string(check.holds ? "" : " (no)");
    }
    rows.push_back(std::move(row));
  }
  report::print_text(std::cout, {{"sweep", std::move(rows)}});
}

std::string quoted(std::string text) {
  for (std::size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2) {
    text.insert(at, 1, '"');
  }
  return '"' + text + '"';
}

/// RFC 4180: a column per way and per assertion, in plain units.
void write_csv(std::ostream& out, const std::vector<Point>& points) {
  for (const auto& [way, value] : points.front().values) {
    out << quoted(way) << ',';
  }
  for (const scenario::Check& check : points.front().verdict.checks) {
    out << quoted(check.assertion.text) << ',';
  }
  out << "holds\r\n";
  for (const Point& point : points) {
    for (const auto& [way, value] : point.values) {
      out << quoted(value) << ',';
    }
    for (const scenario::Check& check : point.verdict.checks) {
      out << (check.measured ? Json(*check.measured).dump() : std::string()) << ',';
    }
    out << (point.verdict.holds() ? "true" : "false") << "\r\n";
  }
}

int run_sweep(const SweepInput& input) {
  const auto all = combinations(input.ways);
  if (!all) {
    std::cerr << "nbx sweep: " << all.error().message << '\n';
    return exit_usage;
  }
  Progress progress("nbx sweep");
  std::vector<Point> points;
  for (const Values& values : *all) {
    const auto loaded = load(input.file, values);
    if (!loaded) {
      return exit_usage;
    }
    auto verdict = scenario::run(input.file, *loaded, [&](const std::string& run, double) {
      progress.say(std::to_string(points.size() + 1) + " of " + std::to_string(all->size()) + ": " + run);
    });
    if (!verdict) {
      std::cerr << "nbx sweep: " << verdict.error().message << '\n';
      return exit_usage;
    }
    points.push_back({values, std::move(*verdict)});
  }
  if (!input.csv.empty()) {
    std::ofstream out(input.csv, std::ios::binary);
    write_csv(out, points);
    if (!out.flush()) {
      std::cerr << "nbx sweep: cannot write '" << input.csv << "'\n";
      return exit_usage;
    }
  }
  if (input.json) {
    Json rows = Json::array();
    std::transform(points.begin(), points.end(), std::back_inserter(rows), point_json);
    std::cout << Json{{"scenario", points.front().verdict.name}, {"sweep", std::move(rows)}}.dump(2) << '\n';
  } else {
    print_table(points);
  }
  return 0;
}

struct WorstInput {
  std::string file;
  std::string way;
  std::string raises = "10%";
  bool json = false;
};

/// The median step with that value, in seconds.
Result<std::optional<double>> step_time(const WorstInput& input, const std::string& way, const std::string& value,
                                        Progress& progress) {
  const auto loaded = load(input.file, {{way, value}});
  if (!loaded) {
    return Error{"the scenario does not take " + way + " = " + value};
  }
  if (auto error = sim::unfit(loaded->cluster)) {
    return *error;
  }
  const auto outcome = sim::simulate(loaded->cluster, loaded->job, {.limit = loaded->scenario.limit},
                                     [&](double, Instant) { progress.say(way + " = " + value); });
  return outcome ? std::optional(outcome->report["steps"]["median_us"].get<double>() * 1e-6) : std::nullopt;
}

void print_found(const scenario::Range& range, const std::string& raises, const scenario::Found& found) {
  Json rows = Json::array();
  for (const scenario::Tried& tried : found.tried) {
    rows.push_back({{range.path, tried.value},
                    {"step_time", tried.step_time ? config::format(*tried.step_time, config::Unit::time) : "no end"},
                    {"raised", tried.raised}});
  }
  report::print_text(std::cout, {{"tried", std::move(rows)}});
  if (found.value) {
    std::cout << range.path << " = " << *found.value << " is the smallest that raises the step time by " << raises
              << '\n';
  } else {
    std::cout << range.path << " = " << range.text(range.bad) << " does not raise the step time by " << raises << '\n';
  }
}

Json found_json(const scenario::Range& range, const scenario::Found& found) {
  Json rows = Json::array();
  for (const scenario::Tried& tried : found.tried) {
    rows.push_back({{"value", tried.value},
                    {"step_time_s", tried.step_time ? Json(*tried.step_time) : Json()},
                    {"raised", tried.raised}});
  }
  return {{"path", range.path}, {"value", found.value ? Json(*found.value) : Json()}, {"tried", std::move(rows)}};
}

int run_worst(const WorstInput& input) {
  const auto range = scenario::parse_range(input.way);
  const auto raise = config::Scalar<config::Probability>::parse({input.raises});
  if (!range || !raise || raise->value <= 0) {
    std::cerr << "nbx worst: " << (!range ? range.error().message : "--raises: more than 0 % and at most 100 %")
              << '\n';
    return exit_usage;
  }
  Progress progress("nbx worst");
  const auto found = scenario::smallest_that_raises(
      *range, raise->value, [&](const std::string& value) { return step_time(input, range->path, value, progress); });
  if (!found) {
    std::cerr << "nbx worst: " << found.error().message << '\n';
    return exit_usage;
  }
  if (input.json) {
    std::cout << found_json(*range, *found).dump(2) << '\n';
  } else {
    print_found(*range, input.raises, *found);
  }
  return found->value ? 0 : exit_failed;
}

}  // namespace

Body sweep(CLI::App& app) {
  auto input = std::make_shared<SweepInput>();
  app.add_option("FILE", input->file, "scenario file")->required();
  app.add_option("VALUES", input->ways,
                 "PATH=VALUE,VALUE...: ways to values, as in the file's faults; all combinations")
      ->required();
  app.add_flag("--json", input->json, "print the table as JSON");
  app.add_option("--csv", input->csv, "write it to this file, in seconds, bytes and bits a second");
  app.footer("Example: nbx sweep profiles/scenarios/incast-8.yaml job.each_step.0.incast=1MiB,4MiB,16MiB");
  return [input] { return run_sweep(*input); };
}

Body worst(CLI::App& app) {
  auto input = std::make_shared<WorstInput>();
  app.add_option("FILE", input->file, "scenario file")->required();
  app.add_option("RANGE", input->way, "PATH=GOOD..BAD: two numbers with one unit; their decimals are the precision")
      ->required();
  app.add_option("--raises", input->raises, "by how much the median step has to take longer")->capture_default_str();
  app.add_flag("--json", input->json, "print what was tried and found as JSON");
  app.footer("Example: nbx worst profiles/scenarios/synthetic-jct.yaml profile.both.loss=0.00%..2.00% --raises 10%");
  return [input] { return run_worst(*input); };
}

}  // namespace nbx::cli
