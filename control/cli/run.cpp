// `nbx run`: a program with NCCL, unchanged, in an environment in which ghosts play its other ranks. It sets variables
// and becomes the program, so that nothing of the emulator but the preload library is in the way.
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cli/command.hpp"

namespace nbx::cli {
namespace {

namespace fs = std::filesystem;

struct Input {
  std::string announce = "127.0.0.1:4790";
  int ranks = 0;
  int real_ranks = 0;
  bool inflate = false;
  std::string rank_map;
  bool mirror = false;
  std::string net = "auto";
  std::string algorithm;
  std::string protocol;
  int channels = 0;
  int missing_workers = 0;
  bool dry_run = false;
  bool json = false;
};

/// What became of a variable.
enum class Action { set, kept, replaced };

struct Variable {
  std::string name;
  std::string value;
  std::string why;
  bool asked = false;  // by an option: then it wins over the environment
  Action action = Action::set;
  std::string before = {};
};

/// The folder with the libraries that NCCL loads: beside this binary, or where they are installed.
Result<fs::path> library_folder() {
  std::error_code error;
  const fs::path own = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& folder : {own, own.parent_path() / "lib" / "neuronabox"}) {
    if (fs::exists(folder / "libnbx-announce.so", error)) {
      return folder;
    }
  }
  return Error{"no libnbx-announce.so in " + own.string() + " or " + (own.parent_path() / "lib/neuronabox").string()};
}

bool has_rnic() {
  std::error_code error;
  const fs::directory_iterator devices("/sys/class/infiniband", error);
  return !error && devices != fs::directory_iterator{};
}

void add_network(std::vector<Variable>& variables, const Input& input, const fs::path& folder) {
  const bool asked = input.net != "auto";
  const bool plugin = asked ? input.net == "plugin" : !has_rnic();
  if (plugin) {
    const std::string why = asked ? "--net plugin" : "no RNIC here: RoCEv2 packets from user space";
    variables.push_back({"NCCL_NET_PLUGIN", (folder / "libnccl-net-neuronabox.so").string(), why, asked});
    variables.push_back({"NCCL_NET", "NeuronaBox", why, asked});
  } else {
    const std::string why = asked ? "--net ib" : "NCCL's own transport over the RNIC";
    variables.push_back({"NCCL_NET_PLUGIN", "none", why, asked});
    variables.push_back({"NCCL_NET", "IB", why, asked});
  }
}

void add_ranks(std::vector<Variable>& variables, const Input& input) {
  variables.push_back({"NBX_MODE", input.inflate ? "inflate" : "full",
                       input.inflate ? "the program does not know of the ghosts" : "the program knows all ranks",
                       input.inflate});
  if (input.inflate) {
    variables.push_back({"NBX_RANKS", std::to_string(input.ranks), "--ranks", true});
  }
  if (!input.rank_map.empty()) {
    variables.push_back({"NBX_RANK_MAP", input.rank_map, "--rank-map", true});
  }
  if (input.mirror) {
    variables.push_back({"NBX_MIRROR", "1", "--mirror", true});
    variables.push_back({"NBX_REAL_RANKS", std::to_string(input.real_ranks), "--real-ranks", true});
  }
}

/// A protocol is also named to NCCL itself, which else leaves LL128 out on hardware that it has not approved.
void add_pins(std::vector<Variable>& variables, const Input& input) {
  if (!input.algorithm.empty()) {
    variables.push_back({"NBX_ALGO", input.algorithm, "--algo", true});
  }
  if (!input.protocol.empty()) {
    variables.push_back({"NBX_PROTO", input.protocol, "--proto", true});
    variables.push_back({"NCCL_PROTO", input.protocol, "--proto", true});
  }
  if (input.channels != 0) {
    for (const char* name : {"NBX_CHANNELS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"}) {
      variables.push_back({name, std::to_string(input.channels), "--channels", true});
    }
  }
}

std::vector<Variable> wanted(const Input& input, const fs::path& folder) {
  const char* preloaded = std::getenv("LD_PRELOAD");
  const std::string announce = (folder / "libnbx-announce.so").string();
  std::vector<Variable> variables{
      {"LD_PRELOAD", announce + (preloaded == nullptr ? "" : ":" + std::string(preloaded)),
       "announces communicators and operations", true},
      {"NBX_ANNOUNCE", input.announce, "where the ghosts listen"},
      {"NCCL_PROFILER_PLUGIN", (folder / "libnccl-profiler-neuronabox.so").string(), "tells how NCCL runs each one"},
      {"NCCL_TUNER_PLUGIN", (folder / "libnccl-tuner-neuronabox.so").string(), "tree and ring only, and pins"},
  };
  add_ranks(variables, input);
  add_network(variables, input, folder);
  add_pins(variables, input);
  const std::vector<Variable> not_played{
      {"NCCL_CUMEM_ENABLE", "0", "all connections are made at the start"},
      {"NCCL_PAT_ENABLE", "0", "tree and ring only"},
      {"NCCL_NVLS_ENABLE", "0", "tree and ring only"},
      {"NCCL_COLLNET_ENABLE", "0", "tree and ring only"},
      {"NCCL_ALLGATHERV_ENABLE", "0", "broadcasts of a group one by one"},
      {"NCCL_MNNVL_ENABLE", "0", "ghosts are on other hosts"},
      {"NCCL_GIN_TYPE", "0", "no traffic that kernels start"},
      {"NCCL_RAS_ENABLE", "0", "ghosts have no RAS peers"},
      {"NCCL_PXN_DISABLE", "1", "every rank sends and receives by itself"},
  };
  variables.insert(variables.end(), not_played.begin(), not_played.end());
  return variables;
}

/// What the user has set stays, except where an option of this command says otherwise.
void apply(Variable& variable) {
  const char* present = std::getenv(variable.name.c_str());
  if (present != nullptr && present != variable.value) {
    variable.before = present;
    variable.action = variable.asked ? Action::replaced : Action::kept;
  }
  if (variable.action != Action::kept) {
    setenv(variable.name.c_str(), variable.value.c_str(), 1);
  }
}

constexpr const char* name_of(Action action) {
  return action == Action::set ? "set" : action == Action::kept ? "kept" : "replaced";
}

void print(const std::vector<Variable>& variables, const std::vector<std::string>& command, bool json,
           std::ostream& out) {
  nlohmann::ordered_json document;
  for (const Variable& v : variables) {
    const bool kept = v.action == Action::kept;
    if (json) {
      document["environment"].push_back(
          {{"name", v.name}, {"value", kept ? v.before : v.value}, {"action", name_of(v.action)}, {"why", v.why}});
      if (v.action == Action::replaced) {
        document["environment"].back()["before"] = v.before;
      }
      continue;
    }
    out << "nbx run: " << name_of(v.action) << ' ' << v.name << '=' << (kept ? v.before : v.value) << "  (";
    out << (kept ? "from the environment; nbx would set " + v.value : v.why);
    out << (v.action == Action::replaced ? "; was " + v.before : "") << ")\n";
  }
  if (json) {
    document["command"] = command;
    out << document.dump(2) << '\n';
  }
  out.flush();
}

/// What is wrong with the options, or nothing.
std::string check(const Input& input, const fs::path& folder, const std::vector<Variable>& variables) {
  if (input.inflate && input.ranks == 0) {
    return "--inflate needs --ranks, the number of ranks with the ghosts";
  }
  if (!input.inflate && (input.ranks != 0 || !input.rank_map.empty())) {
    return "--ranks and --rank-map are for --inflate: in full mode the program says how many ranks there are";
  }
  if (input.mirror && (input.inflate || input.real_ranks == 0)) {
    return "--mirror is for a program that knows all ranks, and needs --real-ranks";
  }
  for (const Variable& v : variables) {
    const fs::path file = v.value;
    std::error_code error;
    if (file.parent_path() == folder && file.extension() == ".so" && !fs::exists(file, error)) {
      return "no " + v.value;
    }
  }
  return {};
}

int become(std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (std::string& argument : command) {
    arguments.push_back(argument.data());
  }
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  std::cerr << "nbx run: " << command[0] << ": " << std::strerror(errno) << '\n';
  return exit_usage;
}

/// `nbx workers` beside the program, for as long as that runs. False when it cannot be started.
bool start_workers(int missing) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child != 0) {
    return child > 0;
  }
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  const std::string count = std::to_string(missing);
  if (getppid() == parent) {
    execl("/proc/self/exe", "nbx", "workers", "--missing", count.c_str(), nullptr);
  }
  _exit(exit_failed);
}

