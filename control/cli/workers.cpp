// `nbx workers`: the workers that a PyTorch job waits for and nobody started, in its store.
#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/unique_fd.hpp"
#include "cli/command.hpp"
#include "nccl-glue/store/missing_workers.hpp"

namespace nbx::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Input {
  std::string host = "127.0.0.1";
  std::string port = "29500";
  std::string prefix;
  int missing = 0;
  int wait_s = 60;
};

/// TCP lets a socket connect to its own port, when that is one which the system gives out and nobody listens there yet.
bool is_connected_to_itself(int fd) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_size = sizeof own;
  socklen_t peer_size = sizeof peer;
  return getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 && own_size == peer_size &&
         std::memcmp(&own, &peer, own_size) == 0;
}

/// Closes a socket so that its port is free at once.
void abandon(UniqueFd fd) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

/// One try with every address of the host.
Result<UniqueFd> dial(const Input& input) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(input.host.c_str(), input.port.c_str(), &hints, &found); error != 0) {
    return Error{gai_strerror(error)};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    UniqueFd fd(socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd || connect(fd.get(), address->ai_addr, address->ai_addrlen) != 0) {
      continue;
    }
    if (!is_connected_to_itself(fd.get())) {
      return fd;
    }
    abandon(std::move(fd));
    errno = ECONNREFUSED;
  }
  return Error{std::strerror(errno)};
}

/// The job opens its store some time after it was started.
Result<UniqueFd> dial_patiently(const Input& input) {
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(input.wait_s);
  for (;;) {
    Result<UniqueFd> fd = dial(input);
    if (fd || Clock::now() >= deadline) {
      return fd;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

bool send_all(int fd, ConstBytes bytes) {
  while (!bytes.empty()) {
    const ssize_t size = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (size < 0) {
      return false;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(size));
  }
  return true;
}

/// Until the job ends, which closes its store.
int play(const Input& input) {
  const std::string store = input.host + ":" + input.port;
  const Result<UniqueFd> fd = dial_patiently(input);
  if (!fd) {
    std::cerr << "nbx workers: no store at " << store << " within " << input.wait_s << " s: " << fd.error().message
              << '\n';
    return exit_failed;
  }
  nccl::store::MissingWorkers workers(input.missing, input.prefix);
  std::vector<std::byte> out = workers.start();
  std::array<std::byte, 4096> buffer;
  for (;;) {
    const ssize_t size = send_all(fd->get(), out) ? recv(fd->get(), buffer.data(), buffer.size(), 0) : 0;
    if (size <= 0) {
      std::cout << "nbx workers: the job at " << store << " has ended; " << input.missing
                << " workers were counted in at " << workers.barriers() << " barriers\n";
      return 0;
    }
    Result<std::vector<std::byte>> answer = workers.receive(ConstBytes(buffer).first(static_cast<std::size_t>(size)));
    if (!answer) {
      std::cerr << "nbx workers: " << store << ": " << answer.error().message << '\n';
      return exit_failed;
    }
    out = *std::move(answer);
  }
}

}  // namespace

Body workers(CLI::App& app) {
  auto input = std::make_shared<Input>();
  app.add_option("--missing", input->missing, "workers that nobody started")->required()->check(CLI::PositiveNumber);
  app.add_option("--host", input->host, "of the store")->envname("MASTER_ADDR")->capture_default_str();
  app.add_option("--port", input->port, "of the store")->envname("MASTER_PORT")->capture_default_str();
  app.add_option("--prefix", input->prefix, "before the job's keys, as in /worker/attempt_0 under torchrun's agent");
  app.add_option("--wait", input->wait_s, "seconds until the job must have opened its store")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.footer(
      "For PyTorch 1.13 with init_method env:// or tcp://. It ends with the job.\n"
      "`nbx run --missing-workers` starts it beside the program.\n"
      "Example: nbx workers --missing 63 --host 10.77.0.1");
  return [input] { return play(*input); };
}

}  // namespace nbx::cli
