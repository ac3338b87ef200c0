#include "nccl-glue/announce/connection.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <thread>

namespace nbx::nccl::announce {
namespace {

using Clock = std::chrono::steady_clock;

/// Whether the socket is ready for `events` before the deadline.
bool wait_for(int fd, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd poller{fd, events, 0};
    const int ready = poll(&poller, 1, static_cast<int>(std::max<decltype(left)>(left, 0)));
    if (ready >= 0 || errno != EINTR) {
      return ready > 0;
    }
  }
}

/// 0, or why this address cannot be reached.
int connect_before(int fd, const addrinfo& address, Clock::time_point deadline) {
  if (connect(fd, address.ai_addr, address.ai_addrlen) == 0) {
    return 0;
  }
  if (errno != EINPROGRESS) {
    return errno;
  }
  if (!wait_for(fd, POLLOUT, deadline)) {
    return ETIMEDOUT;
  }
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

/// Records are small and wanted now; and a peer whose host vanished must not hold the program for ever,
/// though NCCL itself bears a network that is away for half a minute.
void set_options(int fd, std::chrono::milliseconds timeout) {
  const auto set = [fd](int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof value); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 5);
  const timeval bound{.tv_sec = static_cast<time_t>(timeout.count() / 1000), .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof bound);
}

Result<UniqueFd> dial(const Settings& settings, Clock::time_point deadline) {
  const addrinfo hints{.ai_flags = AI_ADDRCONFIG,
                       .ai_family = AF_UNSPEC,
                       .ai_socktype = SOCK_STREAM,
                       .ai_protocol = 0,
                       .ai_addrlen = 0,
                       .ai_addr = nullptr,
                       .ai_canonname = nullptr,
                       .ai_next = nullptr};
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(settings.host.c_str(), settings.port.c_str(), &hints, &found); error != 0) {
    return Error{gai_strerror(error)};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
  int error = 0;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    UniqueFd fd(socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) {
      error = errno;
      continue;
    }
    error = connect_before(fd.get(), *address, deadline);
    if (error == 0) {
      fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
      set_options(fd.get(), settings.timeout);
      return fd;
    }
  }
  return Error{std::string(std::strerror(error)) + (error == ECONNREFUSED ? "; is nbxd running there?" : "")};
}

}  // namespace

Result<std::shared_ptr<Connection>> Connection::open(const Settings& settings, const Hello& hello) {
  const std::string peer = settings.host + ":" + settings.port;
  const Clock::time_point deadline = Clock::now() + settings.timeout;
  Result<UniqueFd> socket = dial(settings, deadline);
  if (!socket) {
    return Error{"no connection to the ghosts at " + peer + ": " + socket.error().message};
  }
  std::shared_ptr<Connection> connection(new Connection(*std::move(socket), peer));
  connection->send(encode(Kind::hello, hello));
  if (!wait_for(connection->socket_.get(), POLLIN, deadline)) {
    return Error{"no welcome from the ghosts at " + peer + " within " + std::to_string(settings.timeout.count()) +
                 " ms (NBX_ANNOUNCE_TIMEOUT)"};
  }
  const Result<Record> answer = connection->receive();
  if (!answer) {
    return answer.error();
  }
  if (answer->kind == Kind::failure) {
    return Error{answer->text()};
  }
  if (answer->kind != Kind::welcome) {
    return Error{"the ghosts at " + peer + " answered hello with something else than a welcome"};
  }
  return connection;
}

Result<Record> Connection::receive() {
  for (;;) {
    const Result<std::optional<Record>> record = decoder_.next();
    if (!record) {
      return Error{record.error().message + ", from the ghosts at " + peer_};
    }
    if (record->has_value()) {
      return **record;
    }
    std::array<std::byte, record_size_max> buffer;
    const ssize_t size = recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (size == 0) {
      return Error{"the ghosts at " + peer_ + " closed the connection: nbxd has ended"};
    }
    if (size < 0 && errno != EINTR) {
      return Error{"the connection to the ghosts at " + peer_ + " broke: " + std::strerror(errno)};
    }
    decoder_.feed(ConstBytes(buffer).first(size < 0 ? 0 : static_cast<std::size_t>(size)));
  }
}

void Connection::listen(std::function<void(bool failure, const std::string& why)> ended) {
  std::thread([self = shared_from_this(), ended = std::move(ended)] {
    for (;;) {
      const Result<Record> record = self->receive();
      if (!record) {
        return ended(false, record.error().message);
      }
      if (record->kind == Kind::failure) {
        return ended(true, record->text());
      }
    }
  }).detach();
}

void Connection::send(ConstBytes records) {
  const std::lock_guard lock(sending_);
  while (!records.empty()) {
    const ssize_t size = ::send(socket_.get(), records.data(), records.size(), MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) {
      continue;
    }
    if (size < 0) {
      shutdown(socket_.get(), SHUT_RDWR);  // half a record may be out: the listener reports the end
      return;
    }
    records = records.subspan(static_cast<std::size_t>(size));
  }
}

}  // namespace nbx::nccl::announce
