#include "fabric/corrupt.hpp"

#include <algorithm>
#include <array>

#include "wire/icrc.hpp"

namespace nbx::fabric {
namespace {

constexpr std::uint32_t ethernet_header_size = 14;

std::uint32_t pick_between(std::uint32_t first_byte, std::uint32_t end_byte, Rng& rng) noexcept {
  return first_byte * 8 + static_cast<std::uint32_t>(rng.below((end_byte - first_byte) * 8));
}

std::uint32_t pick_header_bit(const wire::Parsed& p, Rng& rng) noexcept {
  struct Run {
    std::uint32_t first_bit;
    std::uint32_t bits;
  };
  const std::uint32_t udp = p.l4_offset;
  const std::uint32_t bth = p.bth_offset;
  const std::array runs{
      Run{udp * 8, 16},           // source port
      Run{(bth + 1) * 8 + 6, 2},  // SE and MigReq, the upper bits of their byte
      Run{(bth + 2) * 8, 16},     // P_Key
      Run{(bth + 5) * 8, 7 * 8},  // destination QP, AckReq and reserved bits, PSN
  };
  auto n = static_cast<std::uint32_t>(rng.below(16 + 2 + 16 + 7 * 8));
  const Run* run = runs.begin();
  for (; n >= run->bits; ++run) {
    n -= run->bits;
  }
  return run->first_bit + n;
}

}  // namespace

std::optional<std::uint32_t> pick_bit(const Frame& frame, CorruptTarget target, Rng& rng) noexcept {
  const wire::Parsed& p = frame.parsed;
  if (p.kind != wire::FrameKind::roce_v2) {
    const std::uint32_t first = std::max<std::uint32_t>(p.l3_offset, ethernet_header_size);
    if (frame.size <= first) {
      return std::nullopt;
    }
    return pick_between(first, frame.size, rng);
  }
  const std::uint32_t extension = p.bth_offset + std::uint32_t{sizeof(wire::Bth)};
  if (target == CorruptTarget::payload && p.payload_size != 0) {
    return pick_between(p.payload_offset, std::uint32_t{p.payload_offset} + p.payload_size, rng);
  }
  if (target == CorruptTarget::payload && p.payload_offset > extension) {
    return pick_between(extension, p.payload_offset, rng);
  }
  return pick_header_bit(p, rng);
}

void flip_bit(Frame& frame, std::uint32_t bit) noexcept {
  frame.data[bit / 8] ^= std::byte{static_cast<std::uint8_t>(1U << bit % 8)};
}

void repair_icrc(Frame& frame) noexcept {
  const wire::Parsed& p = frame.parsed;
  if (p.kind == wire::FrameKind::roce_v2) {
    constexpr std::uint32_t icrc_size = 4;
    const std::uint32_t end = p.end_offset - icrc_size;
    wire::store_icrc(frame.bytes(), end, wire::icrc(frame.bytes(), p.l3_offset, p.bth_offset, end, p.ipv6));
  }
}

}  // namespace nbx::fabric
