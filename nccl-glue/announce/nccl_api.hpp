// What of NCCL's and CUDA's public interface the library meets, restated: the library is built without their headers
// and must fit every release of NCCL 2. Names are NCCL's.
#pragma once

#include <array>
#include <cstddef>

namespace nbx::nccl::announce {

struct ncclComm;
struct CUstream_st;

using ncclComm_t = ncclComm*;
using cudaStream_t = CUstream_st*;
using ncclDataType_t = int;  // enumerations are ints in the ABI
using ncclRedOp_t = int;
using ncclScalarResidence_t = int;

enum ncclResult_t : int {
  ncclSuccess = 0,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};

struct ncclUniqueId {
  std::array<char, 128> internal;
};

inline constexpr ncclScalarResidence_t scalar_in_host_memory = 1;  // ncclScalarHostImmediate
inline constexpr int split_no_color = -1;                          // NCCL_SPLIT_NOCOLOR
inline constexpr int built_in_reductions = 5;                      // ncclNumOps: larger values are the program's own

}  // namespace nbx::nccl::announce
