// Codes of IBTA volume 1 that stand for times and counts.
#pragma once

#include <array>
#include <cstdint>

#include "base/units.hpp"

namespace nbx::rdma {

/// RNR NAK timer field, table 45, in units of 10 us.
inline constexpr std::array<std::uint32_t, 32> rnr_timer_10us = {
    65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
    256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

[[nodiscard]] constexpr Duration rnr_timer(std::uint8_t code) {
  return std::chrono::microseconds{10} * rnr_timer_10us[code & 0x1fU];
}

/// Local ACK timeout, 9.7.6.1.3: the timer must not expire before T = 4.096 us * 2^code and not after 4 T. T is used.
[[nodiscard]] constexpr Duration ack_timeout(std::uint8_t code) {
  return std::chrono::nanoseconds{4096} * (std::int64_t{1} << (code & 0x1fU));
}

/// End-to-end flow control credits, 9.7.7.2: code n of an ACK syndrome stands for so many receives; 31 for none told.
inline constexpr std::array<std::uint32_t, 31> credit_counts = {
    0,   1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,  192,
    256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};

/// The greatest code that does not promise more than `receives`.
[[nodiscard]] constexpr std::uint8_t credit_code(std::uint32_t receives) {
  std::uint8_t code = 0;
  while (code + 1U < credit_counts.size() && credit_counts[code + 1U] <= receives) {
    ++code;
  }
  return code;
}

}  // namespace nbx::rdma
