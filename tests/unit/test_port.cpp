// The DPDK room on virtual devices: net_ring (what is sent is received), net_null, and a device that takes nothing.
// DPDK starts once per process, on ordinary pages, so this needs neither root nor huge pages.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/unique_fd.hpp"
#include "frame/buffer.hpp"
#include "port/eal.hpp"
#include "port/ethdev_port.hpp"
#include "port/mailbox.hpp"
#include "port/peer_rings.hpp"
#include "port/tsc_clock.hpp"
#include "port/vhost_socket.hpp"

namespace nbx::port {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t frames_total = 2047;
constexpr std::size_t small_frames_total = 200'000;
constexpr std::uint32_t small_mtu = 1500;
constexpr std::uint32_t mtu = 4200;

class PortTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto started = Eal::start({.hugepages = HugepageUse::never,
                               .memory_bytes = small_frames_total * buffer::bytes(small_mtu),
                               .pci_devices = {},
                               .log = {}});
    ASSERT_TRUE(started.ok()) << started.error().message;
    eal_ = std::move(*started).release();
  }
  static void TearDownTestSuite() {
    delete eal_;
    eal_ = nullptr;
  }

  static std::unique_ptr<MbufSource> make_source(const std::string& name, std::size_t frames = frames_total) {
    auto source = MbufSource::create(name, frames, mtu);
    EXPECT_TRUE(source.ok());
    return std::move(*source);
  }
  static std::unique_ptr<EthdevPort> open(const std::string& device, MbufSource& source) {
    auto port = EthdevPort::open(*eal_, {.device = device, .mtu = mtu}, source);
    EXPECT_TRUE(port.ok()) << port.error().message;
    return port.ok() ? std::move(*port) : nullptr;
  }
  static std::string open_error(const std::string& device, MbufSource& source) {
    const auto port = EthdevPort::open(*eal_, {.device = device, .mtu = mtu}, source);
    return port.ok() ? "opened" : port.error().message;
  }

  static inline Eal* eal_ = nullptr;
};

TEST_F(PortTest, a_frame_survives_the_way_through_a_device) {
  const auto source = make_source("survives");
  {
    const auto port = open("net_ring0", *source);
    ASSERT_NE(port, nullptr);
    FramePool pool(*source);
    FrameList out;
    for (std::uint32_t i = 0; i < 100; ++i) {
      Frame* frame = pool.alloc(60 + i * 41);  // up to 4119 bytes: one buffer
      ASSERT_NE(frame, nullptr);
      std::memset(frame->data, static_cast<int>(i), frame->size);
      out.push_back(*frame);
    }
    FrameList refused;
    EXPECT_TRUE(port->transmit(out, refused, Instant{0}));
    EXPECT_TRUE(out.empty());
    EXPECT_TRUE(refused.empty());
    FrameList in;
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(port->receive(in, Instant{7}), 0U);
    }
    for (std::uint32_t i = 0; i < 100; ++i) {
      Frame* frame = in.pop_front();
      ASSERT_NE(frame, nullptr) << i;
      EXPECT_EQ(frame->size, 60 + i * 41);
      EXPECT_EQ(frame->arrival, Instant{7});
      EXPECT_EQ(frame->data[frame->size - 1], static_cast<std::byte>(i));
      pool.free(*frame);
    }
    EXPECT_TRUE(in.empty());
  }
  EXPECT_EQ(source->in_use(), 0U);
}

TEST_F(PortTest, a_pool_gives_what_it_has_and_takes_it_back) {
  const auto source = make_source("gives");
  {
    FramePool pool(*source);
    FrameList held;
    std::size_t n = 0;
    while (Frame* frame = pool.alloc(64)) {
      EXPECT_GE(frame->capacity, mtu + 14);
      EXPECT_EQ(frame->client, nullptr);
      held.push_back(*frame);
      ++n;
    }
    EXPECT_GT(n, frames_total - 64);  // taken 64 at a time
    EXPECT_LE(n, source->total());
    pool.free_all(held);
    EXPECT_NE(pool.alloc(64), nullptr) << "frames come back";
  }
  EXPECT_EQ(source->in_use(), 1U);  // the last one above was never freed
}

TEST_F(PortTest, the_memory_asked_for_holds_the_frames_counted_on) {
  EXPECT_TRUE(MbufSource::create("fits", small_frames_total, small_mtu).ok());
}

