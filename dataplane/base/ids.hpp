// Identities and serial numbers as distinct types.
#pragma once

#include <compare>
#include <cstdint>

namespace nbx {

/// Index of a ghost within its shard.
enum class GhostId : std::uint32_t {};
inline constexpr GhostId no_ghost{0xffff'ffff};

/// Index of a port in the cluster file.
enum class PortId : std::uint8_t {};

/// Seen from the port: frames that the real node sent, and frames that it is going to receive.
enum class Direction : std::uint8_t { from_node, to_node };

[[nodiscard]] constexpr std::uint32_t index(GhostId id) { return static_cast<std::uint32_t>(id); }
[[nodiscard]] constexpr std::uint32_t index(PortId id) { return static_cast<std::uint32_t>(id); }

/// A 24-bit queue pair number. 0 and 1 are the SMI and GSI queue pairs (IBTA 10.2.4.4).
struct Qpn {
  std::uint32_t value = 0;
  friend constexpr auto operator<=>(Qpn, Qpn) = default;
};
inline constexpr Qpn gsi_qpn{1};
inline constexpr std::uint32_t mask24 = 0x00ff'ffff;

/// A 24-bit packet sequence number (IBTA 9.7.2). Serial numbers have no order, only a signed distance.
struct Psn {
  std::uint32_t value = 0;

  [[nodiscard]] constexpr Psn plus(std::uint32_t n) const { return {(value + n) & mask24}; }
  [[nodiscard]] constexpr Psn minus(std::uint32_t n) const { return {(value - n) & mask24}; }
  [[nodiscard]] constexpr Psn next() const { return plus(1); }
  [[nodiscard]] constexpr Psn prev() const { return minus(1); }
  /// Signed distance from `other` to this, in [-2^23, 2^23).
  [[nodiscard]] constexpr std::int32_t distance_from(Psn other) const {
    const std::uint32_t d = (value - other.value) & mask24;
    return (d & 0x0080'0000U) != 0 ? static_cast<std::int32_t>(d) - 0x0100'0000 : static_cast<std::int32_t>(d);
  }
  [[nodiscard]] constexpr bool before(Psn other) const { return distance_from(other) < 0; }
  [[nodiscard]] constexpr bool after(Psn other) const { return distance_from(other) > 0; }

  friend constexpr bool operator==(Psn, Psn) = default;
};

}  // namespace nbx
