// A process of its own that owns the ghosts' network namespaces: one per port, with a TUN device that carries every
// address of the port's ghosts. It is forked before any thread exists, hands out the TUN devices once and sockets
// made in a namespace on request, and ends with the emulator. As root it only leaves the network namespace; as an
// ordinary user it becomes root of a user namespace that owns nothing else.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/net.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace nbx::daemon {

/// What a port's namespace holds.
struct GhostNetwork {
  std::uint32_t mtu = 1500;
  std::vector<IpAddress> addresses;
};

class Broker {
 public:
  /// Forks. An error when this machine does not allow namespaces or TUN devices; nothing is left then.
  static Result<std::unique_ptr<Broker>> start(const std::vector<GhostNetwork>& networks);
  ~Broker();
  Broker(const Broker&) = delete;
  Broker& operator=(const Broker&) = delete;
  Broker(Broker&&) = delete;
  Broker& operator=(Broker&&) = delete;

  /// The TUN device of a network: non-blocking, bare IP packets. Once per network.
  [[nodiscard]] UniqueFd take_tun(std::size_t network) { return std::move(tuns_[network]); }
  /// A non-blocking IPv6 TCP socket in a network; it takes IPv4 too. From any thread; waits for the broker.
  Result<UniqueFd> tcp_socket(std::size_t network);

 private:
  Broker(pid_t child, UniqueFd channel) : child_(child), channel_(std::move(channel)) {}

  pid_t child_;
  std::mutex mutex_;  // one request at a time
  UniqueFd channel_;
  std::vector<UniqueFd> tuns_;
};

}  // namespace nbx::daemon
