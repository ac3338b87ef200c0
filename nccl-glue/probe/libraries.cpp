#include "nccl-glue/probe/libraries.hpp"

#include <dlfcn.h>

#include <initializer_list>
#include <string>

namespace nbx::nccl::probe {
namespace {

/// Makes the first of these files that there is part of the program's scope; else says why there is none.
std::string open_one_of(std::initializer_list<const char*> files) {
  std::string why;
  for (const char* file : files) {
    if (dlopen(file, RTLD_NOW | RTLD_GLOBAL) != nullptr) {
      return {};
    }
    why += (why.empty() ? "" : "; ") + std::string(dlerror());
  }
  return why;
}

}  // namespace

Result<Libraries> load_libraries() {
  // NCCL first: where it brings its own runtime, that is the one to use.
  for (const auto files : {std::initializer_list<const char*>{"libnccl.so.2"},
                           std::initializer_list<const char*>{"libcudart.so.13", "libcudart.so.12", "libcudart.so"}}) {
    if (const std::string why = open_one_of(files); !why.empty()) {
      return Error{why};
    }
  }
  Libraries libraries;
  std::string missing;
  // In the program's scope, so that a preloaded library comes before NCCL as it does for a linked program.
  const auto find = [&missing]<class F>(const char* name, F*& function) {
    function = reinterpret_cast<F*>(dlsym(RTLD_DEFAULT, name));
    if (function == nullptr) {
      missing += ' ' + std::string(name);
    }
  };
  Cuda& cuda = libraries.cuda;
  find("cudaSetDevice", cuda.set_device);
  find("cudaMalloc", cuda.malloc);
  find("cudaMemcpyAsync", cuda.copy);
  find("cudaStreamCreateWithFlags", cuda.stream_create);
  find("cudaStreamSynchronize", cuda.stream_synchronize);
  find("cudaGetErrorString", cuda.error_string);
  Nccl& nccl = libraries.nccl;
  find("ncclGetVersion", nccl.version);
  find("ncclGetUniqueId", nccl.unique_id);
  find("ncclCommInitRank", nccl.init_rank);
  find("ncclCommDestroy", nccl.destroy);
  find("ncclGetLastError", nccl.last_error);
  find("ncclCommGetAsyncError", nccl.async_error);
  find("ncclAllReduce", nccl.all_reduce);
  find("ncclBroadcast", nccl.broadcast);
  find("ncclReduce", nccl.reduce);
  find("ncclAllGather", nccl.all_gather);
  find("ncclReduceScatter", nccl.reduce_scatter);
  find("ncclSend", nccl.send);
  find("ncclRecv", nccl.receive);
  find("ncclGroupStart", nccl.group_start);
  find("ncclGroupEnd", nccl.group_end);
  if (!missing.empty()) {
    return Error{"the CUDA runtime and NCCL here lack" + missing};
  }
  return libraries;
}

}  // namespace nbx::nccl::probe
