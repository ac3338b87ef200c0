// The exception path's two conversions: what a ghost's kernel socket says becomes a frame of that ghost, and a frame
// for such a socket becomes a bare IP packet.
#pragma once

#include <optional>

#include "frame/pool.hpp"
#include "ghost/ghost.hpp"

namespace nbx::pipeline {

struct KernelPacket {
  IpAddress source;
  IpAddress destination;
  bool ipv6 = false;
};

/// The addresses of an IP packet; nullopt when it is none.
[[nodiscard]] std::optional<KernelPacket> describe_kernel_packet(ConstBytes packet) noexcept;

/// `packet` behind an Ethernet header from `self` to `next_hop`, parsed. nullptr when the pool is empty or the packet
/// does not fit a frame.
[[nodiscard]] Frame* frame_from_kernel(ConstBytes packet, const KernelPacket& about, const ghost::Identity& self,
                                       const Mac& next_hop, FramePool& pool) noexcept;

/// Whether the frame is TCP from or to `port`.
[[nodiscard]] bool is_tcp_of(const Frame& frame, std::uint16_t port) noexcept;

/// Strips what is in front of the IP header and behind the IP packet.
void strip_to_ip_packet(Frame& frame) noexcept;

}  // namespace nbx::pipeline
