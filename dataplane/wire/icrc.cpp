// CRC-32 eight bytes at a time by table, or 64 at a time by carry-less multiplication where the CPU has it (Gopal et
// al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ"). All constants derive from the polynomial.
#include "wire/icrc.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

#include "wire/ip.hpp"
#include "wire/roce.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace nbx::wire {
namespace {

constexpr std::uint32_t polynomial = 0xedb8'8320;  // 0x04C11DB7, bits reflected

/// The register `crc`, bit 31 of which is x^0, times x.
constexpr std::uint32_t times_x(std::uint32_t crc) { return (crc >> 1U) ^ ((crc & 1U) != 0 ? polynomial : 0); }

// tables[k][b]: what byte b contributes when k more bytes follow it in the same step.
constexpr auto tables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> t{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) {
      crc = times_x(crc);
    }
    t[0][b] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      t[k][b] = (t[k - 1][b] >> 8U) ^ t[0][t[k - 1][b] & 0xffU];
    }
  }
  return t;
}();

constexpr std::uint32_t step(std::uint32_t crc, std::uint8_t byte) {
  return (crc >> 8U) ^ tables[0][(crc ^ byte) & 0xffU];
}

// The eight bytes of ones stand for the LRH that RoCEv2 has not (A17.3.3).
constexpr std::uint32_t state_behind_ones = [] {
  std::uint32_t crc = 0xffff'ffff;
  for (int i = 0; i < 8; ++i) {
    crc = step(crc, 0xff);
  }
  return crc;
}();

std::uint32_t load_le32(const std::byte* p) noexcept {
  std::uint32_t v = 0;
  std::memcpy(&v, p, sizeof v);
  return std::endian::native == std::endian::little ? v : __builtin_bswap32(v);
}

#if defined(__x86_64__)
/// x^n mod P as a multiplier of reflected operands; the extra shift makes up for the 127-bit product.
constexpr std::uint64_t fold_constant(unsigned n) {
  std::uint32_t crc = 0x8000'0000;  // x^0
  for (unsigned i = 0; i < n; ++i) {
    crc = times_x(crc);
  }
  return std::uint64_t{crc} << 1U;
}

/// `x` moved ahead by the distance that `k` stands for, onto `y`.
__attribute__((target("pclmul,sse4.1"))) inline __m128i fold(__m128i x, __m128i k, __m128i y) {
  const __m128i low = _mm_clmulepi64_si128(x, k, 0x00);
  const __m128i high = _mm_clmulepi64_si128(x, k, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), y);
}

__attribute__((target("pclmul,sse4.1"))) inline __m128i fold_constants(std::uint64_t low, std::uint64_t high) {
  return _mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low));
}

inline __m128i load128(const std::byte* p) {
  __m128i v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
#endif

}  // namespace

namespace detail {

std::uint32_t crc32_table(std::uint32_t state, ConstBytes data) noexcept {
  const std::byte* p = data.data();
  std::size_t n = data.size();
  for (; n >= 8; n -= 8, p += 8) {
    const std::uint32_t a = state ^ load_le32(p);
    const std::uint32_t b = load_le32(p + 4);
    state = tables[7][a & 0xffU] ^ tables[6][(a >> 8U) & 0xffU] ^ tables[5][(a >> 16U) & 0xffU] ^ tables[4][a >> 24U] ^
            tables[3][b & 0xffU] ^ tables[2][(b >> 8U) & 0xffU] ^ tables[1][(b >> 16U) & 0xffU] ^ tables[0][b >> 24U];
  }
  for (; n > 0; --n, ++p) {
    state = step(state, std::to_integer<std::uint8_t>(*p));
  }
  return state;
}

#if defined(__x86_64__)
bool has_carry_less_multiply() noexcept {
  __builtin_cpu_init();
  return __builtin_cpu_supports("pclmul") != 0 && __builtin_cpu_supports("sse4.1") != 0;
}

__attribute__((target("pclmul,sse4.1"))) std::uint32_t crc32_carry_less(std::uint32_t state, ConstBytes data) noexcept {
  constexpr std::size_t lanes = 4;
  constexpr std::size_t block = lanes * sizeof(__m128i);
  if (data.size() < block) {
    return crc32_table(state, data);
  }
  // A fold by d bits multiplies the low half by x^(d+32) and the high half by x^(d-32) (32: the CRC's own width).
  const __m128i by_512 = fold_constants(fold_constant(512 + 32), fold_constant(512 - 32));
  const __m128i by_128 = fold_constants(fold_constant(128 + 32), fold_constant(128 - 32));
  const std::byte* p = data.data();
  std::size_t n = data.size();

  __m128i x0 = _mm_xor_si128(load128(p), _mm_cvtsi32_si128(static_cast<int>(state)));
  __m128i x1 = load128(p + 16);
  __m128i x2 = load128(p + 32);
  __m128i x3 = load128(p + 48);
  for (p += block, n -= block; n >= block; p += block, n -= block) {
    x0 = fold(x0, by_512, load128(p));
    x1 = fold(x1, by_512, load128(p + 16));
    x2 = fold(x2, by_512, load128(p + 32));
    x3 = fold(x3, by_512, load128(p + 48));
  }
  __m128i x = fold(fold(fold(x0, by_128, x1), by_128, x2), by_128, x3);
  for (; n >= 16; p += 16, n -= 16) {
    x = fold(x, by_128, load128(p));
  }
  // The register now is a 16-byte message with the same remainder.
  std::array<std::byte, 16> rest{};
  std::memcpy(rest.data(), &x, rest.size());
  return crc32_table(crc32_table(0, rest), ConstBytes{p, n});
}
#endif

}  // namespace detail

std::uint32_t crc32_update(std::uint32_t state, ConstBytes data) noexcept {
#if defined(__x86_64__)
  static const bool carry_less = detail::has_carry_less_multiply();
  if (carry_less) {
    return detail::crc32_carry_less(state, data);
  }
#endif
  return detail::crc32_table(state, data);
}

std::uint32_t icrc(ConstBytes frame, std::size_t l3_offset, std::size_t bth_offset, std::size_t end,
                   bool ipv6) noexcept {
  constexpr std::size_t ip_header_max = 60;  // IPv4 with options
  std::array<std::byte, ip_header_max + sizeof(UdpHeader) + sizeof(Bth)> masked;
  const std::size_t udp = bth_offset - l3_offset - sizeof(UdpHeader);
  const std::size_t size = std::min(udp + sizeof(UdpHeader) + sizeof(Bth), masked.size());
  std::memcpy(masked.data(), frame.data() + l3_offset, size);
  const auto ones = [&masked](std::size_t at, std::size_t n) { std::memset(masked.data() + at, 0xff, n); };
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

  const std::uint32_t headers = crc32_update(state_behind_ones, ConstBytes{masked.data(), size});
  const std::size_t rest = l3_offset + size;
  return ~crc32_update(headers, frame.subspan(rest, end - rest));
}

std::uint32_t load_icrc(ConstBytes frame, std::size_t end) noexcept { return load_le32(frame.data() + end); }

void store_icrc(MutableBytes frame, std::size_t end, std::uint32_t value) noexcept {
  for (std::size_t i = 0; i < icrc_size; ++i) {
    frame[end + i] = static_cast<std::byte>(value >> (8U * i));
  }
}

}  // namespace nbx::wire
