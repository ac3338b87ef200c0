// Entry-point lookup, logging, error names.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "internal.hpp"

namespace phantom {

int log_level() {
  static const int level = [] {
    const char* v = getenv("PHANTOM_LOG");
    return v ? atoi(v) : 1;
  }();
  return level;
}

void log_line(int, const char* fmt, ...) {
  static FILE* out = [] {
    const char* f = getenv("PHANTOM_LOG_FILE");
    FILE* o = f ? fopen(f, "a") : nullptr;
    return o ? o : stderr;
  }();
  char buf[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(buf, sizeof buf, fmt, ap);
  va_end(ap);
  fprintf(out, "phantom[%d:%ld] %s\n", getpid(), syscall(SYS_gettid), buf);
  fflush(out);
}

}  // namespace phantom

using namespace phantom;

// ---- lookup -------------------------------------------------------------------
#undef cuGetProcAddress
PHANTOM_EXPORT CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                                            CUdriverProcAddressQueryResult* status) {
  if (!symbol || !pfn) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!*symbol) {
    if (status) {
      *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    *pfn = nullptr;
    return CUDA_ERROR_NOT_FOUND;
  }
  void* p = find_entry(symbol, cudaVersion);
  PLOG(3, "cuGetProcAddress %s %d flags=%lu: %s", symbol, cudaVersion, (unsigned long)flags, p ? "ok" : "absent");
  *pfn = p;
  if (status) {
    *status = p ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return p ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
PHANTOM_EXPORT CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  return cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, nullptr);
}

// ---- the driver itself -------------------------------------------------------------
PHANTOM_EXPORT CUresult cuInit(unsigned) { return CUDA_SUCCESS; }

PHANTOM_EXPORT CUresult cuDriverGetVersion(int* v) {
  static const int version = [] {
    const char* e = getenv("PHANTOM_DRIVER_VERSION");
    return e ? atoi(e) : 13000;
  }();
  *v = version;
  return CUDA_SUCCESS;
}

namespace {
struct ErrorText {
  CUresult code;
  const char *name, *text;
};
const ErrorText error_texts[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
};
const ErrorText* find_error(CUresult e) {
  for (auto& t : error_texts) {
    if (t.code == e) {
      return &t;
    }
  }
  return nullptr;
}
}  // namespace

PHANTOM_EXPORT CUresult cuGetErrorString(CUresult e, const char** s) {
  auto* t = find_error(e);
  *s = t ? t->text : "phantom: other error";
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuGetErrorName(CUresult e, const char** s) {
  auto* t = find_error(e);
  *s = t ? t->name : "CUDA_ERROR_OTHER";
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  *mode = CU_MODULE_LAZY_LOADING;  // kernels are only names here, nothing to preload
  return CUDA_SUCCESS;
}
