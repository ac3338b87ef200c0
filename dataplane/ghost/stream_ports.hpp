// Several personalities on one TCP port: perftest and the verbs examples share port 18515. The first bytes that a
// client sends tell which of them it is talking to.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "ghost/streams.hpp"

namespace nbx::ghost {

class StreamPorts final : public StreamUser {
 public:
  explicit StreamPorts(Streams& streams) : streams_(streams) {}

  /// Whether a stream that starts with `first`, at least recognisable_size bytes, speaks the user's protocol.
  static constexpr std::size_t recognisable_size = 5;
  using Recognises = bool (*)(ConstBytes first);

  void listen(GhostId ghost, std::uint16_t port, StreamUser& user, Recognises recognises);

  /// Nothing to recognise: the stream is `user`'s from the start.
  StreamId connect(GhostId ghost, const IpAddress& peer, std::uint16_t port, StreamUser& user) {
    return streams_.connect(ghost, peer, port, user);
  }
  void send(StreamId id, ConstBytes bytes) { streams_.send(id, bytes); }
  void close(StreamId id);

  void on_open(StreamId id, GhostId ghost, std::uint16_t port, const IpAddress& peer, Instant now) noexcept override;
  void on_bytes(StreamId id, ConstBytes bytes, Instant now) noexcept override;
  void on_close(StreamId id, Instant now) noexcept override;

 private:
  struct Speaker {
    StreamUser* user = nullptr;
    Recognises recognises = nullptr;
  };
  struct Stream {
    GhostId ghost = no_ghost;
    std::uint16_t port = 0;
    IpAddress peer;
    StreamUser* user = nullptr;      // null: not known yet
    std::vector<std::byte> first{};  // until then
  };

  Streams& streams_;
  std::map<std::pair<GhostId, std::uint16_t>, std::vector<Speaker>> speakers_;
  std::map<StreamId, Stream> open_;
};

}  // namespace nbx::ghost
