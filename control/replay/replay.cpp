#include "replay/replay.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "base/net.hpp"
#include "capture/file_sink.hpp"
#include "pipeline/shard_group.hpp"
#include "replay/journal.hpp"
#include "report/network_json.hpp"
#include "report/to_json.hpp"

namespace nbx::replay {

namespace {

using nlohmann::ordered_json;

constexpr std::size_t frames_max = 1U << 16U;
constexpr std::size_t frame_bytes = 9600;

/// Turns that a ghost may keep the worker busy at one instant of virtual time before we call it stuck.
constexpr std::uint64_t turns_max = 10'000'000;

/// A port with what it counts and says.
struct Port {
  Port(const pipeline::ShardPlan& its_plan, const Options& options, std::int64_t epoch_ns, FrameSource& frames,
       pipeline::SharedNetwork* network)
      : plan(its_plan),
        tap({.epoch_ns = static_cast<std::uint64_t>(epoch_ns)}, counters),
        journal(plan),
        shard(plan, {.frames = &frames,
                     .counters = &counters,
                     .tap = options.output.empty() ? nullptr : &tap,
                     .tap_inbound = options.with_input,
                     .observer = &journal,
                     .network = network}) {}

  /// Whether a frame in a capture is the emulator's own word: of one of its ghosts, or of somebody behind another port.
  [[nodiscard]] bool is_own(ConstBytes frame) const {
    if (frame.size() < 12) {
      return false;
    }
    const Mac source = wire::source_mac(frame);
    return shard.directory().by_mac(source) != no_ghost ||
           std::any_of(plan.elsewhere.begin(), plan.elsewhere.end(),
                       [&](const auto& known) { return known.first == source; });
  }

  const pipeline::ShardPlan& plan;
  Counters counters;
  capture::Tap tap;
  Journal journal;
  pipeline::Shard shard;
};

class Replay {
 public:
  Replay(const std::vector<pipeline::ShardPlan>& plans, const Options& options, std::int64_t first_ns)
      : options_(options), first_ns_(first_ns), frames_(frames_max, frame_bytes) {
    const pipeline::ShardPlan& first = plans.front();
    if (plans.size() > 1 && first.network) {
      network_ = std::make_unique<pipeline::SharedNetwork>(*first.network, Rng{first.seed}.fork("network"));
    }
    group_ = pipeline::ShardGroup(network_.get());
    for (const pipeline::ShardPlan& plan : plans) {
      Port& port = *ports_.emplace_back(std::make_unique<Port>(plan, options, first_ns, frames_, network_.get()));
      group_.add(port.shard, plan.port, plan.ports);
    }
  }

  std::optional<Error> open_output() {
    if (options_.output.empty()) {
      return std::nullopt;
    }
    std::string inputs;
    for (const InputFile& input : options_.inputs) {
      inputs += (inputs.empty() ? "" : ", ") + input.path;
    }
    capture::FileSinkOptions sink;
    sink.path = options_.output;
    for (const auto& port : ports_) {
      sink.sources.push_back({.tap = &port->tap, .interface = static_cast<std::uint32_t>(sink.interfaces.size())});
      sink.interfaces.push_back({.name = port->plan.port_name, .description = "replay of " + inputs});
    }
    auto opened = capture::FileSink::open(std::move(sink));
    if (!opened) {
      return opened.error();
    }
    sink_ = std::move(*opened);
    return std::nullopt;
  }

  std::optional<Error> run(Inputs& inputs) {
    group_.start(Instant{});
    Instant last{};
    for (;;) {
      const auto arrival = inputs.next();
      if (!arrival) {
        return arrival.error();
      }
      if (!*arrival) {
        return finish(last);
      }
      const Inputs::Arrival& in = **arrival;
      const Instant at = std::max(last, Instant{(in.record->timestamp_ns - first_ns_) * 1000});
      if (auto stuck = advance(at)) {
        return stuck;
      }
      last = at;
      now_ = at;
      feed(*ports_[in.port], in, at);
      if (auto stuck = settle(at)) {
        return stuck;
      }
    }
  }

