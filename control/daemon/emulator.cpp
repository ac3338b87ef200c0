#include "daemon/emulator.hpp"

#include <spdlog/spdlog.h>

#include <cstdio>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

#include "frame/buffer.hpp"
#include "plan/plan.hpp"
#include "port/jit_filter.hpp"

namespace nbx::daemon {
namespace {

Error at(const config::SourcePos& pos, const std::string& message) {
  std::ostringstream text;
  text << config::Diagnostic{.pos = pos, .message = message};
  std::string line = text.str();
  line.pop_back();  // the end of the line
  return {std::move(line)};
}

port::HugepageUse hugepage_use(config::Hugepages wish) {
  switch (wish) {
    case config::Hugepages::automatic:
      return port::HugepageUse::when_there;
    case config::Hugepages::on:
      return port::HugepageUse::always;
    case config::Hugepages::off:
      return port::HugepageUse::never;
  }
  return port::HugepageUse::when_there;
}

std::vector<ghost::Identity> identities(const pipeline::ShardPlan& plan) {
  std::vector<ghost::Identity> identities;
  for (const pipeline::GhostPlan& ghost : plan.ghosts) {
    identities.push_back(ghost.identity);
  }
  return identities;
}

GhostNetwork ghost_network(const pipeline::ShardPlan& plan) {
  GhostNetwork network{.mtu = plan.mtu, .addresses = {}};
  for (const pipeline::GhostPlan& ghost : plan.ghosts) {
    for (const ghost::InterfaceAddress& address : ghost.identity.addresses) {
      network.addresses.push_back(address.ip);
    }
  }
  return network;
}

/// Without swapping, in bytes; all there is when the kernel does not say.
std::uint64_t available_memory() {
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    if (std::uint64_t kib = 0; std::sscanf(line.c_str(), "MemAvailable: %lu kB", &kib) == 1) {
      return kib << 10U;
    }
  }
  return std::numeric_limits<std::uint64_t>::max();
}

}  // namespace

Result<std::unique_ptr<Emulator>> Emulator::start(config::ClusterConfig config) {
  std::unique_ptr<Emulator> emulator(new Emulator(std::move(config)));
  emulator->plans_ = plan::make_plans(emulator->config_);
  emulator->start_broker();
  if (auto error = emulator->start_eal()) {
    return *error;
  }
  auto clock = port::TscClock::calibrate();
  if (!clock) {
    return Error{"error: " + clock.error().message};
  }
  emulator->clock_ = *clock;
  if (auto error = emulator->add_ports()) {
    return *error;
  }
  if (auto error = emulator->start_capture()) {
    return *error;
  }
  if (auto error = emulator->start_recorder()) {
    return *error;
  }
  emulator->start_workers();
  return emulator;
}

Emulator::~Emulator() { stop(); }

void Emulator::stop() {
  if (recorder_) {
    recorder_->stop();  // a dump that is due needs the workers
  }
  running_ = false;
  for (const auto& worker : workers_) {
    worker->stop();
  }
  if (watcher_) {
    watcher_->stop();
  }
  if (capture_) {
    if (const auto error = capture_->stop()) {
      spdlog::error("capture ended early: {}", error->message);
    }
  }
}

EmulatedPort* Emulator::find_port(const std::string& name) noexcept {
  for (const auto& port : ports_) {
    if (*port->config.name == name) {
      return port.get();
    }
  }
  return nullptr;
}

void Emulator::start_broker() {
  std::vector<GhostNetwork> networks;
  for (const pipeline::ShardPlan& plan : plans_) {
    networks.push_back(ghost_network(plan));
  }
  auto broker = Broker::start(networks);
  if (broker) {
    broker_ = std::move(*broker);
    return;
  }
  exception_path_trouble_ = broker.error().message;
  spdlog::warn(
      "no exception path ({}): ghosts have no TCP; RDMA, ARP, ND and ping work. Allow user namespaces and "
      "/dev/net/tun, or run as root",
      exception_path_trouble_);
}

