// Several communicators listen on the same ports of the same ghosts; the magic in the hello of a stream tells which of
// them it is for. One lobby serves all communicators of a shard.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ghost/stream_ports.hpp"

namespace nbx::nccl {

class Lobby final : public ghost::StreamUser {
 public:
  explicit Lobby(ghost::StreamPorts& streams) : streams_(streams) {}

  /// Streams that say `magic` are handed to `guest`: on_open, then the bytes after the hello. A guest leaves before it
  /// goes, and then closes the streams it has got. False: the magic is taken.
  bool join(std::uint64_t magic, ghost::StreamUser& guest);
  void leave(std::uint64_t magic);
  /// Listens, if nobody did so before.
  void listen(GhostId ghost, std::uint16_t port);
  void close(ghost::StreamId id);

  void on_open(ghost::StreamId id, GhostId ghost, std::uint16_t port, const IpAddress& peer,
               Instant now) noexcept override;
  void on_bytes(ghost::StreamId id, ConstBytes bytes, Instant now) noexcept override;
  void on_close(ghost::StreamId id, Instant now) noexcept override;

 private:
  struct Stream {
    GhostId ghost = no_ghost;
    std::uint16_t port = 0;
    IpAddress peer;
    ghost::StreamUser* guest = nullptr;  // null: the hello is not complete
    std::vector<std::byte> hello{};
  };

  void admit(ghost::StreamId id, Stream& stream, Instant now);

  ghost::StreamPorts& streams_;
  std::set<std::pair<GhostId, std::uint16_t>> listening_;
  std::unordered_map<std::uint64_t, ghost::StreamUser*> guests_;
  std::map<ghost::StreamId, Stream> open_;
};

}  // namespace nbx::nccl
