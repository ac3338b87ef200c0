// IpAddress and port as the kernel's sockets want them.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>

#include "base/net.hpp"

namespace nbx::nccl::plugin {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  [[nodiscard]] sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
};

struct PeerAddress {
  IpAddress address;
  std::uint16_t port = 0;
};

[[nodiscard]] inline SocketAddress socket_address(const IpAddress& address, std::uint16_t port) noexcept {
  SocketAddress result;
  if (address.is_v4()) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    in.sin_addr.s_addr = htonl(address.v4_value());
    std::memcpy(&result.storage, &in, sizeof in);
    result.size = sizeof in;
  } else {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(port);
    std::memcpy(&in.sin6_addr, address.octets.data(), address.octets.size());
    std::memcpy(&result.storage, &in, sizeof in);
    result.size = sizeof in;
  }
  return result;
}

[[nodiscard]] inline PeerAddress split_address(const SocketAddress& name) noexcept {
  if (name.storage.ss_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &name.storage, sizeof in);
    return {IpAddress::v4(ntohl(in.sin_addr.s_addr)), ntohs(in.sin_port)};
  }
  sockaddr_in6 in{};
  std::memcpy(&in, &name.storage, sizeof in);
  PeerAddress result{.address = {}, .port = ntohs(in.sin6_port)};
  std::memcpy(result.address.octets.data(), &in.sin6_addr, result.address.octets.size());
  return result;
}

}  // namespace nbx::nccl::plugin
