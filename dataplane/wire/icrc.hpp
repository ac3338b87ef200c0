// The invariant CRC of RoCEv2 (IBTA 7.8.1 and A17.3.3): CRC-32 of Ethernet over the packet from the IP header to the
// last byte before the ICRC, fields that routers change taken as ones, with eight bytes of ones in front.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"

namespace nbx::wire {

/// The ICRC of the packet whose IP header is at `l3_offset` and BTH at `bth_offset`, and which ends (without its
/// ICRC) at `end`. The value to store little-endian behind `end`.
[[nodiscard]] std::uint32_t icrc(ConstBytes frame, std::size_t l3_offset, std::size_t bth_offset, std::size_t end,
                                 bool ipv6) noexcept;

/// The ICRC as it lies in a frame, little-endian behind `end`.
[[nodiscard]] std::uint32_t load_icrc(ConstBytes frame, std::size_t end) noexcept;
void store_icrc(MutableBytes frame, std::size_t end, std::uint32_t value) noexcept;

}  // namespace nbx::wire
