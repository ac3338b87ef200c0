#include "nccl-glue/plan/data.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace nbx::nccl {

namespace {

/// Storage of the 16-bit types. They are computed in f32 and rounded once per operation, to nearest, ties to even;
/// f32 has enough bits more that this equals rounding the exact sum or product.
struct F16 {
  std::uint16_t bits;
};
struct Bf16 {
  std::uint16_t bits;
};

float widen(F16 v) {
  constexpr float smallest_step = 0x1p-24F;  // of subnormal numbers
  const std::uint32_t sign = (v.bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (v.bits >> 10U) & 0x1fU;
  const std::uint32_t fraction = v.bits & 0x3ffU;
  if (exponent == 0) {
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(static_cast<float>(fraction) * smallest_step));
  }
  const std::uint32_t wide = exponent == 0x1f ? 0xffU : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23U) | (fraction << 13U));
}

F16 narrow_f16(float v) {
  const auto bits = std::bit_cast<std::uint32_t>(v);
  const auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {
    return {static_cast<std::uint16_t>(sign | 0x7fffU)};
  }
  if (magnitude >= 0x477ff000U) {  // 65520, half-way to what would be 65536
    return {static_cast<std::uint16_t>(sign | 0x7c00U)};
  }
  if (magnitude < 0x38800000U) {  // below 2^-14: a multiple of 2^-24, which adding 1/2 makes f32 round to
    const float rounded = std::bit_cast<float>(magnitude) + 0.5F;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(rounded) - 0x3f000000U))};
  }
  const std::uint32_t to_even = 0xfffU + ((magnitude >> 13U) & 1U);
  return {static_cast<std::uint16_t>(sign | ((magnitude + to_even - (112U << 23U)) >> 13U))};
}

float widen(Bf16 v) { return std::bit_cast<float>(std::uint32_t{v.bits} << 16U); }

Bf16 narrow_bf16(float v) {
  const auto bits = std::bit_cast<std::uint32_t>(v);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    return {0x7fff};
  }
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U)};
}

/// What an element is computed in, and back. Integers wrap around, so they are computed unsigned where it matters.
template <class T>
auto load(T v) {
  if constexpr (std::is_class_v<T>) {
    return widen(v);
  } else {
    return v;
  }
}
template <class T, class V>
T store(V v) {
  if constexpr (std::is_same_v<T, F16>) {
    return narrow_f16(static_cast<float>(v));
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return narrow_bf16(static_cast<float>(v));
  } else {
    return static_cast<T>(v);
  }
}

template <class T>
inline constexpr bool is_integer = std::is_integral_v<T>;

/// Calls f with a value of the element's type.
template <class F>
void with_type(DataType type, F f) {
  switch (type) {
    case DataType::i8:
      return f(std::int8_t{});
    case DataType::u8:
      return f(std::uint8_t{});
    case DataType::i32:
      return f(std::int32_t{});
    case DataType::u32:
      return f(std::uint32_t{});
    case DataType::i64:
      return f(std::int64_t{});
    case DataType::u64:
      return f(std::uint64_t{});
    case DataType::f16:
      return f(F16{});
    case DataType::f32:
      return f(float{});
    case DataType::f64:
      return f(double{});
    case DataType::bf16:
      return f(Bf16{});
  }
}

template <class T>
T get(const std::byte* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

/// dst[e] = f(e, dst[e]) for all elements, as stored.
template <class T, class F>
void for_each_element(MutableBytes dst, F f) {
  for (std::size_t at = 0; at + sizeof(T) <= dst.size(); at += sizeof(T)) {
    const T v = f(at / sizeof(T), get<T>(dst.data() + at));
    std::memcpy(dst.data() + at, &v, sizeof v);
  }
}

template <class T>
T identity(RedOp op) {
  using Limits = std::numeric_limits<decltype(load(T{}))>;
  const auto largest = is_integer<T> ? Limits::max() : Limits::infinity();
  const auto smallest = is_integer<T> ? Limits::lowest() : -Limits::infinity();
  switch (op) {
    case RedOp::sum:
    case RedOp::avg:
      break;
    case RedOp::prod:
      return store<T>(1);
    case RedOp::max:
      return store<T>(smallest);
    case RedOp::min:
      return store<T>(largest);
  }
  return store<T>(0);
}

template <class T>
T add(T a, T b) {
  if constexpr (is_integer<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return store<T>(load(a) + load(b));
  }
}

template <class T>
T multiply(T a, T b) {
  if constexpr (is_integer<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  } else {
    return store<T>(load(a) * load(b));
  }
}

template <class V>
bool is_nan(V v) {
  if constexpr (std::is_floating_point_v<V>) {
    return std::isnan(v);
  } else {
    return false;
  }
}

/// The larger one; of a number and a NaN the number, as on the GPU.
template <class T>
T larger(T a, T b) {
  const auto x = load(a);
  const auto y = load(b);
  return x > y || is_nan(y) ? a : b;
}
template <class T>
T smaller(T a, T b) {
  const auto x = load(a);
  const auto y = load(b);
  return x < y || is_nan(y) ? a : b;
}

template <class T, class F>
void combine(MutableBytes dst, ConstBytes src, F f) {
  for_each_element<T>(dst, [&](std::size_t e, T v) { return f(v, get<T>(src.data() + e * sizeof(T))); });
}

}  // namespace

void fill_identity(MutableBytes dst, DataType type, RedOp op) noexcept {
  with_type(type,
            [&]<class T>(T) { for_each_element<T>(dst, [value = identity<T>(op)](std::size_t, T) { return value; }); });
}

void fill_pattern(MutableBytes dst, DataType type, std::uint32_t rank, std::uint64_t first) noexcept {
  with_type(type, [&]<class T>(T) {
    const std::uint64_t start = first + std::uint64_t{rank} * 31;
    for_each_element<T>(dst, [&](std::size_t e, T) { return store<T>((start + e) % 97 + 1); });
  });
}

void reduce(MutableBytes dst, ConstBytes src, DataType type, RedOp op) noexcept {
  with_type(type, [&]<class T>(T) {
    switch (op) {
      case RedOp::sum:
      case RedOp::avg:
        return combine<T>(dst, src, add<T>);
      case RedOp::prod:
        return combine<T>(dst, src, multiply<T>);
      case RedOp::max:
        return combine<T>(dst, src, larger<T>);
      case RedOp::min:
        return combine<T>(dst, src, smaller<T>);
    }
  });
}

void scale_input(MutableBytes data, DataType type, RedOp op, std::uint32_t ranks) noexcept {
  with_type(type, [&]<class T>(T) {
    if constexpr (!is_integer<T>) {
      if (op == RedOp::avg) {
        const double exact = 1.0 / ranks;
        const T factor = std::is_same_v<T, double> ? store<T>(exact) : store<T>(static_cast<float>(exact));
        for_each_element<T>(data, [&](std::size_t, T v) { return multiply(v, factor); });
      }
    }
  });
}

void divide(MutableBytes data, DataType type, RedOp op, std::uint32_t ranks) noexcept {
  with_type(type, [&]<class T>(T) {
    if constexpr (is_integer<T>) {
      using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
      if (op == RedOp::avg) {
        for_each_element<T>(
            data, [&](std::size_t, T v) { return static_cast<T>(static_cast<Wide>(v) / static_cast<Wide>(ranks)); });
      }
    }
  });
}

}  // namespace nbx::nccl
