#include "client/client.hpp"

#include <httplib.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <ostream>
#include <thread>

#include "report/to_json.hpp"

namespace nbx::client {
namespace {

constexpr int exit_fine = 0;
constexpr int exit_failed = 1;
constexpr int exit_usage = 2;
constexpr time_t answer_limit_s = 10;

httplib::Client connect(const std::string& socket) {
  httplib::Client http(socket, 1);  // the port means nothing to a UNIX socket
  http.set_address_family(AF_UNIX);
  http.set_read_timeout(answer_limit_s);
  return http;
}

Result<Json> read(const std::string& socket, const httplib::Result& result) {
  if (!result) {
    if (result.error() == httplib::Error::Read) {
      return Error{"nbxd at " + socket + " does not answer"};
    }
    return Error{"no nbxd at " + socket + "; start one with nbxd CLUSTER.yaml, or name its socket with --control"};
  }
  Json doc = Json::parse(result->body, nullptr, false);
  if (result->status == 200 && !doc.is_discarded()) {
    return doc;
  }
  const bool explained = doc.is_object() && doc.contains("error") && doc["error"].is_string();
  return Error{explained ? doc["error"].get<std::string>()
                         : "nbxd answered with status " + std::to_string(result->status)};
}

void print(const Json& doc, const Options& options, std::ostream& out) {
  if (options.json) {
    out << doc.dump(2) << '\n';
  } else {
    report::print_text(out, doc);
  }
  out.flush();
}

int finish(const Result<Json>& answer, const Options& options, std::ostream& out, std::ostream& err) {
  if (!answer) {
    err << "nbx: error: " << answer.error().message << '\n';
    return exit_failed;
  }
  print(*answer, options, out);
  return exit_fine;
}

/// Once, or again and again on a cleared screen.
template <class Ask>
int repeat(Ask&& ask, const Options& options, std::ostream& out, std::ostream& err) {
  constexpr const char* clear_screen = "\033[H\033[2J";
  while (options.watch) {
    out << (options.json ? "" : clear_screen);
    if (const int status = finish(ask(), options, out, err); status != exit_fine) {
      return status;
    }
    std::this_thread::sleep_for(std::chrono::seconds{1});
  }
  return finish(ask(), options, out, err);
}

Json nonzero(const Json& doc) {
  Json kept = Json::object();
  for (const auto& [name, value] : doc.items()) {
    if (value != 0) {
      kept[name] = value;
    }
  }
  return kept;
}

/// KEY=VALUE each.
Result<Json> keys_and_values(const std::vector<std::string>& values) {
  Json wanted = Json::object();
  for (const std::string& value : values) {
    const std::size_t equals = value.find('=');
    if (equals == std::string::npos || equals == 0) {
      return Error{"'" + value + "' is not KEY=VALUE"};
    }
    wanted[value.substr(0, equals)] = value.substr(equals + 1);
  }
  return wanted;
}

/// nbxd has a working directory of its own.
std::string absolute(const std::string& path) { return std::filesystem::absolute(path).string(); }

}  // namespace

std::string default_control_socket() {
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr && *runtime != '\0') {
    return std::string(runtime) + "/nbxd.sock";
  }
  return geteuid() == 0 ? "/run/nbxd.sock" : "/tmp/nbxd-" + std::to_string(geteuid()) + ".sock";
}

Result<Json> Client::get(const std::string& path) const { return read(socket_, connect(socket_).Get(path)); }

Result<Json> Client::post(const std::string& path, const Json& body) const {
  return read(socket_, connect(socket_).Post(path, body.dump(), "application/json"));
}

int show(const std::string& question, const Options& options, std::ostream& out, std::ostream& err) {
  const Client client(options.socket);
  return repeat([&] { return client.get("/" + question); }, options, out, err);
}

int counters(const std::string& port, const Options& options, std::ostream& out, std::ostream& err) {
  const Client client(options.socket);
  const auto ask = [&]() -> Result<Json> {
    auto answer = client.get(port.empty() ? "/counters" : "/counters?port=" + port);
    return answer && !options.json ? Result<Json>(nonzero(*answer)) : answer;
  };
  return repeat(ask, options, out, err);
}

int start_capture(const CaptureStart& start, const Options& options, std::ostream& out, std::ostream& err) {
  const Json body = {{"action", "start"},
                     {"file", absolute(start.file)},
                     {"filter", start.filter},
                     {"snaplen", start.snaplen},
                     {"per_port", start.per_port}};
  return finish(Client(options.socket).post("/capture", body), options, out, err);
}

