#include "nccl-glue/announce/scale.hpp"

#include <bit>
#include <cmath>
#include <cstring>

namespace nbx::nccl::announce {
namespace {

template <class T>
std::array<std::byte, 8> image(T value) {
  std::array<std::byte, 8> bytes{};
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

/// IEEE 754 binary16 of a positive factor, to nearest, ties to even; beyond its range: infinity or a subnormal.
std::uint16_t half(double factor) {
  constexpr int mantissa_bits = 10;
  constexpr int bias = 15;
  const int exponent = std::max(std::ilogb(factor), 1 - bias);
  const auto units = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(factor, mantissa_bits - exponent)));
  // A mantissa that rounds up to 2.0 carries into the exponent by itself, as does the hidden bit of a normal number.
  const std::uint32_t bits = (static_cast<std::uint32_t>(exponent + bias - 1) << mantissa_bits) + units;
  constexpr std::uint32_t infinity = 0x7c00;
  return static_cast<std::uint16_t>(std::min(bits, infinity));
}

std::uint16_t bfloat(float factor) {
  const auto bits = std::bit_cast<std::uint32_t>(factor);
  const std::uint32_t odd = (bits >> 16) & 1;
  return static_cast<std::uint16_t>((bits + 0x7fff + odd) >> 16);
}

}  // namespace

std::optional<std::array<std::byte, 8>> scalar(DataType type, double factor) {
  switch (type) {
    case DataType::f16:
      return image(half(factor));
    case DataType::bf16:
      return image(bfloat(static_cast<float>(factor)));
    case DataType::f32:
      return image(static_cast<float>(factor));
    case DataType::f64:
      return image(factor);
    default:
      return std::nullopt;
  }
}

}  // namespace nbx::nccl::announce
