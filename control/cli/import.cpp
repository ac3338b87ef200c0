#include "import/import.hpp"

#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <set>
#include <string>

#include "cli/command.hpp"
#include "cli/quantity.hpp"
#include "config/profile_keys.hpp"

namespace nbx::cli {
namespace {

struct Input {
  std::string format;
  std::string file;
  std::string way = "from_node";
  std::string rate = "100Gb/s";
};

const std::set<std::string> formats = {"netem", "mahimahi", "simai", "chakra", "hpcc", "simccl", "otg"};

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
  const auto rate = quantity<BitRate>("import", "--rate", input.rate);
  if (!rate) {
    return exit_usage;
  }
  const import::Imported imported = input.format == "netem"      ? import::from_netem(input.file, text, *way)
                                    : input.format == "mahimahi" ? import::from_mahimahi(input.file, text, *way)
                                    : input.format == "chakra"   ? import::from_chakra(input.file, text)
                                    : input.format == "hpcc"     ? import::from_hpcc(input.file, text, *rate)
                                    : input.format == "simccl"   ? import::from_simccl(input.file, text)
                                    : input.format == "otg"      ? import::from_otg(input.file, text)
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
  app.add_option("FORMAT", input->format,
                 "what FILE is: netem, mahimahi, simai, chakra, hpcc (and SimAI.conf), simccl, otg")
      ->required()
      ->check(CLI::IsMember(formats));
  app.add_option("FILE", input->file, "file to import; - is standard input")->required();
  app.add_option("--way", input->way, "of a link: which way it shapes: from_node, to_node or both")
      ->capture_default_str();
  app.add_option("--rate", input->rate, "hpcc: of the cables, whose thresholds are taken")->capture_default_str();
  app.footer(
      "Prints a profile, a job or keys of a cluster, and what of the file has no counterpart.\n"
      "Example: echo 'netem delay 10ms 1ms loss 0.1%' | nbx import netem - > profile.yaml");
  return [input] { return run(*input); };
}

}  // namespace nbx::cli