int trigger_capture(const Options& options, std::ostream& out, std::ostream& err) {
  return finish(Client(options.socket).post("/capture", {{"action", "trigger"}}), options, out, err);
}

int stop_capture(const Options& options, std::ostream& out, std::ostream& err) {
  return finish(Client(options.socket).post("/capture", {{"action", "stop"}}), options, out, err);
}

int set(const std::string& port, const std::vector<std::string>& values, const Options& options, std::ostream& out,
        std::ostream& err) {
  const Result<Json> wanted = keys_and_values(values);
  if (!wanted) {
    err << "nbx: error: " << wanted.error().message << ", as in to_node.delay=5ms\n";
    return exit_usage;
  }
  return finish(Client(options.socket).post("/set", {{"port", port}, {"values", *wanted}}), options, out, err);
}

int start_part(const std::string& port, const std::string& part, const std::vector<std::string>& values,
               const Options& options, std::ostream& out, std::ostream& err) {
  const Result<Json> wanted = keys_and_values(values);
  if (!wanted) {
    err << "nbx: error: " << wanted.error().message << '\n';
    return exit_usage;
  }
  const Json body = {{"port", port}, {"part", part}, {"start", true}, {"values", *wanted}};
  return finish(Client(options.socket).post("/network", body), options, out, err);
}

int stop_part(const std::string& port, const std::string& part, const std::string& name, const Options& options,
              std::ostream& out, std::ostream& err) {
  const Json body = {{"port", port}, {"part", part}, {"start", false}, {"name", name}};
  return finish(Client(options.socket).post("/network", body), options, out, err);
}

int load_profile(const std::string& port, const std::string& profile, const Options& options, std::ostream& out,
                 std::ostream& err) {
  const std::string file = std::filesystem::exists(profile) ? absolute(profile) : profile;
  return finish(Client(options.socket).post("/profile", {{"port", port}, {"file", file}}), options, out, err);
}

namespace {

volatile std::sig_atomic_t interrupted = 0;

}  // namespace

int trace(const TraceOrder& order, const Options& options, std::ostream& out, std::ostream& err) {
  const Client client(options.socket);
  const auto fail = [&](const Error& error) {
    err << "nbx: error: " << error.message << '\n';
    return exit_failed;
  };
  const auto started = client.post("/trace", {{"action", "start"},
                                              {"port", order.port},
                                              {"ghost", order.ghost},
                                              {"qpn", order.qpn},
                                              {"steps_max", order.steps_max},
                                              {"rates_only", order.rates_only}});
  if (!started) {
    return fail(started.error());
  }
  std::signal(SIGINT, [](int) { interrupted = 1; });
  std::signal(SIGTERM, [](int) { interrupted = 1; });
  if (!options.json) {
    out << report::rate_csv_header() << '\n';
  }
  const auto begin = std::chrono::steady_clock::now();
  Json all = {{"steps", Json::array()}, {"dropped", 0}};
  for (bool over = false; !over;) {
    over = interrupted != 0 || std::chrono::steady_clock::now() - begin >= order.time;
    auto taken = client.get("/trace");
    if (!taken) {
      return fail(taken.error());
    }
    all["dropped"] = (*taken)["dropped"];
    if (options.json) {
      all["steps"].insert(all["steps"].end(), (*taken)["steps"].begin(), (*taken)["steps"].end());
    } else {
      report::print_rate_csv(out, (*taken)["steps"]);
    }
    if (!over) {
      std::this_thread::sleep_for(std::chrono::milliseconds{100});
    }
  }
  if (const auto stopped = client.post("/trace", {{"action", "stop"}}); !stopped) {
    return fail(stopped.error());
  }
  if (options.json) {
    out << all.dump(2) << '\n';
  } else if (all["dropped"] != 0) {
    err << "nbx: " << all["dropped"]
        << " steps had no room; trace fewer queue pairs, rates only, or with more --steps\n";
  }
  return out ? exit_fine : fail(Error{"the trace cannot be written"});
}

int change_link(const std::string& port, const LinkChange& change, const Options& options, std::ostream& out,
                std::ostream& err) {
  const Json body = {{"port", port},
                     {"down", change.down},
                     {"for", change.time},
                     {"direction", change.direction},
                     {"cable", change.cable}};
  return finish(Client(options.socket).post("/link", body), options, out, err);
}

}  // namespace nbx::client
