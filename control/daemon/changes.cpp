#include "daemon/changes.hpp"

#include <algorithm>
#include <sstream>

#include "config/change.hpp"
#include "config/checks.hpp"
#include "config/load.hpp"
#include "config/scalar.hpp"
#include "daemon/queries.hpp"
#include "plan/plan.hpp"

namespace nbx::daemon {
namespace {

std::string text_of(const config::Diagnostics& diagnostics) {
  std::ostringstream lines;
  for (const config::Diagnostic& diagnostic : diagnostics) {
    lines << diagnostic;
  }
  std::string text = lines.str();
  text.pop_back();  // the end of the last line
  return text;
}

std::string text_at(const Json& request, const char* key) {
  const auto found = request.find(key);
  return found != request.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Result<EmulatedPort*> port_of(Emulator& emulator, const Json& request) {
  const std::string name = text_at(request, "port");
  EmulatedPort* port = emulator.find_port(name);
  if (port == nullptr) {
    return Error{"there is no port '" + name + "'"};
  }
  return port;
}

/// The links of the emulated network that a request names; none: it means the link of the port.
Result<std::vector<switching::LinkId>> links_of(Emulator& emulator, const Json& request) {
  const std::string name = text_at(request, "cable");
  if (name.empty()) {
    return std::vector<switching::LinkId>{};
  }
  const config::ClusterConfig& config = emulator.config();
  if (!config.network) {
    return Error{"there is no emulated network"};
  }
  if (!text_at(request, "direction").empty()) {
    return Error{"one direction of a cable is called by its ends, as in --cable 'leaf0->spine1'"};
  }
  const switching::Topology topology = config::topology_of(*config.network);
  auto links = config::links_of(topology, name, config::host_names(config));
  if (links.empty()) {
    return Error{config::no_cable(topology, name, config::host_names(config))};
  }
  return links;
}

Result<Json> apply(Emulator& emulator, EmulatedPort& port, config::LoadedProfile loaded) {
  if (loaded.ok()) {
    config::check_profile(loaded.profile, port.config, emulator.config(), loaded.diagnostics);
  }
  if (!loaded.ok()) {
    config::sort(loaded.diagnostics);
    return Error{text_of(loaded.diagnostics)};
  }
  const fabric::ProfileSpec spec = plan::make_profile(loaded.profile, port.config, emulator.config());
  const auto applied = port.ask([&](pipeline::Shard& shard, Instant now) {
    shard.replace_profile(spec, now);
    return true;
  });
  if (!applied) {
    return Error{"the worker of port " + *port.config.name + " does not answer; its profile is unchanged"};
  }
  port.config.profile = std::move(loaded.profile);
  return Json{{"port", *port.config.name}, {"profile", spec.name}};
}

/// The values of a request, as a file would say them.
config::Value tree_of(const Json& request, config::Diagnostics& out) {
  std::vector<std::pair<std::string, std::string>> values;
  const Json said = request.value("values", Json::object());
  for (const auto& [key, value] : said.items()) {
    values.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return config::tree_of(values, out);
}

Error no_answer(const EmulatedPort& port) { return {"the worker of port " + *port.config.name + " does not answer"}; }

std::optional<config::NetworkPart> part_called(const std::string& word) {
  using enum config::NetworkPart;
  return word == "storm"           ? std::optional(storm)
         : word == "slow_receiver" ? std::optional(slow_receiver)
         : word == "traffic"       ? std::optional(traffic)
                                   : std::nullopt;
}

/// A part of the network with the limits of the file, and one more: what pauses the real node ends by itself.
Result<Json> start_part(Emulator& emulator, EmulatedPort& port, config::NetworkPart part, const Json& request) {
  constexpr Duration slow_max = std::chrono::minutes{1};
  config::Diagnostics wrong;
  const config::Value keys = tree_of(request, wrong);
  config::Loaded loaded = config::with_part(emulator.config(), part, *port.config.name, keys);
  loaded.diagnostics.insert(loaded.diagnostics.end(), wrong.begin(), wrong.end());
  if (!loaded.ok()) {
    return Error{text_of(loaded.diagnostics)};
  }
  if (part == config::NetworkPart::slow_receiver) {
    const Duration lasts = loaded.config.network->slow_receivers.front().lasts;
    if (lasts == Duration::zero() || lasts > slow_max) {
      return Error{"'lasts' is needed, a minute at most: a slow receiver pauses the real node"};
    }
  }
  const auto plans = plan::make_plans(loaded.config);
  const pipeline::NetworkPlan& wanted = *plans.front().network;
  const PortId id = port.plan.port;
  const pipeline::NetworkPort& behind = wanted.ports[index(id)];
  if (part == config::NetworkPart::slow_receiver && std::none_of(behind.receivers.begin(), behind.receivers.end(),
                                                                 [](const auto& each) { return each.has_value(); })) {
    return Error{"none of these ghosts is behind port '" + *port.config.name + "'"};
  }
  const auto done = port.ask([&](pipeline::Shard& shard, Instant now) {
    pipeline::EmulatedNetwork& network = *shard.network();
    if (behind.storm) {
      network.set_storm(id, behind.storm, now);
    }
    for (std::uint32_t i = 0; i < behind.receivers.size(); ++i) {
      if (behind.receivers[i]) {
        network.set_receiver(id, GhostId{i}, behind.receivers[i], now);
      }
    }
    return wanted.traffic.empty() || network.traffic().add(wanted.traffic.front(), now);
  });
  if (!done) {
    return no_answer(port);
  }
  if (!*done) {
    return Error{"traffic '" + wanted.traffic.front().name + "' is at work; stop it first"};
  }
  return Json{{"port", *port.config.name}};
}

Result<Json> stop_part(Emulator& emulator, EmulatedPort& port, config::NetworkPart part, const Json& request) {
  const std::string name = text_at(request, "name");
  std::vector<GhostId> ghosts;
  const auto of_port = plan::ghosts_of(emulator.config(), port.config);
  for (std::uint32_t i = 0; i < of_port.size(); ++i) {
    if (config::names_ghost(name, *of_port[i]->name)) {
      ghosts.push_back(GhostId{i});
    }
  }
  if (part == config::NetworkPart::slow_receiver && ghosts.empty()) {
    return Error{"there is no ghost '" + name + "' behind port '" + *port.config.name + "'"};
  }
  const auto done = port.ask([&](pipeline::Shard& shard, Instant now) {
    pipeline::EmulatedNetwork& network = *shard.network();
    switch (part) {
      case config::NetworkPart::storm:
        network.set_storm(port.plan.port, std::nullopt, now);
        return true;
      case config::NetworkPart::slow_receiver:
        for (const GhostId ghost : ghosts) {
          network.set_receiver(port.plan.port, ghost, std::nullopt, now);
        }
        return true;
      case config::NetworkPart::traffic:
        return network.traffic().stop(name, now);
    }
    return false;
  });
  if (!done) {
    return no_answer(port);
  }
  return *done ? Result<Json>(Json{{"port", *port.config.name}}) : Error{"no traffic '" + name + "' is at work"};
}

}  // namespace

Result<Json> change_capture(Emulator& emulator, const Json& request) {
  const std::string action = text_at(request, "action");
  if (action == "stop") {
    const std::vector<std::string> files = emulator.capture().files();
    if (files.empty()) {
      return Error{"no capture runs"};
    }
    if (const auto error = emulator.capture().stop()) {
      return Error{"the capture ended early: " + error->message};
    }
    return Json::object({{"files", files}});
  }
  if (action == "trigger") {
    if (emulator.recorder() == nullptr) {
      return Error{"there is no flight recorder; add a recorder section to the cluster file"};
    }
    const auto dump = emulator.recorder()->trigger();
    return dump ? Result<Json>(dump_json(*dump)) : dump.error();
  }
  if (action != "start" || text_at(request, "file").empty()) {
    return Error{"a capture is started with a file, stopped, or triggered"};
  }
  CaptureOrder order;
  order.file = text_at(request, "file");
  order.filter = text_at(request, "filter");
  order.snaplen = request.value("snaplen", 0U);
  order.per_port = request.value("per_port", false);
  if (const auto error = emulator.capture().start(order)) {
    return *error;
  }
  return Json::object({{"files", emulator.capture().files()}});
}

Result<Json> load_profile(Emulator& emulator, const Json& request) {
  const Result<EmulatedPort*> port = port_of(emulator, request);
  if (!port) {
    return port.error();
  }
  const std::string text = text_at(request, "inline");
  return apply(
      emulator, **port,
      text.empty() ? config::load_profile(text_at(request, "file")) : config::change_profile({}, "request", text));
}

Result<Json> set_values(Emulator& emulator, const Json& request) {
  const Result<EmulatedPort*> port = port_of(emulator, request);
  if (!port) {
    return port.error();
  }
  config::Diagnostics wrong;
  const config::Value keys = tree_of(request, wrong);
  config::LoadedProfile changed = config::change_profile((*port)->config.profile, keys);
  changed.diagnostics.insert(changed.diagnostics.end(), wrong.begin(), wrong.end());
  return apply(emulator, **port, std::move(changed));
}

Result<Json> change_link(Emulator& emulator, const Json& request) {
  const Result<EmulatedPort*> port = port_of(emulator, request);
  if (!port) {
    return port.error();
  }
  const bool down = request.value("down", true);
  const std::string time = text_at(request, "for");
  std::optional<Duration> limit;
  if (!time.empty()) {
    const Result<Duration> parsed = config::Scalar<Duration>::parse({time});
    if (!parsed) {
      return Error{"for: " + parsed.error().message};
    }
    limit = *parsed;
  }
  const std::string way = text_at(request, "direction");
  if (!way.empty() && way != "from_node" && way != "to_node") {
    return Error{"direction: from_node or to_node, not '" + way + "'"};
  }
  const Result<std::vector<switching::LinkId>> links = links_of(emulator, request);
  if (!links) {
    return links.error();
  }
  const auto applied = (*port)->ask([&](pipeline::Shard& shard, Instant now) {
    const Instant until = !down ? now : limit ? now + *limit : Instant::never();
    if (links->empty()) {
      shard.take_down(until, way != "to_node", way != "from_node");
    } else {
      shard.take_links_down(*links, until, now);
    }
    return true;
  });
  if (!applied) {
    return Error{"the worker of port " + *(*port)->config.name + " does not answer; its link is unchanged"};
  }
  Json answer = {{"port", *(*port)->config.name}, {"link", down ? "down" : "up"}};
  if (!links->empty()) {
    answer["cable"] = text_at(request, "cable");
  }
  if (down && limit) {
    answer["for"] = time;
  }
  return answer;
}

Result<Json> change_network(Emulator& emulator, const Json& request) {
  const Result<EmulatedPort*> port = port_of(emulator, request);
  if (!port) {
    return port.error();
  }
  if (!(*port)->plan.network) {
    return Error{"there is no emulated network behind port '" + *(*port)->config.name + "'"};
  }
  const std::string word = text_at(request, "part");
  const std::optional<config::NetworkPart> part = part_called(word);
  if (!part) {
    return Error{"part: storm, slow_receiver or traffic, not '" + word + "'"};
  }
  const bool start = request.value("start", true);
  Result<Json> done = (start ? start_part : stop_part)(emulator, **port, *part, request);
  if (done) {
    (*done)[word] = start ? "started" : "stopped";
  }
  return done;
}

}  // namespace nbx::daemon
