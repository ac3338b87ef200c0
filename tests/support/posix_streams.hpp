// ghost::Streams over the kernel's sockets on loopback: every ghost has an address of 127.0.0.0/8. For tests that talk
// to real programs without a port.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/unique_fd.hpp"
#include "ghost/ghost.hpp"
#include "ghost/streams.hpp"

namespace nbx::test {

class PosixStreams final : public ghost::Streams {
 public:
  explicit PosixStreams(const ghost::Directory& directory) : directory_(directory), epoll_(epoll_create1(0)) {}

  void listen(GhostId ghost, std::uint16_t port, ghost::StreamUser& user) override {
    users_[{ghost, port}] = &user;
    if (listeners_.contains(port)) {
      return;
    }
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    const int one = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    const sockaddr_in any = address({}, port);
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0 || ::listen(fd.get(), 4096) != 0) {
      perror("listen");
      abort();
    }
    watch(fd.get(), EPOLLIN);
    ports_[fd.get()] = port;
    listeners_[port] = std::move(fd);
  }

  ghost::StreamId connect(GhostId ghost, const IpAddress& peer, std::uint16_t port, ghost::StreamUser& user) override {
    Stream stream{.socket = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)),
                  .ghost = ghost,
                  .port = port,
                  .peer = peer,
                  .user = &user};
    const sockaddr_in from = address(directory_[ghost].addresses[0].ip, 0);
    const sockaddr_in to = address(peer, port);
    const int one = 1;
    setsockopt(stream.socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    ::bind(stream.socket.get(), reinterpret_cast<const sockaddr*>(&from), sizeof from);
    ::connect(stream.socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to);
    return add(std::move(stream), EPOLLOUT);
  }

  void send(ghost::StreamId id, ConstBytes bytes) override {
    if (const auto found = streams_.find(id); found != streams_.end()) {
      found->second.unsent.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      flush(id);
    }
  }

  void close(ghost::StreamId id) override {
    const auto found = streams_.find(id);
    if (found == streams_.end()) {
      return;
    }
    found->second.user = nullptr;
    if (found->second.unsent.empty()) {
      forget(id);
    }
  }

  /// Handles what has happened; waits for something at most so long.
  void run(int timeout_ms, Instant now) {
    std::array<epoll_event, 64> events{};
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), timeout_ms);
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      if (const auto port = ports_.find(fd); port != ports_.end()) {
        accept(fd, port->second, now);
      } else if (const auto id = ids_.find(fd); id != ids_.end()) {
        on_events(id->second, events[static_cast<std::size_t>(i)].events, now);
      }
    }
  }
  [[nodiscard]] std::size_t open() const { return streams_.size(); }

 private:
  struct Stream {
    UniqueFd socket{};
    GhostId ghost = no_ghost;
    std::uint16_t port = 0;
    IpAddress peer{};
    ghost::StreamUser* user = nullptr;
    bool opened = false;
    std::string unsent{};
  };

  static sockaddr_in address(const IpAddress& ip, std::uint16_t port) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_port = htons(port);
    out.sin_addr.s_addr = htonl(ip.v4_value());
    return out;
  }
  void watch(int fd, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) {
      epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
    }
  }
  ghost::StreamId add(Stream stream, std::uint32_t events) {
    const auto id = static_cast<ghost::StreamId>(++last_);
    const int one = 1;
    setsockopt(stream.socket.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    ids_[stream.socket.get()] = id;
    watch(stream.socket.get(), events);
    streams_.emplace(id, std::move(stream));
    return id;
  }
  void forget(ghost::StreamId id) {
    const auto found = streams_.find(id);
    ids_.erase(found->second.socket.get());
    streams_.erase(found);
  }
  void accept(int listener, std::uint16_t port, Instant now) {
    while (true) {
      sockaddr_in peer{};
      socklen_t size = sizeof peer;
      UniqueFd fd(accept4(listener, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_NONBLOCK));
      if (!fd) {
        return;
      }
      sockaddr_in own{};
      size = sizeof own;
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size);
      const GhostId ghost = directory_.by_ip(IpAddress::v4(ntohl(own.sin_addr.s_addr)));
      const auto user = users_.find({ghost, port});
      if (user == users_.end()) {
        continue;
      }
      const IpAddress from = IpAddress::v4(ntohl(peer.sin_addr.s_addr));
      Stream stream{std::move(fd), ghost, port, from, user->second, true};
      const ghost::StreamId id = add(std::move(stream), EPOLLIN);
      user->second->on_open(id, ghost, port, from, now);
    }
  }
  void flush(ghost::StreamId id) {
    Stream& stream = streams_.at(id);
    if (!stream.opened) {
      return;
    }
    const ssize_t sent = ::send(stream.socket.get(), stream.unsent.data(), stream.unsent.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      stream.unsent.erase(0, static_cast<std::size_t>(sent));
    }
    const bool broken = sent < 0 && errno != EAGAIN;
    if (stream.user == nullptr && (stream.unsent.empty() || broken)) {
      forget(id);
      return;
    }
    watch(stream.socket.get(), stream.unsent.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
  }
  void on_events(ghost::StreamId id, std::uint32_t events, Instant now) {
    Stream& stream = streams_.at(id);
    if (!stream.opened) {
      int error = 0;
      socklen_t size = sizeof error;
      getsockopt(stream.socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) {
        gone(id, now);
        return;
      }
      stream.opened = true;
      watch(stream.socket.get(), EPOLLIN);
      if (stream.user != nullptr) {
        stream.user->on_open(id, stream.ghost, stream.port, stream.peer, now);
      }
      return;
    }
    if ((events & EPOLLOUT) != 0) {
      flush(id);
    }
    std::array<std::byte, 65536> buffer{};
    while (streams_.contains(id)) {
      const ssize_t size = ::recv(streams_.at(id).socket.get(), buffer.data(), buffer.size(), 0);
      if (size < 0 && errno == EAGAIN) {
        return;
      }
      if (size <= 0) {
        gone(id, now);
        return;
      }
      if (ghost::StreamUser* user = streams_.at(id).user; user != nullptr) {
        user->on_bytes(id, ConstBytes(buffer).first(static_cast<std::size_t>(size)), now);
      }
    }
  }
  void gone(ghost::StreamId id, Instant now) {
    ghost::StreamUser* user = streams_.at(id).user;
    forget(id);
    if (user != nullptr) {
      user->on_close(id, now);
    }
  }

  const ghost::Directory& directory_;
  UniqueFd epoll_;
  std::uint32_t last_ = 0;
  std::map<std::uint16_t, UniqueFd> listeners_;
  std::unordered_map<int, std::uint16_t> ports_;
  std::map<std::pair<GhostId, std::uint16_t>, ghost::StreamUser*> users_;
  std::unordered_map<int, ghost::StreamId> ids_;
  std::unordered_map<ghost::StreamId, Stream> streams_;
};

}  // namespace nbx::test
