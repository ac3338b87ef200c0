// How the program's calls reach this library, and how this library reaches NCCL.
//
// A program or library that is linked with libnccl (nccl-tests, PyTorch) binds to a preloaded library first. One that
// looks symbols up by itself (ctypes, cupy, vLLM) asks dlsym, which is therefore ours as well on x86-64: for a name
// that both we and the library asked have, it answers ours. What cannot be intercepted: an NCCL that is linked
// statically into the program, dlvsym, and two different NCCLs in one process (the first one found is used).
#include "nccl-glue/announce/library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstring>
#include <string>

namespace nbx::nccl::announce {
namespace {

using Lookup = void* (*)(void* handle, const char* name);

std::atomic<void*> looked_up_in = nullptr;  // the library in which the program found an NCCL function by itself

Lookup system_dlsym() {
  static const auto function = [] {
    void* found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    return reinterpret_cast<Lookup>(found != nullptr ? found : dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
  }();
  return function;
}

/// The NCCL that another library brought in (RTLD_LOCAL), if there is one.
void* loaded_nccl() {
  void* handle = nullptr;
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* answer) {
        const char* file = std::strrchr(object->dlpi_name, '/');
        file = file == nullptr ? object->dlpi_name : file + 1;
        if (std::strncmp(file, "libnccl.so", std::strlen("libnccl.so")) != 0) {
          return 0;
        }
        *static_cast<void**>(answer) = dlopen(object->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
        return 1;
      },
      &handle);
  return handle;
}

}  // namespace

void* nccl_symbol(const char* name) {
  const Lookup lookup = system_dlsym();
  if (void* next = lookup(RTLD_NEXT, name)) {
    return next;
  }
  void* handle = looked_up_in.load();
  if (handle == nullptr) {
    handle = loaded_nccl();
  }
  return handle == nullptr ? nullptr : lookup(handle, name);
}

extern "C" {

__attribute__((visibility("hidden"))) void* nbx_system_dlsym() { return reinterpret_cast<void*>(system_dlsym()); }

__attribute__((visibility("hidden"))) void* nbx_lookup(void* handle, const char* name) {
  const Lookup lookup = system_dlsym();
  void* found = lookup(handle, name);
  if (found == nullptr || inside_nccl || std::strncmp(name, "nccl", 4) != 0 ||
      std::strstr(name, "Plugin_") != nullptr || std::strstr(name, "Profiler_") != nullptr) {
    return found;
  }
  static void* const self = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&nccl_symbol), &info);
    return dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }();
  void* ours = self == nullptr ? nullptr : lookup(self, name);
  if (ours == nullptr || ours == found) {
    return found;
  }
  looked_up_in.store(handle);
  return ours;
}

}  // extern "C"

#ifdef __x86_64__
// RTLD_NEXT and RTLD_DEFAULT (-1, 0) mean something relative to the caller, whom the system's dlsym knows by the return
// address: those calls are jumped to, so that it stays the caller's.
asm(R"(
.text
.globl dlsym
.type dlsym, @function
dlsym:
  lea 1(%rdi), %rax
  cmp $1, %rax
  ja nbx_lookup
  push %rdi
  push %rsi
  sub $8, %rsp
  call nbx_system_dlsym
  add $8, %rsp
  pop %rsi
  pop %rdi
  jmp *%rax
.size dlsym, . - dlsym
)");
#endif

}  // namespace nbx::nccl::announce
