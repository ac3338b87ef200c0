// The part of the CUDA runtime API that NCCL uses, on top of the driver API and nothing else.
// What is not written here ends in a stub that says so (`prepare` generates those).
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // libraries still call some of these
#include <cstring>
#include <utility>

#include "runtime.hpp"

using namespace phantom::runtime;

namespace {
thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
}  // namespace

namespace phantom::runtime {
cudaError_t note(CUresult r) {
  auto e = static_cast<cudaError_t>(r);
  if (e != cudaSuccess && e != cudaErrorNotReady) {
    last_error = e;
  }
  return e;
}
void bind() {
  CUcontext c = nullptr;
  CUdevice d = -1;
  if (cuCtxGetCurrent(&c) == CUDA_SUCCESS && c && cuCtxGetDevice(&d) == CUDA_SUCCESS && d == current_device) {
    return;
  }
  CUcontext primary;
  if (cuDevicePrimaryCtxRetain(&primary, current_device) == CUDA_SUCCESS) {
    cuCtxSetCurrent(primary);
  }
}
}  // namespace phantom::runtime

namespace {
CUdeviceptr dp(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }
bool valid_device(int d) {
  int n = 0;
  return cuDeviceGetCount(&n) == CUDA_SUCCESS && d >= 0 && d < n;
}
int attribute(CUdevice_attribute a, int d) {
  int v = 0;
  cuDeviceGetAttribute(&v, a, d);
  return v;
}
}  // namespace

// ---- errors, versions, devices -----------------------------------------------------------
PHANTOM_EXPORT cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
PHANTOM_EXPORT cudaError_t cudaPeekAtLastError() { return last_error; }
PHANTOM_EXPORT const char* cudaGetErrorString(cudaError_t e) {
  const char* s = nullptr;
  cuGetErrorString(static_cast<CUresult>(e), &s);
  return s;
}
PHANTOM_EXPORT const char* cudaGetErrorName(cudaError_t e) {
  const char* s = nullptr;
  cuGetErrorName(static_cast<CUresult>(e), &s);
  return s;
}
PHANTOM_EXPORT cudaError_t cudaDriverGetVersion(int* v) { return note(cuDriverGetVersion(v)); }
PHANTOM_EXPORT cudaError_t cudaRuntimeGetVersion(int* v) { return *v = CUDART_VERSION, cudaSuccess; }
PHANTOM_EXPORT cudaError_t cudaGetDeviceCount(int* n) { return note(cuDeviceGetCount(n)); }
PHANTOM_EXPORT cudaError_t cudaGetDevice(int* d) { return *d = current_device, cudaSuccess; }
PHANTOM_EXPORT cudaError_t cudaSetDevice(int d) {
  if (!valid_device(d)) {
    return note(CUDA_ERROR_INVALID_DEVICE);
  }
  current_device = d;
  return bind(), cudaSuccess;
}
PHANTOM_EXPORT cudaError_t cudaDeviceGetAttribute(int* v, cudaDeviceAttr a, int d) {
  return note(cuDeviceGetAttribute(v, static_cast<CUdevice_attribute>(a), d));
}
PHANTOM_EXPORT cudaError_t cudaDeviceGetPCIBusId(char* s, int len, int d) {
  return note(cuDeviceGetPCIBusId(s, len, d));
}
PHANTOM_EXPORT cudaError_t cudaDeviceGetByPCIBusId(int* d, const char* s) { return note(cuDeviceGetByPCIBusId(d, s)); }
PHANTOM_EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return RT(cuCtxGetStreamPriorityRange(least, greatest));
}
PHANTOM_EXPORT cudaError_t cudaDeviceCanAccessPeer(int* can, int a, int b) {
  return note(cuDeviceCanAccessPeer(can, a, b));
}
PHANTOM_EXPORT cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
PHANTOM_EXPORT cudaError_t cudaDeviceSynchronize() { return RT(cuCtxSynchronize()); }
PHANTOM_EXPORT cudaError_t cudaDeviceReset() { return cudaSuccess; }
PHANTOM_EXPORT cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int d) {
  if (!valid_device(d)) {
    return note(CUDA_ERROR_INVALID_DEVICE);
  }
  memset(p, 0, sizeof *p);
  cuDeviceGetName(p->name, sizeof p->name, d);
  cuDeviceTotalMem(&p->totalGlobalMem, d);
  p->major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, d);
  p->minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, d);
  p->warpSize = 32;
  p->multiProcessorCount = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, d);
  p->maxThreadsPerBlock = 1024;
  p->sharedMemPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, d);
  p->sharedMemPerBlockOptin = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, d);
  p->pciBusID = attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, d);
  p->unifiedAddressing = p->canMapHostMemory = 1;
  return cudaSuccess;
}
PHANTOM_EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** fn, unsigned version,
                                                            unsigned long long, cudaDriverEntryPointQueryResult* st) {
  CUdriverProcAddressQueryResult found;
  cuGetProcAddress(symbol, fn, int(version), CU_GET_PROC_ADDRESS_DEFAULT, &found);
  if (st) {
    *st = *fn ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  }
  return cudaSuccess;
}
PHANTOM_EXPORT cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** fn, unsigned long long flags,
                                                   cudaDriverEntryPointQueryResult* st) {
  return cudaGetDriverEntryPointByVersion(symbol, fn, CUDART_VERSION, flags, st);
}

