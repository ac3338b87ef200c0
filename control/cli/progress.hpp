// What a command that takes long says in the meantime: a line on the terminal that is written again and again;
// elsewhere one now and then.
#pragma once

#include <unistd.h>

#include <chrono>
#include <iostream>
#include <string>

namespace nbx::cli {

class Progress {
 public:
  /// `what` is in front of every line.
  explicit Progress(std::string what) : what_(std::move(what)) {}
  ~Progress() {
    if (terminal_ && width_ != 0) {
      std::cerr << '\n';
    }
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  Progress(Progress&&) = delete;
  Progress& operator=(Progress&&) = delete;

  /// Nothing during the first two seconds, and not more often than people or logs like.
  void say(const std::string& text) {
    const auto now = Clock::now();
    if (now < next_) {
      return;
    }
    next_ = now + (terminal_ ? std::chrono::seconds{1} : std::chrono::seconds{15});
    const std::string line = what_ + ": " + text;
    std::string rest(line.size() < width_ ? width_ - line.size() : 0, ' ');
    width_ = line.size();
    std::cerr << (terminal_ ? "\r" : "") << line << (terminal_ ? rest : "\n") << std::flush;
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  bool terminal_ = isatty(STDERR_FILENO) != 0;
  std::size_t width_ = 0;  // of the line that is there
  Clock::time_point next_ = Clock::now() + std::chrono::seconds{2};
};

}  // namespace nbx::cli
