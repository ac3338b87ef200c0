#include "import/import.hpp"

#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>

#include "cli/command.hpp"
#include "config/profile_keys.hpp"

namespace nbx::cli {
namespace {

struct Input {
  std::string format;
  std::string file;
  std::string way = "from_node";
};

int run(const Input& input) {
  std::ifstream file(input.file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(input.file == "-" ? std::cin.rdbuf() : file.rdbuf()), {}};
  if (input.file != "-" && !file.is_open()) {
    std::cerr << "nbx import: cannot read " << input.file << '\n';
    return exit_usage;
  }
  const Result<config::Way> way = config::Scalar<config::Way>::parse({input.way});
  if (!way) {
    std::cerr << "nbx import: --way: " << way.error().message << '\n';
    return exit_usage;
  }
  const import::Imported imported = input.format == "netem"      ? import::from_netem(input.file, text, *way)
                                    : input.format == "mahimahi" ? import::from_mahimahi(input.file, text, *way)
                                    : input.format == "chakra"   ? import::from_chakra(input.file, text)
                                                                 : import::from_simai(input.file, text);
  for (const config::Diagnostic& diagnostic : imported.diagnostics) {
    std::cerr << diagnostic;
  }
  std::cout << imported.yaml;
  return imported.ok() ? 0 : exit_usage;
}

}  // namespace

Body import(CLI::App& app) {
  auto input = std::make_shared<Input>();
  app.add_option("FORMAT", input->format, "what FILE is: netem, mahimahi, simai, chakra")
      ->required()
      ->check(CLI::IsMember({"netem", "mahimahi", "simai", "chakra"}));
  app.add_option("FILE", input->file, "file to import; - is standard input")->required();
  app.add_option("--way", input->way, "of a link: which way it shapes: from_node, to_node or both")
      ->capture_default_str();
  app.footer(
      "Prints a profile or a job, and what of the file has no counterpart.\n"
      "Example: echo 'netem delay 10ms 1ms loss 0.1%' | nbx import netem - > profile.yaml");
  return [input] { return run(*input); };
}

}  // namespace nbx::cli
