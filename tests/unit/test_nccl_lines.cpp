// LL and LL128 lines: against recorded messages of NCCL, and against the layout as the wire shows it.
#include <gtest/gtest.h>

#include <cstring>

#include "nccl-glue/plan/lines.hpp"
#include "support/nccl_messages.hpp"

namespace nbx::nccl {
namespace {

using test::Bytes;
using test::from_hex;
using test::to_hex;

Bytes counted(std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  }
  return bytes;
}

Bytes encoded(Protocol protocol, const Bytes& data, std::uint64_t step) {
  Bytes lines(wire_size(protocol, data.size()));
  encode(protocol, data, step, lines);
  return lines;
}

TEST(Ll, ALineHasFourBytesAFlagFourBytesAFlag) {
  EXPECT_EQ(to_hex(encoded(Protocol::ll, from_hex("0102030405060708 090a0b"), 0x1122)),
            "01020304"
            "23110000"
            "05060708"
            "23110000"
            "090a0b00"
            "23110000"
            "00000000"
            "23110000");
}

TEST(Ll, TheFlagIsTheLowHalfOfTheStepPlusOne) {
  EXPECT_EQ(to_hex(encoded(Protocol::ll, from_hex("00"), 0x1fffffffe)).substr(8, 8), "ffffffff");
  EXPECT_EQ(to_hex(encoded(Protocol::ll, from_hex("00"), 0x1ffffffff)).substr(8, 8), "00000000");
}

TEST(Ll, WholeStepsGoOutOnceInTwoToTheThirtyFirst) {
  EXPECT_FALSE(sends_whole_step(Protocol::ll, 0x7ffffff7));
  EXPECT_TRUE(sends_whole_step(Protocol::ll, 0x7ffffff8));
  EXPECT_TRUE(sends_whole_step(Protocol::ll, 0x7fffffff));
  EXPECT_FALSE(sends_whole_step(Protocol::ll, 0x80000000));
  EXPECT_TRUE(sends_whole_step(Protocol::ll, 0xfffffff8));
  EXPECT_FALSE(sends_whole_step(Protocol::ll128, 0x7ffffff8));
  Bytes step(65536);
  encode(Protocol::ll, counted(10), 0x7ffffff8, step);
  EXPECT_TRUE(flagged(Protocol::ll, step, 0x7ffffff8));
}

/// Where 16-byte piece j of a warp slice's data lies on the wire: lane w of group g, as the warp's loads put it there.
TEST(Ll128, PiecesLieInTheOrderOfTheWarpsRegisters) {
  const Bytes data = counted(ll128_slice_data);
  const Bytes lines = encoded(Protocol::ll128, data, 41);
  const auto wire = [&](std::size_t at, std::size_t size) { return to_hex(ConstBytes{lines}.subspan(at, size)); };
  const auto piece = [&](std::size_t j, std::size_t from, std::size_t size) {
    return to_hex(ConstBytes{data}.subspan(16 * j + from, size));
  };
  for (std::size_t w = 0; w < 32; ++w) {
    for (std::size_t g = 0; g < 4; ++g) {
      const std::size_t at = 512 * g + 16 * w;
      const std::size_t even = (g < 2 ? 0 : 60) + w;
      const std::size_t odd = (g < 2 ? 32 : 92) + w - w / 8;
      if (w % 8 == 7) {
        EXPECT_EQ(wire(at, 8), piece(even, g % 2 == 0 ? 0 : 8, 8));
        EXPECT_EQ(wire(at + 8, 8), "2a00000000000000");
      } else {
        EXPECT_EQ(wire(at, 16), piece(g % 2 == 0 ? even : odd, 0, 16));
      }
    }
  }
}

TEST(Ll128, TheFlagHasAllSixtyFourBits) {
  const Bytes lines = encoded(Protocol::ll128, counted(1), 0x1122334455667788);
  EXPECT_EQ(to_hex(ConstBytes{lines}.subspan(120, 8)), "8977665544332211");
  EXPECT_EQ(to_hex(ConstBytes{lines}.last(8)), "8977665544332211");
}

class AnyLines : public testing::TestWithParam<Protocol> {};

TEST_P(AnyLines, DecodingUndoesEncoding) {
  for (const std::size_t size : {0U, 1U, 7U, 8U, 9U, 119U, 120U, 1919U, 1920U, 1921U, 32768U, 100001U}) {
    const Bytes data = counted(size);
    Bytes back(size);
    decode(GetParam(), encoded(GetParam(), data, 5), back);
    EXPECT_TRUE(back == data) << size;
  }
}

TEST_P(AnyLines, RestampingIsEncodingWithAnotherStep) {
  const Bytes data = counted(5000);
  Bytes lines = encoded(GetParam(), data, 5);
  restamp(GetParam(), lines, 0x123456789a);
  EXPECT_TRUE(lines == encoded(GetParam(), data, 0x123456789a));
}

TEST_P(AnyLines, OneWrongFlagIsSeenWhereverItIs) {
  const Bytes good = encoded(GetParam(), counted(4000), 5);
  EXPECT_TRUE(flagged(GetParam(), good, 5));
  EXPECT_FALSE(flagged(GetParam(), good, 6));
  const std::size_t line = GetParam() == Protocol::ll ? 8 : 128;
  const std::size_t flag = GetParam() == Protocol::ll ? 4 : 120;
  for (std::size_t at = flag; at < good.size(); at += line) {
    Bytes bad = good;
    bad[at] ^= std::byte{1};
    ASSERT_FALSE(flagged(GetParam(), bad, 5)) << at;
  }
}

TEST_P(AnyLines, RecordedMessagesAreEncodedAlike) {
  const std::string name = GetParam() == Protocol::ll ? "ll" : "ll128";
  const auto flows = test::nccl_flows(test::read_pcap(std::string{NBX_CAPTURES} + "/nccl-2.29.7-" + name + ".pcap"));
  ASSERT_EQ(flows.size(), 2U);
  for (const test::NcclFlow& flow : flows) {
    for (std::size_t step = 0; step < flow.messages.size(); ++step) {
      // Behind the data of a last, short warp slice lies whatever a register held: only whole slices are compared.
      const Bytes& recorded = flow.messages[step].data;
      const std::size_t whole = GetParam() == Protocol::ll ? recorded.size() : recorded.size() - ll128_slice;
      const ConstBytes lines = ConstBytes{recorded}.first(whole);
      Bytes data(GetParam() == Protocol::ll ? whole / 2 : whole / 16 * 15);
      decode(GetParam(), lines, data);
      EXPECT_TRUE(std::ranges::equal(encoded(GetParam(), data, step), lines)) << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Nccl, AnyLines, testing::Values(Protocol::ll, Protocol::ll128));

TEST(Simple, IsTheDataItself) {
  const Bytes data = counted(100);
  EXPECT_TRUE(encoded(Protocol::simple, data, 5) == data);
  Bytes back(100);
  decode(Protocol::simple, data, back);
  EXPECT_TRUE(back == data);
}

}  // namespace
}  // namespace nbx::nccl
