// What differs between NCCL releases: where fields are, and what device function numbers mean.
// Both are data, in a text file next to the library (see describe_nccl.cpp and
// nccl-from-debian, which write it when that library is built):
//
//     version 2.29.7
//     layout comm_abort_flag 48
//     function 17 AllReduce Sum f32 RING LL
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "abi.hpp"
#include "functions.hpp"

namespace phantom::nccl {

// Byte offsets. comm*: in the communicator as the kernel sees it; channel*: in one channel.
// clang-format off
#define PHANTOM_LAYOUT(X)                                                      \
  X(comm_rank) X(comm_ranks) X(comm_buff_sizes) X(comm_abort_flag)             \
  X(channels) X(channel_size) X(channel_peers)                                 \
  X(ring_prev) X(ring_next) X(ring_user_ranks) X(ring_index) X(tree_up) X(tree_down)
// clang-format on
// Absent in releases without profiler counters.
#define PHANTOM_LAYOUT_OPTIONAL(X) X(comm_work_started) X(comm_work_completed) X(channel_work_counter)

struct Layout {
#define X(f) int f = -1;
  PHANTOM_LAYOUT(X) PHANTOM_LAYOUT_OPTIONAL(X)
#undef X
};

struct Description {
  std::string version, path;
  Layout layout;
  std::map<int, Function> functions;
};

// The description of the library file `library`; throws std::runtime_error that says what is wrong.
const Description& describe(const std::string& library);

// ---- decoded views, as the kernel's copy in shared memory -------------------------------------
struct ProfilerSlots {
  struct {
    uint64_t counter, timestamp;
  } data[64];
};
struct KernelComm {
  int rank, n_ranks;
  int buff_sizes[protocols];
  volatile uint32_t* abort_flag;
  ProfilerSlots *work_started = nullptr, *work_completed = nullptr;
  KernelComm(const Layout& l, const char* raw);
};
struct Channel {
  ChannelPeer** peers;
  struct {
    int prev, next;
    int* user_ranks;
    int index;
  } ring;
  struct {
    int up, down[3];
  } tree;  // ranks; -1: none
  uint64_t* work_counter = nullptr;
  Channel(const Layout& l, char* raw_comm, int id);
};

}  // namespace phantom::nccl
