#include "bench/bench.hpp"

#include <iostream>
#include <memory>

#include "cli/command.hpp"
#include "cli/progress.hpp"

namespace nbx::cli {

Body bench(CLI::App& app) {
  auto options = std::make_shared<bench::Options>();
  app.add_option("--only", options->only, "a part of GROUP/STAGE/VARIANT, as the table prints it");
  app.add_option("--rounds", options->rounds, "how often each stage is measured; the median counts")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_flag("!--no-testpmd", options->testpmd, "without DPDK's testpmd as the yardstick");
  app.add_flag("--json", options->json, "print one JSON document");
  app.footer(
      "Example: nbx bench --only path/responder\n"
      "Stages are measured in turn, burst by burst, with packets made outside the measured time. x5tswap is the\n"
      "cost in units of what testpmd needs to forward a packet between two null devices on this machine.");
  return [options] {
    Progress progress("nbx bench");
    const auto say = [&](const std::string& what) { progress.say(what); };
    if (const auto error = nbx::bench::run(*options, std::cout, say)) {
      std::cerr << "nbx bench: " << error->message << '\n';
      return exit_failed;
    }
    return 0;
  };
}

}  // namespace nbx::cli
