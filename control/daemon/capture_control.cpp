#include "daemon/capture_control.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>

#include "port/jit_filter.hpp"

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
  std::vector<std::unique_ptr<capture::Filter>> filters;
  std::vector<capture::FileSinkOptions> wanted;
  if (!order.per_port) {
    wanted.push_back(sink_options(order));
  }
  for (const Source& source : sources_) {
    auto filter = port::make_jit_filter(order.filter);
    if (!filter) {
      return filter.error();
    }
    filters.push_back(std::move(*filter));
    if (order.per_port) {
      wanted.push_back(sink_options(order));
      wanted.back().path = with_port(order.file, source.port);
    }
    capture::FileSinkOptions& sink = wanted.back();
    sink.interfaces.push_back({.name = source.port, .description = "", .speed = {}});
    sink.sources.push_back({source.tap, static_cast<std::uint32_t>(sink.interfaces.size() - 1), filters.back().get()});
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
  std::move(filters.begin(), filters.end(), std::back_inserter(filters_));
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
  if (!filters_.empty() &&
      std::all_of(sources_.begin(), sources_.end(), [](const Source& s) { return s.next_turn(); })) {
    filters_.clear();  // otherwise a worker may still be in one
  }
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
