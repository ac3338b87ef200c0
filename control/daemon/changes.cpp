#include "daemon/changes.hpp"

#include <algorithm>
#include <sstream>

#include "config/checks.hpp"
#include "config/load.hpp"
#include "config/scalar.hpp"
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

/// The cables of the emulated network that a request names; none: it means the link of the port.
Result<std::vector<std::uint32_t>> cables_of(Emulator& emulator, const Json& request) {
  const std::string name = text_at(request, "cable");
  if (name.empty()) {
    return std::vector<std::uint32_t>{};
  }
  const config::ClusterConfig& config = emulator.config();
  if (!config.network) {
    return Error{"there is no emulated network"};
  }
  if (!text_at(request, "direction").empty()) {
    return Error{"a cable goes down in both directions"};
  }
  auto cables = config::cables_of(config::topology_of(*config.network), name, config::host_names(config));
  if (cables.empty()) {
    return Error{config::no_cable(name)};
  }
  return cables;
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

/// "a.b" and "v" as YAML: {a: {b: v}}.
std::string nested(const std::string& key, const std::string& value) {
  std::string text;
  std::istringstream parts(key);
  std::string closing;
  for (std::string part; std::getline(parts, part, '.');) {
    text += "{" + part + ": ";
    closing += "}";
  }
  return text + value + closing;
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
  if (action != "start" || text_at(request, "file").empty()) {
    return Error{"a capture is started with a file, or stopped"};
  }
  CaptureOrder order;
  order.file = text_at(request, "file");
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
  config::LoadedProfile changed{.profile = (*port)->config.profile, .diagnostics = {}};
  const Json values = request.value("values", Json::object());
  for (const auto& [key, value] : values.items()) {
    if (!value.is_string()) {
      return Error{key + ": the value is given as text, as in a file"};
    }
    changed = config::change_profile(changed.profile, key, nested(key, value));
    if (!changed.ok()) {
      return Error{text_of(changed.diagnostics)};
    }
  }
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
  const Result<std::vector<std::uint32_t>> cables = cables_of(emulator, request);
  if (!cables) {
    return cables.error();
  }
  const auto applied = (*port)->ask([&](pipeline::Shard& shard, Instant now) {
    const Instant until = !down ? now : limit ? now + *limit : Instant::never();
    if (cables->empty()) {
      shard.take_down(until, way != "to_node", way != "from_node");
    } else {
      shard.take_cables_down(*cables, until, now);
    }
    return true;
  });
  if (!applied) {
    return Error{"the worker of port " + *(*port)->config.name + " does not answer; its link is unchanged"};
  }
  Json answer = {{"port", *(*port)->config.name}, {"link", down ? "down" : "up"}};
  if (!cables->empty()) {
    answer["cable"] = text_at(request, "cable");
  }
  if (down && limit) {
    answer["for"] = time;
  }
  return answer;
}

}  // namespace nbx::daemon
