// The flight recorder of a run: the thread that writes a file when a port's recorder was triggered. All ports go into
// the same file, whichever saw the trigger.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.hpp"
#include "capture/recorder.hpp"
#include "config/cluster.hpp"

namespace nbx::daemon {

struct DumpReport {
  std::string file;
  std::string trigger;
  std::string port;           // that saw it
  std::uint64_t time_ns = 0;  // since 1970-01-01 UTC
  std::uint64_t frames = 0;
  std::uint64_t lost = 0;         // frames that the dump before left no room for
  std::uint64_t passed_over = 0;  // triggers since the dump before that were not taken
  std::string error;              // why the file is not complete; empty: it is
};

class RecorderControl {
 public:
  struct Source {
    std::string port;
    capture::Recorder* recorder;
  };

  RecorderControl(const config::Recorder& config, std::vector<Source> sources);
  ~RecorderControl() { stop(); }
  RecorderControl(const RecorderControl&) = delete;
  RecorderControl& operator=(const RecorderControl&) = delete;
  RecorderControl(RecorderControl&&) = delete;
  RecorderControl& operator=(RecorderControl&&) = delete;

  /// Writes a dump now, or answers that which is being written.
  [[nodiscard]] Result<DumpReport> trigger();
  [[nodiscard]] std::vector<DumpReport> dumps() const;
  /// Ends after the dump that is due, if there is one; while the workers run.
  void stop();

 private:
  void run();
  bool dump(const Source& first);  // false: no worker answered
  [[nodiscard]] std::vector<Source> all_frozen(const Source& first);
  void write(const std::vector<Source>& frozen, DumpReport& report);
  [[nodiscard]] bool armed() const;

  config::Recorder config_;
  std::vector<Source> sources_;
  mutable std::mutex mutex_;  // of dumps_
  std::vector<DumpReport> dumps_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace nbx::daemon
