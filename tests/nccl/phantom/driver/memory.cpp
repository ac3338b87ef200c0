// Device and pinned memory: plain anonymous mappings plus a table of what was handed out.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "internal.hpp"

using namespace phantom;

namespace {
struct Block {
  size_t size;
  CUmemorytype type;
  int device;
  bool owned;  // false: memory of the program that was only registered
  uint64_t id;
};
std::mutex mu;
std::map<uintptr_t, Block> blocks;
uint64_t next_id = 1;

constexpr size_t granule = 4096;
size_t round_up(size_t n) { return (n + granule - 1) / granule * granule; }

CUresult allocate(void** out, size_t bytes, CUmemorytype type) {
  if (bytes == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  void* p = mmap(nullptr, round_up(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto* c = current_context();
  std::lock_guard lock(mu);
  blocks[reinterpret_cast<uintptr_t>(p)] = {bytes, type, c ? c->device : 0, true, next_id++};
  *out = p;
  return CUDA_SUCCESS;
}
CUresult release(uintptr_t p) {
  if (!p) {
    return CUDA_SUCCESS;
  }
  std::lock_guard lock(mu);
  auto it = blocks.find(p);
  if (it == blocks.end() || !it->second.owned) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  munmap(reinterpret_cast<void*>(p), round_up(it->second.size));
  blocks.erase(it);
  return CUDA_SUCCESS;
}
// The block that holds address p; the caller holds mu.
std::map<uintptr_t, Block>::iterator holding(uintptr_t p) {
  auto it = blocks.upper_bound(p);
  if (it == blocks.begin()) {
    return blocks.end();
  }
  --it;
  return p < it->first + it->second.size ? it : blocks.end();
}
void* at(CUdeviceptr p) { return reinterpret_cast<void*>(p); }

// A copy or fill: queue it, and wait for it in the synchronous flavours.
CUresult on_stream(CUstream s, bool sync, std::function<void()> op) {
  auto* st = resolve_stream(s);
  if (!st) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  st->enqueue(std::move(op));
  if (sync) {
    st->mark()->wait();
  }
  return CUDA_SUCCESS;
}
CUresult copy(void* d, const void* s, size_t n, CUstream st, bool sync) {
  return on_stream(st, sync, [=] { memmove(d, s, n); });
}
bool known(const void* p) {
  std::lock_guard lock(mu);
  return holding(reinterpret_cast<uintptr_t>(p)) != blocks.end();
}
// Pageable host memory is not ours after the call: as with the real driver, a pageable
// source is staged at the call, and a pageable destination makes the call wait.
CUresult copy_async(void* d, const void* s, size_t n, CUstream st) {
  if (known(s)) {
    return copy(d, s, n, st, !known(d));
  }
  auto staged = std::make_shared<std::vector<char>>(static_cast<const char*>(s), static_cast<const char*>(s) + n);
  const bool wait = !known(d);
  return on_stream(st, wait, [=] { memcpy(d, staged->data(), n); });
}
}  // namespace

void phantom::note_memory(void* p, size_t size, int device) {
  std::lock_guard lock(mu);
  blocks[reinterpret_cast<uintptr_t>(p)] = {size, CU_MEMORYTYPE_DEVICE, device, false, next_id++};
}
void phantom::forget_memory(void* p) {
  std::lock_guard lock(mu);
  blocks.erase(reinterpret_cast<uintptr_t>(p));
}

PHANTOM_EXPORT CUresult cuMemGetInfo(size_t* free_b, size_t* total) {
  *total = DeviceModel::get().total_mem;
  *free_b = *total - (size_t{1} << 30);
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuMemAlloc(CUdeviceptr* p, size_t n) {
  void* v = nullptr;
  CUresult r = allocate(&v, n, CU_MEMORYTYPE_DEVICE);
  *p = reinterpret_cast<CUdeviceptr>(v);
  return r;
}
PHANTOM_EXPORT CUresult cuMemFree(CUdeviceptr p) { return release(p); }
PHANTOM_EXPORT CUresult cuMemHostAlloc(void** p, size_t n, unsigned) { return allocate(p, n, CU_MEMORYTYPE_HOST); }
PHANTOM_EXPORT CUresult cuMemFreeHost(void* p) { return release(reinterpret_cast<uintptr_t>(p)); }
PHANTOM_EXPORT CUresult cuMemHostGetDevicePointer(CUdeviceptr* d, void* p, unsigned) {
  *d = reinterpret_cast<CUdeviceptr>(p);
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuMemHostGetFlags(unsigned* f, void*) { return *f = CU_MEMHOSTALLOC_DEVICEMAP, CUDA_SUCCESS; }
PHANTOM_EXPORT CUresult cuMemHostRegister(void* p, size_t n, unsigned) {
  std::lock_guard lock(mu);
  blocks[reinterpret_cast<uintptr_t>(p)] = {n, CU_MEMORYTYPE_HOST, 0, false, next_id++};
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuMemHostUnregister(void* p) {
  std::lock_guard lock(mu);
  blocks.erase(reinterpret_cast<uintptr_t>(p));
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* size, CUdeviceptr p) {
  std::lock_guard lock(mu);
  auto it = holding(p);
  if (it == blocks.end()) {
    return CUDA_ERROR_NOT_FOUND;
  }
  if (base) {
    *base = it->first;
  }
  if (size) {
    *size = it->second.size;
  }
  return CUDA_SUCCESS;
}

PHANTOM_EXPORT CUresult cuPointerGetAttribute(void* data, CUpointer_attribute a, CUdeviceptr p) {
  std::lock_guard lock(mu);
  auto it = holding(p);
  const bool known = it != blocks.end();
  const CUmemorytype type = known ? it->second.type : CUmemorytype(0);
  switch (a) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(data) = known ? current_context() : nullptr;
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      if (!known) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      *static_cast<unsigned*>(data) = type;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(data) = known ? p : 0;
      break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      *static_cast<void**>(data) = known && type == CU_MEMORYTYPE_HOST ? at(p) : nullptr;
      break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<uint64_t*>(data) = known ? it->second.id : 0;
      break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *static_cast<int*>(data) = 0;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = known ? it->second.device : -2;
      break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<int*>(data) = known;
      break;
    default:
      PLOG(1, "cuPointerGetAttribute: attribute %d not modelled", (int)a);
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute* a, void** data, CUdeviceptr p) {
  for (unsigned i = 0; i < n; i++) {
    if (cuPointerGetAttribute(data[i], a[i], p) != CUDA_SUCCESS && a[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
      *static_cast<unsigned*>(data[i]) = 0;
    }
  }
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuPointerSetAttribute(const void*, CUpointer_attribute, CUdeviceptr) { return CUDA_SUCCESS; }

// ---- stream-ordered allocation: allocate now, free in stream order -------------------
PHANTOM_EXPORT CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps*) {
  *pool = reinterpret_cast<CUmemoryPool>(new char);
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  return delete reinterpret_cast<char*>(pool), CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool, CUmemPool_attribute, void*) { return CUDA_SUCCESS; }
PHANTOM_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool, size_t) { return CUDA_SUCCESS; }
PHANTOM_EXPORT CUresult cuMemAllocAsync(CUdeviceptr* p, size_t n, CUstream) { return cuMemAlloc(p, n); }
PHANTOM_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr* p, size_t n, CUmemoryPool, CUstream) {
  return cuMemAlloc(p, n);
}
PHANTOM_EXPORT CUresult cuMemFreeAsync(CUdeviceptr p, CUstream s) {
  return on_stream(s, false, [p] { release(p); });
}

// ---- copies and fills ------------------------------------------------------------------
PHANTOM_EXPORT CUresult cuMemcpy(CUdeviceptr d, CUdeviceptr s, size_t n) {
  return copy(at(d), at(s), n, nullptr, true);
}
PHANTOM_EXPORT CUresult cuMemcpyAsync(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream st) {
  return copy_async(at(d), at(s), n, st);
}
PHANTOM_EXPORT CUresult cuMemcpyHtoD(CUdeviceptr d, const void* s, size_t n) {
  return copy(at(d), s, n, nullptr, true);
}
PHANTOM_EXPORT CUresult cuMemcpyDtoH(void* d, CUdeviceptr s, size_t n) { return copy(d, at(s), n, nullptr, true); }
PHANTOM_EXPORT CUresult cuMemcpyDtoD(CUdeviceptr d, CUdeviceptr s, size_t n) {
  return copy(at(d), at(s), n, nullptr, true);
}
PHANTOM_EXPORT CUresult cuMemcpyHtoDAsync(CUdeviceptr d, const void* s, size_t n, CUstream st) {
  return copy_async(at(d), s, n, st);
}
PHANTOM_EXPORT CUresult cuMemcpyDtoHAsync(void* d, CUdeviceptr s, size_t n, CUstream st) {
  return copy_async(d, at(s), n, st);
}
PHANTOM_EXPORT CUresult cuMemcpyDtoDAsync(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream st) {
  return copy(at(d), at(s), n, st, false);
}
PHANTOM_EXPORT CUresult cuMemsetD8(CUdeviceptr d, unsigned char v, size_t n) {
  return on_stream(nullptr, true, [=] { memset(at(d), v, n); });
}
PHANTOM_EXPORT CUresult cuMemsetD8Async(CUdeviceptr d, unsigned char v, size_t n, CUstream st) {
  return on_stream(st, false, [=] { memset(at(d), v, n); });
}
