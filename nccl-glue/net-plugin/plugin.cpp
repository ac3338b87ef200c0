// libnccl-net-neuronabox.so: an RNIC for nodes that have none. NCCL's NET/IB protocol over RoCEv2 packets that this
// process makes itself. The symbols ncclNetPlugin_v8 to _v11 are one adapter over the connections.
#include <dlfcn.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "nccl-glue/net-plugin/handshake.hpp"
#include "nccl-glue/net-plugin/nccl_api.hpp"

namespace nbx::nccl::plugin {

namespace {

/// The library stays loaded and the devices' threads run until the process ends: never destroyed.
struct Plugin {
  std::mutex mutex;
  bool started = false;
  NcclResult outcome = NcclResult::success;
  Logger logger = nullptr;
  Settings settings;
  std::vector<std::unique_ptr<Device>> devices;
};

Plugin& plugin() {
  static auto& instance = *new Plugin;
  return instance;
}

constexpr std::size_t message_size_max = std::size_t{1} << 30U;
constexpr int connections_max = 65536;
constexpr auto goodbye = std::chrono::seconds{2};

void log(LogLevel level, const std::string& text) {
  if (plugin().logger != nullptr) {
    const unsigned long flags = level == LogLevel::warn ? log_all : log_init_and_net;
    plugin().logger(level, flags, "NET/NeuronaBox", 0, "NET/NeuronaBox: %s", text.c_str());
  }
}

void warn(const std::string& text) { log(LogLevel::warn, text); }

NcclResult failed(const std::string& text, NcclResult result = NcclResult::system_error) {
  warn(text);
  return result;
}

/// The release of the NCCL that `logger` is a function of; 0: it does not say.
int version_of(Logger logger) {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(logger), &info) == 0) {
    return 0;
  }
  void* library = dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
  void* symbol = dlsym(library != nullptr ? library : RTLD_DEFAULT, "ncclGetVersion");
  int version = 0;
  if (symbol != nullptr) {
    reinterpret_cast<int (*)(int*)>(symbol)(&version);
  }
  return version;
}

/// true, or why there are no devices.
Result<bool> start_devices() {
  Plugin& p = plugin();
  const auto settings = read_settings(version_of(p.logger));
  if (!settings) {
    return settings.error();
  }
  p.settings = *settings;
  const auto interfaces = find_interfaces();
  if (!interfaces) {
    return interfaces.error();
  }
  for (const Interface& interface : *interfaces) {
    auto device = Device::open(interface);
    if (!device) {
      return device.error();
    }
    log(LogLevel::info, "device " + std::to_string(p.devices.size()) + " on " + interface.name + ", address " +
                            nbx::to_string(interface.address) + ", path MTU " + std::to_string((*device)->path_mtu()) +
                            ", NET/IB of NCCL " + version_text(p.settings.version->code));
    p.devices.push_back(std::move(*device));
  }
  return true;
}

NcclResult initialise(Logger logger) {
  Plugin& p = plugin();
  const std::lock_guard lock(p.mutex);
  if (!p.started) {
    p.started = true;
    p.logger = logger;
    const auto started = start_devices();
    if (!started) {
      p.outcome = NcclResult::system_error;
      // NCCL mutes warnings while it tries networks.
      std::fprintf(stderr, "NET/NeuronaBox: %s\n", started.error().message.c_str());
    }
  }
  return p.outcome;
}

/// What differs between communicators.
struct Context {
  int traffic_class = -1;
};

Settings settings_for(int traffic_class) {
  Settings settings = plugin().settings;
  if (traffic_class >= 0) {
    // config.trafficClass fills both.
    settings.traffic_class = settings.traffic_class.value_or(static_cast<std::uint8_t>(traffic_class));
    settings.service_level = settings.service_level.value_or(static_cast<std::uint8_t>(traffic_class));
  }
  return settings;
}

// ---- what all tables share

NcclResult devices(int* count) {
  *count = static_cast<int>(plugin().devices.size());
  return NcclResult::success;
}

