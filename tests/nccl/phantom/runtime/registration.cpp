// Kernels: what the code that nvcc puts into every host object expects of the runtime. Static
// constructors register each fat binary and, by name, each kernel in it; `kernel<<<...>>>` pushes
// a launch configuration and calls the kernel's host stub, which pops it and launches. The
// declarations are in the toolkit's crt/host_runtime.h; `nvcc --cuda` shows their use.
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime.hpp"

using namespace phantom::runtime;

namespace {

struct FatBinary {
  const void* image;
  CUlibrary library = nullptr;  // loaded when one of its kernels is first asked for
};
struct Kernel {
  FatBinary* binary;
  std::string name;
  CUkernel handle = nullptr;
};

// Registration happens in constructors and its undoing in destructors: never destroyed.
struct Registry {
  std::mutex mu;
  std::map<const void*, Kernel> kernels;  // by the address of the host stub
};
Registry& registry() {
  static auto& r = *new Registry;
  return r;
}

CUkernel kernel_of(const void* stub) {
  auto& r = registry();
  std::lock_guard lock(r.mu);
  auto it = r.kernels.find(stub);
  if (it == r.kernels.end()) {
    return nullptr;
  }
  Kernel& k = it->second;
  if (!k.binary->library) {
    cuLibraryLoadData(&k.binary->library, k.binary->image, nullptr, nullptr, 0, nullptr, nullptr, 0);
  }
  if (!k.handle) {
    cuLibraryGetKernel(&k.handle, k.binary->library, k.name.c_str());
  }
  return k.handle;
}
CUfunction function_of(CUkernel k) {
  CUfunction f = nullptr;
  if (k) {
    cuKernelGetFunction(&f, k);
  }
  return f;
}

struct Configuration {
  dim3 grid, block;
  size_t shared_mem;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> pushed;

cudaError_t launch(CUfunction f, dim3 g, dim3 b, void** args, size_t shared, cudaStream_t s) {
  if (!f) {
    return note(CUDA_ERROR_NOT_FOUND);
  }
  return RT(cuLaunchKernel(f, g.x, g.y, g.z, b.x, b.y, b.z, unsigned(shared), s, args, nullptr));
}

}  // namespace

// ---- called by constructors and destructors ----------------------------------------------------
PHANTOM_EXPORT void** __cudaRegisterFatBinary(void* image) { return reinterpret_cast<void**>(new FatBinary{image}); }
PHANTOM_EXPORT void __cudaRegisterFatBinaryEnd(void**) {}
PHANTOM_EXPORT void __cudaUnregisterFatBinary(void** handle) {
  auto* binary = reinterpret_cast<FatBinary*>(handle);
  auto& r = registry();
  std::lock_guard lock(r.mu);
  std::erase_if(r.kernels, [&](auto& k) { return k.second.binary == binary; });
  if (!binary->library) {
    delete binary;  // a loaded one stays: launches may still be queued
  }
}
PHANTOM_EXPORT void __cudaRegisterFunction(void** handle, const char* stub, char*, const char* name, int, uint3*,
                                           uint3*, dim3*, dim3*, int*) {
  auto& r = registry();
  std::lock_guard lock(r.mu);
  r.kernels[stub] = Kernel{reinterpret_cast<FatBinary*>(handle), name};
}
// Device variables: no kernel that is emulated has any that the host reads or writes.
PHANTOM_EXPORT void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
PHANTOM_EXPORT void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, size_t, int, int) {}
PHANTOM_EXPORT char __cudaInitModule(void**) { return 1; }

// ---- launches --------------------------------------------------------------------------------
PHANTOM_EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  pushed.push_back({grid, block, shared, stream});
  return 0;
}
PHANTOM_EXPORT cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (pushed.empty()) {
    return note(CUDA_ERROR_INVALID_VALUE);
  }
  const Configuration c = pushed.back();
  pushed.pop_back();
  *grid = c.grid, *block = c.block, *shared = c.shared_mem, *static_cast<cudaStream_t*>(stream) = c.stream;
  return cudaSuccess;
}
PHANTOM_EXPORT cudaError_t __cudaGetKernel(cudaKernel_t* k, const void* stub) {
  *k = reinterpret_cast<cudaKernel_t>(kernel_of(stub));
  return *k ? cudaSuccess : note(CUDA_ERROR_NOT_FOUND);
}
PHANTOM_EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 grid, dim3 block, void** args, size_t shared,
                                              cudaStream_t s) {
  return launch(function_of(reinterpret_cast<CUkernel>(k)), grid, block, args, shared, s);
}
PHANTOM_EXPORT cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t k, dim3 grid, dim3 block, void** args, size_t shared,
                                                   cudaStream_t s) {
  return __cudaLaunchKernel(k, grid, block, args, shared, s ? s : cudaStreamPerThread);
}
PHANTOM_EXPORT cudaError_t cudaLaunchKernel(const void* stub, dim3 grid, dim3 block, void** args, size_t shared,
                                            cudaStream_t s) {
  return launch(function_of(kernel_of(stub)), grid, block, args, shared, s);
}

// ---- questions about kernels ---------------------------------------------------------------------
PHANTOM_EXPORT cudaError_t cudaGetFuncBySymbol(cudaFunction_t* f, const void* stub) {
  *f = function_of(kernel_of(stub));
  return *f ? cudaSuccess : note(CUDA_ERROR_NOT_FOUND);
}
PHANTOM_EXPORT cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void* stub) {
  *a = {};
  CUfunction f = function_of(kernel_of(stub));
  if (!f) {
    return note(CUDA_ERROR_NOT_FOUND);
  }
  cuFuncGetAttribute(&a->maxThreadsPerBlock, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f);
  cuFuncGetAttribute(&a->numRegs, CU_FUNC_ATTRIBUTE_NUM_REGS, f);
  cuFuncGetAttribute(&a->ptxVersion, CU_FUNC_ATTRIBUTE_PTX_VERSION, f);
  cuFuncGetAttribute(&a->binaryVersion, CU_FUNC_ATTRIBUTE_BINARY_VERSION, f);
  return cudaSuccess;
}
PHANTOM_EXPORT cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
