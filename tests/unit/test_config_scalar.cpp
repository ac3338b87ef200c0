// Words of a file: units, their exactness, and what is said about wrong ones. The values follow from SI and IEC
// prefixes.
#include <gtest/gtest.h>

#include "config/scalar.hpp"

namespace nbx::config {
namespace {

using namespace std::chrono_literals;

template <class T>
T parsed(std::string_view text) {
  const Result<T> value = Scalar<T>::parse({text});
  EXPECT_TRUE(value.ok()) << text << ": " << (value.ok() ? "" : value.error().message);
  return value.ok() ? *value : T{};
}
template <class T>
std::string complaint(std::string_view text, bool quoted = false) {
  const Result<T> value = Scalar<T>::parse({text, quoted});
  EXPECT_FALSE(value.ok()) << text;
  return value.ok() ? "" : value.error().message;
}

TEST(Scalar, Durations) {
  EXPECT_EQ(parsed<Duration>("1ps"), Duration{1});
  EXPECT_EQ(parsed<Duration>("1.5ns"), Duration{1500});
  EXPECT_EQ(parsed<Duration>("0.001 ns"), Duration{1});
  EXPECT_EQ(parsed<Duration>("5us"), 5us);
  EXPECT_EQ(parsed<Duration>("12.5ms"), 12500us);
  EXPECT_EQ(parsed<Duration>("2s"), 2s);
  EXPECT_EQ(parsed<Duration>("2min"), 120s);
  EXPECT_EQ(parsed<Duration>("0"), 0s);
}

TEST(Scalar, Rates) {
  EXPECT_EQ(parsed<BitRate>("100Gb/s"), BitRate::gbps(100));
  EXPECT_EQ(parsed<BitRate>("12.5Gb/s").bits_per_second, 12'500'000'000U);
  EXPECT_EQ(parsed<BitRate>("1.6Tb/s").bits_per_second, 1'600'000'000'000U);
  EXPECT_EQ(parsed<BitRate>("9600b/s").bits_per_second, 9600U);
  EXPECT_EQ(parsed<BitRate>("64kb/s").bits_per_second, 64'000U);
  EXPECT_TRUE(parsed<BitRate>("unlimited").unlimited());
}

TEST(Scalar, Sizes) {
  EXPECT_EQ(parsed<ByteCount>("64KiB").value, 65536U);
  EXPECT_EQ(parsed<ByteCount>("64kB").value, 64000U);
  EXPECT_EQ(parsed<ByteCount>("1.5MiB").value, 1572864U);
  EXPECT_EQ(parsed<ByteCount>("0.5KiB").value, 512U);
  EXPECT_EQ(parsed<ByteCount>("1GiB").value, 1073741824U);
  EXPECT_EQ(parsed<ByteCount>("1GB").value, 1000000000U);
}

TEST(Scalar, Probabilities) {
  EXPECT_DOUBLE_EQ(parsed<Probability>("0.1%").value, 0.001);
  EXPECT_DOUBLE_EQ(parsed<Probability>("0.001").value, 0.001);
  EXPECT_DOUBLE_EQ(parsed<Probability>("1e-6").value, 1e-6);
  EXPECT_DOUBLE_EQ(parsed<Probability>("100%").value, 1);
}

TEST(Scalar, NumbersOfTwentyFourBits) {
  EXPECT_EQ(parsed<Qpn>("0xffffff").value, 0xffffffU);
  EXPECT_EQ(parsed<Psn>("17").value, 17U);
  EXPECT_EQ(complaint<Psn>("0x1000000"), "0x1000000 has more than 24 bits");
}

TEST(Scalar, Addresses) {
  EXPECT_EQ(parsed<Subnet>("10.77.0.1/24").prefix, 24);
  EXPECT_EQ(parsed<Subnet>("fd77::1/64").ip, *parse_ip("fd77::1"));
  EXPECT_EQ(complaint<Subnet>("10.77.0.1"), "'10.77.0.1' has no prefix length; did you mean 10.77.0.1/24?");
  EXPECT_EQ(complaint<Subnet>("10.77.0.1/33"), "'10.77.0.1/33' needs a prefix length from 1 to 32");
  EXPECT_EQ(complaint<Mac>("01:00:5e:00:00:01"), "'01:00:5e:00:00:01' is a multicast address");
}

TEST(Scalar, MistakesAreNamed) {
  EXPECT_EQ(complaint<Duration>("5"), "'5' has no unit; did you mean 5ms?");
  EXPECT_EQ(complaint<Duration>("0.5ps"), "'0.5ps' is finer than 1 ps");
  EXPECT_EQ(complaint<Duration>("-5ms"), "'-5ms' is negative");
  EXPECT_EQ(complaint<Duration>("99999999999999999999s"), "'99999999999999999999s' is too large");
  EXPECT_EQ(complaint<Duration>("9223373s"), "'9223373s' is too large");  // int64 picoseconds end at 9223372.03 s
  EXPECT_EQ(complaint<BitRate>("40GB/s"), "'40GB/s' is bytes; did you mean 40Gb/s?");
  EXPECT_EQ(complaint<BitRate>("40GiB/s"), "'40GiB/s' is bytes; did you mean 40Gb/s?");
  EXPECT_EQ(complaint<BitRate>("40Gbps"),
            "'40Gbps' has a unit that is none of b/s, kb/s, Mb/s, Gb/s or Tb/s; did you mean 40Gb/s?");
  EXPECT_EQ(complaint<BitRate>("0b/s"), "a rate of 0 lets nothing pass; 'unlimited' is no limit");
  EXPECT_EQ(complaint<ByteCount>("1Mb"), "'1Mb' is bits; did you mean 1MB?");
  EXPECT_EQ(complaint<ByteCount>("1GB/s"), "'1GB/s' is a rate; a size is a number with B, kB, KiB, MB, MiB, GB or GiB");
  EXPECT_EQ(complaint<Probability>("5"), "'5' is not between 0 and 1; did you mean 5%?");
  EXPECT_EQ(complaint<Probability>("101%"), "'101%' is not between 0% and 100%");
  EXPECT_EQ(complaint<std::uint8_t>("256"), "256 is more than 255");
  EXPECT_EQ(complaint<std::uint64_t>("7", true), "'7' is quoted, which makes it text; remove the quotes");
  EXPECT_EQ(complaint<PathMtu>("1500"), "1500 is none of 256, 512, 1024, 2048 and 4096");
}

/// What is printed as a default can be read back.
TEST(Scalar, TextIsReadBackAsTheSameValue) {
  for (const std::uint64_t value : {1ULL, 999ULL, 1000ULL, 1024ULL, 1500ULL, 65536ULL, 1048576ULL, 1000000007ULL,
                                    60'000'000'000'000ULL, 9'223'372'036'854'775'807ULL}) {
    EXPECT_EQ(parsed<ByteCount>(Scalar<ByteCount>::format({value})).value, value);
    EXPECT_EQ(parsed<BitRate>(Scalar<BitRate>::format({value})).bits_per_second, value);
    const Duration duration{static_cast<std::int64_t>(value)};
    EXPECT_EQ(parsed<Duration>(Scalar<Duration>::format(duration)), duration);
  }
  EXPECT_EQ(Scalar<Duration>::format(50us), "50us");
  EXPECT_EQ(Scalar<ByteCount>::format({512U << 20U}), "512MiB");
  EXPECT_EQ(Scalar<BitRate>::format(BitRate::gbps(100)), "100Gb/s");
}

}  // namespace
}  // namespace nbx::config
