// TCP as personalities see it: bytes of numbered streams. Behind it are the kernel's sockets on the exception path, or
// a test. All calls are made on the worker of the shard.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/net.hpp"
#include "base/units.hpp"

namespace nbx::ghost {

enum class StreamId : std::uint32_t { none = 0 };

class StreamUser {
 public:
  /// A peer connected to the listening `port`, or an own connect() to it succeeded.
  virtual void on_open(StreamId id, GhostId ghost, std::uint16_t port, const IpAddress& peer, Instant now) noexcept = 0;
  virtual void on_bytes(StreamId id, ConstBytes bytes, Instant now) noexcept = 0;
  /// Closed by the peer, or never opened. The id is invalid after the call.
  virtual void on_close(StreamId id, Instant now) noexcept = 0;

 protected:
  ~StreamUser() = default;
};

class Streams {
 public:
  virtual void listen(GhostId ghost, std::uint16_t port, StreamUser& user) = 0;
  virtual StreamId connect(GhostId ghost, const IpAddress& peer, std::uint16_t port, StreamUser& user) = 0;
  virtual void send(StreamId id, ConstBytes bytes) = 0;
  virtual void close(StreamId id) = 0;

 protected:
  ~Streams() = default;
};

}  // namespace nbx::ghost
