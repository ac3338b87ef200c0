// phantom-gpu NVML stand-in: as many devices as the driver stand-in shows, no NVLink,
// no peer-to-peer, no fabric, no confidential computing.
//
// NVML's header is not part of every toolkit, so the few declarations needed are restated.
#include <strings.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define PHANTOM_EXPORT extern "C" __attribute__((visibility("default")))

namespace {
enum Result { Success = 0, InvalidArgument = 2, NotSupported = 3, NotFound = 6 };

struct Device {
  int index;
  char bus_id[32];
};
Device devices[32];

int count() {
  static const int n = [] {
    const char* e = getenv("PHANTOM_GPU_COUNT");
    int c = e ? atoi(e) : 1;
    for (int i = 0; i < c && i < 32; i++) {
      devices[i].index = i;
      snprintf(devices[i].bus_id, sizeof devices[i].bus_id, "0000:%02x:00.0",
               0x10 + i);  // as pci_bus_id() in the driver
    }
    return c;
  }();
  return n;
}

struct ConfComputeSettings {
  unsigned version, environment, cc_feature, dev_tools_mode, multi_gpu_mode;
};
}  // namespace

PHANTOM_EXPORT int nvmlInit() { return count(), Success; }
PHANTOM_EXPORT int nvmlInit_v2() { return count(), Success; }
PHANTOM_EXPORT int nvmlShutdown() { return Success; }
PHANTOM_EXPORT const char* nvmlErrorString(int r) {
  return r == Success ? "Success" : r == NotSupported ? "Not Supported" : "phantom NVML error";
}
PHANTOM_EXPORT int nvmlDeviceGetCount_v2(unsigned* n) { return *n = count(), Success; }
PHANTOM_EXPORT int nvmlDeviceGetCount(unsigned* n) { return *n = count(), Success; }
PHANTOM_EXPORT int nvmlDeviceGetHandleByIndex(unsigned i, void** d) {
  if (int(i) >= count()) {
    return InvalidArgument;
  }
  return *d = &devices[i], Success;
}
PHANTOM_EXPORT int nvmlDeviceGetHandleByPciBusId(const char* id, void** d) {
  for (int i = 0; i < count(); i++) {
    if (!strcasecmp(id, devices[i].bus_id)) {
      return *d = &devices[i], Success;
    }
  }
  return NotFound;
}
PHANTOM_EXPORT int nvmlDeviceGetIndex(void* d, unsigned* i) { return *i = static_cast<Device*>(d)->index, Success; }
PHANTOM_EXPORT int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = 9, *minor = 0;
  if (const char* cc = getenv("PHANTOM_GPU_CC")) {
    sscanf(cc, "%d.%d", major, minor);
  }
  return Success;
}
PHANTOM_EXPORT int nvmlDeviceGetP2PStatus(void*, void*, int, int* status) {
  return *status = 5 /* not supported */, Success;
}
PHANTOM_EXPORT int nvmlDeviceGetNvLinkState(void*, unsigned, int*) { return NotSupported; }
PHANTOM_EXPORT int nvmlDeviceGetNvLinkRemotePciInfo(void*, unsigned, void*) { return NotSupported; }
PHANTOM_EXPORT int nvmlDeviceGetNvLinkCapability(void*, unsigned, int, unsigned*) { return NotSupported; }
PHANTOM_EXPORT int nvmlDeviceGetFieldValues(void*, int, void*) { return NotSupported; }
PHANTOM_EXPORT int nvmlDeviceGetGpuFabricInfoV(void*, void*) { return NotSupported; }
PHANTOM_EXPORT int nvmlDeviceGetPlatformInfo(void*, void*) { return NotSupported; }
PHANTOM_EXPORT int nvmlSystemGetConfComputeSettings(ConfComputeSettings* s) {
  const unsigned version = s->version;
  memset(s, 0, sizeof *s);
  s->version = version;
  return Success;
}
