// CRC-32 eight bytes at a time by table, or 64 or 256 at a time by carry-less multiplication where the CPU has it
// (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ"). All constants derive from the
// polynomial.
#include "wire/crc32.hpp"

#include <array>
#include <bit>
#include <cstring>

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

std::uint32_t load_le32(const std::byte* p) noexcept {
  std::uint32_t v = 0;
  std::memcpy(&v, p, sizeof v);
  return std::endian::native == std::endian::little ? v : __builtin_bswap32(v);
}

void store_le32(std::byte* p, std::uint32_t v) noexcept {
  v = std::endian::native == std::endian::little ? v : __builtin_bswap32(v);
  std::memcpy(p, &v, sizeof v);
}

std::uint32_t by_table(std::uint32_t state, const std::byte* p, std::size_t n) noexcept {
  for (; n >= 8; n -= 8, p += 8) {
    const std::uint32_t a = state ^ load_le32(p);
    const std::uint32_t b = load_le32(p + 4);
    state = tables[7][a & 0xffU] ^ tables[6][(a >> 8U) & 0xffU] ^ tables[5][(a >> 16U) & 0xffU] ^ tables[4][a >> 24U] ^
            tables[3][b & 0xffU] ^ tables[2][(b >> 8U) & 0xffU] ^ tables[1][(b >> 16U) & 0xffU] ^ tables[0][b >> 24U];
  }
  for (; n > 0; --n, ++p) {
    state = (state >> 8U) ^ tables[0][(state ^ std::to_integer<std::uint8_t>(*p)) & 0xffU];
  }
  return state;
}

bool always() noexcept { return true; }

std::uint32_t of_blocks_by_table(const std::byte* head, std::size_t head_blocks, const std::byte* rest,
                                 std::size_t rest_blocks) noexcept {
  return by_table(by_table(0, head, head_blocks * crc32_block), rest, rest_blocks * crc32_block);
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

// A fold by d bits multiplies the low half by x^(d+32) and the high half by x^(d-32) (32: the CRC's own width).
template <unsigned distance>
constexpr std::array<std::uint64_t, 2> fold_by{fold_constant(distance + 32), fold_constant(distance - 32)};

#define NBX_PCLMUL __attribute__((target("pclmul,sse4.1")))
#define NBX_VPCLMUL __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1")))

__m128i load128(const void* p) {
  __m128i v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

/// `x` moved ahead by the distance that `k` stands for, onto `y`.
NBX_PCLMUL inline __m128i fold(__m128i x, __m128i k, __m128i y) {
  const __m128i low = _mm_clmulepi64_si128(x, k, 0x00);
  const __m128i high = _mm_clmulepi64_si128(x, k, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), y);
}

/// Of 64 bytes in four registers, which are a message with the same remainder.
NBX_PCLMUL inline std::uint32_t reduce(__m128i x0, __m128i x1, __m128i x2, __m128i x3) {
  const __m128i by_128 = load128(fold_by<128>.data());
  const __m128i x = fold(fold(fold(x0, by_128, x1), by_128, x2), by_128, x3);
  std::array<std::byte, sizeof x> rest;
  std::memcpy(rest.data(), &x, rest.size());
  return by_table(0, rest.data(), rest.size());
}

bool has_pclmul() noexcept {
  __builtin_cpu_init();
  return __builtin_cpu_supports("pclmul") != 0 && __builtin_cpu_supports("sse4.1") != 0;
}

NBX_PCLMUL std::uint32_t of_blocks_by_pclmul(const std::byte* head, std::size_t head_blocks, const std::byte* rest,
                                             std::size_t rest_blocks) noexcept {
  const __m128i by_512 = load128(fold_by<512>.data());
  __m128i x0 = load128(head);
  __m128i x1 = load128(head + 16);
  __m128i x2 = load128(head + 32);
  __m128i x3 = load128(head + 48);
  const auto fold_in = [&](const std::byte* p, std::size_t blocks) NBX_PCLMUL {
    for (; blocks != 0; --blocks, p += crc32_block) {
      x0 = fold(x0, by_512, load128(p));
      x1 = fold(x1, by_512, load128(p + 16));
      x2 = fold(x2, by_512, load128(p + 32));
      x3 = fold(x3, by_512, load128(p + 48));
    }
  };
  fold_in(head + crc32_block, head_blocks - 1);
  fold_in(rest, rest_blocks);
  return reduce(x0, x1, x2, x3);
}

bool has_vpclmul() noexcept {
  return has_pclmul() && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("vpclmulqdq") != 0;
}

NBX_VPCLMUL inline __m512i fold(__m512i x, __m512i k, __m512i y) {
  constexpr int exclusive_or_of_three = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, k, 0x00), _mm512_clmulepi64_epi128(x, k, 0x11), y,
                                   exclusive_or_of_three);
}

