#include "calibrate/ranks.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace nbx::calibrate {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto tick = std::chrono::milliseconds{100};
constexpr auto last_words = std::chrono::seconds{3};  // for ranks that are asked to end

volatile std::sig_atomic_t interrupted = 0;

std::string content(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string last_lines(const fs::path& file) {
  constexpr std::size_t most = 2000;
  std::string text = content(file);
  if (text.size() > most) {
    text.erase(0, text.find('\n', text.size() - most) + 1);
  }
  return text.empty() ? "" : "\n" + text;
}

/// The ranks' processes, each with a group of its own; the rest of them is ended with this object.
class Ranks {
 public:
  Ranks() {
    std::string name = (fs::temp_directory_path() / "nbx-calibrate-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) {
      folder_ = name;
    }
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = 1; };
    interrupted = 0;
    sigaction(SIGINT, &action, &before_[0]);
    sigaction(SIGTERM, &action, &before_[1]);
  }
  ~Ranks() {
    end();
    sigaction(SIGINT, &before_[0], nullptr);
    sigaction(SIGTERM, &before_[1], nullptr);
    if (!folder_.empty()) {
      std::error_code error;
      fs::remove_all(folder_, error);
    }
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  Ranks(Ranks&&) = delete;
  Ranks& operator=(Ranks&&) = delete;

  [[nodiscard]] fs::path output(std::size_t rank) const { return folder_ / ("out" + std::to_string(rank)); }
  [[nodiscard]] fs::path errors(std::size_t rank) const { return folder_ / ("err" + std::to_string(rank)); }

  /// False, and errno says why, when there is no folder or no process.
  bool start(const std::string& command) {
    if (folder_.empty()) {
      return false;
    }
    const std::size_t rank = pids_.size();
    const int out = open(output(rank).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    const int err = open(errors(rank).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const pid_t pid = fork();
    if (pid == 0) {
      setpgid(0, 0);
      dup2(in, STDIN_FILENO);
      dup2(out, STDOUT_FILENO);
      dup2(err, STDERR_FILENO);
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    for (const int fd : {in, out, err}) {
      close(fd);
    }
    if (pid > 0) {
      setpgid(pid, pid);
      pids_.push_back(pid);
    }
    return pid > 0;
  }

  /// Whether all have ended; the first that failed, if any, in `failed`, with how it ended.
  bool poll(std::size_t& failed, std::string& how) {
    bool all = true;
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
      int status = 0;
      if (pids_[rank] == 0 || waitpid(pids_[rank], &status, WNOHANG) == 0) {
        all = all && pids_[rank] == 0;
        continue;
      }
      kill(-pids_[rank], SIGTERM);  // what the shell has left behind
      pids_[rank] = 0;
      if (how.empty() && status != 0) {
        failed = rank;
        how = WIFEXITED(status) ? "exit status " + std::to_string(WEXITSTATUS(status))
                                : "signal " + std::to_string(WTERMSIG(status));
      }
    }
    return all;
  }

  void end() {
    const auto signal_all = [this](int number) {
      for (const pid_t pid : pids_) {
        if (pid != 0) {
          kill(-pid, number);
        }
      }
    };
    std::size_t failed = 0;
    std::string how;
    signal_all(SIGTERM);
    for (const Clock::time_point end = Clock::now() + last_words; !poll(failed, how) && Clock::now() < end;) {
      std::this_thread::sleep_for(tick);
    }
    signal_all(SIGKILL);
    while (!poll(failed, how)) {
      std::this_thread::sleep_for(tick);
    }
  }

 private:
  fs::path folder_;          // of this run's output; empty: it could not be made
  std::vector<pid_t> pids_;  // 0: has ended
  std::array<struct sigaction, 2> before_{};
};

}  // namespace

Result<std::string> run_ranks(const std::vector<std::string>& commands, std::chrono::seconds limit,
                              const std::function<void(std::chrono::milliseconds)>& waiting) {
  Ranks ranks;
  for (const std::string& command : commands) {
    if (!ranks.start(command)) {
      return Error{"no process for '" + command + "': " + std::strerror(errno)};
    }
  }
  const Clock::time_point start = Clock::now();
  std::size_t failed = 0;
  std::string how;
  while (!ranks.poll(failed, how)) {
    const Clock::duration passed = Clock::now() - start;
    if (!how.empty()) {
      break;
    }
    if (interrupted != 0) {
      return Error{"interrupted"};
    }
    if (passed > limit) {
      return Error{"not over after " + std::to_string(limit.count()) +
                   " s (--limit); rank 0 said:" + last_lines(ranks.errors(0))};
    }
    waiting(std::chrono::duration_cast<std::chrono::milliseconds>(passed));
    std::this_thread::sleep_for(tick);
  }
  if (!how.empty()) {
    return Error{"rank " + std::to_string(failed) + " ended with " + how + ": " + commands[failed] +
                 last_lines(ranks.errors(failed))};
  }
  return content(ranks.output(0));
}

std::string filled_in(std::string command, int rank, int ranks, const std::string& run) {
  const std::array<std::pair<const char*, std::string>, 3> words{
      std::pair{"{rank}", std::to_string(rank)}, {"{ranks}", std::to_string(ranks)}, {"{run}", run}};
  for (const auto& [word, value] : words) {
    for (std::size_t at = command.find(word); at != std::string::npos; at = command.find(word, at + value.size())) {
      command.replace(at, std::strlen(word), value);
    }
  }
  return command;
}

}  // namespace nbx::calibrate
