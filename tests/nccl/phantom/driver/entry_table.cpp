// Which function answers which (name, API version) pair.
#include <cstring>

#include "internal.hpp"

// Versions that cuda.h has renamed away.
#undef cuCtxGetDevice
#undef cuGetProcAddress
#undef cuCtxSynchronize
#undef cuStreamGetCaptureInfo
#undef cuEventElapsedTime
extern "C" CUresult cuEventElapsedTime(float*, CUevent, CUevent);
extern "C" CUresult cuStreamGetCaptureInfo_v2(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*,
                                              const CUgraphNode**, size_t*);

namespace phantom {
namespace {

struct Entry {
  const char* name;
  int since;
  void* fn;
};

// E(f, v): f answers for versions from v on (the symbol behind f is cuda.h's current one).
#define E(f, v) \
  { #f, v, reinterpret_cast < void*>(&f) }
#define EV(f, v, impl) \
  { #f, v, reinterpret_cast < void*>(&impl) }

const Entry table[] = {
    E(cuInit, 0),
    EV(cuGetProcAddress, 12000, cuGetProcAddress_v2),
    E(cuDriverGetVersion, 0),
    E(cuGetErrorString, 0),
    E(cuGetErrorName, 0),
    E(cuModuleGetLoadingMode, 0),
    // devices and contexts
    E(cuDeviceGet, 0),
    E(cuDeviceGetCount, 0),
    E(cuDeviceGetName, 0),
    E(cuDeviceTotalMem, 3020),
    E(cuDeviceGetAttribute, 0),
    E(cuDeviceGetUuid, 0),
    E(cuDeviceGetPCIBusId, 0),
    E(cuDeviceGetByPCIBusId, 0),
    E(cuDeviceCanAccessPeer, 0),
    E(cuDeviceGetP2PAttribute, 0),
    E(cuDevicePrimaryCtxRetain, 0),
    E(cuDevicePrimaryCtxRelease, 0),
    E(cuDevicePrimaryCtxReset, 0),
    E(cuDevicePrimaryCtxSetFlags, 0),
    E(cuDevicePrimaryCtxGetState, 0),
    E(cuCtxSetCurrent, 0),
    E(cuCtxGetCurrent, 0),
    E(cuCtxPushCurrent, 0),
    E(cuCtxPopCurrent, 0),
    E(cuCtxGetDevice, 0),
    EV(cuCtxGetDevice, 13000, cuCtxGetDevice_v2),
    E(cuCtxGetFlags, 0),
    E(cuCtxGetApiVersion, 0),
    E(cuCtxGetLimit, 0),
    E(cuCtxSetLimit, 0),
    E(cuCtxGetStreamPriorityRange, 0),
    E(cuCtxSynchronize, 0),
    EV(cuCtxSynchronize, 13000, cuCtxSynchronize_v2),
    // libraries and kernels
    E(cuLibraryLoadData, 0),
    E(cuLibraryUnload, 0),
    E(cuLibraryGetKernel, 0),
    E(cuLibraryGetModule, 0),
    E(cuLibraryGetGlobal, 0),
    E(cuKernelGetFunction, 0),
    E(cuKernelGetName, 0),
    E(cuKernelGetAttribute, 0),
    E(cuKernelSetAttribute, 0),
    E(cuModuleGetFunction, 0),
    E(cuFuncGetName, 0),
    E(cuFuncGetAttribute, 0),
    E(cuFuncSetAttribute, 0),
    E(cuLaunchKernel, 0),
    E(cuLaunchKernelEx, 0),
    E(cuLaunchHostFunc, 0),
    // memory
    E(cuMemGetInfo, 3020),
    E(cuMemAlloc, 3020),
    E(cuMemFree, 3020),
    E(cuMemHostAlloc, 0),
    E(cuMemFreeHost, 0),
    E(cuMemHostGetDevicePointer, 3020),
    E(cuMemHostGetFlags, 0),
    E(cuMemHostRegister, 6050),
    E(cuMemHostUnregister, 0),
    E(cuMemGetAddressRange, 3020),
    E(cuMemGetAllocationGranularity, 10020),
    E(cuMemCreate, 10020),
    E(cuMemRelease, 10020),
    E(cuMemRetainAllocationHandle, 11000),
    E(cuMemGetAllocationPropertiesFromHandle, 10020),
    E(cuMemAddressReserve, 10020),
    E(cuMemAddressFree, 10020),
    E(cuMemMap, 10020),
    E(cuMemSetAccess, 10020),
    E(cuMemUnmap, 10020),
    E(cuMemExportToShareableHandle, 10020),
    E(cuMemImportFromShareableHandle, 10020),
    E(cuPointerGetAttribute, 0),
    E(cuPointerGetAttributes, 0),
    E(cuPointerSetAttribute, 0),
    E(cuMemPoolCreate, 0),
    E(cuMemPoolDestroy, 0),
    E(cuMemPoolSetAttribute, 0),
    E(cuMemPoolTrimTo, 0),
    E(cuMemAllocAsync, 0),
    E(cuMemAllocFromPoolAsync, 0),
    E(cuMemFreeAsync, 0),
    E(cuMemcpy, 0),
    E(cuMemcpyAsync, 0),
    E(cuMemcpyHtoD, 3020),
    E(cuMemcpyDtoH, 3020),
    E(cuMemcpyDtoD, 3020),
    E(cuMemcpyHtoDAsync, 3020),
    E(cuMemcpyDtoHAsync, 3020),
    E(cuMemcpyDtoDAsync, 3020),
    E(cuMemsetD8, 3020),
    E(cuMemsetD8Async, 0),
    // streams and events
    E(cuStreamCreate, 0),
    E(cuStreamCreateWithPriority, 0),
    E(cuStreamDestroy, 4000),
    E(cuStreamSynchronize, 0),
    E(cuStreamQuery, 0),
    E(cuStreamGetPriority, 0),
    E(cuStreamGetFlags, 0),
    E(cuStreamGetId, 0),
    E(cuStreamGetDevice, 0),
    E(cuStreamWaitEvent, 0),
    E(cuStreamIsCapturing, 0),
    E(cuThreadExchangeStreamCaptureMode, 0),
    EV(cuStreamGetCaptureInfo, 11030, cuStreamGetCaptureInfo_v2),
    EV(cuStreamGetCaptureInfo, 12030, cuStreamGetCaptureInfo_v3),
    E(cuEventCreate, 0),
    E(cuEventDestroy, 4000),
    E(cuEventRecord, 0),
    E(cuEventRecordWithFlags, 0),
    E(cuEventQuery, 0),
    E(cuEventSynchronize, 0),
    E(cuEventElapsedTime, 0),
};
}  // namespace

void* find_entry(const char* name, int version) {
  const Entry* best = nullptr;
  for (auto& e : table) {
    if (!strcmp(e.name, name) && e.since <= version && (!best || e.since > best->since)) {
      best = &e;
    }
  }
  return best ? best->fn : nullptr;
}

}  // namespace phantom
