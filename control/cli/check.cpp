#include "check/check.hpp"

#include <iostream>
#include <memory>

#include "cli/command.hpp"

namespace nbx::cli {

Body check(CLI::App& app) {
  struct Input {
    std::vector<std::string> files;
    nbx::check::Options options;
  };
  auto input = std::make_shared<Input>();
  app.add_option("FILE", input->files, "cluster and profile files")->required();
  app.add_flag("--json", input->options.json, "print one JSON document");
  return [input] { return nbx::check::check(input->files, input->options, std::cout, std::cerr); };
}

}  // namespace nbx::cli
