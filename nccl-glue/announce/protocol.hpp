// What the preload library on a real node tells the ghosts, and what they tell it back: little-endian records over one
// TCP connection per process. A record is a 4-byte size (of what follows), a 4-byte kind, and the body.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "nccl-glue/plan/operation.hpp"

namespace nbx::nccl::announce {

inline constexpr std::uint16_t default_port = 4790;
inline constexpr std::uint32_t magic = 0x4e425831;  // "NBX1"
inline constexpr std::uint32_t record_size_max = 4096;

enum class Kind : std::uint32_t {
  // from the real node
  hello = 1,         // Hello
  comm_init = 2,     // CommInit: before ncclCommInitRank* is passed on
  comm_ready = 3,    // CommRef: it has returned
  comm_split = 4,    // CommSplit: before ncclCommSplit is passed on
  comm_destroy = 5,  // CommRef
  operation = 6,     // OperationCall, in the order of the calls on this communicator
  group_end = 7,     // CommRef with comm 0: the outermost ncclGroupEnd, and after a call outside a group
  decision = 8,      // OperationDecision: from the profiler plugin, in the order in which NCCL runs them
  comm_shrink = 9,   // CommShrink and a bit per rank of the parent: before ncclCommShrink is passed on
  // from the ghosts
  welcome = 64,  // Welcome: versions fit
  failure = 65,  // text: the library prints it and ends the communicator
};

/// NCCL's own variables on the real node, as far as messages depend on them; 0: not set.
struct Variables {
  std::uint32_t buffsize = 0;           // NCCL_BUFFSIZE
  std::uint32_t ll_buffsize = 0;        // NCCL_LL_BUFFSIZE
  std::uint32_t ll128_buffsize = 0;     // NCCL_LL128_BUFFSIZE
  std::uint32_t p2p_net_chunksize = 0;  // NCCL_P2P_NET_CHUNKSIZE
  std::uint32_t min_p2p_nchannels = 0;  // NCCL_MIN_P2P_NCHANNELS
  std::uint32_t max_p2p_nchannels = 0;  // NCCL_MAX_P2P_NCHANNELS

  bool operator==(const Variables&) const = default;
};

struct Hello {
  std::uint32_t magic_number = magic;
  std::uint32_t nccl_version = 0;  // ncclGetVersion
  std::int32_t pid = 0;
  std::uint32_t inflate = 0;  // ranks that the program does not know of are added
  Variables variables;
};

struct CommRef {
  std::uint64_t comm = 0;  // chosen by the library, unique in its process
};

struct CommInit {
  std::uint64_t comm = 0;
  std::int32_t ranks = 0;  // of the communicator, ghosts included
  std::int32_t rank = 0;
  std::array<std::byte, 128> id{};
};

struct CommSplit {
  std::uint64_t parent = 0;
  std::uint64_t comm = 0;
  std::int32_t color = 0;
  std::int32_t key = 0;
};

struct CommShrink {
  std::uint64_t parent = 0;
  std::uint64_t comm = 0;
  std::uint32_t parent_ranks = 0;
  std::uint32_t flags = 0;
  // then (parent_ranks + 7) / 8 bytes: bit r % 8 of byte r / 8 is set when rank r is left out
};

struct OperationCall {
  std::uint64_t comm = 0;
  std::uint64_t sequence = 0;  // of the operations of this communicator in this process, from 0
  std::uint64_t count = 0;
  std::int32_t root = 0;  // or the peer of send and recv
  Collective collective{};
  DataType type{};
  RedOp op{};
  std::uint8_t reserved = 0;
};

struct OperationDecision {
  std::uint64_t comm = 0;
  std::uint64_t sequence = 0;  // of collectives (not send, recv) of this communicator, from 0; names the call
  Algorithm algorithm{};
  Protocol protocol{};
  std::uint8_t channels = 0;
  std::uint8_t reserved = 0;
  std::uint32_t reserved2 = 0;
};

struct Welcome {
  std::int32_t ranks = 0;  // of the world as the ghosts know it; 0: as the program says
  std::uint32_t reserved = 0;
};

}  // namespace nbx::nccl::announce
