// The inside of a communicator: everything that Comm's callbacks share. Bring-up is in comm.cpp, what is gathered in
// gathers.cpp, connection records in exchange.cpp, children in split.cpp.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "nccl-glue/comm/comm.hpp"
#include "nccl-glue/comm/gather.hpp"
#include "timer/wheel.hpp"

namespace nbx::nccl {

class Comm::State final : public ghost::StreamUser, private TimerClient {
 public:
  struct Surroundings {
    ghost::StreamPorts& streams;
    const ghost::Directory& directory;
    Wheel& wheel;
    Lobby& lobby;
    Net& net;
    CommUser* user;
  };
  State(const Surroundings& around, CommSpec spec, std::uint64_t magic, std::uint64_t hash);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  State(State&&) = delete;
  State& operator=(State&&) = delete;

  void set_self(Comm& self) { self_ = &self; }
  void report_to(CommUser& user) { around_.user = &user; }
  void start(Instant now);
  void expect_split(Split split);
  void shrink(const std::vector<std::int32_t>& excluded, Instant now);

  [[nodiscard]] const CommSpec& spec() const noexcept { return spec_; }
  [[nodiscard]] const Topology& topology() const noexcept { return topology_; }
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }
  [[nodiscard]] std::string waiting_for() const;

  void on_open(ghost::StreamId id, GhostId ghost, std::uint16_t port, const IpAddress& peer,
               Instant now) noexcept override;
  void on_bytes(ghost::StreamId id, ConstBytes bytes, Instant now) noexcept override;
  void on_close(ghost::StreamId id, Instant now) noexcept override;

 private:
  // Ports of local rank l: base + 16 + 3 l + the kind.
  enum class Port : std::uint8_t { ring = 0, reply = 1, p2p = 2 };
  /// A connection of ours: says `bytes` once it is open, then is done, unless it is an end of the ring.
  struct Outgoing {
    std::int32_t ghost = -1;
    SocketAddress to{};
    Bytes bytes{};
    RingEnd* end = nullptr;
    bool check_in = false;
    int attempts = 0;
  };
  /// A connection to one of our ports.
  struct Incoming {
    std::int32_t ghost = -1;
    Port port = Port::p2p;
    RingEnd* end = nullptr;
    Bytes input{};
  };
  enum class Stage : std::uint8_t { check_in, ring, ring_data, proxies, proxy_seeds, peer_info, graph, idle };
  /// Real rank, ghost rank, tag: connection records were answered, the hand-shake not yet.
  using Exchange = std::tuple<std::int32_t, std::int32_t, std::int32_t>;

  void on_timer(TimerNode& node, Instant now) noexcept override;

  // comm.cpp
  [[nodiscard]] bool is_real(std::int32_t rank) const { return spec_.ranks[static_cast<std::size_t>(rank)].real; }
  [[nodiscard]] std::int32_t ranks() const { return static_cast<std::int32_t>(spec_.ranks.size()); }
  [[nodiscard]] bool in_range(std::int32_t rank) const { return rank >= 0 && rank < ranks(); }
  [[nodiscard]] SocketAddress address(std::int32_t ghost, Port port) const;
  [[nodiscard]] std::uint16_t port_number(std::int32_t ghost, Port port) const;
  void find_ends();
  [[nodiscard]] bool enter_lobby();
  void check_in_more();
  void checked_in(std::int32_t ghost);
  void connect(Outgoing outgoing);
  void send_message(std::int32_t ghost, std::int32_t real, std::int32_t tag, ConstBytes payload);
  void next_known(RingEnd& end, const SocketAddress& address);
  void on_own_open(ghost::StreamId id, Outgoing& outgoing, Instant now);
  void on_left(RingEnd& end);
  void on_refused(Outgoing outgoing, Instant now);
  void on_incoming(ghost::StreamId id, Incoming& incoming, Instant now);
  void on_reply(std::int32_t ghost, ConstBytes body);
  void on_message(std::int32_t ghost, SendHeader header, ConstBytes payload, Instant now);
  void fail(std::string why);
  void release();
  /// Last in every call from outside: tells the user of the end, after which this object may be gone.
  void settle(Instant now);
  [[nodiscard]] std::string waiting_for_ring() const;

