#include "replay/replay.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <ostream>

#include "base/net.hpp"
#include "capture/file_sink.hpp"
#include "capture/reader.hpp"
#include "pipeline/shard.hpp"
#include "replay/journal.hpp"

namespace nbx::replay {

namespace {

constexpr std::size_t frames_max = 1U << 16U;
constexpr std::size_t frame_bytes = 9600;
constexpr std::uint16_t link_type_ethernet = 1;

/// Turns that a ghost may keep the worker busy at one instant of virtual time before we call it stuck.
constexpr std::uint64_t turns_max = 10'000'000;

class Replay {
 public:
  Replay(const pipeline::ShardPlan& plan, const Options& options, std::int64_t first_ns)
      : options_(options),
        first_ns_(first_ns),
        frames_(frames_max, frame_bytes),
        tap_({.epoch_ns = static_cast<std::uint64_t>(first_ns)}, counters_),
        journal_(plan),
        shard_(plan, {.frames = &frames_,
                      .counters = &counters_,
                      .tap = options.output.empty() ? nullptr : &tap_,
                      .tap_inbound = options.with_input,
                      .observer = &journal_}),
        plan_(plan) {}

  std::optional<Error> open_output() {
    if (options_.output.empty()) {
      return std::nullopt;
    }
    capture::FileSinkOptions sink;
    sink.path = options_.output;
    sink.interfaces = {{.name = plan_.port_name, .description = "replay of " + options_.input}};
    sink.sources = {{.tap = &tap_, .interface = 0}};
    auto opened = capture::FileSink::open(std::move(sink));
    if (!opened) {
      return opened.error();
    }
    sink_ = std::move(*opened);
    return std::nullopt;
  }

  std::optional<Error> run(capture::Reader& reader) {
    shard_.start(Instant{});
    Instant last{};
    capture::Record record;
    for (bool first = true;; first = false) {
      auto more = reader.next(record);
      if (!more) {
        return Error{options_.input + ": byte " + std::to_string(more.error().offset) + ": " + more.error().reason};
      }
      if (!*more) {
        break;
      }
      if (reader.interfaces()[record.interface].link_type != link_type_ethernet) {
        return Error{options_.input + ": link type " + std::to_string(reader.interfaces()[record.interface].link_type) +
                     " is not Ethernet"};
      }
      const Instant at = first ? Instant{} : std::max(last, Instant{(record.timestamp_ns - first_ns_) * 1000});
      if (auto stuck = advance(at)) {
        return stuck;
      }
      last = at;
      now_ = at;
      feed(record, at);
      if (auto stuck = settle(at)) {
        return stuck;
      }
    }
    return finish(last);
  }

  void report(std::ostream& out) { journal_.report(out, shard_, counters_, now_, options_.json); }

 private:
  /// Fires everything that is due before `end`.
  std::optional<Error> advance(Instant end) {
    while (shard_.next_deadline() < end) {
      now_ = std::max(now_, shard_.next_deadline());
      if (auto stuck = settle(now_)) {
        return stuck;
      }
    }
    return std::nullopt;
  }

  std::optional<Error> finish(Instant last) {
    Instant requests_end = last;
    for (const pipeline::GhostPlan& ghost : plan_.ghosts) {
      for (const pipeline::StaticQp& qp : ghost.qps) {
        for (const pipeline::TimedRequest& request : qp.requests) {
          requests_end = std::max(requests_end, Instant{} + request.at);
        }
      }
    }
    const Instant end = requests_end + options_.linger;
    if (auto stuck = advance(end)) {
      return stuck;
    }
    now_ = end;
    if (sink_) {
      sink_->close();
      return sink_->error();
    }
    return std::nullopt;
  }

  void feed(const capture::Record& record, Instant now) {
    const auto size = record.captured.size();
    if (record.original_size > size) {
      ++journal_.input.truncated;
      return;
    }
    if (size >= 12 && shard_.directory().by_mac(wire::source_mac(record.captured)) != no_ghost) {
      ++journal_.input.from_ghosts;
      return;
    }
    Frame* frame = shard_.pool().alloc(size);
    if (frame == nullptr) {
      counters_.count(size > frame_bytes ? Drop::port_rx_oversize : Drop::frame_pool_empty);
      return;
    }
    if (size != 0) {
      std::memcpy(frame->data, record.captured.data(), size);
    }
    ++journal_.input.frames;
    FrameList burst;
    burst.push_back(*frame);
    shard_.receive(burst, now);
  }

  /// Runs the shard at `now` until it has nothing more to do at this instant.
  std::optional<Error> settle(Instant now) {
    for (std::uint64_t turn = 0; turn < turns_max; ++turn) {
      const bool more = shard_.progress(now);
      collect();
      if (!more && shard_.next_deadline() > now) {
        return std::nullopt;
      }
    }
    return Error{"the ghosts never came to rest at " + std::to_string(now.ps / 1000) + " ns of virtual time"};
  }

  void collect() {
    journal_.sent += drop_all(shard_.to_port());
    drop_all(shard_.to_kernel());
    for (std::uint32_t port = 0; port < plan_.ports; ++port) {
      drop_all(shard_.to_peer(PortId{static_cast<std::uint8_t>(port)}));
    }
    while (sink_ && sink_->drain()) {
    }
  }

  std::uint64_t drop_all(FrameList& frames) {
    std::uint64_t n = 0;
    while (Frame* frame = frames.pop_front()) {
      shard_.release(*frame);
      ++n;
    }
    return n;
  }

  const Options& options_;
  std::int64_t first_ns_;
  Instant now_{};
  Counters counters_;
  SlabSource frames_;
  capture::Tap tap_;
  Journal journal_;
  pipeline::Shard shard_;
  const pipeline::ShardPlan& plan_;
  std::unique_ptr<capture::FileSink> sink_;
};

/// The time of the first frame; nullopt when the file cannot be read or is empty, which the replay itself will say.
std::int64_t first_timestamp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  auto reader = capture::Reader::open(file);
  capture::Record record;
  if (!reader || !reader->next(record)) {
    return 0;
  }
  return record.timestamp_ns;
}

}  // namespace

Result<bool> replay(const pipeline::ShardPlan& plan, const Options& options, std::ostream& out) {
  std::ifstream file(options.input, std::ios::binary);
  if (!file) {
    return Error{options.input + ": " + std::strerror(errno)};
  }
  auto reader = capture::Reader::open(file);
  if (!reader) {
    return Error{options.input + ": byte " + std::to_string(reader.error().offset) + ": " + reader.error().reason};
  }
  Replay run(plan, options, first_timestamp(options.input));
  if (auto error = run.open_output()) {
    return *error;
  }
  if (auto error = run.run(*reader)) {
    return *error;
  }
  run.report(out);
  return true;
}

}  // namespace nbx::replay
