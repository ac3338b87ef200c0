// The capture of a run: which files the taps of the ports write to, and the thread that writes them. One capture at a
// time, of all ports, in one file or in one per port.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/result.hpp"
#include "capture/file_sink.hpp"
#include "capture/tap.hpp"

namespace nbx::daemon {

struct CaptureOrder {
  std::string file;
  std::string filter;         // as tcpdump's; empty: every frame
  std::uint32_t snaplen = 0;  // 0: whole frames
  bool per_port = false;      // PORT in front of the extension of each file's name
  std::uint64_t rotate_bytes = 0;
  std::size_t files_max = 0;
};

class CaptureControl {
 public:
  struct Source {
    std::string port;
    capture::Tap* tap;
    std::function<bool()> next_turn;  // true: the worker has begun another turn since the call
  };

  explicit CaptureControl(std::vector<Source> sources) : sources_(std::move(sources)) {}
  ~CaptureControl() { stop(); }
  CaptureControl(const CaptureControl&) = delete;
  CaptureControl& operator=(const CaptureControl&) = delete;
  CaptureControl(CaptureControl&&) = delete;
  CaptureControl& operator=(CaptureControl&&) = delete;

  /// An error when a capture runs, the filter is wrong, or a file cannot be made; nothing is captured then.
  [[nodiscard]] std::optional<Error> start(const CaptureOrder& order);
  /// Ends the capture with complete files; the error that ended it before, if there was one.
  std::optional<Error> stop();
  /// The files of the running capture; empty when none runs.
  [[nodiscard]] std::vector<std::string> files() const;

 private:
  void write_files();

  std::vector<Source> sources_;
  mutable std::mutex mutex_;  // of start, stop and files
  std::vector<std::string> files_;
  std::vector<std::unique_ptr<capture::Filter>> filters_;
  std::vector<std::unique_ptr<capture::FileSink>> sinks_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace nbx::daemon
