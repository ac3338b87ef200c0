// Blocks against the figures of draft-ietf-opsawg-pcapng, byte by byte, and what becomes of buffers that are too small.
#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <string_view>
#include <vector>

#include "capture/comment.hpp"
#include "capture/pcapng_writer.hpp"

namespace nbx::capture {
namespace {

static_assert(std::endian::native == std::endian::little, "the expected bytes are those of a little-endian writer");

std::string hex(ConstBytes bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const std::byte b : bytes) {
    text += digits[std::to_integer<unsigned>(b) >> 4U];
    text += digits[std::to_integer<unsigned>(b) & 15U];
  }
  return text;
}

/// What a formatter writes into exactly enough room; checks that less room is refused and left alone.
template <class Format>
std::string formatted(Format format) {
  std::vector<std::byte> buffer(4096, std::byte{0xee});
  const std::size_t size = format(MutableBytes(buffer));
  const std::string text = hex(ConstBytes(buffer).first(size));
  for (std::size_t room = 0; room < size; ++room) {
    std::vector<std::byte> small(size, std::byte{0xee});
    EXPECT_EQ(format(MutableBytes(small).first(room)), 0U) << room;
    EXPECT_EQ(small, std::vector<std::byte>(size, std::byte{0xee})) << room;
  }
  std::vector<std::byte> exact(size);
  EXPECT_EQ(format(MutableBytes(exact)), size);
  EXPECT_EQ(hex(exact), text);
  return text;
}

TEST(PcapngWriter, SectionHeader) {  // section 4.1, figure 9
  const Section section{.hardware = "x86_64", .os = "Linux", .application = "test"};
  EXPECT_EQ(formatted([&](MutableBytes out) { return format_shb(out, section); }),
            "0a0d0d0a"
            "40000000"
            "4d3c2b1a"
            "0100"
            "0000"
            "ffffffffffffffff"
            "0200"
            "0600"
            "7838365f36340000"
            "0300"
            "0500"
            "4c696e7578000000"
            "0400"
            "0400"
            "74657374"
            "00000000"
            "40000000");
}

TEST(PcapngWriter, InterfaceDescription) {  // section 4.2, figure 10
  const InterfaceDescription interface {
    .name = "p0", .description = "port 0", .snaplen = 256, .speed = BitRate::gbps(100)
  };
  EXPECT_EQ(formatted([&](MutableBytes out) { return format_idb(out, interface); }),
            "01000000"
            "40000000"
            "0100"
            "0000"
            "00010000"
            "0200"
            "0200"
            "70300000"
            "0300"
            "0600"
            "706f727420300000"
            "0800"
            "0800"
            "00e8764817000000"
            "0900"
            "0100"
            "09000000"
            "00000000"
            "40000000");
}

TEST(PcapngWriter, UnknownSpeedIsNotStated) {
  const InterfaceDescription interface {
    .name = "p0", .description = {}, .snaplen = 0, .speed = {}
  };
  EXPECT_EQ(formatted([&](MutableBytes out) { return format_idb(out, interface); }),
            "01000000"
            "28000000"
            "0100"
            "0000"
            "00000000"
            "0200"
            "0200"
            "70300000"
            "0900"
            "0100"
            "09000000"
            "00000000"
            "28000000");
}

TEST(PcapngWriter, EnhancedPacket) {  // section 4.3, figure 11; the time's upper word comes first
  const std::array<std::byte, 5> data{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}, std::byte{5}};
  const PacketRecord record{.interface_id = 3,
                            .timestamp_ns = 0x1122'3344'5566'7788,
                            .direction = Direction::outbound,
                            .captured = data,
                            .original_size = 1500,
                            .comment = "nbx: duplicate"};
  EXPECT_EQ(formatted([&](MutableBytes out) { return format_epb(out, record); }),
            "06000000"
            "48000000"
            "03000000"
            "44332211"
            "88776655"
            "05000000"
            "dc050000"
            "0102030405000000"
            "0100"
            "0e00"
            "6e62783a206475706c6963617465"
            "0000"
            "0200"
            "0400"
            "02000000"
            "00000000"
            "48000000");
}

