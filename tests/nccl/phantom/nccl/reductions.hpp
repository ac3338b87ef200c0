// Reductions on host memory: what a device function does to one element.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace phantom::nccl {

// 16-bit brain float, arithmetic through float.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  BFloat16(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    bits = f != f ? 0x7fff : uint16_t((u + 0x7fff + ((u >> 16) & 1)) >> 16);  // round to nearest even
  }
  operator float() const {
    const uint32_t u = uint32_t(bits) << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
  }
};

template <class T>
T arg_as(uint64_t arg) {
  T t;
  memcpy(static_cast<void*>(&t), &arg, sizeof t);
  return t;
}

template <class T>
struct OpBase {
  explicit OpBase(uint64_t) {}
  T pre(T x) const { return x; }   // on this rank's own input
  T post(T x) const { return x; }  // on the final value
};
template <class T>
struct OpSum : OpBase<T> {
  using OpBase<T>::OpBase;
  T combine(T a, T b) const { return T(a + b); }
};
template <class T>
struct OpProd : OpBase<T> {
  using OpBase<T>::OpBase;
  T combine(T a, T b) const { return T(a * b); }
};
// Integers: the smaller after xor with a mask that encodes signedness and min or max.
// Floating point: the mask's low bit tells max from min.
template <class T>
struct OpMinMax : OpBase<T> {
  uint64_t mask;
  explicit OpMinMax(uint64_t arg) : OpBase<T>(arg), mask(arg) {}
  T combine(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return U(U(a) ^ U(mask)) < U(U(b) ^ U(mask)) ? a : b;
    } else {
      if (a != a) return b;
      if (b != b) return a;
      return (mask & 1) ? (a > b ? a : b) : (a < b ? a : b);
    }
  }
};
template <class T>
struct OpPreMulSum : OpBase<T> {
  T scalar;
  explicit OpPreMulSum(uint64_t arg) : OpBase<T>(arg), scalar(arg_as<T>(arg)) {}
  T pre(T x) const { return T(x * scalar); }
  T combine(T a, T b) const { return T(a + b); }
};
template <class T>
struct OpSumPostDiv : OpBase<T> {
  uint64_t arg;
  explicit OpSumPostDiv(uint64_t a) : OpBase<T>(a), arg(a) {}
  T combine(T a, T b) const { return T(a + b); }
  T post(T x) const {
    if constexpr (std::is_integral_v<T>) {
      const auto divisor = int64_t(arg >> 1);
      if (arg & 1) return T(std::make_signed_t<T>(x) / divisor);
      return T(std::make_unsigned_t<T>(x) / uint64_t(divisor));
    }
    return x;
  }
};

}  // namespace phantom::nccl
