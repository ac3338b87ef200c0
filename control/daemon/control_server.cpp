#include "daemon/control_server.hpp"

#include <httplib.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <functional>

#include "daemon/changes.hpp"
#include "daemon/queries.hpp"
#include "daemon/report.hpp"
#include "daemon/tracing.hpp"
#include "port/vhost_socket.hpp"

namespace nbx::daemon {
namespace {

constexpr int status_ok = 200;
constexpr int status_bad = 400;

void answer(httplib::Response& response, int status, const Json& doc) {
  response.status = status;
  response.set_content(doc.dump() + "\n", "application/json");
}

/// A request that changes something: what was done, or why not.
using Change = Result<Json> (*)(Emulator&, const Json&);

httplib::Server::Handler handler(Emulator& emulator, Change change) {
  return [&emulator, change](const httplib::Request& request, httplib::Response& response) {
    const Json body = Json::parse(request.body, nullptr, false);
    if (!body.is_object()) {
      answer(response, status_bad, {{"error", "the request's body is not a JSON object"}});
      return;
    }
    const Result<Json> done = change(emulator, body);
    if (done) {
      answer(response, status_ok, *done);
    } else {
      answer(response, status_bad, {{"error", done.error().message}});
    }
  };
}

httplib::Server::Handler handler(Emulator& emulator, Json (*query)(Emulator&)) {
  return [&emulator, query](const httplib::Request&, httplib::Response& response) {
    answer(response, status_ok, query(emulator));
  };
}

void answer_counters(Emulator& emulator, const httplib::Request& request, httplib::Response& response) {
  const std::string port = request.get_param_value("port");
  if (!port.empty() && emulator.find_port(port) == nullptr) {
    answer(response, status_bad, {{"error", "there is no port '" + port + "'"}});
    return;
  }
  answer(response, status_ok, counters_json(emulator, port));
}

}  // namespace

ControlServer::ControlServer(std::string path, Emulator& emulator)
    : path_(std::move(path)), emulator_(emulator), server_(std::make_unique<httplib::Server>()) {}

Result<std::unique_ptr<ControlServer>> ControlServer::start(const std::string& path, Emulator& emulator) {
  if (const auto error = port::make_way(path)) {
    return *error;
  }
  std::unique_ptr<ControlServer> server(new ControlServer(path, emulator));
  // One request at a time, so that changes need no lock; nobody keeps a connection.
  server->server_->new_task_queue = [] { return new httplib::ThreadPool(1); };
  server->server_->set_keep_alive_max_count(1);
  server->server_->set_exception_handler(
      [](const httplib::Request&, httplib::Response& response, std::exception_ptr e) {
        try {
          std::rethrow_exception(e);
        } catch (const std::exception& problem) {
          answer(response, status_bad, {{"error", problem.what()}});
        }
      });
  server->server_->set_address_family(AF_UNIX);
  server->add_routes();
  const mode_t before = umask(0077);                          // whoever may ask may also have files written
  const bool bound = server->server_->bind_to_port(path, 1);  // the port means nothing to a UNIX socket
  umask(before);
  if (!bound) {
    return Error{path + ": cannot listen there; name another path with --control"};
  }
  server->thread_ = std::thread([http = server->server_.get()] { http->listen_after_bind(); });
  while (!server->server_->is_running()) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return server;
}

ControlServer::~ControlServer() {
  server_->stop();
  if (thread_.joinable()) {
    thread_.join();
    unlink(path_.c_str());
  }
}

void ControlServer::add_routes() {
  server_->Get("/status", handler(emulator_, status_json));
  server_->Get("/ports", handler(emulator_, ports_json));
  server_->Get("/qps", handler(emulator_, qps_json));
  server_->Get("/ghosts", handler(emulator_, ghosts_json));
  server_->Get("/nccl", handler(emulator_, nccl_json));
  server_->Get("/events", handler(emulator_, events_json));
  server_->Get("/traffic", handler(emulator_, traffic_json));
  server_->Get("/trace", handler(emulator_, trace_json));
  server_->Get("/report", handler(emulator_, report_json));
  server_->Get("/counters", [this](const httplib::Request& request, httplib::Response& response) {
    answer_counters(emulator_, request, response);
  });
  server_->Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
    response.set_content(metrics_text(emulator_), "text/plain; version=0.0.4");
  });
  server_->Post("/capture", handler(emulator_, change_capture));
  server_->Post("/profile", handler(emulator_, load_profile));
  server_->Post("/set", handler(emulator_, set_values));
  server_->Post("/trace", handler(emulator_, change_trace));
  server_->Post("/link", handler(emulator_, change_link));
  server_->Post("/network", handler(emulator_, change_network));
}

}  // namespace nbx::daemon
