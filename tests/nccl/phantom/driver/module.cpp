// Libraries, kernels and launches. A fat binary is never opened: a kernel is just the name
// that the runtime asks for.
#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <optional>

#include "internal.hpp"
#include "kernels.hpp"

using namespace phantom;

namespace {
CUkern_st* kernel_of(const void* handle) { return static_cast<CUkern_st*>(const_cast<void*>(handle)); }

CUkern_st* get_kernel(CUlib_st* lib, const char* name) {
  std::lock_guard lock(lib->mu);
  auto& k = lib->kernels[name];
  if (!k) {
    k = std::make_unique<CUkern_st>();
    k->name = name;
    k->lib = lib;
    PLOG(3, "kernel %s", name);
  }
  return k.get();
}

// nvcc puts "__nv_static_<module>_" before the names of kernels with internal linkage.
std::string demangled(const std::string& name) {
  const size_t inner = name.starts_with("__nv_static_") ? name.find("__Z") + 1 : 0;
  char* d = abi::__cxa_demangle(name.c_str() + inner, nullptr, nullptr, nullptr);
  std::string s = d ? d : name;
  free(d);
  return s;
}

// The file that an address belongs to.
std::string file_of(const void* address) {
  Dl_info info;
  return dladdr(address, &info) && info.dli_fname ? info.dli_fname : "";
}

// A parameter array has no sizes: they are in the fat binary, which is not read. The kernel's
// C++ name has the parameter types, though, and for plain ones that is enough.
std::optional<std::vector<size_t>> parameter_sizes(const std::string& signature) {
  if (signature.empty() || signature.back() != ')') {
    return std::nullopt;
  }
  size_t open = signature.size();
  for (int depth = 0; open-- > 0;) {
    if (signature[open] == ')') {
      depth++;
    }
    if (signature[open] == '(' && --depth == 0) {
      break;
    }
  }
  std::vector<size_t> sizes;
  std::string types = signature.substr(open + 1, signature.size() - open - 2);
  if (types.empty()) {
    return sizes;
  }
  for (size_t from = 0; from <= types.size();) {
    const size_t comma = std::min(types.find(", ", from), types.size());
    const std::string t = types.substr(from, comma - from);
    from = comma + 2;
    if (t.back() == '*' || t == "long" || t == "unsigned long" || t == "double" || t == "long long" ||
        t == "unsigned long long") {
      sizes.push_back(8);
    } else if (t == "int" || t == "unsigned int" || t == "float") {
      sizes.push_back(4);
    } else if (t == "short" || t == "unsigned short") {
      sizes.push_back(2);
    } else if (t == "bool" || t == "char" || t == "signed char" || t == "unsigned char") {
      sizes.push_back(1);
    } else {
      return std::nullopt;
    }
  }
  return sizes;
}

CUresult launch(const void* f, unsigned grid_x, unsigned block_x, CUstream s, void** params, void** extra) {
  Launch l;
  const CUkern_st* k = kernel_of(f);
  l.kernel = k->name;
  l.name = demangled(k->name);
  l.library = k->lib->file;
  l.grid_x = grid_x;
  l.block_x = block_x;
  if (extra) {
    const void* buf = nullptr;
    size_t size = 0;
    for (void** e = extra; *e != CU_LAUNCH_PARAM_END; e += 2) {
      if (e[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
        buf = e[1];
      }
      if (e[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
        size = *static_cast<size_t*>(e[1]);
      }
    }
    if (buf) {
      l.args.assign(static_cast<const char*>(buf), static_cast<const char*>(buf) + size);
    }
  } else if (params) {
    const auto sizes = parameter_sizes(l.name);
    if (!sizes) {
      PLOG(1, "launch of %s: its parameters' sizes are not known here", l.name.c_str());
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    for (size_t i = 0; i < sizes->size(); i++) {
      const size_t at = (l.args.size() + (*sizes)[i] - 1) / (*sizes)[i] * (*sizes)[i];
      l.args.resize(at + (*sizes)[i]);
      memcpy(l.args.data() + at, params[i], (*sizes)[i]);
    }
  }
  PLOG(2, "launch %s grid=%u block=%u args=%zu bytes", l.kernel.c_str(), grid_x, block_x, l.args.size());
  resolve_stream(s)->enqueue([l = std::move(l)] { run_kernel(l); });
  return CUDA_SUCCESS;
}
}  // namespace

PHANTOM_EXPORT CUresult cuLibraryLoadData(CUlibrary* lib, const void* code, CUjit_option*, void**, unsigned,
                                          CUlibraryOption*, void**, unsigned) {
  *lib = new CUlib_st;
  (*lib)->file = file_of(code);
  PLOG(2, "cuLibraryLoadData of %s", (*lib)->file.c_str());
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuLibraryUnload(CUlibrary lib) { return delete lib, CUDA_SUCCESS; }
PHANTOM_EXPORT CUresult cuLibraryGetKernel(CUkernel* k, CUlibrary lib, const char* name) {
  return *k = get_kernel(lib, name), CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuLibraryGetModule(CUmodule* m, CUlibrary lib) {
  return *m = reinterpret_cast<CUmodule>(lib), CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr* p, size_t* size, CUlibrary lib, const char* name) {
  std::lock_guard lock(lib->mu);
  auto& g = lib->globals[name];
  if (!g) {
    g = std::make_unique<std::vector<char>>(size_t{64} << 10);
  }
  if (p) {
    *p = reinterpret_cast<CUdeviceptr>(g->data());
  }
  if (size) {
    *size = g->size();
  }
  PLOG(1, "cuLibraryGetGlobal %s: size unknown, 64 KiB of zeroes given", name);
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuKernelGetFunction(CUfunction* f, CUkernel k) {
  return *f = reinterpret_cast<CUfunction>(k), CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuKernelGetName(const char** n, CUkernel k) { return *n = k->name.c_str(), CUDA_SUCCESS; }
PHANTOM_EXPORT CUresult cuFuncGetName(const char** n, CUfunction f) {
  return *n = kernel_of(f)->name.c_str(), CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuModuleGetFunction(CUfunction* f, CUmodule m, const char* name) {
  return *f = reinterpret_cast<CUfunction>(get_kernel(reinterpret_cast<CUlib_st*>(m), name)), CUDA_SUCCESS;
}

PHANTOM_EXPORT CUresult cuFuncGetAttribute(int* v, CUfunction_attribute a, CUfunction) {
  switch (a) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *v = 1024;
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *v = 96;
      break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *v = DeviceModel::get().cc_major * 10 + DeviceModel::get().cc_minor;
      break;
    default:
      *v = 0;
      break;
  }
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
PHANTOM_EXPORT CUresult cuKernelGetAttribute(int* v, CUfunction_attribute a, CUkernel k, CUdevice) {
  return cuFuncGetAttribute(v, a, reinterpret_cast<CUfunction>(k));
}
PHANTOM_EXPORT CUresult cuKernelSetAttribute(CUfunction_attribute, int, CUkernel, CUdevice) { return CUDA_SUCCESS; }

PHANTOM_EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned, unsigned, unsigned bx, unsigned, unsigned,
                                       unsigned, CUstream s, void** params, void** extra) {
  return launch(f, gx, bx, s, params, extra);
}
PHANTOM_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction f, void** params, void** extra) {
  // Launch-completion events fire when the kernel starts; everything else in the
  // attributes is about placement and means nothing here.
  for (unsigned i = 0; i < c->numAttrs; i++) {
    if (c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
      cuEventRecord(c->attrs[i].value.launchCompletionEvent.event, c->hStream);
    }
  }
  return launch(f, c->gridDimX, c->blockDimX, c->hStream, params, extra);
}
