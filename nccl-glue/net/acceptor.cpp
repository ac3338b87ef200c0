#include "nccl-glue/net/acceptor.hpp"

#include <algorithm>

#include "nccl-glue/net/receiver.hpp"

namespace nbx::nccl {

void Acceptor::listen(GhostId ghost, std::uint16_t port) {
  if (listening_.insert({ghost, port}).second) {
    streams_.listen(ghost, port, *this, [](ConstBytes) { return true; });
  }
}

std::uint64_t Acceptor::expect(const Connection& receiver) {
  std::uint64_t magic = 0;
  do {
    magic = rng_.next();
  } while (magic == 0 || !expected_.try_emplace(magic, receiver.id()).second);
  return magic;
}

void Acceptor::forget(std::uint64_t magic, ghost::StreamId stream) noexcept {
  expected_.erase(magic);
  open_.erase(stream);
}

void Acceptor::on_open(ghost::StreamId id, GhostId ghost, std::uint16_t, const IpAddress&, Instant) noexcept {
  open_[id] = {.ghost = ghost};
}

// A stranger is closed, and the listener waits on, as NCCL does.
void Acceptor::on_bytes(ghost::StreamId id, ConstBytes bytes, Instant now) noexcept {
  const auto found = open_.find(id);
  if (found == open_.end()) {
    return;
  }
  Stream& stream = found->second;
  const Registry::Turn turn{registry_};
  if (stream.receiver == NetId::none) {
    const std::size_t missing = std::min(ib::hello_size - stream.hello.size(), bytes.size());
    const ConstBytes part = bytes.first(missing);
    stream.hello.insert(stream.hello.end(), part.begin(), part.end());
    bytes = bytes.subspan(missing);
    const auto hello = ib::decode_hello(stream.hello);
    if (!hello) {
      return;
    }
    const auto meant = expected_.find(hello->magic);
    if (meant == expected_.end() || hello->type != ib::socket_type) {
      open_.erase(found);
      streams_.close(id);
      return;
    }
    stream.receiver = meant->second;
    expected_.erase(meant);
    static_cast<Receiver*>(registry_.find(stream.receiver))->accept(id);
  }
  Connection* receiver = registry_.find(stream.receiver);
  if (receiver != nullptr && !bytes.empty()) {
    receiver->receive(bytes, now);
  }
}

void Acceptor::on_close(ghost::StreamId id, Instant now) noexcept {
  const auto found = open_.find(id);
  if (found == open_.end()) {
    return;
  }
  const NetId receiver = found->second.receiver;
  open_.erase(found);
  Connection* connection = registry_.find(receiver);
  if (connection != nullptr) {
    const Registry::Turn turn{registry_};
    connection->peer_closed(now);
  }
}

}  // namespace nbx::nccl