// ---- memory ---------------------------------------------------------------------------------
PHANTOM_EXPORT cudaError_t cudaMalloc(void** p, size_t n) {
  CUdeviceptr d = 0;
  auto e = n ? RT(cuMemAlloc(&d, n)) : cudaSuccess;
  *p = reinterpret_cast<void*>(d);
  return e;
}
PHANTOM_EXPORT cudaError_t cudaMemGetInfo(size_t* free, size_t* total) { return RT(cuMemGetInfo(free, total)); }
PHANTOM_EXPORT cudaError_t cudaFree(void* p) { return p ? RT(cuMemFree(dp(p))) : (bind(), cudaSuccess); }
PHANTOM_EXPORT cudaError_t cudaHostAlloc(void** p, size_t n, unsigned f) { return RT(cuMemHostAlloc(p, n, f)); }
PHANTOM_EXPORT cudaError_t cudaMallocHost(void** p, size_t n) { return RT(cuMemHostAlloc(p, n, 0)); }
PHANTOM_EXPORT cudaError_t cudaFreeHost(void* p) { return RT(cuMemFreeHost(p)); }
PHANTOM_EXPORT cudaError_t cudaHostRegister(void* p, size_t n, unsigned f) { return RT(cuMemHostRegister(p, n, f)); }
PHANTOM_EXPORT cudaError_t cudaHostUnregister(void* p) { return RT(cuMemHostUnregister(p)); }
PHANTOM_EXPORT cudaError_t cudaHostGetDevicePointer(void** d, void* p, unsigned) { return *d = p, cudaSuccess; }
PHANTOM_EXPORT cudaError_t cudaMemcpyAsync(void* d, const void* s, size_t n, cudaMemcpyKind k, cudaStream_t st) {
  switch (k) {
    case cudaMemcpyHostToDevice:
      return RT(cuMemcpyHtoDAsync(dp(d), s, n, st));
    case cudaMemcpyDeviceToHost:
      return RT(cuMemcpyDtoHAsync(d, dp(s), n, st));
    default:
      return RT(cuMemcpyAsync(dp(d), dp(s), n, st));
  }
}
PHANTOM_EXPORT cudaError_t cudaMemcpy(void* d, const void* s, size_t n, cudaMemcpyKind) {
  return RT(cuMemcpy(dp(d), dp(s), n));
}
PHANTOM_EXPORT cudaError_t cudaMemset(void* d, int v, size_t n) {
  return RT(cuMemsetD8(dp(d), static_cast<unsigned char>(v), n));
}
PHANTOM_EXPORT cudaError_t cudaMemsetAsync(void* d, int v, size_t n, cudaStream_t s) {
  return RT(cuMemsetD8Async(dp(d), static_cast<unsigned char>(v), n, s));
}
PHANTOM_EXPORT cudaError_t cudaMallocAsync(void** p, size_t n, cudaStream_t) { return cudaMalloc(p, n); }
PHANTOM_EXPORT cudaError_t cudaMallocFromPoolAsync(void** p, size_t n, cudaMemPool_t, cudaStream_t) {
  return cudaMalloc(p, n);
}
PHANTOM_EXPORT cudaError_t cudaFreeAsync(void* p, cudaStream_t s) { return RT(cuMemFreeAsync(dp(p), s)); }
PHANTOM_EXPORT cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  return RT(cuMemPoolCreate(pool, nullptr));
}
PHANTOM_EXPORT cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) { return RT(cuMemPoolDestroy(pool)); }
PHANTOM_EXPORT cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
PHANTOM_EXPORT cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  memset(a, 0, sizeof *a);
  unsigned type = 0;
  a->type = cudaMemoryTypeUnregistered;
  a->device = -2;
  if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, dp(p)) != CUDA_SUCCESS) {
    return cudaSuccess;
  }
  a->type = type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  cuPointerGetAttribute(&a->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, dp(p));
  a->devicePointer = const_cast<void*>(p);
  a->hostPointer = type == CU_MEMORYTYPE_HOST ? const_cast<void*>(p) : nullptr;
  return cudaSuccess;
}

