// nbxd: the emulator. Exit status: 0 it ran and was told to end, 1 the run failed, 2 wrong usage or configuration.
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>

#include "client/client.hpp"
#include "config/document.hpp"
#include "config/load.hpp"
#include "config/scenario.hpp"
#include "daemon/control_server.hpp"
#include "daemon/emulator.hpp"
#include "daemon/report.hpp"
#include "report/to_json.hpp"

namespace nbx::daemon {
namespace {

constexpr int exit_fine = 0;
constexpr int exit_failed = 1;
constexpr int exit_usage = 2;

struct Options {
  std::string cluster;
  std::string control;
  std::string report;
  bool without_faults = false;
  std::string log_level = "info";
};

constexpr const char* example = R"(Example: a virtual machine whose NIC is on /tmp/p0.sock, and one ghost.

  cluster: example
  ports:
    - {name: p0, device: "net_vhost0,iface=/tmp/p0.sock", profile: wan-30ms}
  ghosts:
    - {name: ghost0, port: p0, addresses: [10.77.0.9/24, "fd77::9/64"], personalities: [perftest, rping]}

Then: nbxd cluster.yaml, and in another terminal: nbx status --watch
)";

void start_logging(const std::string& level) {
  auto logger = std::make_shared<spdlog::logger>("nbxd", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%H:%M:%S.%e nbxd: %l: %v");
  spdlog::set_default_logger(std::move(logger));
  spdlog::set_level(spdlog::level::from_str(level));
}

/// Tells systemd, when it started us (man 3 sd_notify).
void notify_ready() {
  const char* path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  if (path == nullptr || std::strlen(path) >= sizeof address.sun_path) {
    return;
  }
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path);
  if (address.sun_path[0] == '@') {
    address.sun_path[0] = '\0';  // an abstract socket
  }
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  constexpr std::string_view message = "READY=1";
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path));
  sendto(socket.get(), message.data(), message.size(), 0, reinterpret_cast<const sockaddr*>(&address), size);
}

/// SIGINT and SIGTERM are taken by sigwait(): blocked from here on, in every thread that is made later.
sigset_t block_end_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return signals;
}

int write_report(Emulator& emulator) {
  const Json report = report_json(emulator);
  report::print_text(std::cout, report);
  std::cout.flush();
  const std::string& file = emulator.config().report_file;
  if (file.empty()) {
    return exit_fine;
  }
  std::ofstream out(file);
  out << report.dump(2) << '\n';
  if (!out.flush()) {
    spdlog::error("{}: the report could not be written", file);
    return exit_failed;
  }
  return exit_fine;
}

/// Every TCP stream of a ghost is a descriptor: as many as the system allows.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
}

/// Of a cluster file, or of a scenario: then with its changes, and its faults unless they are left out.
config::Loaded load(const Options& options) {
  config::Diagnostics ignored;
  const auto document = config::read_document(options.cluster, ignored);
  if (!document || document->find("scenario") == nullptr) {
    return config::load_cluster(options.cluster);
  }
  config::LoadedScenario scenario = config::load_scenario(options.cluster);
  config::Loaded loaded;
  loaded.config = std::move(options.without_faults ? scenario.baseline_cluster : scenario.cluster);
  loaded.diagnostics = std::move(scenario.diagnostics);
  loaded.warnings = std::move(scenario.warnings);
  return loaded;
}

int run(const Options& options) {
  config::Loaded loaded = load(options);
  if (!loaded.ok()) {
    for (const config::Diagnostic& diagnostic : loaded.diagnostics) {
      std::cerr << diagnostic;
    }
    return exit_usage;
  }
  for (const config::Diagnostic& warning : loaded.warnings) {
    std::cerr << warning;
  }
  if (!options.report.empty()) {
    loaded.config.report_file = options.report;
  }
  raise_descriptor_limit();
  const sigset_t end_signals = block_end_signals();
  auto emulator = Emulator::start(std::move(loaded.config));
  if (!emulator) {
    std::cerr << emulator.error().message << '\n';
    return exit_usage;
  }
  std::string path = options.control.empty() ? (*emulator)->config().control_socket : options.control;
  path = path.empty() ? client::default_control_socket() : path;
  auto server = ControlServer::start(path, **emulator);
  if (!server) {
    std::cerr << "error: control socket: " << server.error().message << '\n';
    return exit_usage;
  }
  spdlog::info("control socket: {}", path);
  std::cerr << "nbxd: ready" << std::endl;
  notify_ready();
  int signal = 0;
  sigwait(&end_signals, &signal);
  spdlog::info("ends: {}", strsignal(signal));
  server->reset();
  (*emulator)->stop();
  return write_report(**emulator);
}

}  // namespace
}  // namespace nbx::daemon

int main(int argc, char** argv) {
  nbx::daemon::Options options;
  CLI::App app("NeuronaBox: plays the missing nodes of a cluster towards real RDMA nodes", "nbxd");
  app.footer(nbx::daemon::example);
  app.add_option("CLUSTER", options.cluster, "cluster file, or a scenario, whose cluster it is then")
      ->required()
      ->check(CLI::ExistingFile);
  app.add_flag("--without-faults", options.without_faults, "leave out the faults of the scenario");
  app.add_option("--report", options.report, "file for the report at the end; overrides the cluster file");
  app.add_option("--control", options.control, "control socket; overrides the cluster file");
  app.add_option("--log-level", options.log_level, "how much to say on stderr")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? nbx::daemon::exit_fine : nbx::daemon::exit_usage;
  }
  try {
    nbx::daemon::start_logging(options.log_level);
    return nbx::daemon::run(options);
  } catch (const std::exception& error) {
    std::cerr << "nbxd: error: " << error.what() << '\n';
    return nbx::daemon::exit_failed;
  }
}
