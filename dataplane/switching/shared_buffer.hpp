// The memory of a switch and who may use it: a shared pool with dynamic thresholds (Choudhury and Hahne 1998: a queue
// may hold alpha times what is free), a reserve per ingress port and priority, and headroom for what is still on its
// way when a lossless priority has been paused (IEEE 802.1Q annex N).
//
// A lossless packet is counted where it came in, for that is who can be paused: reserve first, then the pool up to the
// threshold, then headroom. A lossy packet is limited by the queue it goes to, and counted at its ingress like others.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "switching/packet.hpp"

namespace nbx::switching {

struct PriorityBufferSpec {
  bool lossless = false;
  std::int8_t alpha_log2 = 0;           // alpha is 2^n, as in switch chips: -7 ... 3
  std::uint32_t reserved_bytes = 0;     // per ingress port
  std::uint32_t queue_limit_bytes = 0;  // lossy: of an egress queue; 0: none
  // Lossless, per ingress port.
  std::uint32_t headroom_bytes = 0;
  std::uint32_t xoff_bytes = 0;  // pause above; 0: the dynamic threshold
  std::uint32_t xon_bytes = 0;   // resume this far below what pauses
};

struct BufferSpec {
  std::uint64_t size_bytes = 0;  // of the switch, reserves and headroom included
  std::array<PriorityBufferSpec, priorities> priority{};
};

/// Headroom that loses nothing: what arrives until a pause takes effect. The pause waits for a frame that leaves on the
/// same link, travels, waits for a frame of the peer; what was sent meanwhile travels too and waits for `latency`.
[[nodiscard]] constexpr std::uint32_t headroom_for(BitRate rate, Duration propagation, Duration latency,
                                                   std::uint32_t max_frame_bytes) {
  const auto flight = static_cast<std::uint64_t>((2 * propagation + latency).count());
  const auto bytes = static_cast<uint128>(flight) * rate.bits_per_second / 8 / 1'000'000'000'000ULL;
  return static_cast<std::uint32_t>(bytes) + 3 * (max_frame_bytes + ethernet_overhead_bytes);
}

class SharedBuffer {
 public:
  /// Allocates for `ports`. What reserves and headroom leave of the size is the pool; see fits().
  SharedBuffer(const BufferSpec& spec, PortIndex ports);
  /// False: reserves and headroom exceed the size.
  [[nodiscard]] static bool fits(const BufferSpec& spec, PortIndex ports);

  /// Another size. What is held beyond it stays until it leaves.
  void resize(std::uint64_t size_bytes) noexcept;

  /// Takes `packet`, which came in at packet.ingress and goes to a queue of `queued` bytes, or says why not.
  [[nodiscard]] std::optional<SwitchDrop> admit(const Packet& packet, std::uint64_t queued) noexcept;
  /// It has left, or was dropped after all.
  void release(const Packet& packet) noexcept;

  /// Lossless: the peer at `ingress` has to stop, or may go on. Between the two it stays as it is.
  [[nodiscard]] bool above_xoff(PortIndex ingress, unsigned priority) const noexcept;
  [[nodiscard]] bool below_xon(PortIndex ingress, unsigned priority) const noexcept;
  /// Whether `bytes` that stay for ever keep this ingress paused.
  [[nodiscard]] bool holds_pause(unsigned priority, std::uint64_t bytes) const noexcept;

  [[nodiscard]] bool lossless(unsigned priority) const noexcept { return spec_.priority[priority].lossless; }
  [[nodiscard]] std::uint64_t pool_bytes() const noexcept { return pool_size_; }
  [[nodiscard]] std::uint64_t pool_used() const noexcept { return pool_used_; }
  /// Everything held for `ingress` and `priority`, headroom included.
  [[nodiscard]] std::uint64_t held(PortIndex ingress, unsigned priority) const noexcept;
  [[nodiscard]] std::uint64_t headroom_peak(PortIndex ingress, unsigned priority) const noexcept;

 private:
  struct Account {
    std::uint64_t bytes = 0;     // in the reserve and the pool
    std::uint64_t headroom = 0;  // beyond
    std::uint64_t headroom_peak = 0;
  };

  [[nodiscard]] const Account& account(PortIndex ingress, unsigned priority) const noexcept {
    return accounts_[std::size_t{ingress} * priorities + priority];
  }
  [[nodiscard]] Account& account(PortIndex ingress, unsigned priority) noexcept {
    return accounts_[std::size_t{ingress} * priorities + priority];
  }
  [[nodiscard]] std::uint64_t in_pool(const Account& account, unsigned priority) const noexcept;
  [[nodiscard]] std::uint64_t threshold(unsigned priority) const noexcept;
  [[nodiscard]] std::uint64_t xoff(unsigned priority) const noexcept;

  BufferSpec spec_;
  std::uint64_t pool_size_;
  std::uint64_t pool_used_ = 0;
  std::vector<Account> accounts_;  // [ingress][priority]
};

}  // namespace nbx::switching
