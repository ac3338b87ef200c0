#include "daemon/tracing.hpp"

#include "plan/plan.hpp"
#include "report/to_json.hpp"

namespace nbx::daemon {
namespace {

constexpr std::size_t steps_limit = 4'000'000;

/// Of a port: those that have the name, or share it as one ghost with a count. All when there is no name.
std::vector<GhostId> ghosts_named(const Emulator& emulator, const EmulatedPort& port, const std::string& name) {
  std::vector<GhostId> found;
  const auto ghosts = plan::ghosts_of(emulator.config(), port.config);
  for (std::uint32_t i = 0; i < ghosts.size(); ++i) {
    if (!name.empty() && (*ghosts[i]->name == name || ghosts[i]->group == name)) {
      found.push_back(GhostId{i});
    }
  }
  return found;
}

Result<Json> start(Emulator& emulator, const Json& request) {
  if (!emulator.config().transport.dcqcn) {
    return Error{"there is nothing to trace: the cluster file has no transport.dcqcn, so no rate ever changes"};
  }
  pipeline::TraceRequest wish;
  wish.steps_max = request.value("steps_max", wish.steps_max);
  if (wish.steps_max == 0 || wish.steps_max > steps_limit) {
    return Error{"steps_max is from 1 to " + std::to_string(steps_limit) + ", not " + std::to_string(wish.steps_max)};
  }
  wish.rates_only = request.value("rates_only", false);
  if (const std::uint32_t qpn = request.value("qpn", 0U); qpn != 0) {
    wish.qpn = Qpn{qpn};
  }
  const std::string port_name = request.value("port", "");
  const std::string ghost = request.value("ghost", "");
  std::size_t ports = 0;
  std::size_t queue_pairs = 0;
  for (const auto& port : emulator.ports()) {
    wish.ghosts = ghosts_named(emulator, *port, ghost);
    if ((!port_name.empty() && *port->config.name != port_name) || (!ghost.empty() && wish.ghosts.empty())) {
      continue;
    }
    const auto traced = port->ask([&](pipeline::Shard& shard, Instant) { return shard.rate_tracer().start(wish); });
    if (!traced) {
      return Error{"the worker of port " + *port->config.name + " does not answer"};
    }
    queue_pairs += *traced;
    ++ports;
  }
  if (ports == 0) {
    return Error{"there is no such " + (ghost.empty() ? "port: '" + port_name + "'" : "ghost: '" + ghost + "'")};
  }
  return Json{{"trace", "runs"}, {"queue_pairs", queue_pairs}};
}

}  // namespace

Result<Json> change_trace(Emulator& emulator, const Json& request) {
  const std::string action = request.value("action", "");
  if (action == "start") {
    return start(emulator, request);
  }
  if (action != "stop") {
    return Error{"a trace is started or stopped"};
  }
  for (const auto& port : emulator.ports()) {
    const auto stopped = port->ask([](pipeline::Shard& shard, Instant) {
      shard.rate_tracer().stop();
      return true;
    });
    if (!stopped) {
      return Error{"the worker of port " + *port->config.name + " does not answer"};
    }
  }
  return Json::object({{"trace", "stopped"}});
}

Json trace_json(Emulator& emulator) {
  struct Taken {
    std::vector<rdma::RateStep> steps;
    std::uint64_t dropped = 0;
  };
  Json doc = {{"steps", Json::array()}, {"dropped", 0}};
  std::uint64_t dropped = 0;
  for (const auto& port : emulator.ports()) {
    auto taken = port->ask([](pipeline::Shard& shard, Instant) {
      rdma::RateTrace* trace = shard.rate_tracer().trace();
      return trace == nullptr ? Taken{} : Taken{trace->take(), trace->dropped()};
    });
    if (!taken) {
      continue;
    }
    dropped += taken->dropped;
    std::stable_sort(taken->steps.begin(), taken->steps.end(),
                     [](const auto& a, const auto& b) { return a.step.time < b.step.time; });
    for (const rdma::RateStep& step : taken->steps) {
      doc["steps"].push_back(
          report::rate_step_json(step.step, port->plan.ghosts[index(step.ghost)].identity.name, step.qpn.value));
    }
  }
  doc["dropped"] = dropped;
  return doc;
}

}  // namespace nbx::daemon