void describe(int index, PropertiesV9& properties) {
  const Interface& interface = plugin().devices[static_cast<std::size_t>(index)]->interface();
  properties = {.name = interface.name.c_str(),
                .pci_path = interface.pci_path.empty() ? nullptr : interface.pci_path.c_str(),
                .guid = hash_value(interface.address),
                .pointer_support = pointer_host,
                .registration_is_global = 0,
                .force_flush = 0,
                .speed = static_cast<int>(interface.speed_mbps),
                .port = 1,
                .latency = 0,
                .comms_max = connections_max,
                .receives_max = static_cast<int>(ib::grouped_max),
                .net_device_type = 0,
                .net_device_version = 0,
                .virtual_device = {.ndevs = 1, .devs = {index, 0, 0, 0}},
                .p2p_bytes_max = message_size_max,
                .coll_bytes_max = message_size_max};
}

NcclResult get_properties(int index, PropertiesV9* properties) {
  describe(index, *properties);
  return NcclResult::success;
}

NcclResult get_properties(int index, PropertiesV11* properties) {
  describe(index, *properties);
  properties->multi_request_size_max = 1;
  return NcclResult::success;
}

NcclResult get_properties(int index, PropertiesV8* properties) {
  PropertiesV9 p{};
  describe(index, p);
  *properties = {.name = p.name,
                 .pci_path = p.pci_path,
                 .guid = p.guid,
                 .pointer_support = p.pointer_support,
                 .registration_is_global = p.registration_is_global,
                 .speed = p.speed,
                 .port = p.port,
                 .latency = p.latency,
                 .comms_max = p.comms_max,
                 .receives_max = p.receives_max,
                 .net_device_type = p.net_device_type,
                 .net_device_version = p.net_device_version};
  return NcclResult::success;
}

NcclResult listen(int index, void* handle, void** listen_comm) {
  Device& device = *plugin().devices[static_cast<std::size_t>(index)];
  auto listener = Listener::open(device, plugin().settings, warn);
  if (!listener) {
    return failed(listener.error().message);
  }
  const auto bytes = ib::encode((*listener)->handle());
  std::memcpy(handle, bytes.data(), bytes.size());
  *listen_comm = (*listener).release();
  return NcclResult::success;
}

/// NCCL calls with the same memory until there is a connection: the handshake's place is in the connector's part.
NcclResult connect(int index, int traffic_class, void* handle, void** send_comm) {
  constexpr std::size_t scratch = 48;
  void* place = static_cast<std::byte*>(handle) + scratch;
  SendHandshake* handshake = nullptr;
  std::memcpy(&handshake, place, sizeof handshake);
  *send_comm = nullptr;
  if (handshake == nullptr) {
    const auto peer = ib::decode_handle({static_cast<const std::byte*>(handle), ib::handle_size});
    if (!peer) {
      return failed("the peer's handle has no address: does it use NET/IB or this plugin?", NcclResult::remote_error);
    }
    Device& device = *plugin().devices[static_cast<std::size_t>(index)];
    handshake = SendHandshake::start(*peer, device, settings_for(traffic_class), warn).release();
    if (handshake == nullptr) {
      return NcclResult::remote_error;
    }
    std::memcpy(place, &handshake, sizeof handshake);
  }
  const Handshake::Progress progress = handshake->advance();
  if (progress == Handshake::Progress::waiting) {
    return NcclResult::success;
  }
  const std::unique_ptr<SendHandshake> owner(handshake);
  std::memset(place, 0, sizeof handshake);
  if (progress == Handshake::Progress::failed) {
    return NcclResult::remote_error;
  }
  *send_comm = owner->take().release();
  return NcclResult::success;
}

NcclResult accept(void* listen_comm, void** receive_comm, void**) {
  auto& listener = *static_cast<Listener*>(listen_comm);
  *receive_comm = nullptr;
  switch (listener.advance()) {
    case Handshake::Progress::waiting:
      return NcclResult::success;
    case Handshake::Progress::failed:
      return NcclResult::remote_error;
    case Handshake::Progress::done:
      *receive_comm = listener.take().release();
      return NcclResult::success;
  }
  return NcclResult::internal_error;
}