  // gathers.cpp
  void pump(Instant now);
  void begin(Stage stage);
  void begin_asked_for();
  void begin_gather(std::string what, std::size_t block_size, std::function<Bytes(std::int32_t)> ghost_block);
  void finish_gather(Instant now);
  void take_ring_data();
  void take_peer_info();
  void take_graphs();
  [[nodiscard]] RingData ring_data(std::int32_t ghost) const;
  [[nodiscard]] Bytes peer_block(std::int32_t ghost) const;
  [[nodiscard]] GhostGraph ghost_graph(std::int32_t ghost) const;

  // exchange.cpp
  using Direction = std::tuple<std::int32_t, std::int32_t, bool>;  // real rank, ghost rank, to the real rank
  using Channels = std::vector<std::uint8_t>;
  void on_records(std::int32_t ghost, SendHeader header, ConstBytes records, Instant now);
  void on_handshake(std::int32_t ghost, SendHeader header, Instant now);
  [[nodiscard]] bool choose_channels(std::int32_t ghost, std::int32_t real, std::int32_t graph, std::size_t to_ghost,
                                     std::size_t to_real, Instant now);
  [[nodiscard]] ChannelMask edges(const Direction& direction, std::int32_t graph, int channels) const;
  [[nodiscard]] std::optional<Channels> take_channels(const Direction& direction, std::int32_t graph,
                                                      std::size_t count);

  // split.cpp
  [[nodiscard]] SplitKey split_key(std::int32_t ghost) const;  // of the split that is next
  void finish_split(Instant now);
  void make_shrunk(Instant now);
  void make_child(const std::vector<std::int32_t>& members, std::uint64_t hash, Instant now);
  void join_parent(State& parent, std::vector<std::int32_t> parent_ranks, Instant now);
  void leave_parent();
  void deliver_split_messages();
  [[nodiscard]] bool take_split_message(std::int32_t parent_ghost, std::int32_t parent_real, ConstBytes payload);

  Surroundings around_;
  Comm* self_ = nullptr;
  CommSpec spec_;
  const Version& version_;
  std::uint64_t magic_;
  std::uint64_t hash_;
  bool joined_ = false;  // the lobby

  SocketAddress root_{};
  std::unordered_map<std::uint64_t, std::int32_t> rank_at_;  // by ghost and local rank
  std::unordered_map<std::uint32_t, std::vector<std::int32_t>> nodes_;
  std::vector<std::int32_t> node_position_;  // [rank]: in its node
  Stage stage_ = Stage::check_in;
  std::int32_t next_check_in_ = 0;
  std::unordered_set<std::int32_t> checking_in_;  // the root may not have taken these check-ins yet

  std::vector<RingEnd> ends_;  // fixed once found
  std::unordered_map<ghost::StreamId, Outgoing> outgoing_;
  std::vector<Outgoing> refused_;  // to be tried again
  TimerNode retry_;
  std::unordered_map<ghost::StreamId, Incoming> incoming_;
  std::optional<Gather> gather_;

  std::unordered_map<std::int32_t, SocketAddress> real_p2p_;
  std::unordered_map<std::int32_t, Graph> real_graphs_;
  int compute_capability_min_ = 0;
  bool cu_mem_ = false;  // as the real ranks say: then connections are made when they are first used
  std::optional<TopologyPattern> pattern_;
  Topology topology_;

  std::set<Exchange> exchanges_;
  std::map<Direction, ChannelMask> connected_;
  std::map<Direction, std::uint8_t> point_to_point_;  // how many

  std::deque<Split> expected_splits_;
  std::int32_t splits_ = 0;
  std::deque<std::vector<std::int32_t>> shrunk_;  // members of children to be made
  std::vector<State*> children_;                  // whose ring still needs this communicator
  State* parent_ = nullptr;                       // likewise
  std::vector<std::int32_t> parent_ranks_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::deque<Bytes>> early_split_messages_;  // ghost, real

  bool closed_ = false;
  bool told_ = false;
  std::string why_;
};

}  // namespace nbx::nccl
