// `nbx scenario`: runs scenarios in virtual time, or judges reports of live runs by them, and says what held.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "config/scenario.hpp"

namespace nbx::scenario {

struct Check {
  config::Assertion assertion;
  std::optional<double> measured;  // nothing: the report does not say it, and it did not hold
  bool holds = false;
};

struct Verdict {
  std::string file;
  std::string name;
  std::vector<Check> checks;
  nlohmann::ordered_json report;    // with `failure` alone when the job came to no end
  nlohmann::ordered_json baseline;  // null: not needed

  [[nodiscard]] bool holds() const;
};

/// Told now and then: which run, and how far it is.
using Progress = std::function<void(const std::string& run, double done)>;

/// Whether an assertion compares with the run without faults.
[[nodiscard]] bool needs_baseline(const config::LoadedScenario& loaded);

/// In virtual time. The error is that of a cluster that cannot be simulated.
[[nodiscard]] Result<Verdict> run(const std::string& file, const config::LoadedScenario& loaded,
                                  const Progress& progress);
/// Judges what happened elsewhere: reports of nbxd or `nbx sim`.
[[nodiscard]] Verdict judge(const std::string& file, const config::LoadedScenario& loaded,
                            nlohmann::ordered_json report, nlohmann::ordered_json baseline);

[[nodiscard]] nlohmann::ordered_json to_json(const Verdict& verdict);
/// A line per assertion.
void print_text(std::ostream& out, const Verdict& verdict);
/// In the form that test servers read (JUnit's): a suite per scenario, a case per assertion.
[[nodiscard]] std::string junit_xml(const std::vector<Verdict>& verdicts);

}  // namespace nbx::scenario
