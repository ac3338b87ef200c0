// A communicator at work: the ghosts' part of its operations. It hears of operations from the real ranks, cuts them
// over channels as NCCL does, and gives each group of ghosts between real ranks its transfer.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "frame/account.hpp"
#include "nccl-glue/announce/protocol.hpp"
#include "nccl-glue/comm/comm.hpp"
#include "nccl-glue/plan/channels.hpp"
#include "nccl-glue/plan/point_to_point.hpp"
#include "nccl-glue/service/delay.hpp"
#include "nccl-glue/service/edge.hpp"
#include "nccl-glue/service/payload.hpp"

namespace nbx::nccl {

class RingTransfer;
class World;

class WorldUser {
 public:
  /// Nothing more comes of this world; `text` is for the user of the real ranks. Empty: it ended in order.
  virtual void on_failed(World& world, const std::string& text, Instant now) noexcept = 0;
  virtual void on_child(World& parent, std::unique_ptr<Comm> child, Instant now) noexcept = 0;

 protected:
  ~WorldUser() = default;
};

/// What became of an operation.
struct OperationReport {
  std::uint64_t sequence = 0;
  Operation operation;
  std::optional<Decision> decision;  // send and recv: none
  Instant called{};                  // by the first real rank
  Instant first_message{};
  Instant last_message{};  // the ghosts' last part
  // What the time between is made of: `behind` until the operation before had ended, `shares`, and the rest, which is
  // the real ranks' own.
  Duration behind{};
  TimeShares shares;
  std::vector<Firing> firings;  // since the operation before had ended
  std::uint64_t bytes_from_real = 0;
  std::uint64_t bytes_to_real = 0;
  std::int32_t latest_rank = -1;  // the ghost that called last
  Duration latest_by{};
  bool done = false;
};

struct WorldReport {
  std::uint64_t hash = 0;
  int version = 0;
  std::size_t ranks = 0;
  std::vector<std::int32_t> real;
  int channels = 0;
  Instant started{};
  std::optional<Instant> connected;
  std::string state;  // what it waits for, or how it ended
  std::uint64_t operations = 0;
  std::vector<OperationReport> recent;
};

class World final : public CommUser, public NetUser, public EdgeOwner, public TimerClient {
 public:
  struct Tools {
    const ghost::Context& any;
    Net& net;
    Lobby& lobby;
    Arena& arena;
    const DelayModel& delay;
    const ServiceOptions& options;
    WorldUser& user;
  };

  /// Lets the ghosts join.
  World(const Tools& tools, CommSpec spec, const announce::Variables& variables, Instant now);
  /// Takes over a communicator that came from a split.
  World(const Tools& tools, std::unique_ptr<Comm> comm, const announce::Variables& variables, Instant now);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  World(World&&) = delete;
  World& operator=(World&&) = delete;

  // What real rank `rank` has announced.
  void call(std::int32_t rank, const announce::OperationCall& call, Instant now);
  void decide(std::int32_t rank, const announce::OperationDecision& decision, Instant now);
  void close_group(std::int32_t rank, Instant now);
  void split(std::int32_t rank, int color, Instant now);
  void shrink(std::int32_t rank, const std::vector<std::int32_t>& excluded, Instant now);
  /// The real node's end of the announcements is gone.
  void leave(std::int32_t rank, Instant now);

  [[nodiscard]] const Comm& comm() const noexcept { return *comm_; }
  [[nodiscard]] const announce::Variables& variables() const noexcept { return variables_; }
  [[nodiscard]] bool over() const noexcept { return over_; }
  [[nodiscard]] WorldReport report() const;

 private:
  /// What one real rank has announced and was not used yet.
  struct Caller {
    std::vector<announce::OperationCall> open;  // the group that is not closed
    std::uint64_t collectives = 0;              // announced
    std::size_t splits = 0;
    std::size_t shrinks = 0;
    std::map<std::uint64_t, Decision> decisions;
    bool decides = false;  // its profiler plugin has told of a decision
  };
  /// Collectives that NCCL starts together.
  struct Group {
    std::uint64_t first = 0;  // number of its first collective
    std::vector<Operation> operations;
    Instant called{};
    TimeShares booked;  // then
  };
  /// A send or receive between a real rank and a ghost.
  struct PeerCall {
    std::int32_t real_rank = -1;
    Operation operation;  // as the real rank called it
    Instant called{};
    TimeShares booked;  // then
    std::uint64_t sequence = 0;
  };
  /// What became of an operation so far.
  struct Progress {
    OperationReport report;
    std::size_t open_edges = 0;
    TimeShares booked;  // when it was called
  };
  struct UnderWay {
    Progress* progress = nullptr;
    std::vector<OutEdge*> out;
  };
  using EdgeKey = std::tuple<std::int32_t, std::int32_t, bool, std::uint8_t>;  // ghost, real, collective, channel

  void on_topology(Comm& comm, Instant now) noexcept override;
  void on_edge(Comm& comm, const Edge& edge, Instant now) noexcept override;
  NetUser& net_user(Comm& comm) noexcept override { return static_cast<void>(comm), *this; }
  void on_connected(Comm& comm, Instant now) noexcept override;
  void on_split(Comm& parent, std::unique_ptr<Comm> child, Instant now) noexcept override;
  void on_closed(Comm& comm, std::string_view why, Instant now) noexcept override;

