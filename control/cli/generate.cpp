// Commands that print what is generated from the description of the keys and from the counters.
#include "config/generate.hpp"

#include <functional>
#include <iostream>
#include <map>
#include <memory>

#include "cli/command.hpp"

namespace nbx::cli {
namespace {

using Generators = std::map<std::string, std::string (*)()>;

Body print_one_of(CLI::App& app, const char* about, const Generators& generators) {
  auto which = std::make_shared<std::string>();
  app.add_option("WHICH", *which, about)->required()->check(CLI::IsMember(generators));
  return [which, generators] {
    std::cout << generators.at(*which)();
    return 0;
  };
}

}  // namespace

Body schema(CLI::App& app) {
  return print_one_of(app, "the kind of file",
                      {{"cluster", config::cluster_schema},
                       {"job", config::job_schema},
                       {"nic", config::nic_schema},
                       {"profile", config::profile_schema},
                       {"scenario", config::scenario_schema}});
}

Body docs(CLI::App& app) {
  return print_one_of(app, "the reference",
                      {{"cluster", config::cluster_reference},
                       {"job", config::job_reference},
                       {"profile", config::profile_reference},
                       {"nic", config::nic_reference},
                       {"scenario", config::scenario_reference},
                       {"counters", config::counter_reference}});
}

}  // namespace nbx::cli
