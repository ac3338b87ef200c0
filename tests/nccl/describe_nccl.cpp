// Prints the layout part of libnccl.phantom. Compiled by nccl-from-debian against the headers
// of the NCCL being built: what abi.hpp fixes is checked, what differs between releases is printed.
#include <device.h>

#include <cstddef>
#include <cstdio>

#include "phantom/nccl/abi.hpp"

namespace ours = phantom::nccl;

#define SAME_SIZE(a, b) static_assert(sizeof(a) == sizeof(b), "size of " #b " differs in this NCCL")
#define SAME_AT(a, fa, b, fb) \
  static_assert(offsetof(a, fa) == offsetof(b, fb), "place of " #b "::" #fb " differs in this NCCL")

static_assert(ours::steps == NCCL_STEPS && ours::protocols == NCCL_NUM_PROTOCOLS && ours::conns == NCCL_MAX_CONNS);
static_assert(ours::ll_grain == ncclProtoGrainSize(NCCL_PROTO_LL) &&
              ours::ll128_grain == ncclProtoGrainSize(NCCL_PROTO_LL128) &&
              ours::simple_grain == ncclProtoGrainSize(NCCL_PROTO_SIMPLE));
SAME_SIZE(ours::ConnInfo, ncclConnInfo);
SAME_AT(ours::ConnInfo, tail, ncclConnInfo, tail);
SAME_AT(ours::ConnInfo, head, ncclConnInfo, head);
SAME_AT(ours::ConnInfo, step_size, ncclConnInfo, stepSize);
SAME_AT(ours::ConnInfo, conn_fifo, ncclConnInfo, connFifo);
SAME_AT(ours::ConnInfo, step, ncclConnInfo, step);
SAME_SIZE(ours::ChannelPeer, ncclDevChannelPeer);
SAME_SIZE(ours::KernelArgs, ncclDevKernelArgs);
SAME_AT(ours::KernelArgs, channel_mask, ncclDevKernelArgs, channelMask);
SAME_AT(ours::KernelArgs, storage, ncclDevKernelArgs, workStorageType);
SAME_AT(ours::KernelArgs, work_mask, ncclDevKernelArgs, workMask);
SAME_AT(ours::KernelArgs, work_buf, ncclDevKernelArgs, workBuf);
SAME_SIZE(ours::WorkBatch, ncclDevWorkBatch);
SAME_AT(ours::WorkBatch, offset_base, ncclDevWorkBatch, offsetBase);
SAME_AT(ours::WorkBatch, offset_bitset, ncclDevWorkBatch, offsetBitset);
SAME_SIZE(ours::Coll, ncclDevWorkColl);
SAME_AT(ours::Coll, root, ncclDevWorkColl, root);
SAME_AT(ours::Coll, recvbuff, ncclDevWorkColl, recvbuff);
SAME_AT(ours::Coll, sendbuff, ncclDevWorkColl, sendbuff);
SAME_AT(ours::Coll, count_lo, ncclDevWorkColl, cbd.countLo);
SAME_AT(ours::Coll, red_op_arg, ncclDevWorkColl, redOpArg);
SAME_SIZE(ours::P2p, ncclDevWorkP2p);
SAME_AT(ours::P2p, recv_bytes, ncclDevWorkP2p, recvBytes);
SAME_AT(ours::P2p, recv_rank, ncclDevWorkP2p, recvRank);
SAME_AT(ours::P2p, n_recv_channels, ncclDevWorkP2p, nRecvChannels);
SAME_AT(ours::P2p, send_chunk_size, ncclDevWorkP2p, sendChunkSize_u32fp8);
static_assert(sizeof(ncclDevWorkCollReg) == ours::coll_reg_size);

// Bit fields have no offset: a value written by NCCL's declaration must be read by ours.
template <class To, class From>
static To as(const From& f) {
  static_assert(sizeof(To) == sizeof(From));
  To t;
  __builtin_memcpy(static_cast<void*>(&t), &f, sizeof t);
  return t;
}
static bool bit_fields_agree() {
  ncclDevWorkBatch b{};
  b.nextJump = 5, b.nextExtends = 1, b.workType = ncclDevWorkTypeColl, b.funcId = 77;
  const auto ob = as<ours::WorkBatch>(b);
  ncclDevWorkColl c{};
  c.channelLo = 3, c.channelHi = 9, c.redOpArgIsPtr = 1, c.netRegUsed = 1, c.profilerEnabled = 1;
  c.cbd.chunkGrainsLo = 11, c.cbd.chunkGrainsMid = 22, c.cbd.chunkGrainsHi = 33;
  const auto oc = as<ours::Coll>(c);
  ncclDevWorkP2p p{};
  p.recvProtoLL = 1, p.recvNetReg = 1, p.profilerEnabled = 1;
  const auto op = as<ours::P2p>(p);
  return ob.next_jump == 5 && ob.next_extends == 1 && ob.work_type == ours::work_coll && ob.func_id == 77 &&
         oc.channel_lo == 3 && oc.channel_hi == 9 && oc.red_op_arg_is_ptr && !oc.reg_used && oc.net_reg_used &&
         oc.profiler_enabled && oc.chunk_grains_lo == 11 && oc.chunk_grains_mid == 22 && oc.chunk_grains_hi == 33 &&
         !op.send_proto_ll && op.recv_proto_ll && op.recv_net_reg && !op.send_ipc_reg && op.profiler_enabled;
}

int main() {
  if (!bit_fields_agree()) return fprintf(stderr, "bit fields differ in this NCCL\n"), 1;
#define AT(name, type, f) printf("layout %s %zu\n", #name, offsetof(type, f))
  AT(comm_rank, ncclKernelComm, rank);
  AT(comm_ranks, ncclKernelComm, nRanks);
  AT(comm_buff_sizes, ncclKernelComm, buffSizes);
  AT(comm_abort_flag, ncclKernelComm, abortFlag);
  AT(comm_work_started, ncclKernelComm, workStarted);
  AT(comm_work_completed, ncclKernelComm, workCompleted);
  AT(channels, ncclKernelCommAndChannels, channels);
  printf("layout channel_size %zu\n", sizeof(ncclDevChannel));
  AT(channel_peers, ncclDevChannel, peers);
  AT(channel_work_counter, ncclDevChannel, workCounter);
  AT(ring_prev, ncclDevChannel, ring.prev);
  AT(ring_next, ncclDevChannel, ring.next);
  AT(ring_user_ranks, ncclDevChannel, ring.userRanks);
  AT(ring_index, ncclDevChannel, ring.index);
  AT(tree_up, ncclDevChannel, tree.up);
  AT(tree_down, ncclDevChannel, tree.down);
}
