// The interface that NCCL has for network plugins, tables v8 to v11: layouts and values restated. One shape of function
// differs per table; everything else is shared.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nbx::nccl::plugin {

/// ncclResult_t.
enum class NcclResult : std::int32_t {
  success = 0,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  remote_error = 6,
};

/// ncclDebugLogLevel.
enum class LogLevel : std::int32_t { warn = 2, info = 3 };
/// ncclDebugLogSubSys: NCCL prints what has a bit in common with NCCL_DEBUG_SUBSYS, warnings too.
inline constexpr unsigned long log_init_and_net = 1 | 16;
inline constexpr unsigned long log_all = ~0UL;
using Logger = void (*)(LogLevel level, unsigned long flags, const char* file, int line, const char* format, ...);

inline constexpr int pointer_host = 1;         // NCCL_PTR_HOST
inline constexpr int devices_per_nic_max = 4;  // NCCL_NET_MAX_DEVS_PER_NIC

struct CommConfig {
  int traffic_class;  // -1: not set
};

struct VirtualDevice {
  int ndevs;
  int devs[devices_per_nic_max];
};

struct PropertiesV8 {
  const char* name;
  const char* pci_path;
  std::uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int speed;
  int port;
  float latency;
  int comms_max;
  int receives_max;
  int net_device_type;
  int net_device_version;
};
static_assert(sizeof(PropertiesV8) == 64 && offsetof(PropertiesV8, speed) == 32);

/// v9 and v10.
struct PropertiesV9 {
  const char* name;
  const char* pci_path;
  std::uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int comms_max;
  int receives_max;
  int net_device_type;
  int net_device_version;
  VirtualDevice virtual_device;
  std::size_t p2p_bytes_max;
  std::size_t coll_bytes_max;
};
static_assert(sizeof(PropertiesV9) == 104 && offsetof(PropertiesV9, p2p_bytes_max) == 88);

struct PropertiesV11 : PropertiesV9 {
  int multi_request_size_max;
};
static_assert(sizeof(PropertiesV11) == 112);

using Profiler = void*;  // a callback that is not used

/// Pointers in the order of each table; void* where only NULL or a pointer that is not used goes.
struct TableV8 {
  const char* name;
  NcclResult (*init)(Logger logger);
  NcclResult (*devices)(int* count);
  NcclResult (*get_properties)(int device, PropertiesV8* properties);
  NcclResult (*listen)(int device, void* handle, void** listen_comm);
  NcclResult (*connect)(int device, void* handle, void** send_comm, void** device_handle);
  NcclResult (*accept)(void* listen_comm, void** receive_comm, void** device_handle);
  NcclResult (*register_memory)(void* comm, void* data, std::size_t size, int type, void** memory);
  void* register_dma_buf;
  NcclResult (*deregister_memory)(void* comm, void* memory);
  NcclResult (*send)(void* comm, void* data, int size, int tag, void* memory, void** request);
  NcclResult (*receive)(void* comm, int n, void** data, int* sizes, int* tags, void** memory, void** request);
  NcclResult (*flush)(void* comm, int n, void** data, int* sizes, void** memory, void** request);
  NcclResult (*test)(void* request, int* done, int* sizes);
  NcclResult (*close_send)(void* comm);
  NcclResult (*close_receive)(void* comm);
  NcclResult (*close_listen)(void* comm);
  void* get_device_memory;
  void* receive_consumed;
};
static_assert(sizeof(TableV8) == 152);