NBX_VPCLMUL inline __m512i repeated(const std::array<std::uint64_t, 2>& k) {
  const auto low = static_cast<long long>(k[0]);
  const auto high = static_cast<long long>(k[1]);
  return _mm512_set_epi64(high, low, high, low, high, low, high, low);
}

NBX_VPCLMUL std::uint32_t of_blocks_by_vpclmul(const std::byte* head, std::size_t head_blocks, const std::byte* rest,
                                               std::size_t rest_blocks) noexcept {
  constexpr std::size_t lanes = 4;
  const __m512i by_512 = repeated(fold_by<512>);
  const __m512i by_2048 = repeated(fold_by<2048>);
  __m512i x = _mm512_loadu_si512(head);
  for (std::size_t i = 1; i < head_blocks; ++i) {
    x = fold(x, by_512, _mm512_loadu_si512(head + i * crc32_block));
  }
  if (rest_blocks >= lanes) {
    __m512i x0 = fold(x, by_512, _mm512_loadu_si512(rest));
    __m512i x1 = _mm512_loadu_si512(rest + crc32_block);
    __m512i x2 = _mm512_loadu_si512(rest + 2 * crc32_block);
    __m512i x3 = _mm512_loadu_si512(rest + 3 * crc32_block);
    for (rest += lanes * crc32_block, rest_blocks -= lanes; rest_blocks >= lanes;
         rest += lanes * crc32_block, rest_blocks -= lanes) {
      x0 = fold(x0, by_2048, _mm512_loadu_si512(rest));
      x1 = fold(x1, by_2048, _mm512_loadu_si512(rest + crc32_block));
      x2 = fold(x2, by_2048, _mm512_loadu_si512(rest + 2 * crc32_block));
      x3 = fold(x3, by_2048, _mm512_loadu_si512(rest + 3 * crc32_block));
    }
    x = fold(fold(fold(x0, by_512, x1), by_512, x2), by_512, x3);
  }
  for (; rest_blocks != 0; --rest_blocks, rest += crc32_block) {
    x = fold(x, by_512, _mm512_loadu_si512(rest));
  }
  std::array<std::byte, sizeof x> last;
  _mm512_storeu_si512(last.data(), x);
  return reduce(load128(last.data()), load128(last.data() + 16), load128(last.data() + 32), load128(last.data() + 48));
}
#endif

constexpr Crc32Way ways[] = {
#if defined(__x86_64__)
    {"VPCLMULQDQ", has_vpclmul, of_blocks_by_vpclmul},
    {"PCLMULQDQ", has_pclmul, of_blocks_by_pclmul},
#endif
    {"table", always, of_blocks_by_table},
};

const Crc32Way& fastest = *[] {
  const Crc32Way* way = ways;
  while (!way->usable()) {
    ++way;
  }
  return way;
}();

}  // namespace

std::span<const Crc32Way> crc32_ways() noexcept { return ways; }
const Crc32Way& crc32_way() noexcept { return fastest; }

std::uint32_t crc32_of_blocks(const std::byte* head, std::size_t head_blocks, const std::byte* rest,
                              std::size_t rest_blocks) noexcept {
  return fastest.of_blocks(head, head_blocks, rest, rest_blocks);
}

std::uint32_t crc32_update(const Crc32Way& way, std::uint32_t state, ConstBytes data) noexcept {
  if (data.size() < crc32_block) {
    return by_table(state, data.data(), data.size());
  }
  const std::size_t lead = (data.size() - sizeof state) % crc32_block + sizeof state;  // the state falls on these bytes
  alignas(crc32_block) std::array<std::byte, 2 * crc32_block> head{};
  std::byte* start = head.data() + head.size() - lead;
  std::memcpy(start, data.data(), lead);
  store_le32(start, load_le32(start) ^ state);
  const std::size_t blocks = (lead + crc32_block - 1) / crc32_block;
  return way.of_blocks(head.data() + head.size() - blocks * crc32_block, blocks, data.data() + lead,
                       (data.size() - lead) / crc32_block);
}

std::uint32_t crc32_update(std::uint32_t state, ConstBytes data) noexcept { return crc32_update(fastest, state, data); }

}  // namespace nbx::wire
