#include "daemon/capture_control.hpp"

#include <chrono>
#include <filesystem>

namespace nbx::daemon {
namespace {

std::string with_port(const std::string& file, const std::string& port) {
  std::filesystem::path path(file);
  const std::string extension = path.extension();
  return path.replace_extension("." + port + extension);
}

capture::FileSinkOptions sink_options(const CaptureOrder& order) {
  capture::FileSinkOptions options;
  options.path = order.file;
  options.snaplen = order.snaplen == 0 ? capture::snaplen_default : order.snaplen;
  options.file_size_max = order.rotate_bytes;
  options.files_max = order.files_max;
  return options;
}

}  // namespace

std::optional<Error> CaptureControl::start(const CaptureOrder& order) {
  const std::scoped_lock lock(mutex_);
  if (!sinks_.empty()) {
    return Error{"a capture runs already, to " + files_.front() + "; stop it first"};
  }
  std::vector<capture::FileSinkOptions> wanted;
  if (!order.per_port) {
    wanted.push_back(sink_options(order));
  }
  for (const Source& source : sources_) {
    if (order.per_port) {
      wanted.push_back(sink_options(order));
      wanted.back().path = with_port(order.file, source.port);
    }
    capture::FileSinkOptions& sink = wanted.back();
    sink.interfaces.push_back({.name = source.port, .description = "", .speed = {}});
    sink.sources.push_back({source.tap, static_cast<std::uint32_t>(sink.interfaces.size() - 1)});
  }
  std::vector<std::unique_ptr<capture::FileSink>> sinks;
  std::vector<std::string> files;
  for (capture::FileSinkOptions& options : wanted) {
    files.push_back(options.path);
    auto sink = capture::FileSink::open(std::move(options));
    if (!sink) {
      return sink.error();
    }
    sinks.push_back(std::move(*sink));
  }
  sinks_ = std::move(sinks);
  files_ = std::move(files);
  stopping_.store(false, std::memory_order_relaxed);
  thread_ = std::thread([this] { write_files(); });
  return std::nullopt;
}

std::optional<Error> CaptureControl::stop() {
  const std::scoped_lock lock(mutex_);
  std::optional<Error> error;
  if (thread_.joinable()) {
    stopping_.store(true, std::memory_order_relaxed);
    thread_.join();
  }
  for (const auto& sink : sinks_) {
    sink->close();
    error = error ? error : sink->error();
  }
  sinks_.clear();
  files_.clear();
  return error;
}

std::vector<std::string> CaptureControl::files() const {
  const std::scoped_lock lock(mutex_);
  return files_;
}

void CaptureControl::write_files() {
  constexpr std::chrono::milliseconds pause{2};
  while (!stopping_.load(std::memory_order_relaxed)) {
    bool any = false;
    for (const auto& sink : sinks_) {
      any |= sink->drain();
    }
    if (!any) {
      std::this_thread::sleep_for(pause);
    }
  }
}

}  // namespace nbx::daemon
