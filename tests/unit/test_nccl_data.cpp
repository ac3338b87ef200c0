// Identities, reductions and averages by element type. Expected values of the 16-bit types are worked out in f64 from
// the formats' definitions (IEEE 754 binary16; bfloat16 as the upper half of binary32).
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "nccl-glue/plan/data.hpp"
#include "support/hex.hpp"

namespace nbx::nccl {
namespace {

using test::Bytes;
using test::to_hex;

template <class T>
MutableBytes bytes_of(std::vector<T>& v) {
  return std::as_writable_bytes(std::span(v));
}

template <class T>
std::vector<T> reduced(std::vector<T> a, std::vector<T> b, DataType type, RedOp op) {
  nccl::reduce(bytes_of(a), bytes_of(b), type, op);  // not std::reduce
  return a;
}

/// A 16-bit floating-point format by its two sizes.
struct Format {
  DataType type;
  int exponent_bits;
  int fraction_bits;

  [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }

  [[nodiscard]] double value(std::uint16_t bits) const {
    const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    const int fraction = bits & ((1 << fraction_bits) - 1);
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) {
      return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
    }
    const int significand = exponent == 0 ? fraction : fraction | (1 << fraction_bits);
    return sign * std::ldexp(significand, std::max(exponent, 1) - bias() - fraction_bits);
  }

  /// To nearest, ties to even, by the definition: scale to units of the last place, round, scale back.
  [[nodiscard]] double round(double v) const {
    if (v == 0 || !std::isfinite(v)) {
      return v;
    }
    const int exponent = std::max(std::ilogb(v), 1 - bias());
    const double unit = std::ldexp(1, exponent - fraction_bits);
    const double rounded = std::nearbyint(v / unit) * unit;  // the default mode is to even
    const double too_large = std::ldexp(1, bias() + 1);
    return std::abs(rounded) >= too_large ? std::copysign(std::numeric_limits<double>::infinity(), v) : rounded;
  }
};

constexpr Format f16{DataType::f16, 5, 10};
constexpr Format bf16{DataType::bf16, 8, 7};

class SixteenBits : public testing::TestWithParam<Format> {};

TEST_P(SixteenBits, SumsAndProductsAreRoundedOnce) {
  const Format format = GetParam();
  std::mt19937 random(1);
  std::vector<std::uint16_t> a, b;
  for (std::uint32_t i = 0; i < 65536; ++i) {  // every value once, with another one of any size
    a.push_back(static_cast<std::uint16_t>(i));
    b.push_back(static_cast<std::uint16_t>(random()));
  }
  for (const RedOp op : {RedOp::sum, RedOp::prod, RedOp::max, RedOp::min}) {
    const auto result = reduced(a, b, format.type, op);
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double x = format.value(a[i]);
      const double y = format.value(b[i]);
      double want = 0;
      switch (op) {
        case RedOp::sum:
          want = format.round(x + y);
          break;
        case RedOp::prod:
          want = format.round(x * y);
          break;
        case RedOp::max:
          want = std::fmax(x, y);
          break;
        default:
          want = std::fmin(x, y);
      }
      const double got = format.value(result[i]);
      ASSERT_TRUE(got == want || (std::isnan(got) && std::isnan(want)))
          << x << " and " << y << " give " << got << ", not " << want << ", op " << static_cast<int>(op);
    }
  }
}

TEST_P(SixteenBits, TheIdentityChangesNothing) {
  const Format format = GetParam();
  for (const RedOp op : {RedOp::sum, RedOp::prod, RedOp::max, RedOp::min, RedOp::avg}) {
    std::vector<std::uint16_t> values(65536), identities(65536);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<std::uint16_t>(i);
    }
    fill_identity(bytes_of(identities), format.type, op);
    const auto result = reduced(identities, values, format.type, op);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double value = format.value(values[i]);
      if (!std::isnan(value)) {
        ASSERT_EQ(format.value(result[i]), value);
      }
    }
  }
}

TEST_P(SixteenBits, AnAverageMultipliesByTheRoundedReciprocal) {
  const Format format = GetParam();
  const double third = format.round(1.0 / 3);
  std::vector<std::uint16_t> values(65536);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::uint16_t>(i);
  }
  auto scaled = values;
  scale_input(bytes_of(scaled), format.type, RedOp::avg, 3);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = format.value(values[i]);
    if (!std::isnan(value)) {
      ASSERT_EQ(format.value(scaled[i]), format.round(value * third)) << value;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, SixteenBits, testing::Values(f16, bf16),
                         [](const auto& param) { return param.param.exponent_bits == 5 ? "f16" : "bf16"; });

std::string identity(DataType type, RedOp op) {
  Bytes bytes(2 * type_size(type));
  fill_identity(bytes, type, op);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + type_size(type), bytes.begin() + type_size(type)));
  return to_hex(ConstBytes{bytes}.first(type_size(type)));
}

