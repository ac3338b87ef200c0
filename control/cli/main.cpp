// `nbx`: every command of the emulator but the emulator itself. Exit status: 0 fine, 1 the run failed, 2 wrong usage or
// configuration.
#include <array>
#include <exception>
#include <iostream>
#include <vector>

#include "cli/command.hpp"

namespace nbx::cli {
namespace {

constexpr auto commands = std::to_array<Command>({
    {"check", "validate cluster and profile files", check},
    {"inspect", "what a capture says, per queue pair", inspect},
    {"replay", "run a capture through the ghosts of a port", replay},
    {"sim", "a job on the cluster in virtual time", sim},
    {"import", "other tools' links and jobs as profiles and jobs", import},
    {"scenario", "what has to hold of a job when things go wrong", scenario},
    {"sweep", "a scenario with other values, one after the other", sweep},
    {"worst", "the smallest value that raises the step time by so much", worst},
    {"run", "a program with NCCL, with ghosts as its other ranks", run},
    {"calibrate", "how far ghosts' times are off those of real ranks", calibrate},
    {"workers", "the missing workers of a PyTorch job, in its store", workers},
    {"bench", "what each stage costs on this machine, next to testpmd", bench},
    {"doctor", "what stops this host from line rate, with the fix", doctor},
    {"status", "what the emulator does now", status},
    {"ports", "the ports and their devices", ports},
    {"qps", "the queue pairs of the ghosts", qps},
    {"ghosts", "the ghosts and what they do", ghosts},
    {"nccl", "NCCL's communicators with ghost ranks and their operations", nccl},
    {"events", "the exact events of the profiles, and the packets that they took", events},
    {"counters", "what was counted so far", counters},
    {"report", "asked against achieved, so far", report},
    {"capture", "start or stop a capture", capture},
    {"set", "change keys of a port's profile", set},
    {"profile", "replace the profile of a port", profile},
    {"link", "take the link of a port down, for a time, or up again", link},
    {"traffic", "background traffic: asked and achieved; start some, or stop it", traffic},
    {"storm", "let the switch at the real node's cable pause it, or stop that", storm},
    {"slow-receiver", "let ghosts receive slowly, or stop that", slow_receiver},
    {"trace", "every step of the ghosts' rates (DCQCN), while it runs", trace},
    {"schema", "print the JSON Schema of a kind of file", schema},
    {"docs", "print a generated reference", docs},
});

int dispatch(int argc, char** argv) {
  CLI::App app("NeuronaBox: ghosts that real RDMA nodes talk to", "nbx");
  app.require_subcommand(1);
  std::vector<std::pair<const CLI::App*, Body>> bodies;
  for (const Command& command : commands) {
    CLI::App* sub = app.add_subcommand(command.name, command.about);
    bodies.emplace_back(sub, command.configure(*sub));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : exit_usage;
  }
  for (const auto& [sub, body] : bodies) {
    if (sub->parsed()) {
      return body();
    }
  }
  return exit_usage;
}

}  // namespace
}  // namespace nbx::cli

int main(int argc, char** argv) {
  try {
    return nbx::cli::dispatch(argc, argv);
  } catch (const std::exception& e) {
    std::cerr << "nbx: " << e.what() << '\n';
    return nbx::cli::exit_failed;
  }
}
