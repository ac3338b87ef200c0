// The messages of the programs that personalities talk to, as images.
#pragma once

#include "base/bytes.hpp"

namespace nbx::ghost {

/// Private data of a sink's REP.
struct RegionAdvert {
  Be64 addr;
  Be32 rkey;
  Be64 length;
};
static_assert(WireImage<RegionAdvert> && sizeof(RegionAdvert) == 20);

/// rping's and rcops' memory advertisement.
struct BufferAdvert {
  Be64 addr;
  Be32 rkey;
  Be32 size;
};
static_assert(WireImage<BufferAdvert> && sizeof(BufferAdvert) == 16);

/// perftest's struct pingpong_dest as it travels when the hand-shake runs over rdma_cm (-R): an x86-64 C struct, each
/// field big-endian.
struct PerftestDestination {
  Be32 lid;
  Be32 out_reads;
  Be32 qpn;
  Be32 psn;
  Be32 rkey;
  Be32 padding;
  Be64 addr;
  std::array<std::uint8_t, 16> gid;
  Be32 srqn;
  Be32 gid_index;
};
static_assert(WireImage<PerftestDestination> && sizeof(PerftestDestination) == 56);

}  // namespace nbx::ghost
