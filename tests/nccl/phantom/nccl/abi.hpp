// Layouts that NCCL's host code shares with its kernels, restated.
//
// Own declarations: only the fields that the emulation reads are named, the rest is padding.
// Structures that have been the same in every NCCL release looked at are declared here;
// describe_nccl.cpp checks them against the headers of the release at hand when that
// release is built. Those that differ between releases (communicator, channel) are read through
// offsets that come as data, see layout.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace phantom::nccl {

constexpr int steps = 8;      // slots in a connection's ring buffer
constexpr int protocols = 3;  // LL, LL128, Simple
enum Protocol { proto_ll = 0, proto_ll128 = 1, proto_simple = 2 };
constexpr int simple_grain = 512;  // bytes per unit of chunk_grains under Simple
constexpr int ll_grain = 16;       // under LL
constexpr int ll128_grain = 1920;  // and under LL128

// Slot descriptor, written by the kernel (size) and by the network proxy (mode, offset).
struct ConnFifo {
  int mode;  // 0: slot position follows from the step; 1: use offset
  int offset;
  int64_t size;  // bytes in the slot; the proxy sends that many
  void* ptr;
};
constexpr int mode_offset = 1;

struct ConnInfo {
  char* buffs[protocols];
  void* mhandles[protocols];
  uint64_t* tail;  // producer's step count
  uint64_t* head;  // consumer's step count
  int flags;
  int shared;
  int step_size;  // bytes per slot under Simple
  void** ptr_exchange;
  uint64_t* red_op_arg_exchange;
  ConnFifo* conn_fifo;
  uint64_t step;  // where the last kernel stopped
  uint64_t ll_last_cleaning;
  char net_device_handle[32];
};

constexpr int conns = 2;
struct ChannelPeer {
  ConnInfo send[conns];
  ConnInfo recv[conns];
};

enum WorkStorage : uint8_t { in_args = 0, in_fifo = 1, persistent = 2 };
struct alignas(16) KernelArgs {
  char* comm;
  uint64_t channel_mask;
  WorkStorage storage;
  uint32_t work_mask;
  char* work_buf;
  // followed by WorkBatch[]
};

enum WorkType { work_p2p = 0, work_coll = 1, work_coll_reg = 2, work_bcast = 3 };
struct alignas(16) WorkBatch {
  uint32_t next_jump : 14, next_extends : 1, work_type : 2, func_id : 15;
  uint32_t offset_base;
  uint64_t offset_bitset;
};

struct alignas(16) Coll {
  uint32_t channel_lo : 8, channel_hi : 8, n_warps : 8;
  uint32_t red_op_arg_is_ptr : 1, reg_used : 1, net_reg_used : 1, one_node : 1, direct : 2, is_one_rpn : 1,
      profiler_enabled : 1;
  uint32_t root;
  void* recvbuff;
  void* sendbuff;
  uintptr_t sendbuff_offset, recvbuff_offset;
  uintptr_t *sendbuff_rmt_addrs, *recvbuff_rmt_addrs;
  size_t count_lo, count_mid, count_hi;
  uint64_t chunk_grains_lo : 21, chunk_grains_mid : 21, chunk_grains_hi : 21;
  uint64_t red_op_arg;
};
constexpr size_t coll_reg_size = 288;

struct alignas(16) P2p {
  char *send_addr, *recv_addr;
  size_t send_bytes, recv_bytes;
  int send_rank, recv_rank;
  uint8_t n_p2p_channels, channel_base, n_send_channels, n_recv_channels;
  uint8_t send_chunk_size, recv_chunk_size;  // 8-bit floating-point encoding
  uint8_t send_proto_ll : 1, recv_proto_ll : 1, send_net_reg : 1, recv_net_reg : 1, send_ipc_reg : 1, recv_ipc_reg : 1,
      profiler_enabled : 1;
};

static_assert(sizeof(ConnFifo) == 24);
static_assert(sizeof(ConnInfo) == 152 && offsetof(ConnInfo, tail) == 48 && offsetof(ConnInfo, step) == 104);
static_assert(sizeof(ChannelPeer) == 608);
static_assert(sizeof(KernelArgs) == 32 && offsetof(KernelArgs, work_mask) == 20);
static_assert(sizeof(WorkBatch) == 16);
static_assert(sizeof(Coll) == 96 && offsetof(Coll, count_lo) == 56 && offsetof(Coll, red_op_arg) == 88);
static_assert(sizeof(P2p) == 48);

}  // namespace phantom::nccl
