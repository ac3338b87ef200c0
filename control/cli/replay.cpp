#include "replay/replay.hpp"

#include <algorithm>
#include <iostream>
#include <memory>

#include "cli/command.hpp"
#include "cli/quantity.hpp"
#include "config/load.hpp"
#include "plan/plan.hpp"

namespace nbx::cli {

namespace {

struct Input {
  std::string cluster;
  std::string port;
  std::string linger = "1s";
  replay::Options options;
};

int run(const Input& input) {
  const config::Loaded loaded = config::load_cluster(input.cluster);
  for (const config::Diagnostic& diagnostic : loaded.diagnostics) {
    std::cerr << diagnostic;
  }
  if (!loaded.ok()) {
    return exit_usage;
  }
  for (const config::Diagnostic& warning : loaded.warnings) {
    std::cerr << warning;
  }
  if (loaded.config.network && loaded.config.ports.size() > 1) {
    std::cerr << "nbx replay: " << input.cluster << " has a network over " << loaded.config.ports.size()
              << " ports; a replay has one\n";
    return exit_usage;
  }
  const std::vector<pipeline::ShardPlan> plans = plan::make_plans(loaded.config);
  const auto named = [&](const pipeline::ShardPlan& p) { return p.port_name == input.port; };
  const auto plan =
      input.port.empty() && plans.size() == 1 ? plans.begin() : std::find_if(plans.begin(), plans.end(), named);
  if (plan == plans.end()) {
    std::cerr << "nbx replay: " << (input.port.empty() ? "--port is needed: " : "no port '" + input.port + "': ")
              << input.cluster << " has";
    for (const pipeline::ShardPlan& p : plans) {
      std::cerr << ' ' << p.port_name;
    }
    std::cerr << '\n';
    return exit_usage;
  }
  const Result<bool> done = replay::replay(*plan, input.options, std::cout);
  if (!done) {
    std::cerr << "nbx replay: " << done.error().message << '\n';
    return exit_failed;
  }
  return 0;
}

}  // namespace

Body replay(CLI::App& app) {
  auto input = std::make_shared<Input>();
  app.add_option("--cluster", input->cluster, "cluster file")->required();
  app.add_option("--port", input->port, "port whose ghosts answer; may be left out when there is one");
  app.add_option("--in", input->options.input, "pcap or pcapng file with the frames that the port receives")
      ->required();
  app.add_option("--out", input->options.output, "pcapng file for the frames that the port sends");
  app.add_flag("--with-input", input->options.with_input, "write the received frames to --out too");
  app.add_option("--linger", input->linger, "virtual time that timers still run after the last frame")
      ->capture_default_str();
  app.add_flag("--json", input->options.json, "print the report as JSON");
  app.footer("Example: nbx replay --cluster cluster.yaml --in node.pcap --out ghosts.pcapng --json");
  return [input] {
    const auto linger = quantity<Duration>("replay", "--linger", input->linger);
    if (!linger) {
      return exit_usage;
    }
    input->options.linger = *linger;
    return run(*input);
  };
}

}  // namespace nbx::cli