TEST_F(PortTest, what_a_device_does_not_take_waits_and_is_then_refused) {
  const auto source = make_source("waits", 16'383);
  {
    // Nobody is connected: the device takes nothing.
    const std::string path = testing::TempDir() + "/nbx-waits.sock";
    const auto port = open("net_vhost7,iface=" + path, *source);
    ASSERT_NE(port, nullptr);
    EXPECT_FALSE(port->link().up);
    FramePool pool(*source);
    FrameList out;
    for (int i = 0; i < 8198; ++i) {
      out.push_back(*pool.alloc(64));
    }
    FrameList refused;
    EXPECT_FALSE(port->transmit(out, refused, Instant{0}));
    std::size_t n = 0;
    for (; Frame* frame = refused.pop_front(); ++n) {
      pool.free(*frame);
    }
    EXPECT_EQ(n, 6U) << "8192 may wait";
    EXPECT_FALSE(port->transmit(out, refused, Instant{0} + milliseconds{999}));
    EXPECT_TRUE(refused.empty());
    EXPECT_FALSE(port->transmit(out, refused, Instant{0} + milliseconds{1001}));
    for (n = 0; Frame* frame = refused.pop_front(); ++n) {
      pool.free(*frame);
    }
    EXPECT_EQ(n, 8192U);
  }
  EXPECT_EQ(source->in_use(), 0U);
}

TEST_F(PortTest, a_device_that_cannot_be_opened_says_why) {
  const auto source = make_source("why");
  EXPECT_NE(open_error("net_nonsense0", *source).find("net_nonsense0"), std::string::npos);
  EXPECT_NE(open_error("0000:ff:1f.7", *source).find("vfio-pci"), std::string::npos);
  const auto port = open("net_null3", *source);
  EXPECT_NE(open_error("net_null3", *source).find("named twice"), std::string::npos);
}

TEST_F(PortTest, rings_between_ports_keep_order_and_are_bounded) {
  const auto source = make_source("rings");
  const auto rings = PeerRings::create(2);
  ASSERT_TRUE(rings.ok());
  FramePool pool(*source);
  FrameList held;
  std::size_t pushed = 0;
  Frame* first = nullptr;
  while (Frame* frame = pool.alloc(64)) {
    if (!(*rings)->push(PortId{0}, PortId{1}, *frame)) {
      pool.free(*frame);
      break;
    }
    first = first == nullptr ? frame : first;
    ++pushed;
  }
  EXPECT_EQ(pushed, 1023U);
  EXPECT_EQ((*rings)->pop(PortId{1}, PortId{0}), nullptr);
  EXPECT_EQ((*rings)->pop(PortId{0}, PortId{1}), first);
  pool.free(*first);
  while (Frame* frame = (*rings)->pop(PortId{0}, PortId{1})) {
    pool.free(*frame);
  }
}

TEST(VhostSocket, path_of_a_listening_device) {
  EXPECT_EQ(vhost_listening_path("net_vhost0,iface=/a/b.sock,queues=1"), "/a/b.sock");
  EXPECT_EQ(vhost_listening_path("net_vhost0,client=0,iface=/a/b.sock"), "/a/b.sock");
  EXPECT_EQ(vhost_listening_path("net_vhost0,iface=/a/b.sock,client=1"), std::nullopt);
  EXPECT_EQ(vhost_listening_path("net_af_packet0,iface=eth0"), std::nullopt);
}

TEST(VhostSocket, a_stale_socket_goes_and_a_busy_one_stays) {
  const std::string path = testing::TempDir() + "/nbx-busy.sock";
  std::filesystem::remove(path);
  EXPECT_EQ(make_way(path), std::nullopt);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  UniqueFd listener(socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  const auto busy = make_way(path);
  ASSERT_TRUE(busy.has_value());
  EXPECT_NE(busy->message.find("busy"), std::string::npos) << busy->message;
  EXPECT_TRUE(std::filesystem::exists(path));
  listener = {};
  EXPECT_EQ(make_way(path), std::nullopt);
  EXPECT_FALSE(std::filesystem::exists(path));
  std::ofstream(path) << "not a socket";
  EXPECT_TRUE(make_way(path).has_value());
  std::filesystem::remove(path);
}

TEST(Device, pci_addresses) {
  EXPECT_TRUE(is_pci_address("0000:17:00.1"));
  EXPECT_TRUE(is_pci_address("17:00.1,dv_flow_en=1"));
  EXPECT_FALSE(is_pci_address("net_vhost0,iface=/run/a:b.c"));
  EXPECT_FALSE(is_pci_address("net_null0"));
}

TEST(TscClock, runs_like_the_monotonic_clock) {
  const auto clock = TscClock::calibrate();
  ASSERT_TRUE(clock.ok()) << clock.error().message;
  const auto steady_before = std::chrono::steady_clock::now();
  const Instant before = clock->now();
  std::this_thread::sleep_for(milliseconds{100});
  const Instant after = clock->now();
  const auto steady = std::chrono::steady_clock::now() - steady_before;
  const auto difference = std::chrono::abs(std::chrono::duration_cast<Duration>(steady) - (after - before));
  EXPECT_LT(difference, milliseconds{1});  // a preemption between the two reads; the rate is right to some ppm
}

TEST(Mailbox, a_call_is_answered_by_the_one_who_serves) {
  Mailbox mailbox;
  std::atomic<bool> stop{false};
  std::thread worker([&] {
    while (!stop) {
      mailbox.serve(Instant{42});
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(mailbox.call([](Instant now) { return now.ps + 1; }, milliseconds{2000}), 43);
  stop = true;
  worker.join();
}

TEST(Mailbox, a_call_that_nobody_serves_is_given_up_and_never_done) {
  Mailbox mailbox;
  bool done = false;
  EXPECT_EQ(mailbox.call([&](Instant) { return done = true; }, milliseconds{20}), std::nullopt);
  EXPECT_TRUE(mailbox.serve(Instant{}));
  EXPECT_FALSE(done);
  EXPECT_FALSE(mailbox.serve(Instant{}));
}

TEST(Mailbox, is_bounded) {
  Mailbox mailbox;
  std::size_t posted = 0;
  while (posted < 100'000 && mailbox.post([](Instant) {})) {
    ++posted;
  }
  EXPECT_EQ(posted, 4096U);
}

}  // namespace
}  // namespace nbx::port
