// Ethernet and IP addresses as values.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace nbx {

struct Mac {
  std::array<std::uint8_t, 6> octets{};

  [[nodiscard]] constexpr bool is_multicast() const { return (octets[0] & 1U) != 0; }
  friend constexpr auto operator<=>(const Mac&, const Mac&) = default;
};
inline constexpr Mac broadcast_mac{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};

/// An IPv4 or IPv6 address; IPv4 is held in its IPv4-mapped form, which is also the RoCEv2 GID (IBTA A17.4.5.2).
struct IpAddress {
  std::array<std::uint8_t, 16> octets{};

  [[nodiscard]] static constexpr IpAddress v4(std::uint32_t host_order) {
    IpAddress a;
    a.octets[10] = a.octets[11] = 0xff;
    a.octets[12] = static_cast<std::uint8_t>(host_order >> 24U);
    a.octets[13] = static_cast<std::uint8_t>(host_order >> 16U);
    a.octets[14] = static_cast<std::uint8_t>(host_order >> 8U);
    a.octets[15] = static_cast<std::uint8_t>(host_order);
    return a;
  }
  [[nodiscard]] constexpr bool is_v4() const {
    for (int i = 0; i < 10; ++i) {
      if (octets[static_cast<std::size_t>(i)] != 0) {
        return false;
      }
    }
    return octets[10] == 0xff && octets[11] == 0xff;
  }
  /// The IPv4 address in host order; meaningful only when is_v4().
  [[nodiscard]] constexpr std::uint32_t v4_value() const {
    return (std::uint32_t{octets[12]} << 24U) | (std::uint32_t{octets[13]} << 16U) | (std::uint32_t{octets[14]} << 8U) |
           octets[15];
  }
  [[nodiscard]] constexpr bool is_unspecified() const { return *this == IpAddress{}; }
  [[nodiscard]] constexpr bool is_link_local_v6() const { return octets[0] == 0xfe && (octets[1] & 0xc0U) == 0x80; }

  friend constexpr auto operator<=>(const IpAddress&, const IpAddress&) = default;
};

/// Hash for open-addressing tables. The last octets, which carry nearly all of the entropy, are the high bits of `lo`:
/// they are folded down before the multiplication, which only carries upwards.
[[nodiscard]] inline std::uint64_t hash_value(const IpAddress& a) {
  std::uint64_t lo = 0;
  std::uint64_t hi = 0;
  std::memcpy(&hi, a.octets.data(), 8);
  std::memcpy(&lo, a.octets.data() + 8, 8);
  std::uint64_t h = lo ^ (hi * 0x9e37'79b9'7f4a'7c15ULL);
  h = (h ^ (h >> 32U)) * 0xff51'afd7'ed55'8ccdULL;
  return h ^ (h >> 32U);
}

[[nodiscard]] std::string to_string(const Mac& m);
[[nodiscard]] std::string to_string(const IpAddress& a);
[[nodiscard]] std::optional<Mac> parse_mac(std::string_view text);
[[nodiscard]] std::optional<IpAddress> parse_ip(std::string_view text);

/// The link-local IPv6 address that Linux derives from a MAC (RFC 4291 appendix A, modified EUI-64).
[[nodiscard]] IpAddress link_local_from_mac(const Mac& m);
/// The solicited-node multicast address of an IPv6 address (RFC 4291 2.7.1).
[[nodiscard]] IpAddress solicited_node(const IpAddress& a);

}  // namespace nbx
