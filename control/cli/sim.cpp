#include <sys/resource.h>

#include <array>
#include <cstdio>
#include <iostream>
#include <memory>

#include "cli/command.hpp"
#include "cli/progress.hpp"
#include "cli/quantity.hpp"
#include "config/load.hpp"
#include "report/to_json.hpp"
#include "sim/simulation.hpp"

namespace nbx::cli {
namespace {

struct Input {
  std::string cluster;
  std::string job;
  std::string limit = "1440min";
  bool json = false;
  sim::Options options;
};

int run(const Input& input) {
  const config::Loaded cluster = config::load_cluster(input.cluster);
  const config::LoadedJob job = config::load_job(input.job, cluster.ok() ? sim::ranks_of(cluster.config) : 0);
  for (const auto* diagnostics : {&cluster.diagnostics, &job.diagnostics}) {
    for (const config::Diagnostic& diagnostic : *diagnostics) {
      std::cerr << diagnostic;
    }
  }
  if (!cluster.ok() || !job.ok()) {
    return exit_usage;
  }
  Progress progress("nbx sim");
  const auto outcome = sim::simulate(cluster.config, job.job, input.options, [&](double done, Instant now) {
    std::array<char, 80> text{};
    std::snprintf(text.data(), text.size(), "%.1f %% of the job, %.3f ms of virtual time", done * 100,
                  static_cast<double>(now.ps) * 1e-9);
    progress.say(text.data());
  });
  if (!outcome) {
    std::cerr << "nbx sim: " << outcome.error().message << '\n';
    return exit_failed;
  }
  if (input.json) {
    std::cout << outcome->report.dump(2) << '\n';
  } else {
    report::print_text(std::cout, outcome->report);
  }
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  std::fprintf(stderr, "%.0f packets in %.3f s: %.2f million a second; %.0f MiB of memory, %zu queue pairs\n",
               static_cast<double>(outcome->packets), outcome->wall_s,
               static_cast<double>(outcome->packets) / outcome->wall_s * 1e-6,
               static_cast<double>(used.ru_maxrss) / 1024, outcome->queue_pairs);
  return 0;
}

}  // namespace

Body sim(CLI::App& app) {
  auto input = std::make_shared<Input>();
  app.add_option("CLUSTER", input->cluster, "cluster file")->required();
  app.add_option("--job", input->job, "job file: what the ranks compute and send")->required();
  app.add_option("--limit", input->limit, "virtual time after which the job is called stuck")->capture_default_str();
  app.add_flag("--json", input->json, "print the report as JSON, each step included");
  app.footer("Example: nbx sim cluster.yaml --job profiles/jobs/ring-64MiB.yaml");
  return [input] {
    const auto limit = quantity<Duration>("sim", "--limit", input->limit);
    if (!limit) {
      return exit_usage;
    }
    input->options.limit = *limit;
    input->options.details = input->json;
    return run(*input);
  };
}

}  // namespace nbx::cli
