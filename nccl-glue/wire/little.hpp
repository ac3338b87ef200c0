// Integers of C structures as x86-64 and arm64 hold them in memory: little-endian, at given offsets. The caller has
// checked the bounds.
#pragma once

#include <concepts>
#include <cstring>

#include "base/bytes.hpp"

namespace nbx::nccl {

static_assert(std::endian::native == std::endian::little, "memory images of the hosts that NCCL runs on");

template <std::integral T>
[[nodiscard]] T load(ConstBytes bytes, std::size_t at) {
  T value{};
  std::memcpy(&value, bytes.subspan(at, sizeof value).data(), sizeof value);
  return value;
}

template <std::integral T>
void store(MutableBytes bytes, std::size_t at, T value) {
  std::memcpy(bytes.subspan(at, sizeof value).data(), &value, sizeof value);
}

}  // namespace nbx::nccl