TEST(PcapngWriter, EmptyPacketWithoutComment) {
  const PacketRecord record{.interface_id = 0,
                            .timestamp_ns = 1,
                            .direction = Direction::inbound,
                            .captured = {},
                            .original_size = 0,
                            .comment = {}};
  EXPECT_EQ(formatted([&](MutableBytes out) { return format_epb(out, record); }),
            "06000000"
            "2c000000"
            "00000000"
            "00000000"
            "01000000"
            "00000000"
            "00000000"
            "0200"
            "0400"
            "01000000"
            "00000000"
            "2c000000");
}

TEST(PcapngWriter, InterfaceStatistics) {  // section 4.6, figure 14
  const InterfaceStatistics statistics{
      .interface_id = 1, .start_ns = 0x1'0000'0002, .end_ns = 0x3'0000'0004, .received = 10, .lost = 3};
  EXPECT_EQ(formatted([&](MutableBytes out) { return format_isb(out, statistics); }),
            "05000000"
            "4c000000"
            "01000000"
            "03000000"
            "04000000"
            "0200"
            "0800"
            "01000000"
            "02000000"
            "0300"
            "0800"
            "03000000"
            "04000000"
            "0400"
            "0800"
            "0a00000000000000"
            "0500"
            "0800"
            "0300000000000000"
            "00000000"
            "4c000000");
}

TEST(Comment, SaysWhatWasDone) {
  using namespace std::chrono_literals;
  CommentBuffer buffer;
  EXPECT_EQ(format_comment(buffer, {}, 120ns), "");
  EXPECT_EQ(format_comment(buffer, {.dropped = Drop::loss}, std::nullopt), "nbx: dropped loss");
  EXPECT_EQ(format_comment(buffer, {.delay = 5ms}, std::nullopt), "nbx: delay=5000000ns");
  EXPECT_EQ(format_comment(buffer, {.delay = 5ms}, 120ns), "nbx: delay=5000000ns late=120ns");
  EXPECT_EQ(format_comment(buffer, {.delay = 5ms}, -2ns), "nbx: delay=5000000ns late=-2ns");
  EXPECT_EQ(format_comment(buffer, {.ecn_marked = true, .duplicate = true, .corrupted = true, .reordered = true}, 1ns),
            "nbx: ecn-marked duplicate corrupted reordered");
}

TEST(Comment, RoundsToNearestNanosecond) {
  CommentBuffer buffer;
  EXPECT_EQ(format_comment(buffer, {.delay = Duration{1499}}, Duration{1500}), "nbx: delay=1ns late=2ns");
}

TEST(Comment, EveryReasonComesBack) {
  for (std::size_t i = 1; i < drop_info.size(); ++i) {
    const auto reason = static_cast<Drop>(i);
    CommentBuffer buffer;
    const auto longest = Duration::max();
    const auto text = format_comment(buffer,
                                     {.dropped = reason,
                                      .ecn_marked = true,
                                      .duplicate = true,
                                      .corrupted = true,
                                      .reordered = true,
                                      .delay = longest},
                                     Duration::min() + Duration{1000});
    const auto comment = parse_comment(text);
    ASSERT_TRUE(comment) << text;
    EXPECT_EQ(comment->dropped, name(reason));
    EXPECT_EQ(comment->delay_ns, 9'223'372'036'854'776);
    EXPECT_EQ(comment->late_ns, -9'223'372'036'854'775);
    EXPECT_TRUE(comment->ecn_marked && comment->duplicate && comment->corrupted && comment->reordered);
  }
}

TEST(Comment, OthersAreNotTakenForOurs) {
  for (const std::string_view text : {"", "nbx", "a note", "nbx: dropped", "nbx: delay=ns", "nbx: delay=5",
                                      "nbx: delay=5ms", "nbx: delay=99999999999999999999ns", "nbx: hello"}) {
    EXPECT_FALSE(parse_comment(text)) << text;
  }
}

}  // namespace
}  // namespace nbx::capture
