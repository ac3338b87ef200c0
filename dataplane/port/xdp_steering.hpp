// A port that shares its interface with the kernel (net_af_xdp): what reaches the emulator, and what stays the
// kernel's.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/net.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace nbx::port {

/// The interface of a device string such as "net_af_xdp0,iface=eth0"; nothing for other drivers.
[[nodiscard]] std::optional<std::string> xdp_interface(std::string_view device);

/// Our XDP program as a file that DPDK can load, for as long as this lives.
class XdpProgram {
 public:
  /// An error when `interface` has a program already: there is room for one.
  static Result<XdpProgram> create_for(const std::string& interface);
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  UniqueFd file_;
  std::string path_;
};

/// Tells the program that runs on `interface` its own MAC and the ghosts' addresses: from then on it takes frames.
/// Before, all are the kernel's.
[[nodiscard]] std::optional<Error> steer(const std::string& interface, std::span<const IpAddress> ghosts);

}  // namespace nbx::port
