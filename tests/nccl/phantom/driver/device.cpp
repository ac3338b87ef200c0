// Devices and contexts.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "internal.hpp"

namespace phantom {

const DeviceModel& DeviceModel::get() {
  static const DeviceModel m = [] {
    DeviceModel d{};
    const char* n = getenv("PHANTOM_GPU_COUNT");
    d.count = n ? atoi(n) : 1;
    d.cc_major = 9, d.cc_minor = 0;
    if (const char* cc = getenv("PHANTOM_GPU_CC")) {
      sscanf(cc, "%d.%d", &d.cc_major, &d.cc_minor);
    }
    d.sm_count = 132;
    d.total_mem = size_t{80} << 30;
    return d;
  }();
  return m;
}

std::string pci_bus_id(int dev) {
  char b[32];
  snprintf(b, sizeof b, "0000:%02x:00.0", 0x10 + dev);
  return b;
}

namespace {
CUctx_st primary[32];
thread_local std::vector<CUcontext> stack;
bool valid_device(CUdevice d) { return d >= 0 && d < DeviceModel::get().count; }
}  // namespace

CUcontext current_context() { return stack.empty() ? nullptr : stack.back(); }

}  // namespace phantom

using namespace phantom;

PHANTOM_EXPORT CUresult cuDeviceGetCount(int* n) { return *n = DeviceModel::get().count, CUDA_SUCCESS; }

PHANTOM_EXPORT CUresult cuDeviceGet(CUdevice* d, int ordinal) {
  if (!valid_device(ordinal)) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  *d = ordinal;
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuDeviceGetName(char* name, int len, CUdevice d) {
  snprintf(name, len, "Phantom GPU %d", d);
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuDeviceTotalMem(size_t* bytes, CUdevice) {
  *bytes = DeviceModel::get().total_mem;
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuDeviceGetUuid(CUuuid* u, CUdevice d) {
  memset(u, 0, sizeof *u);
  memcpy(u->bytes, "phantom-gpu", 11);
  u->bytes[15] = static_cast<char>(d);
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuDeviceGetPCIBusId(char* s, int len, CUdevice d) {
  if (!valid_device(d)) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  snprintf(s, len, "%s", pci_bus_id(d).c_str());
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice* d, const char* s) {
  for (int i = 0; i < DeviceModel::get().count; i++) {
    if (pci_bus_id(i) == s) {
      return *d = i, CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

PHANTOM_EXPORT CUresult cuDeviceGetAttribute(int* v, CUdevice_attribute a, CUdevice d) {
  if (!valid_device(d)) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  const auto& m = DeviceModel::get();
  switch (a) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *v = 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      *v = 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      *v = 64;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      *v = 2147483647;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      *v = 65535;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      *v = 48 << 10;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *v = 227 << 10;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      *v = 228 << 10;
      break;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      *v = 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
      *v = 65536;
      break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      *v = 32;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      *v = 65536;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      *v = 2048;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      *v = 32;
      break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      *v = 1980000;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *v = m.sm_count;
      break;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:  // a network plugin can read "device" memory
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
      *v = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      *v = 3;
      break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      *v = 2619000;
      break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      *v = 5120;
      break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      *v = 50 << 20;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *v = m.cc_major;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *v = m.cc_minor;
      break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      *v = 0x10 + d;
      break;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
      *v = 0;
      break;
    default:
      *v = 0;
      break;  // feature flags stay off: no VMM, multicast, DMA-BUF, fabric, ...
  }
  PLOG(3, "cuDeviceGetAttribute %d -> %d", (int)a, *v);
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuDeviceCanAccessPeer(int* can, CUdevice, CUdevice) { return *can = 0, CUDA_SUCCESS; }
PHANTOM_EXPORT CUresult cuDeviceGetP2PAttribute(int* v, CUdevice_P2PAttribute, CUdevice, CUdevice) {
  return *v = 0, CUDA_SUCCESS;
}

// ---- contexts -----------------------------------------------------------------------
PHANTOM_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* c, CUdevice d) {
  if (!valid_device(d)) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  primary[d].device = d;
  primary[d].refs++;
  *c = &primary[d];
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice d) {
  if (!valid_device(d)) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  primary[d].refs--;
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice) { return CUDA_SUCCESS; }
PHANTOM_EXPORT CUresult cuDevicePrimaryCtxSetFlags(CUdevice d, unsigned f) {
  return primary[d].flags = f, CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned* flags, int* active) {
  *flags = primary[d].flags;
  *active = primary[d].refs > 0;
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuCtxSetCurrent(CUcontext c) {
  if (!stack.empty()) {
    stack.pop_back();
  }
  if (c) {
    stack.push_back(c);
  }
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuCtxGetCurrent(CUcontext* c) { return *c = current_context(), CUDA_SUCCESS; }
PHANTOM_EXPORT CUresult cuCtxPushCurrent(CUcontext c) { return stack.push_back(c), CUDA_SUCCESS; }
PHANTOM_EXPORT CUresult cuCtxPopCurrent(CUcontext* c) {
  if (stack.empty()) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (c) {
    *c = stack.back();
  }
  stack.pop_back();
  return CUDA_SUCCESS;
}
#undef cuCtxGetDevice
PHANTOM_EXPORT CUresult cuCtxGetDevice(CUdevice* d) {
  auto* c = current_context();
  if (!c) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  return *d = c->device, CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuCtxGetDevice_v2(CUdevice* d, CUcontext c) {
  if (!c) {
    return cuCtxGetDevice(d);
  }
  return *d = c->device, CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuCtxGetFlags(unsigned* f) { return *f = 0, CUDA_SUCCESS; }
PHANTOM_EXPORT CUresult cuCtxGetApiVersion(CUcontext, unsigned* v) { return *v = 3020, CUDA_SUCCESS; }
PHANTOM_EXPORT CUresult cuCtxGetLimit(size_t* v, CUlimit) { return *v = 1024, CUDA_SUCCESS; }
PHANTOM_EXPORT CUresult cuCtxSetLimit(CUlimit, size_t) { return CUDA_SUCCESS; }
PHANTOM_EXPORT CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  if (least) {
    *least = 0;
  }
  if (greatest) {
    *greatest = -5;
  }
  return CUDA_SUCCESS;
}