  void on_ready(NetId id, Instant now) noexcept override;
  void on_received(NetId id, std::uint64_t size, Instant now) noexcept override;
  void on_clear_to_send(NetId id, std::uint64_t size, std::uint32_t tag, Instant now) noexcept override;
  void on_sent(NetId id, Instant now) noexcept override;
  void on_closed(NetId id, std::string_view why, Instant now) noexcept override;

  void on_progress(const Transfer& transfer, std::uint64_t bytes, bool to_real, Instant now) noexcept override;
  void on_transfer_done(const Transfer& transfer, Instant now) noexcept override;
  void on_held(const Transfer& transfer, Instant until, Instant now) noexcept override;
  void on_mismatch(const std::string& text, Instant now) noexcept override;
  void on_untaken(Instant now) noexcept override;
  void on_timer(TimerNode& node, Instant now) noexcept override;

  void compare(std::int32_t rank, std::uint64_t number, const Operation& operation, Instant now);
  /// Starts what can be started.
  void schedule(Instant now);
  bool schedule_group(const Group& group, Instant now);
  bool schedule_peer(const PeerCall& call, Instant now);
  /// A transfer and the edges that it works on.
  struct Planned {
    std::shared_ptr<Transfer> transfer;
    std::shared_ptr<RingTransfer> ring;  // the same, if it is one
    std::vector<std::pair<InEdge*, unsigned>> in;
    std::vector<std::pair<OutEdge*, unsigned>> out;
  };
  using ProgressMap = std::map<std::uint64_t, Progress>;
  /// Adds the group's operations to `progress`. nullopt: an edge does not exist yet, or the plan is impossible (fail).
  std::optional<std::vector<std::pair<Progress*, std::vector<Planned>>>> plan(
      const Group& group, const std::vector<PlannedOperation>& operations, ProgressMap& progress, Instant now);
  /// How NCCL runs a group of which no plugin told, by what the real ranks have cleared to send, or by what they send.
  void recognise(Instant now);
  [[nodiscard]] std::vector<Decision> decisions_that_fit(const Group& group, Instant now);
  /// Lets real ranks that wait for nothing send the first message of what they are about.
  void ask(Instant now);
  bool fits(const Group& group, const Decision& decision, const std::set<std::uint8_t>& channels, Instant now);
  void await_recognition(Instant now);
  /// False: an edge does not exist yet.
  bool plan_ring(const PlannedOperation& planned, const Share& share, Progress& progress, std::vector<Planned>& out);
  bool plan_tree(const PlannedOperation& planned, const Share& share, Progress& progress, std::vector<Planned>& out);
  void begin(const std::vector<Planned>& planned, Progress& progress, Instant now);
  static void forget_old(ProgressMap& progress);
  static void note_latest(OperationReport& report, std::int32_t rank, Instant at);
  /// What its time was made of, if it ends now.
  void explain(const Progress& progress, OperationReport& report, Instant now) const;
  [[nodiscard]] CommShape shape() const;
  [[nodiscard]] PointToPointShape peer_shape(std::uint8_t connections) const;
  [[nodiscard]] std::int32_t ranks() const { return static_cast<std::int32_t>(comm_->spec().ranks.size()); }
  [[nodiscard]] bool real(std::int32_t rank) const { return comm_->spec().ranks[static_cast<std::size_t>(rank)].real; }
  InEdge* in_edge(std::int32_t ghost, std::int32_t real, bool collective, std::uint8_t channel);
  OutEdge* out_edge(std::int32_t ghost, std::int32_t real, bool collective, std::uint8_t channel);
  void watch(Instant now);
  [[nodiscard]] std::string waits_for() const;
  void fail(const std::string& text, Instant now);

  Tools tools_;
  Payloads payloads_;
  announce::Variables variables_;  // of the real ranks
  Instant started_{};
  std::optional<Instant> connected_;
  bool over_ = false;
  std::string end_;

  std::map<std::int32_t, Caller> callers_;  // by real rank
  std::deque<Operation> collectives_;       // as first announced, from number collectives_before_ on
  std::uint64_t collectives_before_ = 0;    // that all callers have announced
  std::int32_t leader_ = -1;                // whose groups are played
  std::deque<Group> groups_;                // not started
  std::deque<PeerCall> peer_calls_;         // not started
  std::uint64_t peer_sequence_ = 0;
  std::size_t splits_ = 0;  // that the ghosts are prepared for
  std::size_t shrinks_ = 0;
  std::map<std::uint64_t, Progress> progress_;       // of collectives, by number
  std::map<std::uint64_t, Progress> peer_progress_;  // of sends and receives
  std::unordered_map<const Transfer*, UnderWay> under_way_;
  std::unordered_map<const InEdge*, std::shared_ptr<RingTransfer>> latest_in_ring_;  // of each run of ghosts
  std::map<EdgeKey, std::unique_ptr<InEdge>> in_;
  std::map<EdgeKey, std::unique_ptr<OutEdge>> out_;
  std::unordered_map<NetId, InEdge*> in_by_net_;
  std::unordered_map<NetId, OutEdge*> out_by_net_;
  Account account_;      // of the time of all connections
  Instant last_end_{};   // of an operation,
  TimeShares at_end_{};  // and what was booked then
  Instant last_progress_{};
  std::string init_waits_for_;  // until connected: when it changes, there is progress
  TimerNode watchdog_;
  TimerNode recognition_;
  bool recognised_ = false;     // an operation: no plugin is going to tell
  std::unique_ptr<Comm> comm_;  // goes first: it reports to the rest
};

}  // namespace nbx::nccl