// ---- streams, events, capture ---------------------------------------------------------------
PHANTOM_EXPORT cudaError_t cudaStreamCreate(cudaStream_t* s) { return RT(cuStreamCreate(s, 0)); }
PHANTOM_EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned f) { return RT(cuStreamCreate(s, f)); }
PHANTOM_EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned f, int p) {
  return RT(cuStreamCreateWithPriority(s, f, p));
}
PHANTOM_EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t s, int* p) { return RT(cuStreamGetPriority(s, p)); }
PHANTOM_EXPORT cudaError_t cudaStreamGetFlags(cudaStream_t s, unsigned* f) { return RT(cuStreamGetFlags(s, f)); }
PHANTOM_EXPORT cudaError_t cudaStreamGetId(cudaStream_t s, unsigned long long* id) { return RT(cuStreamGetId(s, id)); }
PHANTOM_EXPORT cudaError_t cudaStreamDestroy(cudaStream_t s) { return RT(cuStreamDestroy(s)); }
PHANTOM_EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t s) { return RT(cuStreamSynchronize(s)); }
PHANTOM_EXPORT cudaError_t cudaStreamQuery(cudaStream_t s) { return RT(cuStreamQuery(s)); }
PHANTOM_EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned f) {
  return RT(cuStreamWaitEvent(s, e, f));
}
PHANTOM_EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void* arg) {
  return RT(cuLaunchHostFunc(s, fn, arg));
}
PHANTOM_EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned f) { return RT(cuEventCreate(e, f)); }
PHANTOM_EXPORT cudaError_t cudaEventCreate(cudaEvent_t* e) { return RT(cuEventCreate(e, 0)); }
PHANTOM_EXPORT cudaError_t cudaEventDestroy(cudaEvent_t e) { return RT(cuEventDestroy(e)); }
PHANTOM_EXPORT cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { return RT(cuEventRecord(e, s)); }
PHANTOM_EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned f) {
  return RT(cuEventRecordWithFlags(e, s, f));
}
PHANTOM_EXPORT cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  return note(cuEventElapsedTime(ms, a, b));
}
PHANTOM_EXPORT cudaError_t cudaEventQuery(cudaEvent_t e) { return RT(cuEventQuery(e)); }
PHANTOM_EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t e) { return RT(cuEventSynchronize(e)); }
PHANTOM_EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* st) {
  return *st = cudaStreamCaptureStatusNone, cudaSuccess;
}
PHANTOM_EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* st, unsigned long long* id,
                                                    cudaGraph_t* g, const cudaGraphNode_t** deps,
                                                    const cudaGraphEdgeData** edges, size_t* n) {
  *st = cudaStreamCaptureStatusNone;
  if (id) {
    *id = 0;
  }
  if (g) {
    *g = nullptr;
  }
  if (deps) {
    *deps = nullptr;
  }
  if (edges) {
    *edges = nullptr;
  }
  if (n) {
    *n = 0;
  }
  return cudaSuccess;
}
PHANTOM_EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  thread_local cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
  std::swap(*mode, current);
  return cudaSuccess;
}
