// The ghost ranks of every NCCL communicator behind one port: takes the announcements of the real nodes, lets ghosts
// join, and plays their part of the operations. The ensemble of a shard (pipeline/shard.hpp).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nccl-glue/announce/codec.hpp"
#include "nccl-glue/comm/lobby.hpp"
#include "nccl-glue/service/world.hpp"

namespace nbx::nccl {

class Service final : public ghost::Personality, public ghost::StreamUser, public WorldUser, public TimerClient {
 public:
  Service(const ghost::Context& any, ServiceOptions options, std::unique_ptr<DelayModel> delay);
  ~Service() override;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  Service(Service&&) = delete;
  Service& operator=(Service&&) = delete;

  void start(Instant now) override;
  [[nodiscard]] std::string status() const override;
  /// Every communicator there is or was, for reports.
  [[nodiscard]] std::vector<WorldReport> report() const;

 private:
  /// A real rank of a communicator, as its process knows it.
  struct Member {
    World* world = nullptr;  // null: not there yet, or over
    std::int32_t rank = -1;
    World* parent = nullptr;  // waits for a split of this world
  };
  struct PendingMember {
    ghost::StreamId stream{};
    std::uint64_t comm = 0;
  };
  /// A communicator whose real ranks are still announcing themselves.
  struct Pending {
    UniqueId id{};
    std::int32_t ranks = 0;
    const Version* version = nullptr;
    announce::Variables variables;
    std::map<std::int32_t, PendingMember> members;  // by rank
    Instant last{};                                 // announcement
  };
  /// A process on a real node that has announced itself.
  struct Session {
    IpAddress peer;
    announce::Decoder decoder;
    const Version* version = nullptr;
    announce::Variables variables;
    std::map<std::uint64_t, Member> comms;  // by the library's number
  };

  void on_open(ghost::StreamId id, GhostId ghost, std::uint16_t port, const IpAddress& peer,
               Instant now) noexcept override;
  void on_bytes(ghost::StreamId id, ConstBytes bytes, Instant now) noexcept override;
  void on_close(ghost::StreamId id, Instant now) noexcept override;
  void on_failed(World& world, const std::string& text, Instant now) noexcept override;
  void on_child(World& parent, std::unique_ptr<Comm> comm, Instant now) noexcept override;
  void on_timer(TimerNode& node, Instant now) noexcept override;

  /// False: the stream is to be closed, `error` says why.
  bool take(ghost::StreamId id, Session& session, const announce::Record& record, std::string& error, Instant now);
  bool hello(ghost::StreamId id, Session& session, const announce::Hello& hello, std::string& error);
  bool init(ghost::StreamId id, Session& session, const announce::CommInit& init, std::string& error, Instant now);
  void refuse(ghost::StreamId id, const std::string& error);
  /// Makes the worlds whose members are complete.
  void complete_worlds(Instant now);
  [[nodiscard]] Result<CommSpec> make_spec(const Pending& pending) const;
  [[nodiscard]] std::uint32_t ranks_per_node(const Pending& pending) const;
  /// Puts the ghost ranks on ghost nodes.
  [[nodiscard]] std::optional<Error> place_ghosts(const Pending& pending, std::vector<RankPlace>& ranks) const;
  void sweep();

  ghost::Context any_;
  ServiceOptions options_;
  std::unique_ptr<DelayModel> delay_;
  Net net_;
  Lobby lobby_;
  Arena arena_;
  std::map<ghost::StreamId, Session> sessions_;
  std::map<UniqueId, Pending> pending_;
  std::vector<std::unique_ptr<World>> worlds_;
  std::vector<WorldReport> past_;
  TimerNode settled_;
};

}  // namespace nbx::nccl
