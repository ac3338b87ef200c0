// Big-endian integers as byte arrays, and the one place where bytes become a structure. Network-order
// values never leave wire/.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace nbx {

using ConstBytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

template <std::unsigned_integral U>
[[nodiscard]] constexpr U swap_if_little(U v) {
  if constexpr (std::endian::native == std::endian::big || sizeof(U) == 1) {
    return v;
  } else if constexpr (sizeof(U) == 2) {
    return __builtin_bswap16(v);
  } else if constexpr (sizeof(U) == 4) {
    return __builtin_bswap32(v);
  } else {
    return __builtin_bswap64(v);
  }
}

/// An unsigned integer in network byte order, alignment 1.
template <std::unsigned_integral U>
struct Be {
  std::array<std::uint8_t, sizeof(U)> raw;

  [[nodiscard]] constexpr U value() const { return swap_if_little(std::bit_cast<U>(raw)); }
  constexpr void set(U v) { raw = std::bit_cast<decltype(raw)>(swap_if_little(v)); }
  constexpr Be& operator=(U v) {
    set(v);
    return *this;
  }
};

using Be16 = Be<std::uint16_t>;
using Be32 = Be<std::uint32_t>;
using Be64 = Be<std::uint64_t>;

/// A 24-bit unsigned integer in network byte order.
struct Be24 {
  std::array<std::uint8_t, 3> raw;

  [[nodiscard]] constexpr std::uint32_t value() const {
    return (std::uint32_t{raw[0]} << 16U) | (std::uint32_t{raw[1]} << 8U) | raw[2];
  }
  constexpr void set(std::uint32_t v) {
    raw = {static_cast<std::uint8_t>(v >> 16U), static_cast<std::uint8_t>(v >> 8U), static_cast<std::uint8_t>(v)};
  }
  constexpr Be24& operator=(std::uint32_t v) {
    set(v);
    return *this;
  }
};

/// A structure that may lie over bytes of a frame: no alignment, no padding.
template <class T>
concept WireImage = std::is_trivially_copyable_v<T> && alignof(T) == 1 && std::has_unique_object_representations_v<T>;

/// The image at the start of `b`, or nullptr when `b` is too short. With mutable_overlay the only casts from bytes.
template <WireImage T>
[[nodiscard]] const T* overlay(ConstBytes b) noexcept {
  return b.size() < sizeof(T) ? nullptr : reinterpret_cast<const T*>(b.data());
}
template <WireImage T>
[[nodiscard]] T* mutable_overlay(MutableBytes b) noexcept {
  return b.size() < sizeof(T) ? nullptr : reinterpret_cast<T*>(b.data());
}

}  // namespace nbx
