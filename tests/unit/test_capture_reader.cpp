// The reader on recorded traffic (packet counts, bytes and times are what capinfos 4.0.17 prints), on the same files in
// other formats and byte orders, and on damaged ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "capture/reader.hpp"

namespace nbx::capture {
namespace {

struct Summary {
  std::uint64_t packets = 0;
  std::uint64_t bytes = 0;
  std::int64_t first_ns = 0;
  std::int64_t last_ns = 0;
  std::string error;
  std::uint64_t error_offset = 0;
  friend bool operator==(const Summary&, const Summary&) = default;
};

Summary summarize(const std::string& bytes) {
  Summary summary;
  std::istringstream in(bytes);
  auto reader = Reader::open(in);
  if (!reader) {
    return {.error = reader.error().reason, .error_offset = reader.error().offset};
  }
  Record record;
  for (;;) {
    const auto more = reader->next(record);
    if (!more) {
      summary.error = more.error().reason;
      summary.error_offset = more.error().offset;
      return summary;
    }
    if (!*more) {
      return summary;
    }
    summary.first_ns = summary.packets == 0 ? record.timestamp_ns : summary.first_ns;
    summary.last_ns = record.timestamp_ns;
    ++summary.packets;
    summary.bytes += record.captured.size();
  }
}

std::string recorded(const std::string& name) {
  std::ifstream in(std::string(NBX_CAPTURES) + "/" + name, std::ios::binary);
  EXPECT_TRUE(in) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Builds files with numbers in one byte order.
class Bytes {
 public:
  explicit Bytes(bool swapped = false) : swapped_(swapped) {}

  template <class T>
  Bytes& put(T value) {
    std::string raw(sizeof value, '\0');
    std::memcpy(raw.data(), &value, sizeof value);
    if (swapped_) {
      std::reverse(raw.begin(), raw.end());
    }
    text_ += raw;
    return *this;
  }
  Bytes& u16(std::uint16_t v) { return put(v); }
  Bytes& u32(std::uint32_t v) { return put(v); }
  Bytes& u64(std::uint64_t v) { return put(v); }
  Bytes& raw(const std::string& bytes) {
    text_ += bytes;
    return *this;
  }
  Bytes& padded(const std::string& bytes) {
    text_ += bytes;
    text_.append((4 - bytes.size() % 4) % 4, '\0');
    return *this;
  }
  Bytes& option(std::uint16_t code, const std::string& value) {
    return u16(code).u16(static_cast<std::uint16_t>(value.size())).padded(value);
  }
  Bytes& block(std::uint32_t type, const Bytes& body) {
    const auto size = static_cast<std::uint32_t>(body.text_.size() + 12);
    return u32(type).u32(size).raw(body.text_).u32(size);
  }
  [[nodiscard]] Bytes empty() const { return Bytes(swapped_); }
  [[nodiscard]] const std::string& text() const { return text_; }

  Bytes& section() { return block(0x0a0d0d0a, empty().u32(0x1a2b3c4d).u16(1).u16(0).u64(~0ULL)); }
  Bytes& interface(const std::string& resolution = {}, std::int64_t offset_s = 0, std::uint32_t snaplen = 0) {
    Bytes body = empty();
    body.u16(1).u16(0).u32(snaplen);
    if (!resolution.empty()) {
      body.option(9, resolution);
    }
    if (offset_s != 0) {
      body.option(14, empty().put(offset_s).text());
    }
    return block(1, body.u32(0));
  }
  Bytes& enhanced(std::uint64_t time, const std::string& data, std::uint32_t id = 0) {
    Bytes body = empty();
    body.u32(id).u32(static_cast<std::uint32_t>(time >> 32U)).u32(static_cast<std::uint32_t>(time));
    const auto size = static_cast<std::uint32_t>(data.size());
    return block(6, body.u32(size).u32(size).padded(data));
  }

 private:
  bool swapped_;
  std::string text_;
};

/// A pcap in the other byte order.
std::string pcap_swapped(std::string file) {
  const auto swap = [&file](std::size_t at, std::size_t size) {
    std::reverse(file.begin() + static_cast<std::ptrdiff_t>(at), file.begin() + static_cast<std::ptrdiff_t>(at + size));
  };
  swap(0, 4);
  swap(4, 2);
  swap(6, 2);
  for (std::size_t at = 8; at < 24; at += 4) {
    swap(at, 4);
  }
  for (std::size_t at = 24; at < file.size();) {
    std::uint32_t size = 0;
    std::memcpy(&size, file.data() + at + 8, sizeof size);
    for (std::size_t field = 0; field < 16; field += 4) {
      swap(at + field, 4);
    }
    at += 16 + size;
  }
  return file;
}

/// The same packets as pcapng.
std::string as_pcapng(const std::string& file, bool swapped) {
  std::istringstream in(file);
  auto reader = Reader::open(in);
  Bytes out(swapped);
  out.section().interface("\x09");
  Record record;
  while (*reader->next(record)) {
    out.enhanced(static_cast<std::uint64_t>(record.timestamp_ns),
                 {reinterpret_cast<const char*>(record.captured.data()), record.captured.size()});
  }
  return out.text();
}

struct Recorded {
  const char* file;
  Summary summary;
};
const Recorded recordings[] = {
    {"rxe-cm.pcap", {305, 189'486, 1'796'160'689'957'534'533, 1'796'160'694'553'170'743, {}, 0}},
    {"rxe-loss.pcap", {75, 78'394, 1'796'160'543'063'172'000, 1'796'160'554'743'082'000, {}, 0}},
    {"rxe-ops.pcap", {46, 54'292, 1'796'160'445'848'686'905, 1'796'160'450'129'649'375, {}, 0}},
    {"rxe-perftest.pcap", {295, 145'094, 1'796'160'516'074'020'157, 1'796'160'533'783'191'737, {}, 0}},
};

TEST(CaptureReader, AgreesWithCapinfos) {
  for (const Recorded& r : recordings) {
    EXPECT_EQ(summarize(recorded(r.file)), r.summary) << r.file;
  }
}

TEST(CaptureReader, EveryFormatAndByteOrder) {
  for (const Recorded& r : recordings) {
    const std::string file = recorded(r.file);
    EXPECT_EQ(summarize(pcap_swapped(file)), r.summary) << r.file;
    EXPECT_EQ(summarize(as_pcapng(file, false)), r.summary) << r.file;
    EXPECT_EQ(summarize(as_pcapng(file, true)), r.summary) << r.file;
  }
}

std::int64_t time_read(const std::string& resolution, std::uint64_t ticks, std::int64_t offset_s = 0) {
  return summarize(Bytes().section().interface(resolution, offset_s).enhanced(ticks, "x").text()).first_ns;
}

TEST(CaptureReader, TimeResolutions) {                 // section 4.2, if_tsresol and if_tsoffset
  EXPECT_EQ(time_read("", 1'500'000), 1'500'000'000);  // microseconds when not given
  EXPECT_EQ(time_read(std::string(1, '\0'), 7), 7'000'000'000);
  EXPECT_EQ(time_read("\x03", 7), 7'000'000);
  EXPECT_EQ(time_read("\x09", 7), 7);
  EXPECT_EQ(time_read("\x0c", 7'999), 7);
  EXPECT_EQ(time_read("\x7f", ~0ULL), 0);
  EXPECT_EQ(time_read("\x80", 3), 3'000'000'000);
  EXPECT_EQ(time_read("\x94", 1U << 19U), 500'000'000);        // 2^-20
  EXPECT_EQ(time_read("\xa0", 0x1'8000'0000), 1'500'000'000);  // 2^-32, as NTP
  EXPECT_EQ(time_read("\xff", ~0ULL), 0);
  EXPECT_EQ(time_read("\x09", 7, 1'000), 1'000'000'000'007);
  EXPECT_EQ(time_read("\x09", 7, -1), -999'999'993);
  EXPECT_EQ(time_read(std::string(1, '\0'), ~0ULL), std::numeric_limits<std::int64_t>::max() / 2);
}

TEST(CaptureReader, EveryBlock) {
  for (const bool swapped : {false, true}) {
    Bytes file(swapped);
    file.section();
    file.block(0x0bad, file.empty().u32(1).u32(2));  // unknown: skipped
    file.interface("\x09", 0, 4);
    file.block(3, file.empty().u32(6).padded("simp"));  // simple: cut
    file.block(2, file.empty()
                      .u16(0)
                      .u16(9)
                      .u32(0)
                      .u32(77)
                      .u32(3)
                      .u32(8)
                      .padded("old")
                      .option(2, file.empty().u32(1).text())
                      .u32(0));
    file.block(6, file.empty()
                      .u32(0)
                      .u32(0)
                      .u32(88)
                      .u32(2)
                      .u32(2)
                      .padded("ep")
                      .option(1, "first")
                      .option(1, "second")
                      .option(2, file.empty().u32(2).text())
                      .u32(0));
    file.block(5, file.empty()
                      .u32(0)
                      .u32(0)
                      .u32(99)
                      .option(4, file.empty().u64(10).text())
                      .option(5, file.empty().u64(4).text())
                      .u32(0));
    file.section().interface();
    file.enhanced(5, "next");

    std::istringstream in(file.text());
    auto reader = Reader::open(in);
    ASSERT_TRUE(reader) << reader.error().reason;
    Record r;
    const auto data = [&r] { return std::string(reinterpret_cast<const char*>(r.captured.data()), r.captured.size()); };
    ASSERT_TRUE(*reader->next(r));
    EXPECT_EQ(data(), "simp");
    EXPECT_EQ(r.original_size, 6U);
    EXPECT_EQ(r.timestamp_ns, 0);
    ASSERT_TRUE(*reader->next(r));
    EXPECT_EQ(data(), "old");
    EXPECT_EQ(r.original_size, 8U);
    EXPECT_EQ(r.timestamp_ns, 77);
    EXPECT_EQ(r.direction, Direction::inbound);
    ASSERT_TRUE(*reader->next(r));
    EXPECT_EQ(data(), "ep");
    EXPECT_EQ(r.comment, "first");
    EXPECT_EQ(r.direction, Direction::outbound);
    EXPECT_EQ(r.interface, 0U);
    ASSERT_TRUE(*reader->next(r));
    EXPECT_EQ(data(), "next");
    EXPECT_EQ(r.interface, 1U);
    EXPECT_EQ(r.timestamp_ns, 5'000);
    EXPECT_FALSE(*reader->next(r));
    EXPECT_EQ(reader->interfaces()[0].received, 10U);
    EXPECT_EQ(reader->interfaces()[0].dropped, 4U);
    EXPECT_FALSE(reader->interfaces()[1].dropped);
    EXPECT_EQ(reader->offset(), file.text().size());
  }
}

TEST(CaptureReader, SectionsMayDifferInByteOrder) {
  const std::string file = Bytes(false).section().interface("\x09").enhanced(1, "a").text() +
                           Bytes(true).section().interface("\x09").enhanced(2, "b").text();
  EXPECT_EQ(summarize(file), (Summary{2, 2, 1, 2, {}, 0}));
}

TEST(CaptureReader, EveryTruncationIsAnErrorWithItsPlace) {
  const std::string loss = recorded("rxe-ops.pcap").substr(0, 3'000);
  std::string ng = as_pcapng(recorded("rxe-ops.pcap"), true).substr(0, 3'000);
  for (const std::string& file : {loss, ng}) {
    std::size_t clean = 0;
    for (std::size_t size = 0; size < file.size(); ++size) {
      const Summary s = summarize(file.substr(0, size));
      clean += s.error.empty() ? 1 : 0;
      EXPECT_LE(s.error_offset, size);
    }
    const Summary whole = summarize(file);
    EXPECT_LE(clean, whole.packets + 3);  // only at the ends of blocks
    EXPECT_GE(clean, whole.packets);
  }
}

std::string reason_of(const Bytes& file) { return summarize(file.text()).error; }

TEST(CaptureReader, LiesAreNamed) {
  EXPECT_EQ(summarize("").error, "the file is shorter than any capture");
  EXPECT_EQ(summarize("GIF89a..............................").error, "neither pcap nor pcapng");
  EXPECT_EQ(reason_of(Bytes().u32(0x0a0d0d0a).u32(28).u32(0x11223344).u32(0)),
            "section header without the byte-order magic");
  EXPECT_EQ(reason_of(Bytes().u32(0x0a0d0d0a).u32(24).u32(0x1a2b3c4d).u32(1).u64(0)),
            "impossible length of a section header");
  EXPECT_EQ(reason_of(Bytes().block(0x0a0d0d0a, Bytes().u32(0x1a2b3c4d).u16(2).u16(0).u64(0))),
            "pcapng of an unknown major version");
  EXPECT_EQ(reason_of(Bytes().section().u32(6).u32(8).u32(8)), "impossible block length");
  EXPECT_EQ(reason_of(Bytes().section().u32(6).u32(33).u32(8)), "impossible block length");
  EXPECT_EQ(reason_of(Bytes().section().u32(6).u32(0xffff'fffc).u32(8)), "block larger than 16 MiB");
  EXPECT_EQ(reason_of(Bytes().section().u32(77).u32(0xffff'fffc).u32(8)), "the file ends in the middle");
  EXPECT_EQ(reason_of(Bytes().section().u32(77).u32(16).u32(0).u32(20)), "the two lengths of a block differ");
  EXPECT_EQ(reason_of(Bytes().section().block(1, Bytes().u32(1))), "interface description too short");
  EXPECT_EQ(reason_of(Bytes().section().enhanced(1, "x")), "packet of an interface that was not described");
  EXPECT_EQ(reason_of(Bytes().section().interface().enhanced(1, "x", 1)),
            "packet of an interface that was not described");
  EXPECT_EQ(reason_of(Bytes().section().interface().block(6, Bytes().u32(0).u32(0).u32(0).u32(5).u32(5).u32(0))),
            "captured length exceeds the block");
  EXPECT_EQ(reason_of(Bytes().section().interface().block(6, Bytes().u32(0).u32(0).u32(0).u32(0))),
            "packet block too short");
  EXPECT_EQ(reason_of(Bytes().section().interface().block(3, Bytes().u32(5).u32(0))),
            "captured length exceeds the block");
  EXPECT_EQ(reason_of(Bytes().section().interface().block(5, Bytes().u32(1).u64(0))),
            "statistics of an interface that was not described");
  EXPECT_EQ(reason_of(Bytes().section().interface().block(
                6, Bytes().u32(0).u32(0).u32(0).u32(0).u32(0).u16(1).u16(5).u32(0))),
            "an option is longer than its block");
  EXPECT_EQ(reason_of(Bytes().u32(0xa1b2c3d4).u16(2).u16(4).u64(0).u32(64).u32(1).u64(0).u32(0xffff'ffff).u32(1)),
            "packet larger than 16 MiB");
  EXPECT_EQ(summarize(Bytes().section().interface().enhanced(1, "x").u32(6).u32(8).u32(8).text()).error_offset,
            28U + 24U + 36U);
}

}  // namespace
}  // namespace nbx::capture
