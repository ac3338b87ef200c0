// A communicator as its ghost ranks live it: root check-in, bootstrap ring, all-gathers, peer and graph exchange,
// connection records, split, close. All ghost ranks of a communicator are one object: between neighbouring ghosts
// nothing is sent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ghost/personality.hpp"
#include "nccl-glue/comm/lobby.hpp"
#include "nccl-glue/comm/topology.hpp"
#include "nccl-glue/net/net.hpp"
#include "nccl-glue/wire/bootstrap.hpp"
#include "nccl-glue/wire/version.hpp"

namespace nbx::nccl {

/// Where a rank lives. Ranks with the same node share a host hash.
struct RankPlace {
  bool real = false;
  GhostId ghost = no_ghost;       // ghost ranks: whose addresses it uses
  std::uint32_t node = 0;         // ghost ranks of one emulated host have the same
  std::uint8_t local = 0;         // rank within the node
  std::int32_t parent_rank = -1;  // of a communicator that came from a split: the same rank in its parent
};

struct CommSpec {
  const Version* version = nullptr;
  UniqueId id{};
  std::vector<RankPlace> ranks;
  std::uint16_t port_base = 0;  // NET/IB side connections at port_base + 1; per local rank l: ring listener at
                                // +16+3l, root reply at +17+3l, P2P at +18+3l
  int compute_capability = 90;
  NetConfig net{};
};

/// One network connection between a real rank and a ghost rank.
struct Edge {
  std::int32_t ghost_rank = -1;
  std::int32_t real_rank = -1;
  bool to_real = false;      // the ghost sends
  bool collective = true;    // false: send/recv (connection index 1)
  std::uint8_t channel = 0;  // send/recv: the how-manieth of this pair and direction, where the wire does not tell
  NetId net = NetId::none;   // the user closes it
};

class Comm;

/// A handler may call the comm, but must not destroy it, except in on_closed.
class CommUser {
 public:
  /// Rings and trees are known; edges follow.
  virtual void on_topology(Comm& comm, Instant now) noexcept = 0;
  /// An edge is being made; its NetId reports to net_user(). Called before anything of it can happen.
  virtual void on_edge(Comm& comm, const Edge& edge, Instant now) noexcept = 0;
  virtual NetUser& net_user(Comm& comm) noexcept = 0;
  /// Initialisation is over: no exchange of connections is open any more, or none is made before the first use. Again
  /// after each later exchange.
  virtual void on_connected(Comm& comm, Instant now) noexcept = 0;
  /// ncclCommSplit or ncclCommShrink has made a communicator with these ghosts and at least one real rank. It reports
  /// to this user too and lives on its own, also after its parent.
  virtual void on_split(Comm& parent, std::unique_ptr<Comm> child, Instant now) noexcept = 0;
  /// The real ranks have left (`why` empty: in order) or something was wrong. Nothing more comes of this comm.
  virtual void on_closed(Comm& comm, std::string_view why, Instant now) noexcept = 0;

 protected:
  ~CommUser() = default;
};

class Comm {
 public:
  /// `any` is the context of any ghost of the shard. Every rank that is not real has a ghost; at least one is real.
  Comm(const ghost::Context& any, Lobby& lobby, Net& net, CommSpec spec, CommUser& user);
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  Comm(Comm&&) = delete;
  Comm& operator=(Comm&&) = delete;

  /// From now on `user` hears of this communicator: for children, which begin with their parent's.
  void report_to(CommUser& user);
  /// Checks every ghost rank in at the root.
  void start(Instant now);
  /// What the ghosts say when ncclCommSplit gathers colors and keys; the real ranks' own come over the wire. Children
  /// with both real and ghost ranks are made when the exchange is complete (on_split).
  struct Split {
    std::vector<int> color;  // [rank], -1: no part; entries of real ranks are ignored
    std::vector<int> key;
  };
  /// The ghosts' part in the next ncclCommSplit, which waits for it.
  void expect_split(Split split);
  /// ncclCommShrink without the ranks `excluded` (of this communicator, sorted). The child is made at once, or when
  /// this communicator is up.
  void shrink(const std::vector<std::int32_t>& excluded, Instant now);

  [[nodiscard]] const CommSpec& spec() const noexcept;
  [[nodiscard]] const Topology& topology() const noexcept;
  [[nodiscard]] std::uint64_t hash() const noexcept;  // commHash, also the tuner's and the profiler's commId
  /// What it is waiting for, for status and for errors.
  [[nodiscard]] std::string waiting_for() const;

 private:
  class State;
  explicit Comm(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace nbx::nccl
