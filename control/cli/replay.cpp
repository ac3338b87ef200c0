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
  std::vector<std::string> inputs;
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
  std::vector<pipeline::ShardPlan> plans = plan::make_plans(loaded.config);
  const auto names_port = [&](const std::string& name) {
    return std::any_of(plans.begin(), plans.end(), [&](const auto& plan) { return plan.port_name == name; });
  };
  replay::Options options = input.options;
  for (const std::string& text : input.inputs) {
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos && names_port(text.substr(0, equals))) {
      options.inputs.push_back({text.substr(equals + 1), text.substr(0, equals)});
    } else {
      options.inputs.push_back({text, input.port});
    }
  }
  if (!input.port.empty()) {
    if (!names_port(input.port)) {
      std::cerr << "nbx replay: no port '" << input.port << "': " << input.cluster << " has";
      for (const pipeline::ShardPlan& plan : plans) {
        std::cerr << ' ' << plan.port_name;
      }
      std::cerr << '\n';
      return exit_usage;
    }
    if (loaded.config.network && plans.size() > 1) {
      std::cerr << "nbx replay: the network of " << input.cluster << " spans all " << plans.size()
                << " ports; --in PORT=FILE names a capture of each, in place of --port\n";
      return exit_usage;
    }
    std::erase_if(plans, [&](const pipeline::ShardPlan& plan) { return plan.port_name != input.port; });
  }
  const Result<bool> done = replay::replay(plans, options, std::cout);
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
  app.add_option("--port", input->port, "only this port; else all ports of the cluster");
  app.add_option("--in", input->inputs,
                 "pcap or pcapng file with the frames that the port receives; of several ports PORT=FILE for each, or "
                 "one pcapng whose interfaces are called as the ports")
      ->required();
  app.add_option("--out", input->options.output,
                 "pcapng file for the frames that the ports send, an interface for each");
  app.add_flag("--with-input", input->options.with_input, "write the received frames to --out too");
  app.add_option("--linger", input->linger, "virtual time that timers still run after the last frame")
      ->capture_default_str();
  app.add_flag("--json", input->options.json, "print the report as JSON");
  app.footer(
      "Examples: nbx replay --cluster cluster.yaml --in node.pcap --out ghosts.pcapng --json\n"
      "          nbx replay --cluster two-ports.yaml --in p0=a.pcap --in p1=b.pcap --out sent.pcapng");
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