struct TableV9 {
  const char* name;
  NcclResult (*init)(Logger logger);
  NcclResult (*devices)(int* count);
  NcclResult (*get_properties)(int device, PropertiesV9* properties);
  NcclResult (*listen)(int device, void* handle, void** listen_comm);
  NcclResult (*connect)(int device, void* handle, void** send_comm, void** device_handle);
  NcclResult (*accept)(void* listen_comm, void** receive_comm, void** device_handle);
  NcclResult (*register_memory)(void* comm, void* data, std::size_t size, int type, void** memory);
  void* register_dma_buf;
  NcclResult (*deregister_memory)(void* comm, void* memory);
  NcclResult (*send)(void* comm, void* data, std::size_t size, int tag, void* memory, void** request);
  NcclResult (*receive)(void* comm, int n, void** data, std::size_t* sizes, int* tags, void** memory, void** request);
  NcclResult (*flush)(void* comm, int n, void** data, int* sizes, void** memory, void** request);
  NcclResult (*test)(void* request, int* done, int* sizes);
  NcclResult (*close_send)(void* comm);
  NcclResult (*close_receive)(void* comm);
  NcclResult (*close_listen)(void* comm);
  void* get_device_memory;
  void* receive_consumed;
  void* make_virtual_device;
};
static_assert(sizeof(TableV9) == 160);

struct TableV10 {
  const char* name;
  NcclResult (*init)(Logger logger, Profiler profiler);
  NcclResult (*devices)(int* count);
  NcclResult (*get_properties)(int device, PropertiesV9* properties);
  NcclResult (*listen)(int device, void* handle, void** listen_comm);
  NcclResult (*connect)(int device, CommConfig* config, void* handle, void** send_comm, void** device_handle);
  NcclResult (*accept)(void* listen_comm, void** receive_comm, void** device_handle);
  NcclResult (*register_memory)(void* comm, void* data, std::size_t size, int type, void** memory);
  void* register_dma_buf;
  NcclResult (*deregister_memory)(void* comm, void* memory);
  NcclResult (*send)(void* comm, void* data, std::size_t size, int tag, void* memory, void* profile, void** request);
  NcclResult (*receive)(void* comm, int n, void** data, std::size_t* sizes, int* tags, void** memory, void** profiles,
                        void** request);
  NcclResult (*flush)(void* comm, int n, void** data, int* sizes, void** memory, void** request);
  NcclResult (*test)(void* request, int* done, int* sizes);
  NcclResult (*close_send)(void* comm);
  NcclResult (*close_receive)(void* comm);
  NcclResult (*close_listen)(void* comm);
  void* get_device_memory;
  void* receive_consumed;
  void* make_virtual_device;
};
static_assert(sizeof(TableV10) == 160);

struct TableV11 {
  const char* name;
  NcclResult (*init)(void** context, std::uint64_t comm_id, CommConfig* config, Logger logger, Profiler profiler);
  NcclResult (*devices)(int* count);
  NcclResult (*get_properties)(int device, PropertiesV11* properties);
  NcclResult (*listen)(void* context, int device, void* handle, void** listen_comm);
  NcclResult (*connect)(void* context, int device, void* handle, void** send_comm, void** device_handle);
  NcclResult (*accept)(void* listen_comm, void** receive_comm, void** device_handle);
  NcclResult (*register_memory)(void* comm, void* data, std::size_t size, int type, void** memory);
  void* register_dma_buf;
  NcclResult (*deregister_memory)(void* comm, void* memory);
  NcclResult (*send)(void* comm, void* data, std::size_t size, int tag, void* memory, void* profile, void** request);
  NcclResult (*receive)(void* comm, int n, void** data, std::size_t* sizes, int* tags, void** memory, void** profiles,
                        void** request);
  NcclResult (*flush)(void* comm, int n, void** data, int* sizes, void** memory, void** request);
  NcclResult (*test)(void* request, int* done, int* sizes);
  NcclResult (*close_send)(void* comm);
  NcclResult (*close_receive)(void* comm);
  NcclResult (*close_listen)(void* comm);
  void* get_device_memory;
  void* receive_consumed;
  void* make_virtual_device;
  NcclResult (*finalize)(void* context);
  NcclResult (*set_attributes)(void* context, void* attributes);
};
static_assert(sizeof(TableV11) == 176);

}  // namespace nbx::nccl::plugin
