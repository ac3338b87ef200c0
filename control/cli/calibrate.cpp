// `nbx calibrate`: the same program over the same emulated link, first with real ranks, then with one real rank and
// ghosts: how far the ghosts' times are off.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include "calibrate/compare.hpp"
#include "calibrate/ranks.hpp"
#include "cli/command.hpp"
#include "cli/progress.hpp"

namespace nbx::cli {
namespace {

struct Input {
  std::vector<std::string> files;
  int ranks = 2;
  std::string real;
  std::string ghosts;
  double tolerance = 5;
  int limit_s = 600;
  bool json = false;
};

std::string check(const Input& input) {
  const bool runs = !input.real.empty() || !input.ghosts.empty();
  if (runs == !input.files.empty()) {
    return "give two result files, or --real and --ghosts to measure";
  }
  if (runs && (input.real.empty() || input.ghosts.empty())) {
    return "--real and --ghosts belong together";
  }
  return !runs && input.files.size() != 2 ? "two result files: with real ranks, and with ghosts" : "";
}

Result<calibrate::Times> read_file(const std::string& name) {
  std::ifstream in(name, std::ios::binary);
  if (!in) {
    return Error{name + ": cannot be read"};
  }
  auto times = calibrate::read_times({std::istreambuf_iterator<char>(in), {}});
  return times ? times : Error{name + ": " + times.error().message};
}

Result<calibrate::Times> measure(const Input& input, bool with_ghosts) {
  const std::string run = std::to_string(getpid()) + (with_ghosts ? "-ghosts" : "-real");
  const std::string what = with_ghosts ? "1 real rank, " + std::to_string(input.ranks - 1) + " ghosts"
                                       : std::to_string(input.ranks) + " real ranks";
  std::vector<std::string> commands;
  for (int rank = 0; rank < (with_ghosts ? 1 : input.ranks); ++rank) {
    commands.push_back(calibrate::filled_in(with_ghosts ? input.ghosts : input.real, rank, input.ranks, run));
  }
  Progress progress("nbx calibrate: run " + std::to_string(with_ghosts ? 2 : 1) + " of 2, " + what);
  const auto waiting = [&](std::chrono::milliseconds passed) {
    progress.say(std::to_string(passed.count() / 1000) + " s of at most " + std::to_string(input.limit_s) + " s");
  };
  const auto output = calibrate::run_ranks(commands, std::chrono::seconds{input.limit_s}, waiting);
  if (!output) {
    return Error{what + ": " + output.error().message};
  }
  auto times = calibrate::read_times(*output);
  return times ? times : Error{what + ": " + times.error().message};
}

int calibrate_command(const Input& input) {
  if (const std::string wrong = check(input); !wrong.empty()) {
    std::cerr << "nbx calibrate: " << wrong << '\n';
    return exit_usage;
  }
  const bool measures = input.files.empty();
  const auto real = measures ? measure(input, false) : read_file(input.files[0]);
  const auto ghosts = !real ? real : measures ? measure(input, true) : read_file(input.files[1]);
  if (!ghosts) {
    std::cerr << "nbx calibrate: " << ghosts.error().message << '\n';
    return exit_failed;
  }
  const calibrate::Comparison comparison = calibrate::compare(*real, *ghosts);
  if (input.json) {
    std::cout << calibrate::to_json(comparison, input.tolerance).dump(2) << '\n';
  } else {
    calibrate::print(comparison, input.tolerance, std::cout);
  }
  if (comparison.rows.empty()) {
    std::cerr << "nbx calibrate: the two runs have nothing in common\n";
    return exit_failed;
  }
  return comparison.worst_error() <= input.tolerance ? 0 : exit_failed;
}

}  // namespace

Body calibrate(CLI::App& app) {
  auto input = std::make_shared<Input>();
  app.add_option("FILE", input->files, "results with real ranks and with ghosts, measured before");
  app.add_option("--real", input->real, "command of a rank when all are real; {rank}, {ranks} and {run} are replaced");
  app.add_option("--ghosts", input->ghosts, "command of rank 0 when the other ranks are ghosts");
  app.add_option("--ranks", input->ranks, "of both runs")->check(CLI::Range(2, 1 << 20))->capture_default_str();
  app.add_option("--tolerance", input->tolerance, "largest error of a median, in %: beyond it the exit status is 1")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--limit", input->limit_s, "seconds that a run may take")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--json", input->json, "print one JSON document");
  app.footer(
      "Rank 0 prints what 'nbx-probe --each --json' does, or {\"times\": {\"step\": [MICROSECONDS, ...]}}. {run} is a "
      "word that is\nanother one in every run. The link has to be the same in both: see the how-to on NCCL.\n"
      "Example: P='nbx-probe all_reduce --each --json -b 64K -e 16M -f 16'\n"
      "  nbx calibrate --real \"ssh node{rank} $P --ranks 2 --rank {rank} --id-file /shared/{run}\" \\\n"
      "                --ghosts \"ssh node0 nbx run --announce 10.77.0.100:4790 -- $P --ranks 2 --real-ranks 1\"");
  return [input] { return calibrate_command(*input); };
}

}  // namespace nbx::cli