std::optional<Error> Emulator::start_eal() {
  port::EalConfig eal;
  eal.hugepages = hugepage_use(config_.memory.hugepages);
  eal.memory_bytes = config_.memory.size->value;
  eal.log = [](std::string_view line) { spdlog::debug("DPDK: {}", line); };
  for (const config::Port& port : config_.ports) {
    if (!port::is_pci_address(*port.device)) {
      continue;
    }
    if (!port::pci_function_exists(*port.device)) {
      return at(port.device.pos, "port " + *port.name + ": this machine has no PCI device " + *port.device +
                                     "; lspci -D lists what there is");
    }
    eal.pci_devices.push_back(*port.device);
  }
  auto started = port::Eal::start(eal);
  if (!started) {
    return at(config_.memory.size.pos, started.error().message);
  }
  eal_ = std::move(*started);
  spdlog::info("frames are in {} MiB of {} pages", eal.memory_bytes >> 20U, eal_->on_hugepages() ? "huge" : "ordinary");
  return std::nullopt;
}

std::optional<Error> Emulator::add_ports() {
  if (!*config_.one_worker) {
    auto peers = port::PeerRings::create(plans_.size());
    if (!peers) {
      return Error{"error: " + peers.error().message};
    }
    peers_ = std::move(*peers);
  }
  if (config_.network && plans_.size() > 1) {
    network_ = std::make_unique<pipeline::SharedNetwork>(*plans_.front().network, Rng{config_.seed}.fork("network"));
  }
  watcher_ = std::make_unique<Watcher>();
  for (std::size_t i = 0; i < plans_.size(); ++i) {
    const config::Port& port_config = config_.ports[i];
    const auto fail = [&](const Error& error) {
      return at(port_config.device.pos, "port " + *port_config.name + ": " + error.message);
    };
    if (port_config.device->empty()) {
      return at(port_config.name.pos, "port " + *port_config.name +
                                          " has no device; name one, such as "
                                          "device: \"net_vhost0,iface=/run/nbx/p0.sock\"");
    }
    const std::size_t frames = config_.memory.size->value / plans_.size() / buffer::bytes(plans_[i].mtu);
    auto source = port::MbufSource::create("nbx-" + *port_config.name, frames, plans_[i].mtu);
    if (!source) {
      return fail(source.error());
    }
    frames_.push_back(std::move(*source));
    auto device = port::EthdevPort::open(
        *eal_, {.device = *port_config.device, .mtu = plans_[i].mtu, .ghosts = ghost_network(plans_[i]).addresses},
        *frames_.back());
    if (!device) {
      return fail(device.error());
    }
    auto& port = *ports_.emplace_back(std::make_unique<EmulatedPort>());
    port.config = port_config;
    port.plan = plans_[i];
    port.device = std::move(*device);
    connect_to_kernel(port);
    port.tap = std::make_unique<capture::Tap>(capture::TapOptions{.epoch_ns = clock_->epoch_ns()}, port.counters);
    auto ensemble = make_nccl(port);
    if (!ensemble) {
      return at(config_.nccl->ghosts.pos, ensemble.error().message);
    }
    port.shard =
        std::make_unique<pipeline::Shard>(port.plan, pipeline::ShardEnvironment{.frames = frames_.back().get(),
                                                                                .counters = &port.counters,
                                                                                .streams = port.streams.get(),
                                                                                .tap = port.tap.get(),
                                                                                .ensemble = std::move(*ensemble),
                                                                                .network = network_.get()});
  }
  return std::nullopt;
}

Result<pipeline::MakeEnsemble> Emulator::make_nccl(EmulatedPort& port) {
  auto options = plan::make_nccl(config_, port.config);
  if (!options) {
    return pipeline::MakeEnsemble{};
  }
  if (!port.streams) {
    return Error{"NCCL's ranks need TCP, and there is no exception path: " + exception_path_trouble_};
  }
  auto delay = nccl::make_delay_model(options->delay, options->path_mtu, options->seed);
  if (!delay) {
    return delay.error();
  }
  auto model = std::make_shared<std::unique_ptr<nccl::DelayModel>>(std::move(*delay));  // functions are copyable
  return pipeline::MakeEnsemble{[&port, options = std::move(*options), model](const ghost::Context& first) {
    auto service = std::make_unique<nccl::Service>(first, options, std::move(*model));
    port.nccl = service.get();
    return service;
  }};
}

void Emulator::connect_to_kernel(EmulatedPort& port) {
  if (!broker_) {
    return;
  }
  const std::size_t network = index(port.plan.port);
  port.kernel = std::make_unique<port::KernelLink>(broker_->take_tun(network), port.plan.mtu);
  port.streams = std::make_unique<SocketStreams>(ghost::Directory(identities(port.plan)), *broker_, network, *watcher_,
                                                 port.mailbox);
  watcher_->watch(port.kernel->fd(), [kernel = port.kernel.get()](std::uint32_t) { kernel->set_readable(); });
}

