// Which bit of a frame a corruption flips. The ICRC itself is never touched, so the receiver finds it wrong.
#pragma once

#include <cstdint>
#include <optional>

#include "base/rng.hpp"
#include "fabric/spec.hpp"
#include "frame/frame.hpp"

namespace nbx::fabric {

/// A bit as its number from the first byte of the frame, the low bit of a byte first; nothing when the frame has no
/// byte behind its Ethernet header.
///
/// payload: any bit of the payload; of the extension headers when there is no payload; as `header` when there are
///   neither.
/// header: a bit that the ICRC covers and whose change leaves a packet that parses as far as its ICRC: the UDP source
///   port, and of the BTH SE, MigReq, P_Key, destination QP, AckReq and its reserved bits, PSN. Never the fields that
///   routers change (A17.3.3), nor opcode, pad count and version, which would be caught before the ICRC.
/// Of a frame that is not RoCEv2: any bit behind the Ethernet header, whatever the target.
[[nodiscard]] std::optional<std::uint32_t> pick_bit(const Frame& frame, CorruptTarget target, Rng& rng) noexcept;

void flip_bit(Frame& frame, std::uint32_t bit) noexcept;

/// Makes the ICRC of a RoCEv2 packet fit its bytes.
void repair_icrc(Frame& frame) noexcept;

}  // namespace nbx::fabric
