#include "port/kernel_link.hpp"

#include <unistd.h>

namespace nbx::port {

KernelLink::KernelLink(UniqueFd tun, std::size_t mtu) : tun_(std::move(tun)), mtu_(mtu), packet_(new std::byte[mtu]) {}

bool KernelLink::receive(pipeline::Shard& shard, Instant now) noexcept {
  constexpr int packets_per_turn = 32;
  if (!readable_.load(std::memory_order_relaxed)) {
    return false;
  }
  // Cleared before the last read, so that a packet which comes after that read sets it again.
  readable_.store(false, std::memory_order_seq_cst);
  for (int i = 0; i < packets_per_turn; ++i) {
    const ssize_t size = read(tun_.get(), packet_.get(), mtu_);
    if (size <= 0) {
      return i != 0;
    }
    shard.receive_from_kernel({packet_.get(), static_cast<std::size_t>(size)}, now);
  }
  readable_.store(true, std::memory_order_relaxed);
  return true;
}

bool KernelLink::transmit(pipeline::Shard& shard) noexcept {
  FrameList& frames = shard.to_kernel();
  const bool any = !frames.empty();
  while (Frame* frame = frames.pop_front()) {
    if (write(tun_.get(), frame->data, frame->size) < 0) {
      shard.discard(*frame, Drop::exception_path_full);
    } else {
      shard.release(*frame);
    }
  }
  return any;
}

}  // namespace nbx::port
