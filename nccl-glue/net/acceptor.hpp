// Incoming side connections. All ghosts listen on the same port, and each listener has a magic of its own: the hello
// says which of them is meant.
#pragma once

#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/rng.hpp"
#include "nccl-glue/net/connection.hpp"

namespace nbx::nccl {

class Receiver;

class Acceptor final : public ghost::StreamUser {
 public:
  Acceptor(const ghost::Context& any, Registry& registry)
      : streams_(any.streams), registry_(registry), rng_(any.rng.fork("nccl-net")) {}

  void listen(GhostId ghost, std::uint16_t port);
  /// Draws the magic by which `receiver` is found, once.
  [[nodiscard]] std::uint64_t expect(const Connection& receiver);
  void forget(std::uint64_t magic, ghost::StreamId stream) noexcept;

 private:
  struct Stream {
    GhostId ghost = no_ghost;
    NetId receiver = NetId::none;  // none: the hello is not complete
    std::vector<std::byte> hello{};
  };

  void on_open(ghost::StreamId id, GhostId ghost, std::uint16_t port, const IpAddress& peer,
               Instant now) noexcept override;
  void on_bytes(ghost::StreamId id, ConstBytes bytes, Instant now) noexcept override;
  void on_close(ghost::StreamId id, Instant now) noexcept override;

  ghost::StreamPorts& streams_;
  Registry& registry_;
  Rng rng_;
  std::set<std::pair<GhostId, std::uint16_t>> listening_;
  std::unordered_map<std::uint64_t, NetId> expected_;  // by magic
  std::unordered_map<ghost::StreamId, Stream> open_;
};

}  // namespace nbx::nccl