std::optional<Error> Emulator::start_capture() {
  std::vector<CaptureControl::Source> sources;
  for (const auto& port : ports_) {
    sources.push_back({*port->config.name, port->tap.get(), [this, port = port.get()] {
                         return ask(*port, [](pipeline::Shard&) { return true; }).has_value();
                       }});
  }
  capture_ = std::make_unique<CaptureControl>(std::move(sources));
  if (!config_.capture) {
    return std::nullopt;
  }
  const config::Capture& wish = *config_.capture;
  const auto error = capture_->start({.file = *wish.file,
                                      .filter = wish.filter.value,
                                      .snaplen = wish.snaplen,
                                      .per_port = wish.per_port,
                                      .rotate_bytes = wish.rotate_size.value,
                                      .files_max = wish.files_max});
  return error ? std::optional<Error>(at(wish.file.pos, error->message)) : std::nullopt;
}

std::optional<Error> Emulator::start_recorder() {
  if (!config_.recorder) {
    return std::nullopt;
  }
  const config::Recorder& wish = *config_.recorder;
  const std::uint64_t size = wish.size->value;
  const std::uint64_t available = available_memory();
  if (size > available / ports_.size()) {
    const auto text = [](std::uint64_t bytes) { return std::to_string(bytes >> 20U) + " MiB"; };
    return at(wish.size.pos, "the flight recorder takes " + std::to_string(ports_.size()) + " ports * " + text(size) +
                                 " = " + text(size * ports_.size()) + ", and " + text(available) + " are available");
  }
  std::vector<RecorderControl::Source> sources;
  for (const auto& port : ports_) {
    auto filter = port::make_jit_filter(wish.filter.value);
    if (!filter) {
      return at(wish.file.pos, filter.error().message);
    }
    port->recorder = std::make_unique<capture::Recorder>(
        capture::RecorderOptions{.ring_bytes = size,
                                 .epoch_ns = clock_->epoch_ns(),
                                 .snaplen = wish.snaplen == 0 ? capture::snaplen_default : wish.snaplen,
                                 .filter = std::move(*filter),
                                 .before = wish.before,
                                 .after = wish.after,
                                 .apart = wish.apart,
                                 .triggers = wish.triggers},
        port->counters);
    port->tap->attach(*port->recorder);
    sources.push_back({*port->config.name, port->recorder.get()});
  }
  recorder_ = std::make_unique<RecorderControl>(wish, std::move(sources));
  return std::nullopt;
}

void Emulator::start_workers() {
  std::vector<port::WorkerPort> served;
  std::optional<unsigned> core;
  for (const auto& port : ports_) {
    served.push_back({.id = port->plan.port,
                      .device = *port->device,
                      .shard = *port->shard,
                      .counters = port->counters,
                      .mailbox = port->mailbox,
                      .kernel = port->kernel.get()});
    core = port->config.core ? std::optional(**port->config.core) : core;
    if (!*config_.one_worker) {
      start_worker(*port->config.name, std::exchange(core, std::nullopt), std::exchange(served, {}));
    }
  }
  if (*config_.one_worker) {
    start_worker("ports", core, std::move(served));
  }
  running_ = true;
  for (const auto& port : ports_) {
    if (!port->ask([](pipeline::Shard&, Instant) { return true; })) {
      spdlog::warn("port {}: its worker has not begun yet", *port->config.name);
    }
  }
}

void Emulator::start_worker(const std::string& name, std::optional<unsigned> core,
                            std::vector<port::WorkerPort> served) {
  // A worker may spin when it is pinned and the machine has cores left for the others and for everybody else.
  const std::size_t workers = *config_.one_worker ? 1 : ports_.size();
  const bool roomy = std::thread::hardware_concurrency() >= workers + 2;
  const port::WorkerConfig config{.name = name, .core = core, .own_core = core && roomy};
  workers_.push_back(std::make_unique<port::Worker>(config, *clock_, served, peers_.get(), network_.get()));
  for (const port::WorkerPort& port : served) {
    ports_[index(port.id)]->worker = workers_.back().get();
  }
  workers_.back()->start();
}

}  // namespace nbx::daemon
