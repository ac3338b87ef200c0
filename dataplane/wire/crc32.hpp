// CRC-32 of Ethernet (reflected 0x04C11DB7) by the fastest way that the CPU has.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.hpp"

namespace nbx::wire {

/// CRC-32 continued from `state` (start with 0xffffffff, complement at the end).
[[nodiscard]] std::uint32_t crc32_update(std::uint32_t state, ConstBytes data) noexcept;

/// The state behind whole blocks, first those of `head`, at least one, then those of `rest`, from state 0. Zeros in
/// front of a message do not change its CRC from state 0, so a message of any length fills blocks from the right; a
/// state at its start is an exclusive or with its first four bytes.
inline constexpr std::size_t crc32_block = 64;
[[nodiscard]] std::uint32_t crc32_of_blocks(const std::byte* head, std::size_t head_blocks, const std::byte* rest,
                                            std::size_t rest_blocks) noexcept;

/// One way to compute crc32_of_blocks().
struct Crc32Way {
  const char* name;
  bool (*usable)() noexcept;
  std::uint32_t (*of_blocks)(const std::byte* head, std::size_t head_blocks, const std::byte* rest,
                             std::size_t rest_blocks) noexcept;
};
/// The fastest first; the last one is always usable.
[[nodiscard]] std::span<const Crc32Way> crc32_ways() noexcept;
[[nodiscard]] const Crc32Way& crc32_way() noexcept;
/// crc32_update() by a way of the caller's choice.
[[nodiscard]] std::uint32_t crc32_update(const Crc32Way& way, std::uint32_t state, ConstBytes data) noexcept;

}  // namespace nbx::wire
