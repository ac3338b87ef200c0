// Virtual memory management: an allocation is an anonymous file, so that other processes can map it too.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.hpp"

using namespace phantom;

namespace {
struct Allocation {
  int fd = -1;
  size_t size = 0;
  int references = 1;
};
std::mutex mu;
std::map<CUmemGenericAllocationHandle, Allocation> allocations;
std::map<CUdeviceptr, CUmemGenericAllocationHandle> mappings;
CUmemGenericAllocationHandle next_handle = 1;

constexpr size_t granule = 2 << 20;
void* at(CUdeviceptr p) { return reinterpret_cast<void*>(p); }
int device_now() {
  const auto* context = current_context();
  return context ? context->device : 0;
}
}  // namespace

PHANTOM_EXPORT CUresult cuMemGetAllocationGranularity(size_t* out, const CUmemAllocationProp*,
                                                      CUmemAllocationGranularity_flags) {
  return *out = granule, CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp*,
                                    unsigned long long) {
  const int fd = memfd_create("phantom", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(size)) != 0) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  std::lock_guard lock(mu);
  *handle = next_handle++;
  allocations[*handle] = {fd, size, 1};
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  std::lock_guard lock(mu);
  const auto found = allocations.find(handle);
  if (found == allocations.end()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (--found->second.references == 0) {
    close(found->second.fd);  // mappings stay
    allocations.erase(found);
  }
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  std::lock_guard lock(mu);
  const auto mapping = mappings.find(reinterpret_cast<CUdeviceptr>(address));
  if (mapping == mappings.end() || !allocations.contains(mapping->second)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *handle = mapping->second;
  ++allocations[*handle].references;
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                               CUmemGenericAllocationHandle) {
  *properties = {};
  properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties->location.id = device_now();
  properties->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return CUDA_SUCCESS;
}

PHANTOM_EXPORT CUresult cuMemAddressReserve(CUdeviceptr* p, size_t size, size_t, CUdeviceptr, unsigned long long) {
  void* reserved = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *p = reinterpret_cast<CUdeviceptr>(reserved);
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuMemAddressFree(CUdeviceptr p, size_t size) {
  return munmap(at(p), size) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
PHANTOM_EXPORT CUresult cuMemMap(CUdeviceptr p, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                                 unsigned long long) {
  std::lock_guard lock(mu);
  const auto found = allocations.find(handle);
  if (found == allocations.end() || mmap(at(p), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                                         found->second.fd, static_cast<off_t>(offset)) == MAP_FAILED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  mappings[p] = handle;
  note_memory(at(p), size, device_now());
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return CUDA_SUCCESS; }
PHANTOM_EXPORT CUresult cuMemUnmap(CUdeviceptr p, size_t size) {
  std::lock_guard lock(mu);
  mappings.erase(p);
  forget_memory(at(p));
  void* reserved = mmap(at(p), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return reserved == MAP_FAILED ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

PHANTOM_EXPORT CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                                     CUmemAllocationHandleType type, unsigned long long) {
  std::lock_guard lock(mu);
  const auto found = allocations.find(handle);
  if (found == allocations.end() || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *static_cast<int*>(out) = fcntl(found->second.fd, F_DUPFD_CLOEXEC, 0);
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* file,
                                                       CUmemAllocationHandleType type) {
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int fd = fcntl(static_cast<int>(reinterpret_cast<intptr_t>(file)), F_DUPFD_CLOEXEC, 0);
  const off_t size = lseek(fd, 0, SEEK_END);
  if (fd < 0 || size < 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::lock_guard lock(mu);
  *handle = next_handle++;
  allocations[*handle] = {fd, static_cast<size_t>(size), 1};
  return CUDA_SUCCESS;
}
