#include "daemon/socket_streams.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace nbx::daemon {
namespace {

using ghost::StreamId;
using ghost::StreamUser;

constexpr std::size_t unsent_max = 64U << 20U;  // a peer that reads nothing loses its stream
constexpr int reads_per_event = 16;

/// Every socket is IPv6 and takes IPv4 in its mapped form, as IpAddress does.
sockaddr_in6 socket_address(const IpAddress& ip, std::uint16_t port) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  std::memcpy(address.sin6_addr.s6_addr, ip.octets.data(), ip.octets.size());
  return address;
}

IpAddress ip_of(const sockaddr_in6& address) {
  IpAddress ip;
  std::memcpy(ip.octets.data(), address.sin6_addr.s6_addr, ip.octets.size());
  return ip;
}

using NameOf = int (*)(int, sockaddr*, socklen_t*);
IpAddress name_of(int fd, NameOf which) {
  sockaddr_in6 address{};
  socklen_t size = sizeof address;
  which(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ip_of(address);
}

void set(int fd, int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof value); }

bool bind_to(int fd, const sockaddr_in6& address) {
  return bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

/// Closes with RST: what a host does that has nobody at that port.
void reset(UniqueFd socket) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

}  // namespace

void SocketStreams::listen(GhostId ghost, std::uint16_t port, StreamUser& user) {
  const auto [listener, is_new] = listeners_.try_emplace(port);
  listener->second.users[ghost] = &user;
  if (is_new) {
    ask_for_socket([this, port](UniqueFd socket, Instant) { open_listener(port, std::move(socket)); });
  }
}

StreamId SocketStreams::connect(GhostId ghost, const IpAddress& peer, std::uint16_t port, StreamUser& user) {
  const StreamId id = add({.ghost = ghost, .peer = peer, .port = port, .user = &user});
  ask_for_socket([this, id](UniqueFd socket, Instant now) { begin_connect(id, std::move(socket), now); });
  return id;
}

void SocketStreams::send(StreamId id, ConstBytes bytes) {
  Stream* stream = find(id);
  if (stream == nullptr || stream->closing) {
    return;
  }
  stream->unsent.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (stream->unsent.size() > unsent_max) {
    post_later([this, id](Instant now) { end(id, now); });
  } else if (stream->open) {
    static_cast<void>(write_unsent(*stream));  // an error is told by the watcher, too
  }
}

void SocketStreams::close(StreamId id) {
  Stream* stream = find(id);
  if (stream == nullptr) {
    return;
  }
  stream->user = nullptr;
  stream->closing = true;
  if (stream->unsent.empty() || !stream->open) {
    forget(id);
  }
}

void SocketStreams::ask_for_socket(std::function<void(UniqueFd, Instant)> then) {
  watcher_.run([this, then = std::move(then)] {
    Result<UniqueFd> socket = broker_.tcp_socket(network_);
    if (!socket) {
      spdlog::warn("no TCP for ghosts: {}", socket.error().message);
    }
    // Tasks are copyable, descriptors are not.
    auto owned = std::make_shared<UniqueFd>(socket.ok() ? std::move(*socket) : UniqueFd{});
    post([then, owned](Instant now) { then(std::move(*owned), now); });
  });
}

void SocketStreams::post(port::Mailbox::Task task) {
  while (!mailbox_.post(task) && !watcher_.stopping()) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
}

void SocketStreams::post_later(port::Mailbox::Task task) {
  watcher_.run([this, task = std::move(task)] { post(task); });
}

void SocketStreams::open_listener(std::uint16_t port, UniqueFd socket) {
  constexpr int backlog = 1024;
  set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (!bind_to(socket.get(), socket_address({}, port)) || ::listen(socket.get(), backlog) != 0) {
    return;
  }
  Listener& listener = listeners_[port];
  listener.socket = std::move(socket);
  watcher_.watch(listener.socket.get(),
                 [this, port](std::uint32_t) { post([this, port](Instant now) { accept(port, now); }); });
}

void SocketStreams::accept(std::uint16_t port, Instant now) {
  const int listening = listeners_[port].socket.get();
  while (true) {
    UniqueFd socket(accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      return;
    }
    adopt(std::move(socket), port, now);
  }
}

