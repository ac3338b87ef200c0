#include "daemon/recorder_control.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "capture/capture_file.hpp"

namespace nbx::daemon {
namespace {

using std::chrono::steady_clock;
constexpr std::chrono::milliseconds pause{5};
constexpr std::chrono::seconds patience{2};  // with a worker, beyond the time that passes after a trigger

std::string numbered(const std::string& file, std::size_t number) {
  std::filesystem::path path(file);
  const std::string extension = path.extension();
  return path.replace_extension("." + std::to_string(number) + extension);
}

std::string comment_of(const DumpReport& report) {
  std::string fraction = std::to_string(report.time_ns % 1'000'000'000);
  fraction.insert(0, 9 - fraction.size(), '0');
  return "nbx: trigger=" + report.trigger + " port=" + report.port +
         " time=" + std::to_string(report.time_ns / 1'000'000'000) + "." + fraction +
         " lost=" + std::to_string(report.lost) + " passed_over=" + std::to_string(report.passed_over);
}

}  // namespace

RecorderControl::RecorderControl(const config::Recorder& config, std::vector<Source> sources)
    : config_(config), sources_(std::move(sources)), thread_([this] { run(); }) {}

void RecorderControl::stop() {
  stopping_.store(true, std::memory_order_relaxed);
  if (thread_.joinable()) {
    thread_.join();
  }
}

std::vector<DumpReport> RecorderControl::dumps() const {
  const std::scoped_lock lock(mutex_);
  return dumps_;
}

bool RecorderControl::armed() const { return dumps().size() < config_.dumps_max; }

Result<DumpReport> RecorderControl::trigger() {
  const std::size_t before = dumps().size();
  if (before >= config_.dumps_max) {
    return Error{"the flight recorder has written its " + std::to_string(before) +
                 " dumps; raise recorder.dumps_max in the cluster file"};
  }
  sources_.front().recorder->trigger(capture::Trigger::command);
  constexpr std::chrono::seconds answer_limit{8};  // the client waits for 10 s
  const auto end = steady_clock::now() + answer_limit;
  while (steady_clock::now() < end) {
    if (const std::vector<DumpReport> now = dumps(); now.size() > before) {
      return now[before].error.empty() ? Result<DumpReport>(now[before]) : Error{now[before].error};
    }
    std::this_thread::sleep_for(pause);
  }
  return Error{"the dump is not written yet; nbx status will show it"};
}

void RecorderControl::run() {
  for (;;) {
    const bool last = stopping_.load(std::memory_order_relaxed);
    const auto first =
        std::find_if(sources_.begin(), sources_.end(), [](const Source& s) { return s.recorder->due(); });
    const bool dumped = first != sources_.end() && dump(*first);
    if (last && !dumped) {
      return;
    }
    std::this_thread::sleep_for(pause);
  }
}

bool RecorderControl::dump(const Source& first) {
  const std::vector<Source> frozen = all_frozen(first);
  DumpReport report;
  if (!frozen.empty()) {
    write(frozen, report);
    if (report.error.empty()) {
      spdlog::info("flight recorder: {} at port {}: {} frames in {}, {} lost", report.trigger, report.port,
                   report.frames, report.file, report.lost);
    } else {
      spdlog::error("flight recorder: {} at port {}: {}", report.trigger, report.port, report.error);
    }
    const std::scoped_lock lock(mutex_);
    dumps_.push_back(std::move(report));
  }
  for (const Source& source : frozen) {
    source.recorder->release(armed());
  }
  return !frozen.empty();
}

/// Those whose workers answer in time.
std::vector<RecorderControl::Source> RecorderControl::all_frozen(const Source& first) {
  for (const Source& source : sources_) {
    if (!source.recorder->due()) {
      source.recorder->trigger(capture::Trigger::elsewhere);
    }
  }
  std::vector<Source> frozen;
  const auto end = steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(config_.after) + patience;
  do {
    std::this_thread::sleep_for(pause);
    frozen.clear();
    std::copy_if(sources_.begin(), sources_.end(), std::back_inserter(frozen),
                 [](const Source& s) { return s.recorder->frozen().has_value(); });
  } while (frozen.size() < sources_.size() && steady_clock::now() < end);
  // The one that saw the trigger names the dump.
  std::stable_partition(frozen.begin(), frozen.end(),
                        [&first](const Source& s) { return s.recorder == first.recorder; });
  return frozen;
}

void RecorderControl::write(const std::vector<Source>& frozen, DumpReport& report) {
  capture::CaptureFileOptions options;
  options.snaplen = config_.snaplen == 0 ? capture::snaplen_default : config_.snaplen;
  std::vector<std::uint64_t> lost;
  for (const Source& source : frozen) {
    const auto dump = *source.recorder->frozen();
    lost.push_back(dump.lost);
    report.lost += dump.lost;
    report.passed_over += dump.passed_over;
    options.interfaces.push_back({.name = source.port, .description = "", .speed = {}});
  }
  const auto first = *frozen.front().recorder->frozen();
  report.trigger = capture::name(first.why);
  report.port = frozen.front().port;
  report.time_ns = first.time_ns;
  report.file = numbered(*config_.file, dumps().size() + 1);
  options.comment = comment_of(report);
  capture::CaptureFile file(report.file, options);
  while (!file.error()) {
    std::uint32_t oldest = 0;
    MutableBytes record;
    for (std::uint32_t i = 0; i < frozen.size(); ++i) {
      const MutableBytes candidate = frozen[i].recorder->front();
      if (!candidate.empty() && (record.empty() || capture::epb_time(candidate) < capture::epb_time(record))) {
        oldest = i;
        record = candidate;
      }
    }
    if (record.empty()) {
      break;
    }
    file.write(record, oldest);
    frozen[oldest].recorder->pop(record);
  }
  report.frames = file.packets();
  file.finish(lost);
  report.error = file.error() ? file.error()->message : "";
}

}  // namespace nbx::daemon
