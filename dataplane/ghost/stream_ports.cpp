#include "ghost/stream_ports.hpp"

namespace nbx::ghost {

void StreamPorts::listen(GhostId ghost, std::uint16_t port, StreamUser& user, Recognises recognises) {
  std::vector<Speaker>& speakers = speakers_[{ghost, port}];
  speakers.push_back({&user, recognises});
  if (speakers.size() == 1) {
    streams_.listen(ghost, port, *this);
  }
}

void StreamPorts::close(StreamId id) {
  open_.erase(id);
  streams_.close(id);
}

void StreamPorts::on_open(StreamId id, GhostId ghost, std::uint16_t port, const IpAddress& peer, Instant) noexcept {
  open_[id] = {ghost, port, peer, nullptr};
}

void StreamPorts::on_bytes(StreamId id, ConstBytes bytes, Instant now) noexcept {
  const auto found = open_.find(id);
  if (found == open_.end()) {
    return;
  }
  Stream& stream = found->second;
  std::vector<std::byte> first;
  if (stream.user == nullptr) {
    stream.first.insert(stream.first.end(), bytes.begin(), bytes.end());
    if (stream.first.size() < recognisable_size) {
      return;
    }
    first = std::move(stream.first);
    bytes = first;
    for (const Speaker& speaker : speakers_[{stream.ghost, stream.port}]) {
      if (speaker.recognises(bytes)) {
        stream.user = speaker.user;
        break;
      }
    }
    if (stream.user == nullptr) {
      close(id);
      return;
    }
    stream.user->on_open(id, stream.ghost, stream.port, stream.peer, now);
  }
  stream.user->on_bytes(id, bytes, now);
}

void StreamPorts::on_close(StreamId id, Instant now) noexcept {
  const auto found = open_.find(id);
  if (found == open_.end()) {
    return;
  }
  StreamUser* user = found->second.user;
  open_.erase(found);
  if (user != nullptr) {
    user->on_close(id, now);
  }
}

}  // namespace nbx::ghost
