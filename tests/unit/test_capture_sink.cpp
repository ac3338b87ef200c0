// From frames through taps, rings and a sink to files, read back by our reader and by tshark.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "capture/file_sink.hpp"
#include "capture/reader.hpp"
#include "capture/tap.hpp"

namespace nbx::capture {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t epoch_ns = 1'700'000'000'000'000'000;

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "capture-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  TemporaryDirectory(TemporaryDirectory&&) = delete;
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;

  [[nodiscard]] std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::filesystem::path path_;
};

/// A frame of `size` bytes: broadcast, experimental EtherType, then `tag` again and again.
class TestFrame : public Frame {
 public:
  explicit TestFrame(std::uint32_t bytes, std::uint8_t tag = 0) : bytes_(bytes, std::byte{tag}) {
    constexpr std::array<std::uint8_t, 14> header{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5};
    for (std::size_t i = 0; i < std::min<std::size_t>(bytes, header.size()); ++i) {
      bytes_[i] = std::byte{header[i]};
    }
    data = bytes_.data();
    size = bytes;
    capacity = bytes;
  }

 private:
  std::vector<std::byte> bytes_;
};

struct Seen {
  std::int64_t offset_ns = 0;  // from epoch_ns
  std::uint32_t interface = 0;
  std::uint32_t original_size = 0;
  std::size_t captured = 0;
  Direction direction = Direction::unknown;
  std::string comment;
  friend bool operator==(const Seen&, const Seen&) = default;
};

struct File {
  std::vector<Seen> packets;
  std::vector<Reader::Interface> interfaces;
};

File read(const std::string& path) {
  File file;
  std::ifstream in(path, std::ios::binary);
  auto reader = Reader::open(in);
  if (!reader) {
    ADD_FAILURE() << path << ": " << reader.error().reason;
    return file;
  }
  Record r;
  for (;;) {
    const auto more = reader->next(r);
    if (!more) {
      ADD_FAILURE() << path << " at " << more.error().offset << ": " << more.error().reason;
      break;
    }
    if (!*more) {
      break;
    }
    file.packets.push_back({r.timestamp_ns - static_cast<std::int64_t>(epoch_ns), r.interface, r.original_size,
                            r.captured.size(), r.direction, std::string(r.comment)});
  }
  file.interfaces = reader->interfaces();
  return file;
}

struct Port {
  explicit Port(std::size_t ring_bytes = 1U << 20U) : tap({.ring_bytes = ring_bytes, .epoch_ns = epoch_ns}, counters) {}
  Counters counters;
  Tap tap;
};

std::unique_ptr<FileSink> open(FileSinkOptions options) {
  auto sink = FileSink::open(std::move(options));
  if (!sink) {
    ADD_FAILURE() << sink.error().message;
    return nullptr;
  }
  return std::move(*sink);
}

Instant at(Duration d) { return Instant{} + d; }

TEST(Tap, RecordsNothingUnlessStarted) {
  Port port;
  port.tap.record(TestFrame(60), Direction::inbound, at(1us));
  EXPECT_EQ(port.counters.get(Counter::captured), 0U);
  EXPECT_TRUE(port.tap.ring().front().empty());
}

TEST(Tap, CountsWhatFindsTheRingFull) {
  Port port(4096);
  ASSERT_TRUE(port.tap.start(snaplen_default));
  for (int i = 0; i < 100; ++i) {
    port.tap.record(TestFrame(60), Direction::inbound, at(1us * i));
  }
  constexpr std::uint64_t record = 28 + 60 + 8 + 4 + 4;
  EXPECT_EQ(port.counters.get(Counter::captured), 4096 / record);
  EXPECT_EQ(port.counters.get(Counter::capture_lost), 100 - 4096 / record);
  port.tap.ring().pop(port.tap.ring().front());
  port.tap.record(TestFrame(60), Direction::inbound, at(1ms));
  EXPECT_EQ(port.counters.get(Counter::captured), 4096 / record + 1);
}