Connection& connection_of(void* comm) { return *static_cast<Connection*>(comm); }

std::uint32_t key_of(void* memory) { return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(memory)); }

NcclResult register_memory(void* comm, void* data, std::size_t size, int type, void** memory) {
  if (type != pointer_host) {
    return failed("only host memory can be registered", NcclResult::internal_error);
  }
  const std::uintptr_t key = connection_of(comm).add_memory(data, size);
  *memory = reinterpret_cast<void*>(key);
  return NcclResult::success;
}

NcclResult deregister_memory(void* comm, void* memory) {
  connection_of(comm).remove_memory(key_of(memory));
  return NcclResult::success;
}

Buffer buffer(void* data, std::size_t size, int tag, void* memory) {
  return {.data = data,
          .size = static_cast<std::uint32_t>(std::min(size, message_size_max)),
          .tag = static_cast<std::uint32_t>(tag),
          .key = key_of(memory)};
}

NcclResult send(void* comm, void* data, std::size_t size, int tag, void* memory, void** out) {
  Request* request = connection_of(comm).make_request();
  *out = request;
  if (request != nullptr) {
    request->n = 1;
    request->buffers[0] = buffer(data, size, tag, memory);
    connection_of(comm).submit(*request);
  }
  return NcclResult::success;
}

template <class Size>
NcclResult receive(void* comm, int n, void** data, Size* sizes, int* tags, void** memory, void** out) {
  if (n < 1 || n > static_cast<int>(ib::grouped_max)) {
    return failed("a receive of " + std::to_string(n) + " messages", NcclResult::internal_error);
  }
  Request* request = connection_of(comm).make_request();
  *out = request;
  if (request != nullptr) {
    request->n = static_cast<std::uint32_t>(n);
    for (int i = 0; i < n; ++i) {
      request->buffers[static_cast<std::size_t>(i)] =
          buffer(data[i], static_cast<std::size_t>(sizes[i]), tags[i], memory[i]);
    }
    connection_of(comm).submit(*request);
  }
  return NcclResult::success;
}

/// Host memory needs none.
NcclResult flush(void*, int, void**, int*, void**, void** request) {
  *request = nullptr;
  return NcclResult::success;
}

