// What a cluster file says of the ghost ranks of NCCL communicators.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"

namespace nbx::nccl {

/// What ghosts put into reductions.
enum class Contribution : std::uint8_t {
  identity,  // of the reduction: what comes back is what the real ranks sent
  pattern,   // small integers that depend on rank and place
};
/// What ghosts send where they are the only source: all-gather, broadcast, send.
enum class Filling : std::uint8_t { zero, pattern, file };

/// A ghost rank that is late to every `every`-th collective from number `first` on.
struct Straggler {
  std::uint32_t rank = 0;
  Duration delay{};
  std::uint64_t every = 1;
  std::uint64_t first = 0;
};

enum class SkewShape : std::uint8_t { constant, uniform, exponential };

/// Time between a real rank's call and the same call of a ghost rank.
struct Skew {
  SkewShape shape = SkewShape::constant;
  Duration mean{};
};

/// A ghost's work on a message, and the way of the message to the next ghost: what the port's profile does for the
/// links of the real nodes.
struct Hop {
  Duration latency{};
  BitRate rate{};          // of an Ethernet link; 0: not limited
  Duration per_message{};  // of a rank: proxy, NIC
  BitRate reduce_rate{};   // of a rank that adds its own data; 0: takes no time
};
/// Instead of latency, rate and per_message: time by message size, linear between the rows. In rising order of bytes.
struct HopRow {
  std::uint64_t bytes = 0;
  Duration time{};
};

struct DelayOptions {
  Hop hop;
  std::vector<HopRow> table;
  std::string library;  // a user's, see delay_library.h
  Skew skew;
  std::vector<Duration> trace;  // skew of collective number i, repeated; added to `skew`
  std::vector<Straggler> stragglers;
};

/// Into which group ncclCommSplit puts a ghost rank: the color that its program would give.
enum class SplitRule : std::uint8_t {
  all,     // 0
  block,   // rank / size: neighbours are together
  stride,  // rank % size
};
struct Split {
  SplitRule rule = SplitRule::all;
  std::uint32_t size = 1;
};

struct ServiceOptions {
  std::vector<GhostId> hosts;             // ghost nodes in the order of their ranks
  std::uint32_t ranks = 0;                // of the world; 0: as the program says
  std::vector<std::uint32_t> real_ranks;  // of the world; empty: those that announce themselves
  std::uint32_t ranks_per_node = 1;
  std::uint16_t announce_port = 4790;
  std::uint16_t port_base = 4800;
  std::uint32_t compute_capability = 90;
  bool allow_untested = false;
  std::uint8_t timeout = 20;  // NCCL_IB_TIMEOUT of the ghosts
  std::uint8_t retry_cnt = 7;
  std::uint32_t path_mtu = 4096;
  Duration settle = std::chrono::milliseconds{300};  // ranks that have not announced themselves by then are ghosts
  Duration patience = std::chrono::seconds{60};      // without progress in a collective: the job is ended
  Contribution contribution = Contribution::identity;
  Filling filling = Filling::zero;
  std::vector<std::byte> file;  // with Filling::file; repeated
  std::vector<Split> splits;    // of each communicator, in the order of the calls; the last one repeats
  DelayOptions delay;
  std::uint64_t seed = 1;
};

}  // namespace nbx::nccl
