// What the buffer of one frame takes of memory on a live port, in DPDK's layout but without DPDK: control refuses what
// cannot fit by it, and `port` makes its pools of it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "frame/frame.hpp"

namespace nbx::buffer {

inline constexpr std::uint32_t cache_line = 64;
inline constexpr std::uint32_t header = 128;    // rte_mbuf
inline constexpr std::uint32_t headroom = 128;  // in front of the frame
// Ethernet header, two VLAN tags, FCS where a NIC keeps it, and room for drivers that want their ends aligned.
inline constexpr std::uint32_t link_slack = 64;
inline constexpr std::uint32_t smallest_room = 2048;      // some drivers take nothing below DPDK's usual size
inline constexpr std::uint32_t in_pool = 2 * cache_line;  // the pool's header of an object and its padding
inline constexpr std::uint32_t descriptors = 1024;        // of a device's ring, one for each way
inline constexpr std::uint32_t cached = 256;              // free ones that a thread keeps for itself
/// Buffers of a pool that are no frame's: in the device's rings, in the cache of DPDK (half as many again before it
/// gives back) and in that of the shard's FramePool.
inline constexpr std::uint32_t idle = 2 * descriptors + cached * 3 / 2 + cached;

[[nodiscard]] constexpr std::uint32_t aligned(std::uint32_t bytes) noexcept {
  return (bytes + cache_line - 1) / cache_line * cache_line;
}
inline constexpr std::uint32_t private_size = aligned(sizeof(Frame));

/// Of the largest IP packet.
[[nodiscard]] constexpr std::uint32_t data_room(std::uint32_t mtu) noexcept {
  return aligned(headroom + std::max(mtu + link_slack, smallest_room));
}
[[nodiscard]] constexpr std::uint64_t bytes(std::uint32_t mtu) noexcept {
  return std::uint64_t{header} + private_size + data_room(mtu) + in_pool;
}

}  // namespace nbx::buffer
