// A command of `nbx`: one row in the table of main.cpp, one function that adds its options.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace nbx::cli {

/// What runs once the options were read; answers the exit status.
using Body = std::function<int()>;

struct Command {
  const char* name;
  const char* about;
  Body (*configure)(CLI::App& app);  // options live in the body that it answers
};

inline constexpr int exit_failed = 1;  // the run or an assertion failed
inline constexpr int exit_usage = 2;   // wrong usage or configuration

Body check(CLI::App& app);
Body schema(CLI::App& app);
Body docs(CLI::App& app);
Body inspect(CLI::App& app);
Body replay(CLI::App& app);
Body run(CLI::App& app);
Body calibrate(CLI::App& app);
Body workers(CLI::App& app);
Body bench(CLI::App& app);
Body doctor(CLI::App& app);
Body sim(CLI::App& app);
Body import(CLI::App& app);
Body scenario(CLI::App& app);
Body sweep(CLI::App& app);
Body worst(CLI::App& app);

// Of a running nbxd.
Body status(CLI::App& app);
Body ports(CLI::App& app);
Body qps(CLI::App& app);
Body ghosts(CLI::App& app);
Body nccl(CLI::App& app);
Body counters(CLI::App& app);
Body events(CLI::App& app);
Body report(CLI::App& app);
Body capture(CLI::App& app);
Body set(CLI::App& app);
Body profile(CLI::App& app);
Body link(CLI::App& app);
Body trace(CLI::App& app);
Body traffic(CLI::App& app);
Body storm(CLI::App& app);
Body slow_receiver(CLI::App& app);

}  // namespace nbx::cli
