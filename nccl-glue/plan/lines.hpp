// Payloads of LL and LL128: lines of data with flags, by which the receiver knows that a line is complete. Flag =
// step + 1 of the connection's counter. Functions for Simple copy, so that callers need not ask. Invariant: decode
// undoes encode; every line of a message has its flag.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"
#include "nccl-glue/plan/operation.hpp"

namespace nbx::nccl {

inline constexpr std::uint32_t ll_line = 16;             // 8 bytes of data
inline constexpr std::uint32_t ll128_slice = 2048;       // the unit of LL128: 16 lines of 128 bytes ...
inline constexpr std::uint32_t ll128_slice_data = 1920;  // ... and what they carry

/// Bytes on the wire of `data` bytes.
[[nodiscard]] constexpr std::uint64_t wire_size(Protocol protocol, std::uint64_t data) {
  switch (protocol) {
    case Protocol::ll:
      return (data + 7) / 8 * ll_line;
    case Protocol::ll128:
      return (data + ll128_slice_data - 1) / ll128_slice_data * ll128_slice;
    case Protocol::simple:
      break;
  }
  return data;
}

/// LL only, once in 2^31 steps: the sender of this step sends all lines of the step, data or not, so that no old flag
/// is mistaken for a new one.
[[nodiscard]] constexpr bool sends_whole_step(Protocol protocol, std::uint64_t step) {
  constexpr std::uint64_t clean_mask = 0x7ffffff8;  // NCCL_LL_CLEAN_MASK
  return protocol == Protocol::ll && (step & clean_mask) == clean_mask;
}

/// Fills `lines`, whose size is a multiple of a line (LL) or of ll128_slice and at least wire_size(data.size()); lines
/// beyond the data carry zeros.
void encode(Protocol protocol, ConstBytes data, std::uint64_t step, MutableBytes lines) noexcept;
/// The first data.size() bytes. Does not look at flags.
void decode(Protocol protocol, ConstBytes lines, MutableBytes data) noexcept;
/// Every line carries the flag of `step`.
[[nodiscard]] bool flagged(Protocol protocol, ConstBytes lines, std::uint64_t step) noexcept;
/// Gives every line the flag of `step`; the data stays.
void restamp(Protocol protocol, MutableBytes lines, std::uint64_t step) noexcept;

}  // namespace nbx::nccl
