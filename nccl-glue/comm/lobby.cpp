#include "nccl-glue/comm/lobby.hpp"

#include "nccl-glue/wire/bootstrap.hpp"

namespace nbx::nccl {

bool Lobby::join(std::uint64_t magic, ghost::StreamUser& guest) { return guests_.emplace(magic, &guest).second; }

void Lobby::leave(std::uint64_t magic) { guests_.erase(magic); }

void Lobby::listen(GhostId ghost, std::uint16_t port) {
  if (listening_.emplace(ghost, port).second) {
    streams_.listen(ghost, port, *this, [](ConstBytes) { return true; });
  }
}

void Lobby::close(ghost::StreamId id) {
  open_.erase(id);
  streams_.close(id);
}

void Lobby::on_open(ghost::StreamId id, GhostId ghost, std::uint16_t port, const IpAddress& peer, Instant) noexcept {
  open_[id] = {ghost, port, peer};
}

void Lobby::on_bytes(ghost::StreamId id, ConstBytes bytes, Instant now) noexcept {
  const auto found = open_.find(id);
  if (found == open_.end()) {
    return;
  }
  Stream& stream = found->second;
  if (stream.guest != nullptr) {
    stream.guest->on_bytes(id, bytes, now);
    return;
  }
  stream.hello.insert(stream.hello.end(), bytes.begin(), bytes.end());
  if (stream.hello.size() >= hello_size) {
    admit(id, stream, now);
  }
}

/// A guest may close the stream, or leave, in any call.
void Lobby::admit(ghost::StreamId id, Stream& stream, Instant now) {
  const std::vector<std::byte> bytes = std::move(stream.hello);
  const Hello hello = *decode_hello(bytes);
  const auto guest = guests_.find(hello.magic);
  if (guest == guests_.end() || hello.type != bootstrap_socket) {
    close(id);
    return;
  }
  stream.guest = guest->second;
  stream.guest->on_open(id, stream.ghost, stream.port, stream.peer, now);
  const auto still_open = open_.find(id);
  if (bytes.size() > hello_size && still_open != open_.end()) {
    still_open->second.guest->on_bytes(id, ConstBytes(bytes).subspan(hello_size), now);
  }
}

void Lobby::on_close(ghost::StreamId id, Instant now) noexcept {
  const auto found = open_.find(id);
  if (found == open_.end()) {
    return;
  }
  ghost::StreamUser* guest = found->second.guest;
  open_.erase(found);
  if (guest != nullptr) {
    guest->on_close(id, now);
  }
}

}  // namespace nbx::nccl
