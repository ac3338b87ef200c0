// RoCEv2 frames written by hand, well-formed or not, with zlib's CRC: what tests hold the parser and builders against.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <vector>

#include "support/hex.hpp"

namespace nbx::test {

struct RawRoce {
  bool ipv6 = false;
  unsigned vlan_tags = 0;  // 0x88a8 outside, 0x8100 inside
  std::uint8_t opcode = 0;
  std::uint8_t flags = 0x40;     // SE, MigReq, PadCnt, TVer
  std::size_t udp_payload = 16;  // BTH to ICRC; may cut either
  bool right_icrc = true;
  std::int64_t udp_length_delta = 0;
  std::int64_t ip_length_delta = 0;
  std::size_t trailing = 0;  // behind the IP packet
};

inline void put16(Bytes& out, std::size_t at, std::uint16_t value) {
  out.at(at) = static_cast<std::byte>(value >> 8U);
  out.at(at + 1) = static_cast<std::byte>(value);
}
inline std::uint16_t get16(const Bytes& in, std::size_t at) {
  return static_cast<std::uint16_t>((std::to_integer<unsigned>(in.at(at)) << 8U) |
                                    std::to_integer<unsigned>(in.at(at + 1)));
}

inline void put_ipv4_checksum(Bytes& frame, std::size_t l3, std::size_t header_size = 20) {
  put16(frame, l3 + 10, 0);
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < header_size; i += 2) {
    sum += get16(frame, l3 + i);
  }
  sum = (sum & 0xffffU) + (sum >> 16U);
  sum = (sum & 0xffffU) + (sum >> 16U);
  put16(frame, l3 + 10, static_cast<std::uint16_t>(~sum));
}

/// The ICRC of the packet that starts with its IP header at `l3` and ends (without ICRC) at `end`.
inline std::uint32_t zlib_icrc(const Bytes& frame, std::size_t l3, std::size_t end, bool ipv6) {
  constexpr std::byte one{0xff};
  Bytes masked(8, one);
  append(masked, ConstBytes{frame}.subspan(l3, end - l3));
  const std::size_t udp = 8 + (ipv6 ? 40U : 4U * (std::to_integer<unsigned>(frame[l3]) & 15U));
  const std::vector<std::size_t> variant =
      ipv6 ? std::vector<std::size_t>{9, 10, 11, 15} : std::vector<std::size_t>{9, 16, 18, 19};
  for (const std::size_t at : variant) {
    masked[at] = one;
  }
  if (ipv6) {
    masked[8] |= std::byte{0x0f};
  }
  masked.at(udp + 6) = masked.at(udp + 7) = one;
  masked.at(udp + 8 + 4) = one;
  return static_cast<std::uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(masked.data()), static_cast<uInt>(masked.size())));
}

inline void put_icrc(Bytes& frame, std::size_t l3, std::size_t end, bool ipv6) {
  const std::uint32_t value = zlib_icrc(frame, l3, end, ipv6);
  for (std::size_t i = 0; i < 4; ++i) {
    frame.at(end + i) = static_cast<std::byte>(value >> (8 * i));
  }
}

inline Bytes make(const RawRoce& r) {
  Bytes frame = from_hex("020000000009 020000000001");
  if (r.vlan_tags == 2) {
    append(frame, from_hex("88a80003"));
  }
  if (r.vlan_tags >= 1) {
    append(frame, from_hex("8100a005"));
  }
  const Bytes ip =
      from_hex(r.ipv6 ? "86dd 60200007 00001140 fd000000000000000000000000000001 fd000000000000000000000000000009"
                      : "0800 45020000 00004000 40110000 0a000001 0a000009");
  append(frame, ip);
  const std::size_t l3 = frame.size() - (r.ipv6 ? 40 : 20);
  const std::size_t udp = frame.size();
  frame.resize(udp + 8 + r.udp_payload);
  put16(frame, udp, 0xc123);
  put16(frame, udp + 2, 4791);
  put16(frame, udp + 4, static_cast<std::uint16_t>(static_cast<std::int64_t>(8 + r.udp_payload) + r.udp_length_delta));
  const std::size_t end = frame.size();
  const std::size_t ip_length = 8 + r.udp_payload + (r.ipv6 ? 0 : 20);
  put16(frame, l3 + (r.ipv6 ? 4 : 2),
        static_cast<std::uint16_t>(static_cast<std::int64_t>(ip_length) + r.ip_length_delta));
  if (!r.ipv6) {
    put_ipv4_checksum(frame, l3);
  }
  const Bytes bth = from_hex("00 00 ffff 00 000011 80 abcdef");
  for (std::size_t i = 0; i < r.udp_payload; ++i) {
    frame[udp + 8 + i] = i < bth.size() ? bth[i] : static_cast<std::byte>(i * 7);
  }
  if (r.udp_payload > 0) {
    frame[udp + 8] = static_cast<std::byte>(r.opcode);
  }
  if (r.udp_payload > 1) {
    frame[udp + 9] = static_cast<std::byte>(r.flags);
  }
  if (r.udp_payload >= 16) {
    put_icrc(frame, l3, end - 4, r.ipv6);
    if (!r.right_icrc) {
      frame[end - 1] ^= std::byte{0x10};
    }
  }
  frame.resize(end + r.trailing, std::byte{0x55});
  return {frame.begin(), frame.end()};  // exactly as large as the frame, so that over-reads show
}

}  // namespace nbx::test
