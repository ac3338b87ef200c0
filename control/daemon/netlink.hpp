// The few rtnetlink requests (man 7 rtnetlink) that set up a network namespace, so that no other program is needed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/net.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace nbx::daemon {

/// Works in the network namespace in which it was opened. Every request waits for the kernel's answer.
class Netlink {
 public:
  static Result<Netlink> open();

  std::optional<Error> set_up(unsigned interface, std::optional<std::uint32_t> mtu);
  /// Without duplicate address detection, so that it is usable at once.
  std::optional<Error> add_address(unsigned interface, const IpAddress& address);
  std::optional<Error> add_default_route(unsigned interface, bool ipv6);

 private:
  explicit Netlink(UniqueFd socket) : socket_(std::move(socket)) {}

  UniqueFd socket_;
};

}  // namespace nbx::daemon