int run_command(const Input& input, std::vector<std::string> command) {
  const Result<fs::path> folder = library_folder();
  if (!folder) {
    std::cerr << "nbx run: " << folder.error().message << '\n';
    return exit_failed;
  }
  std::vector<Variable> variables = wanted(input, *folder);
  if (const std::string wrong = check(input, *folder, variables); !wrong.empty()) {
    std::cerr << "nbx run: " << wrong << '\n';
    return exit_usage;
  }
  if (input.missing_workers != 0 && !input.dry_run && !start_workers(input.missing_workers)) {
    std::cerr << "nbx run: the workers: " << std::strerror(errno) << '\n';
    return exit_failed;
  }
  for (Variable& variable : variables) {
    apply(variable);
  }
  // Standard output is the program's.
  print(variables, command, input.json, input.dry_run ? std::cout : std::cerr);
  return input.dry_run ? 0 : become(command);
}

}  // namespace

Body run(CLI::App& app) {
  auto input = std::make_shared<Input>();
  auto command = std::make_shared<std::vector<std::string>>();
  app.add_option("--announce", input->announce, "HOST:PORT where the ghosts listen")
      ->envname("NBX_ANNOUNCE")
      ->capture_default_str();
  app.add_flag("--inflate", input->inflate, "the program knows its real ranks only; ghosts make them --ranks");
  app.add_option("--ranks", input->ranks, "ranks with the ghosts, for --inflate")->check(CLI::PositiveNumber);
  app.add_option("--rank-map", input->rank_map, "with --inflate: the ranks that are real, as in 0,4");
  app.add_flag("--mirror", input->mirror, "ghosts count as copies of the real ranks: sums and averages are scaled");
  app.add_option("--real-ranks", input->real_ranks, "for --mirror: how many ranks are real")
      ->check(CLI::PositiveNumber);
  app.add_option("--net", input->net, "plugin (RoCEv2 from user space), ib (an RNIC) or auto")
      ->check(CLI::IsMember({"auto", "plugin", "ib"}))
      ->capture_default_str();
  app.add_option("--algo", input->algorithm, "ring or tree")->check(CLI::IsMember({"ring", "tree"}));
  app.add_option("--proto", input->protocol, "ll, ll128 or simple")->check(CLI::IsMember({"ll", "ll128", "simple"}));
  app.add_option("--channels", input->channels, "channels of every collective")->check(CLI::Range(1, 64));
  app.add_option("--missing-workers", input->missing_workers, "PyTorch workers that nobody started: see nbx workers")
      ->check(CLI::PositiveNumber);
  app.add_flag("--dry-run", input->dry_run, "print what would be set, and run nothing");
  app.add_flag("--json", input->json, "print it as JSON");
  app.add_option("COMMAND", *command, "program and its arguments, after --")->required();
  app.footer(
      "Variables that are set already stay, unless an option asks for another value; both are printed.\n"
      "Example: nbx run --inflate --ranks 64 -- ./all_reduce_perf -b 1M -e 64M -f 2");
  return [input, command] { return run_command(*input, *command); };
}

}  // namespace nbx::cli