  void report(std::ostream& out) {
    ordered_json doc;
    for (const auto& port : ports_) {
      ordered_json own = port->journal.report(port->shard, port->counters);
      if (ports_.size() == 1) {
        doc = std::move(own);
      } else {
        doc["ports"].push_back(std::move(own));
      }
    }
    if (const pipeline::EmulatedNetwork* network = ports_.front()->shard.network()) {
      doc["network"] = report::network_json(network->report(now_));
    }
    if (options_.json) {
      out << doc.dump(2) << '\n';
    } else if (ports_.size() == 1) {
      report::print_text(out, doc);
    } else {
      for (const ordered_json& port : doc["ports"]) {
        report::print_text(out, port);
        out << '\n';
      }
      doc.erase("ports");
      report::print_text(out, doc);
    }
  }

 private:
  /// Fires everything that is due before `end`.
  std::optional<Error> advance(Instant end) {
    while (group_.next_deadline() < end) {
      now_ = std::max(now_, group_.next_deadline());
      if (auto stuck = settle(now_)) {
        return stuck;
      }
    }
    return std::nullopt;
  }

  std::optional<Error> finish(Instant last) {
    Instant requests_end = last;
    for (const auto& port : ports_) {
      for (const pipeline::GhostPlan& ghost : port->plan.ghosts) {
        for (const pipeline::StaticQp& qp : ghost.qps) {
          for (const pipeline::TimedRequest& request : qp.requests) {
            requests_end = std::max(requests_end, Instant{} + request.at);
          }
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

  void feed(Port& port, const Inputs::Arrival& in, Instant now) {
    const capture::Record& record = *in.record;
    const auto size = record.captured.size();
    if (record.original_size > size) {
      ++port.journal.input.truncated;
      return;
    }
    if (port.is_own(record.captured) || (in.by_interface && record.direction == capture::Direction::outbound)) {
      ++port.journal.input.from_ghosts;
      return;
    }
    Frame* frame = port.shard.pool().alloc(size);
    if (frame == nullptr) {
      port.counters.count(size > frame_bytes ? Drop::port_rx_oversize : Drop::frame_pool_empty);
      return;
    }
    if (size != 0) {
      std::memcpy(frame->data, record.captured.data(), size);
    }
    ++port.journal.input.frames;
    FrameList burst;
    burst.push_back(*frame);
    port.shard.receive(burst, now);
  }

  /// Runs the shards at `now` until they have nothing more to do at this instant.
  std::optional<Error> settle(Instant now) {
    for (std::uint64_t turn = 0; turn < turns_max; ++turn) {
      const bool more = group_.progress(now);
      collect();
      if (!more) {
        return std::nullopt;
      }
    }
    return Error{"the ghosts never came to rest at " + std::to_string(now.ps / 1000) + " ns of virtual time"};
  }

  void collect() {
    for (const auto& port : ports_) {
      port->journal.sent += drop_all(port->shard, port->shard.to_port());
      drop_all(port->shard, port->shard.to_kernel());
    }
    while (sink_ && sink_->drain()) {
    }
  }

  static std::uint64_t drop_all(pipeline::Shard& shard, FrameList& frames) {
    std::uint64_t n = 0;
    while (Frame* frame = frames.pop_front()) {
      shard.release(*frame);
      ++n;
    }
    return n;
  }

  const Options& options_;
  std::int64_t first_ns_;
  Instant now_{};
  SlabSource frames_;
  std::unique_ptr<pipeline::SharedNetwork> network_;  // null: one port, or each with what its plan says
  std::vector<std::unique_ptr<Port>> ports_;
  pipeline::ShardGroup group_;
  std::unique_ptr<capture::FileSink> sink_;
};

}  // namespace

Result<bool> replay(const std::vector<pipeline::ShardPlan>& plans, const Options& options, std::ostream& out) {
  std::vector<std::string> names;
  for (const pipeline::ShardPlan& plan : plans) {
    names.push_back(plan.port_name);
  }
  auto inputs = Inputs::open(options.inputs, std::move(names));
  if (!inputs) {
    return inputs.error();
  }
  Replay run(plans, options, (*inputs)->first_ns());
  if (auto error = run.open_output()) {
    return *error;
  }
  if (auto error = run.run(**inputs)) {
    return *error;
  }
  run.report(out);
  return true;
}

}  // namespace nbx::replay
