#include "daemon/report.hpp"

#include "report/to_json.hpp"

namespace nbx::daemon {
namespace {

/// After stop() nobody owns the shard any more; before, its worker does.
template <class F>
auto ask_or_look(EmulatedPort& port, bool running, F&& f) {
  return running ? port.ask(f) : std::optional(f(*port.shard, Instant{}));
}

struct Delays {
  std::string profile;
  fabric::DelayStats from_node;
  fabric::DelayStats to_node;
};

Json port_report(EmulatedPort& port, bool running) {
  const auto delays = ask_or_look(port, running, [](pipeline::Shard& shard, Instant) {
    return Delays{shard.profile().name, shard.delay_stats(fabric::Direction::from_node),
                  shard.delay_stats(fabric::Direction::to_node)};
  });
  Json doc = {{"name", *port.config.name}};
  if (delays) {
    doc["profile"] = delays->profile;
    doc["delay"] = {{"from_node", report::delay_json(delays->from_node)},
                    {"to_node", report::delay_json(delays->to_node)}};
  }
  doc["counters"] = report::counters_json(port.counters);
  doc["drops"] = report::drops_json(port.counters);
  return doc;
}

}  // namespace

Json report_json(Emulator& emulator) {
  Json doc = {{"cluster", emulator.config().name},
              {"duration_s", std::chrono::duration<double>(emulator.uptime()).count()},
              {"ports", Json::array()}};
  for (const auto& port : emulator.ports()) {
    doc["ports"].push_back(port_report(*port, emulator.running()));
  }
  return doc;
}

}  // namespace nbx::daemon
