#include "scenario/scenario.hpp"

#include <algorithm>
#include <iomanip>
#include <ostream>

#include "report/to_json.hpp"
#include "scenario/measure.hpp"
#include "sim/simulation.hpp"

namespace nbx::scenario {
namespace {

using Json = nlohmann::ordered_json;

/// Of profiles, and the storm.
std::optional<Duration> first_failure(const config::ClusterConfig& cluster) {
  std::optional<Duration> first;
  if (cluster.network && cluster.network->storm) {
    first = (*cluster.network->storm)->start;
  }
  for (const config::Port& port : cluster.ports) {
    for (const config::Failure& failure : port.profile.failures.value_or(std::vector<config::Failure>{})) {
      first = std::min(first.value_or(failure.at), failure.at);
    }
  }
  return first;
}

std::string measured_text(const Check& check) {
  return check.measured ? format(*check.measured, check.assertion.unit()) : std::string("not known");
}

Json simulate(const config::ClusterConfig& cluster, const config::Job& job, Duration limit, const std::string& name,
              const Progress& progress) {
  auto outcome = sim::simulate(cluster, job, {.limit = limit, .details = true},
                               [&](double done, Instant) { progress(name, done); });
  return outcome ? std::move(outcome->report) : Json{{"failure", outcome.error().message}};
}

}  // namespace

bool Verdict::holds() const {
  return std::all_of(checks.begin(), checks.end(), [](const Check& check) { return check.holds; });
}

Verdict judge(const std::string& file, const config::LoadedScenario& loaded, Json report, Json baseline) {
  const Reports reports{std::move(report), std::move(baseline), first_failure(loaded.cluster)};
  Verdict verdict{.file = file, .name = loaded.scenario.name, .checks = {}, .report = {}, .baseline = {}};
  for (const config::Assertion& assertion : loaded.scenario.assertions) {
    const std::optional<double> measured = measure(assertion, reports);
    verdict.checks.push_back({assertion, measured, measured && assertion.holds(*measured)});
  }
  verdict.report = reports.run;
  verdict.baseline = reports.baseline;
  return verdict;
}

bool needs_baseline(const config::LoadedScenario& loaded) {
  return std::any_of(loaded.scenario.assertions.begin(), loaded.scenario.assertions.end(),
                     [](const config::Assertion& assertion) { return needs_baseline(assertion.metric); });
}

Result<Verdict> run(const std::string& file, const config::LoadedScenario& loaded, const Progress& progress) {
  if (auto error = sim::unfit(loaded.cluster)) {
    return *error;
  }
  Json baseline;
  if (needs_baseline(loaded)) {
    baseline = simulate(loaded.baseline_cluster, loaded.baseline_job, loaded.scenario.limit,
                        loaded.scenario.name + ", without the faults", progress);
  }
  Json report = simulate(loaded.cluster, loaded.job, loaded.scenario.limit, loaded.scenario.name, progress);
  return judge(file, loaded, std::move(report), std::move(baseline));
}

Json to_json(const Verdict& verdict) {
  Json doc{{"scenario", verdict.name}, {"file", verdict.file}, {"holds", verdict.holds()}};
  doc["assertions"] = Json::array();
  for (const Check& check : verdict.checks) {
    Json row{{"assertion", check.assertion.text}, {"holds", check.holds}};
    row["measured"] = check.measured ? Json(*check.measured) : Json();
    row["measured_text"] = measured_text(check);
    row["line"] = check.assertion.pos.line;
    doc["assertions"].push_back(std::move(row));
  }
  doc["report"] = verdict.report;
  if (!verdict.baseline.is_null()) {
    doc["baseline"] = verdict.baseline;
  }
  return doc;
}

void print_text(std::ostream& out, const Verdict& verdict) {
  out << verdict.name << " (" << verdict.file << "): " << (verdict.holds() ? "holds" : "DOES NOT HOLD") << '\n';
  std::size_t width = 0;
  for (const Check& check : verdict.checks) {
    width = std::max(width, check.assertion.text.size());
  }
  for (const Check& check : verdict.checks) {
    out << "  " << (check.holds ? "yes" : "NO ") << "  " << std::left << std::setw(static_cast<int>(width))
        << check.assertion.text << "  " << measured_text(check) << '\n';
  }
  for (const auto* report : {&verdict.report, &verdict.baseline}) {
    if (report->contains("failure")) {
      out << (report == &verdict.report ? "  the job" : "  the job without the faults")
          << " did not end: " << (*report)["failure"].get<std::string>() << '\n';
    }
  }
}

}  // namespace nbx::scenario