/// NCCL's proxy asks without pause. Where there are few processors it would take them from the threads that move the
/// data, so it rests when it has asked for nothing for a while.
void rest_after(int in_vain) {
  constexpr int patience = 32;
  constexpr int few = 4;
  constexpr timespec rest{.tv_sec = 0, .tv_nsec = 20'000};
  static const bool scarce = sysconf(_SC_NPROCESSORS_ONLN) < few;
  if (!scarce || in_vain < patience) {
    return;
  }
  thread_local const int exact = prctl(PR_SET_TIMERSLACK, 1000UL);  // 50 us else
  static_cast<void>(exact);
  nanosleep(&rest, nullptr);
}

NcclResult test(void* handle, int* done, int* sizes) {
  thread_local int in_vain = 0;
  auto& request = *static_cast<Request*>(handle);
  const Request::State state = request.state.load();
  *done = state == Request::State::done ? 1 : 0;
  if (state == Request::State::failed) {
    return NcclResult::remote_error;
  }
  in_vain = *done != 0 ? 0 : in_vain + 1;
  rest_after(in_vain);
  if (*done != 0) {
    if (sizes != nullptr) {
      std::copy_n(request.sizes.begin(), request.n, sizes);
    }
    request.connection->free_request(request);
  }
  return NcclResult::success;
}

NcclResult close_connection(void* comm) {
  if (comm != nullptr) {
    Connection::close(std::unique_ptr<Connection>(&connection_of(comm)));
  }
  return NcclResult::success;
}

NcclResult close_listen(void* comm) {
  delete static_cast<Listener*>(comm);
  return NcclResult::success;
}

// ---- what a table has of its own

NcclResult init_v8(Logger logger) { return initialise(logger); }
NcclResult init_v10(Logger logger, Profiler) { return initialise(logger); }
NcclResult init_v11(void** context, std::uint64_t, CommConfig* config, Logger logger, Profiler) {
  *context = new Context{.traffic_class = config != nullptr ? config->traffic_class : -1};
  return initialise(logger);
}

NcclResult listen_v11(void*, int device, void* handle, void** listen_comm) {
  return listen(device, handle, listen_comm);
}

NcclResult connect_v8(int device, void* handle, void** send_comm, void**) {
  return connect(device, -1, handle, send_comm);
}
NcclResult connect_v10(int device, CommConfig* config, void* handle, void** send_comm, void**) {
  return connect(device, config != nullptr ? config->traffic_class : -1, handle, send_comm);
}
NcclResult connect_v11(void* context, int device, void* handle, void** send_comm, void**) {
  return connect(device, static_cast<Context*>(context)->traffic_class, handle, send_comm);
}

NcclResult send_v8(void* comm, void* data, int size, int tag, void* memory, void** request) {
  return send(comm, data, static_cast<std::size_t>(size), tag, memory, request);
}
NcclResult send_v10(void* comm, void* data, std::size_t size, int tag, void* memory, void*, void** request) {
  return send(comm, data, size, tag, memory, request);
}
NcclResult receive_v10(void* comm, int n, void** data, std::size_t* sizes, int* tags, void** memory, void**,
                       void** request) {
  return receive(comm, n, data, sizes, tags, memory, request);
}

/// The last chance to answer a peer whose final acknowledgement was lost: as long as it takes to hear that it has
/// closed as well, within a bound.
NcclResult finalize(void* context) {
  delete static_cast<Context*>(context);
  const auto end = std::chrono::steady_clock::now() + goodbye;
  while (Connection::closing() != 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return NcclResult::success;
}

NcclResult set_attributes(void*, void*) { return NcclResult::success; }

constexpr const char* name = "NeuronaBox";

}  // namespace

extern "C" {

#define NBX_EXPORT __attribute__((visibility("default")))
NBX_EXPORT extern const TableV8 ncclNetPlugin_v8;
NBX_EXPORT extern const TableV9 ncclNetPlugin_v9;
NBX_EXPORT extern const TableV10 ncclNetPlugin_v10;
NBX_EXPORT extern const TableV11 ncclNetPlugin_v11;

const TableV8 ncclNetPlugin_v8 = {
    name,         init_v8,           devices, get_properties, listen, connect_v8, accept,           register_memory,
    nullptr,      deregister_memory, send_v8, receive<int>,   flush,  test,       close_connection, close_connection,
    close_listen, nullptr,           nullptr};

const TableV9 ncclNetPlugin_v9 = {name,
                                  init_v8,
                                  devices,
                                  get_properties,
                                  listen,
                                  connect_v8,
                                  accept,
                                  register_memory,
                                  nullptr,
                                  deregister_memory,
                                  send,
                                  receive<std::size_t>,
                                  flush,
                                  test,
                                  close_connection,
                                  close_connection,
                                  close_listen,
                                  nullptr,
                                  nullptr,
                                  nullptr};

const TableV10 ncclNetPlugin_v10 = {
    name,         init_v10,          devices,  get_properties, listen, connect_v10, accept,           register_memory,
    nullptr,      deregister_memory, send_v10, receive_v10,    flush,  test,        close_connection, close_connection,
    close_listen, nullptr,           nullptr,  nullptr};

const TableV11 ncclNetPlugin_v11 = {name,
                                    init_v11,
                                    devices,
                                    get_properties,
                                    listen_v11,
                                    connect_v11,
                                    accept,
                                    register_memory,
                                    nullptr,
                                    deregister_memory,
                                    send_v10,
                                    receive_v10,
                                    flush,
                                    test,
                                    close_connection,
                                    close_connection,
                                    close_listen,
                                    nullptr,
                                    nullptr,
                                    nullptr,
                                    finalize,
                                    set_attributes};
}

}  // namespace nbx::nccl::plugin
