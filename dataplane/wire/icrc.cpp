#include "wire/icrc.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

#include "wire/crc32.hpp"
#include "wire/ip.hpp"
#include "wire/roce.hpp"

namespace nbx::wire {

std::uint32_t icrc(ConstBytes frame, std::size_t l3_offset, std::size_t bth_offset, std::size_t end,
                   bool ipv6) noexcept {
  constexpr std::size_t ip_header_max = 60;  // IPv4 with options
  constexpr std::size_t headers_max = ip_header_max + sizeof(UdpHeader) + sizeof(Bth);
  // Eight bytes of ones stand for the LRH that RoCEv2 has not (A17.3.3). The CRC's initial state cancels four of them.
  constexpr std::size_t ones_size = 4;
  constexpr std::size_t room = (ones_size + headers_max + 2 * crc32_block - 2) / crc32_block * crc32_block;

  const std::size_t udp = bth_offset - l3_offset - sizeof(UdpHeader);
  const std::size_t headers = std::min(udp + sizeof(UdpHeader) + sizeof(Bth), headers_max);
  // Behind the masked headers come as many bytes as leave whole blocks, which are read where they are.
  const std::size_t behind = end - l3_offset - headers;
  const std::size_t lead = behind % crc32_block;
  const std::size_t size = ones_size + headers + lead;
  alignas(crc32_block) std::array<std::byte, room> front{};
  std::byte* const at = front.data() + room - size;
  std::memset(at, 0xff, ones_size);
  std::byte* const masked = at + ones_size;
  std::memcpy(masked, frame.data() + l3_offset, headers + lead);

  const auto ones = [masked](std::size_t offset, std::size_t n) { std::memset(masked + offset, 0xff, n); };
  if (ipv6) {
    masked[0] |= std::byte{0x0f};  // traffic class and flow label
    ones(1, 3);
    ones(offsetof(Ipv6Header, hop_limit), 1);
  } else {
    ones(offsetof(Ipv4Header, tos), 1);
    ones(offsetof(Ipv4Header, ttl), 1);
    ones(offsetof(Ipv4Header, checksum), 2);
  }
  ones(udp + offsetof(UdpHeader, checksum), 2);
  ones(udp + sizeof(UdpHeader) + offsetof(Bth, ecn), 1);

  const std::size_t blocks = (size + crc32_block - 1) / crc32_block;
  return ~crc32_of_blocks(front.data() + room - blocks * crc32_block, blocks, frame.data() + l3_offset + headers + lead,
                          behind / crc32_block);
}

std::uint32_t load_icrc(ConstBytes frame, std::size_t end) noexcept {
  std::uint32_t v = 0;
  std::memcpy(&v, frame.data() + end, sizeof v);
  return std::endian::native == std::endian::little ? v : __builtin_bswap32(v);
}

void store_icrc(MutableBytes frame, std::size_t end, std::uint32_t value) noexcept {
  for (std::size_t i = 0; i < icrc_size; ++i) {
    frame[end + i] = static_cast<std::byte>(value >> (8U * i));
  }
}

}  // namespace nbx::wire