TEST(Tap, FrameLargerThanTheRingIsLost) {
  Port port(1024);
  ASSERT_TRUE(port.tap.start(snaplen_default));
  port.tap.record(TestFrame(2000), Direction::inbound, at(1us));
  EXPECT_EQ(port.counters.get(Counter::capture_lost), 1U);
  EXPECT_TRUE(port.tap.ring().front().empty());
}

TEST(Sink, WritesWhatHappened) {
  TemporaryDirectory dir;
  Port port;
  auto sink = open({.path = dir / "a.pcapng",
                    .snaplen = 100,
                    .interfaces = {{"p0", "to the node", BitRate::gbps(100)}},
                    .sources = {{&port.tap, 0}}});
  TestFrame frame(60);
  port.tap.record(frame, Direction::inbound, at(1us));
  frame.treatment = {.dropped = Drop::loss};
  port.tap.record(frame, Direction::inbound, at(2us));
  TestFrame delayed(1500);
  delayed.due = at(5ms);
  delayed.treatment = {.ecn_marked = true, .delay = 4ms};
  port.tap.record(delayed, Direction::inbound, at(1ms));
  port.tap.record(delayed, Direction::outbound, at(5ms + 120ns));
  delayed.treatment.reordered = true;
  port.tap.record(delayed, Direction::outbound, at(6ms));
  delayed.treatment = {.dropped = Drop::queue_full, .delay = 4ms};
  port.tap.record(delayed, Direction::outbound, at(7ms));
  EXPECT_TRUE(sink->drain());
  EXPECT_FALSE(sink->drain());
  sink->close();
  EXPECT_FALSE(sink->error());

  const File file = read(dir / "a.pcapng");
  const std::vector<Seen> expected{
      {1'000, 0, 60, 60, Direction::inbound, ""},
      {2'000, 0, 60, 60, Direction::inbound, "nbx: dropped loss"},
      {1'000'000, 0, 1500, 100, Direction::inbound, "nbx: delay=4000000ns ecn-marked"},
      {5'000'120, 0, 1500, 100, Direction::outbound, "nbx: delay=4000000ns late=120ns ecn-marked"},
      {6'000'000, 0, 1500, 100, Direction::outbound, "nbx: delay=4000000ns ecn-marked reordered"},
      {7'000'000, 0, 1500, 100, Direction::outbound, "nbx: dropped queue_full delay=4000000ns"},
  };
  EXPECT_EQ(file.packets, expected);
  ASSERT_EQ(file.interfaces.size(), 1U);
  EXPECT_EQ(file.interfaces[0].name, "p0");
  EXPECT_EQ(file.interfaces[0].description, "to the node");
  EXPECT_EQ(file.interfaces[0].snaplen, 100U);
  EXPECT_EQ(file.interfaces[0].received, 6U);
  EXPECT_EQ(file.interfaces[0].dropped, 0U);
}

TEST(Sink, FlushesWhenIdle) {
  TemporaryDirectory dir;
  Port port;
  auto sink = open({.path = dir / "a.pcapng", .interfaces = {{"p0", "", {}}}, .sources = {{&port.tap, 0}}});
  port.tap.record(TestFrame(60), Direction::inbound, at(1us));
  while (sink->drain()) {
  }
  EXPECT_EQ(read(dir / "a.pcapng").packets.size(), 1U);
}

TEST(Sink, MergesTapsInOrderOfTime) {
  TemporaryDirectory dir;
  std::deque<Port> ports(3);
  auto sink = open({.path = dir / "all.pcapng",
                    .interfaces = {{"p0", "", {}}, {"p1", "", {}}},
                    .sources = {{&ports[0].tap, 0}, {&ports[1].tap, 1}, {&ports[2].tap, 1}}});  // p1 has two shards
  for (int i = 0; i < 30; ++i) {
    ports[static_cast<std::size_t>(i * 7 % 3)].tap.record(TestFrame(60), Direction::inbound, at(1us * i));
  }
  sink->close();
  const File file = read(dir / "all.pcapng");
  ASSERT_EQ(file.packets.size(), 30U);
  for (int i = 0; i < 30; ++i) {
    const Seen& packet = file.packets[static_cast<std::size_t>(i)];
    EXPECT_EQ(packet.offset_ns, 1'000 * i);
    EXPECT_EQ(packet.interface, i * 7 % 3 == 0 ? 0U : 1U);
  }
  EXPECT_EQ(file.interfaces[0].received, 10U);
  EXPECT_EQ(file.interfaces[1].received, 20U);
}

TEST(Sink, StatesLosses) {
  TemporaryDirectory dir;
  Port port(4096);
  for (int round = 0; round < 2; ++round) {  // the second capture does not inherit the first one's losses
    auto sink = open({.path = dir / "a.pcapng", .interfaces = {{"p0", "", {}}}, .sources = {{&port.tap, 0}}});
    for (int i = 0; i < 100; ++i) {
      port.tap.record(TestFrame(60), Direction::inbound, at(1us * i));
    }
    sink->close();
    const File file = read(dir / "a.pcapng");
    EXPECT_EQ(file.interfaces[0].received, 100U);
    EXPECT_EQ(file.interfaces[0].dropped, 100 - file.packets.size());
    EXPECT_LT(file.packets.size(), 100U);
  }
}

TEST(Sink, RotatesIntoCompleteFiles) {
  TemporaryDirectory dir;
  Port port;
  constexpr std::uint64_t limit = 2'000;
  auto sink = open({.path = dir / "a.b.pcapng",
                    .file_size_max = limit,
                    .interfaces = {{"p0", "", {}}},
                    .sources = {{&port.tap, 0}}});
  constexpr std::size_t total = 50;
  for (std::size_t i = 0; i < total; ++i) {
    port.tap.record(TestFrame(60 + static_cast<std::uint32_t>(i)), Direction::inbound, at(1us * i));
  }
  sink->close();
  std::size_t read_back = 0;
  for (std::size_t n = 0; n < dir.files(); ++n) {
    const std::string path = n == 0 ? dir / "a.b.pcapng" : dir / ("a.b." + std::to_string(n) + ".pcapng");
    EXPECT_LE(std::filesystem::file_size(path), limit);
    const File file = read(path);
    EXPECT_EQ(file.interfaces[0].received, file.packets.size());
    for (const Seen& packet : file.packets) {
      EXPECT_EQ(packet.original_size, 60 + read_back);
      ++read_back;
    }
  }
  EXPECT_EQ(read_back, total);
  EXPECT_GT(dir.files(), 3U);
}

TEST(Sink, KeepsTheNewestFiles) {
  TemporaryDirectory dir;
  Port port;
  auto sink = open({.path = dir / "a.pcapng",
                    .file_size_max = 1,  // less than one record: one record per file
                    .files_max = 2,
                    .interfaces = {{"p0", "", {}}},
                    .sources = {{&port.tap, 0}}});
  for (int i = 0; i < 5; ++i) {
    port.tap.record(TestFrame(60), Direction::inbound, at(1us * i));
  }
  sink->close();
  EXPECT_EQ(dir.files(), 2U);
  EXPECT_EQ(read(dir / "a.3.pcapng").packets.at(0).offset_ns, 3'000);
  EXPECT_EQ(read(dir / "a.4.pcapng").packets.at(0).offset_ns, 4'000);
}

TEST(Sink, OneCapturePerTap) {
  TemporaryDirectory dir;
  Port port;
  const FileSinkOptions options{.path = dir / "a.pcapng", .interfaces = {{"p0", "", {}}}, .sources = {{&port.tap, 0}}};
  auto sink = open(options);
  auto second = FileSink::open(options);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message, "interface p0 is being captured already");
  sink->close();
  EXPECT_TRUE(FileSink::open(options));
}

TEST(Sink, SaysWhyItCannotWrite) {
  TemporaryDirectory dir;
  Port port;
  FileSinkOptions options{
      .path = dir / "missing/a.pcapng", .interfaces = {{"p0", "", {}}}, .sources = {{&port.tap, 0}}};
  auto missing = FileSink::open(options);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message, "cannot create " + options.path + ": No such file or directory");
  EXPECT_FALSE(port.tap.running());

  if (!std::filesystem::exists("/dev/full")) {
    GTEST_SKIP() << "no /dev/full here";
  }
  options.path = "/dev/full";
  auto sink = open(options);
  for (int i = 0; i < 1'000; ++i) {
    port.tap.record(TestFrame(1'000), Direction::inbound, at(1us * i));
  }
  sink->close();
  ASSERT_TRUE(sink->error());
  EXPECT_EQ(sink->error()->message, "cannot write /dev/full: No space left on device");
  EXPECT_FALSE(port.tap.running());
}

TEST(Sink, WorkerAndWriterAtOnce) {
  TemporaryDirectory dir;
  Port port(16'384);
  auto sink = open({.path = dir / "a.pcapng", .interfaces = {{"p0", "", {}}}, .sources = {{&port.tap, 0}}});
  constexpr std::uint32_t total = 20'000;
  std::thread worker([&port] {
    for (std::uint32_t i = 0; i < total; ++i) {
      port.tap.record(TestFrame(20 + i % 700), Direction::outbound, at(1us * i));
      if (i % 64 == 0) {
        std::this_thread::yield();
      }
    }
  });
  while (port.counters.get(Counter::captured) + port.counters.get(Counter::capture_lost) < total) {
    sink->drain();
  }
  worker.join();
  sink->close();
  const File file = read(dir / "a.pcapng");
  EXPECT_EQ(file.packets.size(), port.counters.get(Counter::captured));
  EXPECT_EQ(file.packets.size() + *file.interfaces[0].dropped, total);
  for (const Seen& packet : file.packets) {
    EXPECT_EQ(packet.original_size, 20 + packet.offset_ns / 1'000 % 700);
  }
}

std::string output_of(const std::string& command) {
  std::string text;
  std::FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> buffer{};
  while (pipe != nullptr && std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) {
    text += buffer.data();
  }
  return pipe != nullptr && pclose(pipe) == 0 ? text : "failed: " + command + "\n" + text;
}

TEST(Sink, TsharkAgrees) {
  if (std::system("command -v tshark >/dev/null") != 0) {
    GTEST_SKIP() << "tshark is not installed";
  }
  TemporaryDirectory dir;
  std::deque<Port> ports(2);
  auto sink = open({.path = dir / "a.pcapng",
                    .snaplen = 64,
                    .interfaces = {{"p0", "first", BitRate::gbps(10)}, {"p1", "second", {}}},
                    .sources = {{&ports[0].tap, 0}, {&ports[1].tap, 1}}});
  TestFrame frame(61);
  ports[0].tap.record(frame, Direction::inbound, at(1ns));
  frame.treatment = {.dropped = Drop::loss};
  ports[1].tap.record(frame, Direction::outbound, at(1s));
  TestFrame large(9'000);
  large.due = at(2s);
  large.treatment.delay = 5ms;
  ports[0].tap.record(large, Direction::outbound, at(2s + 7ns));
  sink->close();

  const std::string fields =
      " -T fields -E separator=/s -E quote=d -e frame.time_epoch -e frame.interface_name"
      " -e frame.packet_flags_direction -e frame.len -e frame.cap_len -e eth.type -e frame.comment 2>/dev/null";
  EXPECT_EQ(output_of("tshark -r " + (dir / "a.pcapng") + fields),
            "\"1700000000.000000001\" \"p0\" \"0x00000001\" \"61\" \"61\" \"0x88b5\" \n"
            "\"1700000001.000000000\" \"p1\" \"0x00000002\" \"61\" \"61\" \"0x88b5\" \"nbx: dropped loss\"\n"
            "\"1700000002.000000007\" \"p0\" \"0x00000002\" \"9000\" \"64\" \"0x88b5\" "
            "\"nbx: delay=5000000ns late=7ns\"\n");
  const std::string info = output_of("capinfos " + (dir / "a.pcapng") + " 2>/dev/null");
  for (const std::string line :
       {"Name = p0", "Description = second", "Speed = 10000000000", "Capture length = 64",
        "Time precision = nanoseconds (9)", "Number of stat entries = 1", "Number of packets = 2"}) {
    EXPECT_NE(info.find(line), std::string::npos) << line << " is not in\n" << info;
  }
}

}  // namespace
}  // namespace nbx::capture
