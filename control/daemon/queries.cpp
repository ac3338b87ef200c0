#include "daemon/queries.hpp"

#include <sstream>

#include "report/to_json.hpp"

namespace nbx::daemon {
namespace {

constexpr const char* no_answer = "does not answer";

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

std::uint64_t drops(const Counters& counters) {
  std::uint64_t sum = 0;
  for (std::size_t i = 1; i < drop_info.size(); ++i) {
    sum += counters.get(static_cast<Drop>(i));
  }
  return sum;
}

Json link_json(const port::Link& link) { return link.up ? Json("up") : Json("down"); }

/// What only the worker may count.
struct Population {
  std::string profile;
  std::size_t qps = 0;
  std::size_t connections = 0;
  std::size_t regions = 0;
  std::size_t frames_at_hand = 0;
  std::optional<std::string> deadlock;  // none: no emulated network
};

Population count(pipeline::Shard& shard, Instant now) {
  Population p{.profile = shard.profile().name,
               .qps = shard.transport().qp_count(),
               .connections = shard.cm().connections(),
               .regions = 0,
               .frames_at_hand = shard.pool().at_hand(),
               .deadlock = std::nullopt};
  for (std::uint32_t i = 0; i < shard.directory().size(); ++i) {
    p.regions += shard.transport().memory(GhostId{i}).size();
  }
  if (shard.network() != nullptr) {
    const auto cycle = switching::find_deadlock(shard.network()->network(), now);
    p.deadlock = cycle ? switching::describe(shard.network()->network(), *cycle) : "none";
  }
  return p;
}

Json port_status(Emulator& emulator, EmulatedPort& port) {
  const auto population = port.ask(count);
  const Counters& counters = port.counters;
  const port::Worker::Load load = port.worker->load();
  const double total = seconds(load.busy + load.idle);
  Json doc = {{"name", *port.config.name},
              {"link", link_json(port.device->link())},
              {"profile", population ? Json(population->profile) : Json()},
              {"rx_packets", counters.get(Counter::rx_packets_phy)},
              {"tx_packets", counters.get(Counter::tx_packets_phy)},
              {"drops", drops(counters)},
              {"ghosts", port.plan.ghosts.size()}};
  if (population) {
    doc["qps"] = population->qps;
    doc["connections"] = population->connections;
    doc["memory_regions"] = population->regions;
    if (population->deadlock) {
      doc["deadlock"] = *population->deadlock;
    }
    doc["frames_in_use"] = emulator.frames(port).in_use() - population->frames_at_hand;
  }
  doc["worker"] = population ? "runs" : no_answer;
  doc["worker_busy"] = total > 0 ? seconds(load.busy) / total : 0.0;
  return doc;
}

/// A queue pair's public part, taken along to be looked at elsewhere.
class QpCopy final : public rdma::Qp {
 public:
  explicit QpCopy(const rdma::Qp& qp) : rdma::Qp(qp) {}
};

struct GhostStatus {
  std::size_t regions = 0;
  std::vector<std::string> personalities;
};

std::vector<GhostStatus> ghost_statuses(pipeline::Shard& shard) {
  std::vector<GhostStatus> statuses;
  for (std::uint32_t i = 0; i < shard.directory().size(); ++i) {
    const GhostId id{i};
    GhostStatus& status = statuses.emplace_back();
    status.regions = shard.transport().memory(id).size();
    for (const auto& personality : shard.personalities(id)) {
      status.personalities.push_back(personality->status());
    }
  }
  return statuses;
}

Json addresses_json(const ghost::Identity& identity) {
  Json addresses = Json::array();
  for (const ghost::InterfaceAddress& address : identity.addresses) {
    addresses.push_back(to_string(address.ip) + "/" + std::to_string(address.prefix));
  }
  return addresses;
}

struct EventsCopy {
  std::vector<events::Spec> specs;
  std::vector<std::uint64_t> fired;
  std::vector<events::Firing> log;
};

EventsCopy copy_events(const pipeline::Shard& shard) {
  EventsCopy copy;
  if (const events::Table* table = shard.events(); table != nullptr) {
    copy.specs = table->specs();
    for (std::size_t i = 0; i < copy.specs.size(); ++i) {
      copy.fired.push_back(table->fired(i));
    }
    copy.log = table->log();
  }
  return copy;
}

Json silent_port(const EmulatedPort& port) { return {{"port", *port.config.name}, {"worker", no_answer}}; }

}  // namespace

Json dump_json(const DumpReport& dump) {
  Json doc = {{"file", dump.file},
              {"trigger", dump.trigger},
              {"port", dump.port},
              {"time_ns", dump.time_ns},
              {"frames", dump.frames},
              {"lost", dump.lost},
              {"passed_over", dump.passed_over}};
  if (!dump.error.empty()) {
    doc["error"] = dump.error;
  }
  return doc;
}

Json recorder_json(const RecorderControl& recorder) {
  Json dumps = Json::array();
  for (const DumpReport& dump : recorder.dumps()) {
    dumps.push_back(dump_json(dump));
  }
  return dumps;
}

Json status_json(Emulator& emulator) {
  Json doc = {{"cluster", emulator.config().name}, {"uptime_s", seconds(emulator.uptime())}};
  doc["exception_path"] =
      emulator.exception_path_trouble().empty() ? "works" : "missing: " + emulator.exception_path_trouble();
  doc["capture"] = emulator.capture().files();
  if (emulator.recorder() != nullptr) {
    doc["recorder"] = recorder_json(*emulator.recorder());
  }
  doc["ports"] = Json::array();
  for (const auto& port : emulator.ports()) {
    doc["ports"].push_back(port_status(emulator, *port));
  }
  return doc;
}

Json ports_json(Emulator& emulator) {
  Json ports = Json::array();
  for (const auto& port : emulator.ports()) {
    const port::Link link = port->device->link();
    ports.push_back({{"name", *port->config.name},
                     {"device", *port->config.device},
                     {"driver", port->device->driver()},
                     {"mtu", port->plan.mtu},
                     {"link", link_json(link)},
                     {"speed_gbps", link.speed.unlimited() ? Json() : Json(link.speed.bits_per_second / 1'000'000'000)},
                     {"rx_packets", port->counters.get(Counter::rx_packets_phy)},
                     {"rx_bytes", port->counters.get(Counter::rx_bytes_phy)},
                     {"tx_packets", port->counters.get(Counter::tx_packets_phy)},
                     {"tx_bytes", port->counters.get(Counter::tx_bytes_phy)},
                     {"frames_total", emulator.frames(*port).total()},
                     {"frames_outside_pool", emulator.frames(*port).in_use()}});
  }
  return {{"ports", std::move(ports)}};
}

Json qps_json(Emulator& emulator) {
  Json qps = Json::array();
  for (const auto& port : emulator.ports()) {
    const auto copies = port->ask([](pipeline::Shard& shard, Instant) {
      std::vector<QpCopy> copied;
      shard.transport().for_each_qp([&](const rdma::Qp& qp) { copied.emplace_back(qp); });
      return copied;
    });
    if (!copies) {
      qps.push_back(silent_port(*port));
      continue;
    }
    for (const QpCopy& qp : *copies) {
      qps.push_back({{"port", *port->config.name}});
      qps.back().update(report::qp_json(qp, port->plan.ghosts[index(qp.ghost())].identity.name));
    }
  }
  return {{"qps", std::move(qps)}};
}

Json ghosts_json(Emulator& emulator) {
  Json ghosts = Json::array();
  for (const auto& port : emulator.ports()) {
    const auto statuses = port->ask([](pipeline::Shard& shard, Instant) { return ghost_statuses(shard); });
    if (!statuses) {
      ghosts.push_back(silent_port(*port));
      continue;
    }
    for (std::size_t i = 0; i < statuses->size(); ++i) {
      const ghost::Identity& identity = port->plan.ghosts[i].identity;
      ghosts.push_back({{"name", identity.name},
                        {"port", *port->config.name},
                        {"mac", to_string(identity.mac)},
                        {"addresses", addresses_json(identity)},
                        {"memory_regions", (*statuses)[i].regions},
                        {"personalities", (*statuses)[i].personalities}});
    }
  }
  return {{"ghosts", std::move(ghosts)}};
}

Json events_json(Emulator& emulator) {
  Json doc = {{"events", Json::array()}, {"firings", Json::array()}};
  for (const auto& port : emulator.ports()) {
    const auto copied = emulator.ask(*port, [](const pipeline::Shard& shard) { return copy_events(shard); });
    if (!copied) {
      doc["events"].push_back(silent_port(*port));
      continue;
    }
    for (std::size_t i = 0; i < copied->specs.size(); ++i) {
      doc["events"].push_back({{"port", *port->config.name},
                               {"number", i + 1},
                               {"event", copied->specs[i].name},
                               {"direction", report::name(copied->specs[i].direction)},
                               {"fired", copied->fired[i]}});
    }
    for (const events::Firing& firing : copied->log) {
      const bool ghost = firing.ghost != no_ghost;
      doc["firings"].push_back({{"port", *port->config.name}});
      doc["firings"].back().update(
          report::firing_json(firing, copied->specs[firing.event].name,
                              ghost ? port->plan.ghosts[index(firing.ghost)].identity.name : std::string()));
    }
  }
  return doc;
}

Json traffic_json(Emulator& emulator) {
  struct Copy {
    traffic::Spec spec;
    traffic::Stats stats;
    Duration active{};
  };
  const Instant now = Instant{} + emulator.uptime();
  Json doc = {{"traffic", Json::array()}};
  EmulatedPort& first = *emulator.ports().front();  // all ports have the same network
  const auto copied = emulator.ask(first, [now](const pipeline::Shard& shard) {
    std::vector<Copy> copies;
    const traffic::Engine* engine = shard.traffic();
    for (std::size_t i = 0; engine != nullptr && i < engine->size(); ++i) {
      copies.push_back({engine->spec(i), engine->stats(i), engine->active(i, now)});
    }
    return copies;
  });
  if (!copied) {
    doc["traffic"].push_back(silent_port(first));
    return doc;
  }
  for (const Copy& copy : *copied) {
    doc["traffic"].push_back(report::traffic_json(copy.spec, copy.stats, copy.active));
  }
  return doc;
}

Json counters_json(Emulator& emulator, const std::string& port_name) {
  const auto sum = [&](auto which) {
    std::uint64_t n = 0;
    for (const auto& port : emulator.ports()) {
      n += port_name.empty() || *port->config.name == port_name ? port->counters.get(which) : 0;
    }
    return n;
  };
  Json doc = Json::object();
  for (std::size_t i = 0; i < counter_info.size(); ++i) {
    doc[std::string(counter_info[i].name)] = sum(static_cast<Counter>(i));
  }
  for (std::size_t i = 1; i < drop_info.size(); ++i) {
    doc[std::string(drop_info[i].name)] = sum(static_cast<Drop>(i));
  }
  return doc;
}

std::string metrics_text(Emulator& emulator) {
  std::ostringstream text;
  for (std::size_t i = 0; i < counter_info.size(); ++i) {
    const CounterInfo& info = counter_info[i];
    text << "# HELP nbx_" << info.name << ' ' << info.help << "\n# TYPE nbx_" << info.name << " counter\n";
    for (const auto& port : emulator.ports()) {
      text << "nbx_" << info.name << "{port=\"" << *port->config.name << "\"} "
           << port->counters.get(static_cast<Counter>(i)) << '\n';
    }
  }
  text << "# HELP nbx_drops Frames that went no further, by reason\n# TYPE nbx_drops counter\n";
  for (std::size_t i = 1; i < drop_info.size(); ++i) {
    for (const auto& port : emulator.ports()) {
      text << "nbx_drops{port=\"" << *port->config.name << "\",reason=\"" << drop_info[i].name << "\"} "
           << port->counters.get(static_cast<Drop>(i)) << '\n';
    }
  }
  return text.str();
}

}  // namespace nbx::daemon
