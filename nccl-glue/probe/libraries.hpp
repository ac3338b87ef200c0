// The CUDA runtime and NCCL, loaded when the probe starts: it is built where neither is, and runs over the vendor's
// libraries and over stand-ins alike. Signatures are those of cuda_runtime_api.h and nccl.h.
#pragma once

#include "base/result.hpp"
#include "nccl-glue/announce/intercept.hpp"

namespace nbx::nccl::probe {

using announce::cudaStream_t;
using announce::ncclComm_t;
using announce::ncclDataType_t;
using announce::ncclRedOp_t;
using announce::ncclResult_t;
using announce::ncclUniqueId;

struct Cuda {
  int (*set_device)(int device) = nullptr;
  int (*malloc)(void** memory, std::size_t size) = nullptr;
  int (*copy)(void* destination, const void* source, std::size_t size, int kind, cudaStream_t stream) = nullptr;
  int (*stream_create)(cudaStream_t* stream, unsigned flags) = nullptr;
  int (*stream_synchronize)(cudaStream_t stream) = nullptr;
  const char* (*error_string)(int error) = nullptr;
};

inline constexpr int host_to_device = 1;  // cudaMemcpyHostToDevice
inline constexpr int device_to_host = 2;
inline constexpr unsigned non_blocking = 1;  // cudaStreamNonBlocking

struct Nccl {
  decltype(&announce::ncclGetVersion) version = nullptr;
  decltype(&announce::ncclGetUniqueId) unique_id = nullptr;
  decltype(&announce::ncclCommInitRank) init_rank = nullptr;
  decltype(&announce::ncclCommDestroy) destroy = nullptr;
  decltype(&announce::ncclGetLastError) last_error = nullptr;
  decltype(&announce::ncclCommGetAsyncError) async_error = nullptr;
  decltype(&announce::ncclAllReduce) all_reduce = nullptr;
  decltype(&announce::ncclBroadcast) broadcast = nullptr;
  decltype(&announce::ncclReduce) reduce = nullptr;
  decltype(&announce::ncclAllGather) all_gather = nullptr;
  decltype(&announce::ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&announce::ncclSend) send = nullptr;
  decltype(&announce::ncclRecv) receive = nullptr;
  decltype(&announce::ncclGroupStart) group_start = nullptr;
  decltype(&announce::ncclGroupEnd) group_end = nullptr;
};

struct Libraries {
  Cuda cuda;
  Nccl nccl;
};

[[nodiscard]] Result<Libraries> load_libraries();

}  // namespace nbx::nccl::probe