TEST(Identity, IsTheSmallestForMaxAndTheLargestForMin) {
  EXPECT_EQ(identity(DataType::i8, RedOp::max), "80");
  EXPECT_EQ(identity(DataType::i8, RedOp::min), "7f");
  EXPECT_EQ(identity(DataType::u8, RedOp::max), "00");
  EXPECT_EQ(identity(DataType::u8, RedOp::min), "ff");
  EXPECT_EQ(identity(DataType::i32, RedOp::max), "00000080");
  EXPECT_EQ(identity(DataType::u64, RedOp::min), "ffffffffffffffff");
  EXPECT_EQ(identity(DataType::i64, RedOp::min), "ffffffffffffff7f");
  EXPECT_EQ(identity(DataType::f16, RedOp::max), "00fc");
  EXPECT_EQ(identity(DataType::bf16, RedOp::min), "807f");
  EXPECT_EQ(identity(DataType::f32, RedOp::max), "000080ff");
  EXPECT_EQ(identity(DataType::f64, RedOp::min), "000000000000f07f");
}

TEST(Identity, IsZeroForSumsAndOneForProducts) {
  EXPECT_EQ(identity(DataType::f16, RedOp::sum), "0000");
  EXPECT_EQ(identity(DataType::i32, RedOp::avg), "00000000");
  EXPECT_EQ(identity(DataType::f16, RedOp::prod), "003c");
  EXPECT_EQ(identity(DataType::bf16, RedOp::prod), "803f");
  EXPECT_EQ(identity(DataType::f32, RedOp::prod), "0000803f");
  EXPECT_EQ(identity(DataType::u64, RedOp::prod), "0100000000000000");
}

TEST(Reduce, IntegersWrapAround) {
  EXPECT_EQ(reduced<std::uint8_t>({255, 16}, {2, 17}, DataType::u8, RedOp::sum), (std::vector<std::uint8_t>{1, 33}));
  EXPECT_EQ(reduced<std::uint8_t>({255, 16}, {2, 17}, DataType::u8, RedOp::prod), (std::vector<std::uint8_t>{254, 16}));
  constexpr auto largest = std::numeric_limits<std::int32_t>::max();
  constexpr auto smallest = std::numeric_limits<std::int32_t>::min();
  EXPECT_EQ(reduced<std::int32_t>({largest, 3}, {1, -4}, DataType::i32, RedOp::sum),
            (std::vector<std::int32_t>{smallest, -1}));
  EXPECT_EQ(reduced<std::int64_t>({-3, 5}, {4, -7}, DataType::i64, RedOp::prod), (std::vector<std::int64_t>{-12, -35}));
}

TEST(Reduce, ComparesWithTheTypesSign) {
  EXPECT_EQ(reduced<std::int8_t>({-1, 1}, {1, -1}, DataType::i8, RedOp::max), (std::vector<std::int8_t>{1, 1}));
  EXPECT_EQ(reduced<std::uint8_t>({255, 1}, {1, 255}, DataType::u8, RedOp::min), (std::vector<std::uint8_t>{1, 1}));
  EXPECT_EQ(reduced<double>({-1.5, 2}, {1, -2}, DataType::f64, RedOp::max), (std::vector<double>{1, 2}));
}

TEST(Average, OfIntegersIsRoundedTowardsZeroByTheLastRank) {
  std::vector<std::int32_t> values{7, -7, 6, -8, std::numeric_limits<std::int32_t>::min()};
  divide(bytes_of(values), DataType::i32, RedOp::avg, 3);
  EXPECT_EQ(values, (std::vector<std::int32_t>{2, -2, 2, -2, -715827882}));
  std::vector<std::int8_t> bytes{-128, 127, -1};
  divide(bytes_of(bytes), DataType::i8, RedOp::avg, 2);
  EXPECT_EQ(bytes, (std::vector<std::int8_t>{-64, 63, 0}));
  std::vector<std::uint64_t> wide{~0ULL};
  divide(bytes_of(wide), DataType::u64, RedOp::avg, 2);
  EXPECT_EQ(wide.front(), ~0ULL / 2);
}

TEST(Average, OfFloatingPointIsScaledBefore) {
  std::vector<float> values{3, 1};
  divide(bytes_of(values), DataType::f32, RedOp::avg, 3);
  EXPECT_EQ(values, (std::vector<float>{3, 1}));
  scale_input(bytes_of(values), DataType::f32, RedOp::avg, 3);
  EXPECT_EQ(values, (std::vector<float>{3 * (1.0F / 3), 1.0F / 3}));
}

TEST(Average, OtherOperationsAreLeftAlone) {
  std::vector<std::int32_t> integers{7};
  divide(bytes_of(integers), DataType::i32, RedOp::sum, 3);
  scale_input(bytes_of(integers), DataType::i32, RedOp::avg, 3);
  EXPECT_EQ(integers.front(), 7);
  std::vector<float> floats{7};
  scale_input(bytes_of(floats), DataType::f32, RedOp::sum, 3);
  EXPECT_EQ(floats.front(), 7);
}

TEST(Pattern, DependsOnRankAndPlaceOnly) {
  std::vector<float> whole(1000);
  fill_pattern(bytes_of(whole), DataType::f32, 2, 0);
  EXPECT_EQ(whole[0], 63);
  EXPECT_EQ(whole[34], 97);
  EXPECT_EQ(whole[35], 1);
  std::vector<float> piece(100);
  fill_pattern(bytes_of(piece), DataType::f32, 2, 450);
  EXPECT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + 450));
  std::vector<std::int8_t> small(100);
  fill_pattern(bytes_of(small), DataType::i8, 2, 450);
  EXPECT_TRUE(std::equal(piece.begin(), piece.end(), small.begin()));
}

}  // namespace
}  // namespace nbx::nccl
