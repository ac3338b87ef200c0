// The invariant CRC of RoCEv2 (IBTA 7.8.1 and A17.3.3): CRC-32 of Ethernet over the packet from the IP header to the
// last byte before the ICRC, fields that routers change taken as ones, with eight bytes of ones in front.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"

namespace nbx::wire {

/// CRC-32 (reflected 0x04C11DB7) continued from `state` (start with 0xffffffff, complement at the end).
[[nodiscard]] std::uint32_t crc32_update(std::uint32_t state, ConstBytes data) noexcept;

/// The ICRC of the packet whose IP header is at `l3_offset` and BTH at `bth_offset`, and which ends (without its
/// ICRC) at `end`. The value to store little-endian behind `end`.
[[nodiscard]] std::uint32_t icrc(ConstBytes frame, std::size_t l3_offset, std::size_t bth_offset, std::size_t end,
                                 bool ipv6) noexcept;

/// The ICRC as it lies in a frame, little-endian behind `end`.
[[nodiscard]] std::uint32_t load_icrc(ConstBytes frame, std::size_t end) noexcept;
void store_icrc(MutableBytes frame, std::size_t end, std::uint32_t value) noexcept;

namespace detail {
// The two ways to compute crc32_update(), apart so that tests hold one against the other.
[[nodiscard]] std::uint32_t crc32_table(std::uint32_t state, ConstBytes data) noexcept;
#if defined(__x86_64__)
[[nodiscard]] bool has_carry_less_multiply() noexcept;
[[nodiscard]] std::uint32_t crc32_carry_less(std::uint32_t state, ConstBytes data) noexcept;
#endif
}  // namespace detail

}  // namespace nbx::wire
