#include <sys/resource.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>

#include "cli/command.hpp"
#include "cli/progress.hpp"
#include "cli/quantity.hpp"
#include "config/load.hpp"
#include "report/to_json.hpp"
#include "sim/exports.hpp"
#include "sim/program.hpp"
#include "sim/simulation.hpp"

namespace nbx::cli {
namespace {

struct Input {
  std::string cluster;
  std::string job;
  std::string limit = "1440min";
  bool json = false;
  std::string flows;
  std::string otg;
  std::vector<std::string> pcaps;
  sim::Options options;
};

/// False, and it has been said, when the file cannot be written.
bool written(std::ofstream& out, const std::string& file) {
  out.close();
  if (out) {
    return true;
  }
  std::cerr << "nbx sim: cannot write '" << file << "'\n";
  return false;
}

int run(const Input& input) {
  const config::Loaded cluster = config::load_cluster(input.cluster);
  const config::LoadedJob job = config::load_job(input.job, cluster.ok() ? config::ranks_of(cluster.config) : 0);
  for (const auto* diagnostics : {&cluster.diagnostics, &job.diagnostics}) {
    for (const config::Diagnostic& diagnostic : *diagnostics) {
      std::cerr << diagnostic;
    }
  }
  if (!cluster.ok() || !job.ok()) {
    return exit_usage;
  }
  sim::Options options = input.options;
  std::ofstream flows;
  if (!input.flows.empty()) {
    flows.open(input.flows);
    sim::write_flow_header(flows);
    options.on_message = [&](const sim::Message& message) {
      sim::write_flow(flows, message, sim::name_of(*job.job.each_step[message.operation]));
    };
  }
  Progress progress("nbx sim");
  const auto outcome = sim::simulate(cluster.config, job.job, options, [&](double done, Instant now) {
    std::array<char, 80> text{};
    std::snprintf(text.data(), text.size(), "%.1f %% of the job, %.3f ms of virtual time", done * 100,
                  static_cast<double>(now.ps) * 1e-9);
    progress.say(text.data());
  });
  if (!outcome) {
    std::cerr << "nbx sim: " << outcome.error().message << '\n';
    return exit_failed;
  }
  if (!input.flows.empty() && !written(flows, input.flows)) {
    return exit_usage;
  }
  if (!input.otg.empty()) {
    std::ofstream out(input.otg);
    out << outcome->otg.dump(2) << '\n';
    if (!written(out, input.otg)) {
      return exit_usage;
    }
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
  app.add_option("--flows", input->flows, "write every message to this file, as CSV");
  app.add_option("--otg", input->otg, "write every connection to this file, as Open Traffic Generator's metrics");
  app.add_option("--pcap", input->pcaps,
                 "PORT=FILE: write the frames of a port as pcapng: of the cluster's port, the real node or a ghost");
  app.footer(
      "Example: nbx sim cluster.yaml --job profiles/jobs/ring-64MiB.yaml --flows flows.csv --pcap g[0]=ghost.pcapng");
  return [input] {
    const auto limit = quantity<Duration>("sim", "--limit", input->limit);
    if (!limit) {
      return exit_usage;
    }
    input->options.limit = *limit;
    input->options.details = input->json;
    input->options.otg = !input->otg.empty();
    for (const std::string& pcap : input->pcaps) {
      const std::size_t equals = pcap.find('=');
      if (equals == 0 || equals == std::string::npos || equals + 1 == pcap.size()) {
        std::cerr << "nbx sim: --pcap: '" << pcap << "' is not PORT=FILE\n";
        return exit_usage;
      }
      input->options.pcaps.push_back({pcap.substr(0, equals), pcap.substr(equals + 1)});
    }
    return run(*input);
  };
}

}  // namespace nbx::cli
