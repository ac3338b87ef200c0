// The worker's end of a TUN device: IP packets from and to the kernel's sockets of the ghosts behind one port.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "base/unique_fd.hpp"
#include "pipeline/shard.hpp"

namespace nbx::port {

class KernelLink {
 public:
  /// `tun` is non-blocking and delivers bare IP packets of at most `mtu` bytes.
  KernelLink(UniqueFd tun, std::size_t mtu);

  [[nodiscard]] int fd() const noexcept { return tun_.get(); }
  /// The watcher's: the device has become readable. Without this the worker makes no system call.
  void set_readable() noexcept { readable_.store(true, std::memory_order_release); }

  /// Hands the shard what the kernel sends, a bounded number of packets. True when there was something.
  bool receive(pipeline::Shard& shard, Instant now) noexcept;
  /// Gives the kernel what the shard has for it.
  bool transmit(pipeline::Shard& shard) noexcept;

 private:
  UniqueFd tun_;
  std::atomic<bool> readable_{false};
  std::size_t mtu_;
  std::unique_ptr<std::byte[]> packet_;
};

}  // namespace nbx::port
