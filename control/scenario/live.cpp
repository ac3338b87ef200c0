#include "scenario/live.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>
#include <vector>

extern char** environ;

namespace nbx::scenario {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds start_limit{60};
constexpr std::chrono::seconds stop_limit{20};

std::string content(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A folder that goes when it is left.
class Scratch {
 public:
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "nbx-live-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data()) != nullptr ? pattern : "";
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  Scratch(Scratch&&) = delete;
  Scratch& operator=(Scratch&&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// A process of ours with a group of its own, which ends with it.
class Child {
 public:
  ~Child() {
    if (running()) {
      signal(SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  Child() = default;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  Child(Child&&) = delete;
  Child& operator=(Child&&) = delete;

  /// `log`: where both outputs go; empty: standard error.
  std::optional<Error> start(const std::vector<std::string>& words, const std::string& log) {
    std::vector<char*> argv;
    for (const std::string& word : words) {
      argv.push_back(const_cast<char*>(word.c_str()));
    }
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    if (!log.empty()) {
      posix_spawn_file_actions_addopen(&files, STDERR_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    }
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    const int error = ::posix_spawnp(&pid_, argv[0], &files, &attributes, argv.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    started_ = error == 0;
    return started_ ? std::nullopt : std::optional(Error{"'" + words[0] + "': " + std::strerror(error)});
  }
  /// As waitpid has it; nothing: it still runs.
  std::optional<int> wait(Clock::duration limit) {
    for (const auto end = Clock::now() + limit; running() && Clock::now() < end;) {
      std::this_thread::sleep_for(std::chrono::milliseconds{5});
    }
    return status_;
  }
  [[nodiscard]] bool running() {
    int status = 0;
    if (started_ && !status_ && ::waitpid(pid_, &status, WNOHANG) == pid_) {
      status_ = status;
    }
    return started_ && !status_;
  }
  void signal(int number) const { ::kill(-pid_, number); }

 private:
  pid_t pid_ = 0;
  bool started_ = false;
  std::optional<int> status_;
};

std::string words(int status) {
  return WIFEXITED(status) ? "status " + std::to_string(WEXITSTATUS(status))
                           : "signal " + std::to_string(WTERMSIG(status));
}

}  // namespace

Result<Json> run_live(const LiveRun& live) {
  const Scratch scratch;
  if (scratch.path().empty()) {
    return Error{std::string("no temporary folder: ") + std::strerror(errno)};
  }
  const fs::path log = scratch.path() / "log";
  const fs::path file = scratch.path() / "report.json";
  std::vector<std::string> daemon{live.nbxd, live.file, "--control", scratch.path() / "control.sock", "--report", file};
  if (live.without_faults) {
    daemon.emplace_back("--without-faults");
  }
  Child nbxd;
  if (auto error = nbxd.start(daemon, log)) {
    return *error;
  }
  const auto last_words = [&] { return ":\n" + content(log); };
  for (const auto end = Clock::now() + start_limit; content(log).find("nbxd: ready") == std::string::npos;) {
    if (!nbxd.running() || Clock::now() > end) {
      return Error{(nbxd.running() ? "nbxd was not ready in time" : "nbxd ended") + last_words()};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
  }
  Child program;
  const auto began = Clock::now();
  if (auto error = program.start({"/bin/sh", "-c", live.program}, {})) {
    return *error;
  }
  const auto limit = std::min<Clock::duration>(std::chrono::duration_cast<std::chrono::nanoseconds>(live.limit),
                                               std::chrono::hours{24 * 365});
  const std::optional<int> status = program.wait(limit);
  const std::chrono::duration<double, std::micro> time = Clock::now() - began;
  nbxd.signal(SIGTERM);
  if (!nbxd.wait(stop_limit)) {
    return Error{"nbxd did not end within 20 s" + last_words()};
  }
  if (status != std::optional(0)) {
    return Json{{"failure", status ? "the program ended with " + words(*status) : "the program ran past the limit"}};
  }
  Json report = Json::parse(content(file), nullptr, false);
  if (!report.is_object()) {
    return Error{"nbxd left no report" + last_words()};
  }
  report["program"] = {{"command", live.program}, {"time_us", time.count()}};
  return report;
}

}  // namespace nbx::scenario