void SocketStreams::adopt(UniqueFd socket, std::uint16_t port, Instant now) {
  const GhostId ghost = directory_.by_ip(name_of(socket.get(), getsockname));
  const auto& users = listeners_[port].users;
  const auto user = users.find(ghost);
  if (user == users.end()) {
    reset(std::move(socket));
    return;
  }
  set(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  const IpAddress peer = name_of(socket.get(), getpeername);
  const int fd = socket.get();
  const StreamId id = add(
      {.socket = std::move(socket), .ghost = ghost, .peer = peer, .port = port, .user = user->second, .open = true});
  user->second->on_open(id, ghost, port, peer, now);
  if (find(id) != nullptr) {
    watch(id, fd);
  }
}

void SocketStreams::begin_connect(StreamId id, UniqueFd socket, Instant now) {
  Stream* stream = find(id);
  if (stream == nullptr) {
    return;
  }
  const auto& addresses = directory_[stream->ghost].addresses;
  const auto own = std::find_if(addresses.begin(), addresses.end(), [&](const ghost::InterfaceAddress& address) {
    return address.ip.is_v4() == stream->peer.is_v4();
  });
  set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  set(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  const sockaddr_in6 peer = socket_address(stream->peer, stream->port);
  if (own == addresses.end() || !bind_to(socket.get(), socket_address(own->ip, 0)) ||
      (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&peer), sizeof peer) != 0 && errno != EINPROGRESS)) {
    end(id, now);
    return;
  }
  stream->socket = std::move(socket);
  watch(id, stream->socket.get());
}

StreamId SocketStreams::add(Stream stream) {
  const StreamId id{++last_id_};
  streams_.emplace(id, std::move(stream));
  return id;
}

void SocketStreams::watch(StreamId id, int fd) {
  watcher_.watch(
      fd, [this, id](std::uint32_t events) { post([this, id, events](Instant now) { on_events(id, events, now); }); });
}

void SocketStreams::on_events(StreamId id, std::uint32_t events, Instant now) {
  const Stream* stream = find(id);
  if (stream == nullptr) {
    return;
  }
  if (!stream->open && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) {
    finish_connect(id, now);
  }
  if ((events & EPOLLOUT) != 0) {
    flush(id, now);
  }
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)) != 0) {
    read(id, now);
  }
}

void SocketStreams::finish_connect(StreamId id, Instant now) {
  Stream* stream = find(id);
  sockaddr_in6 peer{};
  socklen_t peer_size = sizeof peer;
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(stream->socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) {
    end(id, now);
    return;
  }
  if (getpeername(stream->socket.get(), reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) {
    return;  // the event was meant for a descriptor that had this number before
  }
  stream->open = true;
  stream->user->on_open(id, stream->ghost, stream->port, stream->peer, now);
}

void SocketStreams::read(StreamId id, Instant now) {
  std::array<std::byte, 16384> buffer;
  for (int i = 0; i < reads_per_event; ++i) {
    Stream* stream = find(id);  // the user may have closed it
    if (stream == nullptr || !stream->open || stream->user == nullptr) {
      return;
    }
    const ssize_t size = recv(stream->socket.get(), buffer.data(), buffer.size(), 0);
    if (size < 0 && errno == EAGAIN) {
      return;
    }
    if (size <= 0) {
      end(id, now);
      return;
    }
    stream->user->on_bytes(id, {buffer.data(), static_cast<std::size_t>(size)}, now);
  }
  post_later([this, id](Instant later) { read(id, later); });  // others first
}

void SocketStreams::flush(StreamId id, Instant now) {
  Stream* stream = find(id);
  if (stream == nullptr || !stream->open) {
    return;
  }
  if (!write_unsent(*stream)) {
    end(id, now);
  } else if (stream->closing && stream->unsent.empty()) {
    forget(id);
  }
}

bool SocketStreams::write_unsent(Stream& stream) {
  while (!stream.unsent.empty()) {
    const ssize_t size = ::send(stream.socket.get(), stream.unsent.data(), stream.unsent.size(), MSG_NOSIGNAL);
    if (size < 0) {
      return errno == EAGAIN;
    }
    stream.unsent.erase(0, static_cast<std::size_t>(size));
  }
  return true;
}

void SocketStreams::end(StreamId id, Instant now) {
  Stream* stream = find(id);
  if (stream == nullptr) {
    return;
  }
  StreamUser* user = stream->user;
  forget(id);
  if (user != nullptr) {
    user->on_close(id, now);
  }
}

void SocketStreams::forget(StreamId id) {
  const auto found = streams_.find(id);
  if (found->second.socket) {
    watcher_.forget(found->second.socket.get());
  }
  streams_.erase(found);
}

SocketStreams::Stream* SocketStreams::find(StreamId id) {
  const auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : &found->second;
}

}  // namespace nbx::daemon
