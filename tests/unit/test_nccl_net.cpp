// Net against itself over a wire that loses, doubles and delays, and against peers that say wrong things.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/rng.hpp"
#include "nccl-glue/net/net.hpp"
#include "nccl-glue/wire/ib.hpp"
#include "support/net_rig.hpp"

namespace nbx::nccl {
namespace {

using namespace std::chrono_literals;
using test::Bytes;
using test::Cable;
using test::Fate;
using test::NetHost;
using test::NetLog;
using test::Packet;
using testing::ElementsAre;
using testing::HasSubstr;

NetConfig config_of(int version) {
  return {.version = *find_version(version, true), .port = NetHost::port, .timeout = 8, .retry_cnt = 7};
}

// ---- two of them

struct Terms {
  const char* name;
  int version = 22809;
  std::uint8_t qps = 1;
  bool split = false;
  bool adaptive_routing = false;
};

/// One direction: a receiver that keeps receives posted, and a sender that uses every clear-to-send. Messages have all
/// sizes from 0 to `size_max`.
class Traffic {
 public:
  static constexpr std::size_t depth = 8;
  static constexpr std::size_t send_slots = 64;
  static constexpr std::size_t size_max = 20'000;

  Traffic(NetHost& to, NetHost& from, const NetConfig& config, std::size_t count)
      : to_(to),
        from_(from),
        count_(count),
        arrivals_(to.add_memory(0x10000, depth * size_max)),
        departures_(from.add_memory(0x10000, send_slots * size_max)) {
    receiver.then_ready = [this](NetId, Instant now) {
      for (std::size_t i = 0; i < depth; ++i) {
        post(now);
      }
    };
    receiver.then_received = [this](NetId, std::uint64_t size, Instant now) { take(size, now); };
    sender.then_clear = [this](NetId, Instant now) { send(now); };
    sender.then_sent = [this](NetId, Instant now) { send(now); };
    Handle handle{};
    receiving = to.net.listen(NetHost::ghost, config, receiver, handle);
    sending = from.net.connect(NetHost::ghost, config, handle, sender, {});
  }

  static std::size_t size_of(std::size_t k) { return k * 7919 % (size_max + 1); }

  NetLog receiver;
  NetLog sender;
  NetId receiving{};
  NetId sending{};

 private:
  void post(Instant now) {
    if (posted_ < count_) {
      const std::size_t slot = posted_++ % depth;
      ASSERT_TRUE(
          to_.net.post(receiving, {arrivals_.spec().addr + slot * size_max, arrivals_.spec().key, size_max}, 1, now));
    }
  }
  void take(std::uint64_t size, Instant now) {
    const std::size_t k = receiver.received.size() - 1;
    ASSERT_EQ(size, size_of(k)) << k;
    Bytes got(size);
    arrivals_.read(arrivals_.spec().addr + k % depth * size_max, got);
    ASSERT_EQ(got, test::pattern(size, k)) << k;
    post(now);
  }
  void send(Instant now) {
    while (from_.net.clear_to_send(sending) != 0 && next_ - sender.sent < send_slots) {
      const std::uint64_t at = departures_.spec().addr + next_ % send_slots * size_max;
      departures_.write(at, test::pattern(size_of(next_), next_));
      ASSERT_TRUE(from_.net.send(sending, {at, departures_.spec().key, size_of(next_)}, now));
      ++next_;
    }
  }

  NetHost& to_;
  NetHost& from_;
  std::size_t count_;
  rdma::Region& arrivals_;
  rdma::Region& departures_;
  std::size_t posted_ = 0;
  std::size_t next_ = 0;
};

class TwoNets : public testing::TestWithParam<Terms> {};

TEST_P(TwoNets, DeliverEveryMessageThroughALossyWire) {
  const Terms& terms = GetParam();
  constexpr std::size_t count = 600;  // more than twice the FIFO
  NetHost a(1, 1);
  NetHost b(2, 2);
  Rng rng{7};
  std::size_t lost = 0;
  Cable cable(a, b, [&](unsigned, const Packet&) -> Fate {
    const std::uint64_t dice = rng.below(1000);
    lost += dice < 10 ? 1 : 0;
    return {.lost = dice < 10, .twice = dice >= 10 && dice < 20, .late = dice >= 980 ? Duration{3us} : Duration{}};
  });
  NetConfig config = config_of(terms.version);
  config.qps_per_connection = terms.qps;
  config.split_data_on_qps = terms.split;
  config.adaptive_routing = terms.adaptive_routing;
  Traffic up(a, b, config, count);
  Traffic down(b, a, config, count);
  cable.run(Instant{} + 600s);
  for (const Traffic* each : {&up, &down}) {
    EXPECT_EQ(each->receiver.ready, 1U);
    EXPECT_EQ(each->sender.ready, 1U);
    EXPECT_EQ(each->receiver.received.size(), count);
    EXPECT_EQ(each->sender.sent, count);
    EXPECT_TRUE(each->receiver.closed.empty() && each->sender.closed.empty());
  }
  EXPECT_GT(lost, 50U);

  a.net.close(up.receiving);
  a.net.close(down.sending);
  cable.run(Instant{} + 600s);
  EXPECT_THAT(up.sender.closed, ElementsAre(testing::Pair(up.sending, "")));
  EXPECT_THAT(down.receiver.closed, ElementsAre(testing::Pair(down.receiving, "")));
  for (NetHost* each : {&a, &b}) {
    EXPECT_EQ(each->endpoint.transport->qp_count(), 0U);
    EXPECT_EQ(each->memory().size(), 2U) << "the test's own";
  }
}

INSTANTIATE_TEST_SUITE_P(Terms, TwoNets,
                         testing::Values(Terms{.name = "plain"}, Terms{.name = "plain_2_29", .version = 22907},
                                         Terms{.name = "plain_2_22", .version = 22203},
                                         Terms{.name = "four_qps", .qps = 4},
                                         Terms{.name = "eight_qps_2_29", .version = 22907, .qps = 8},
                                         Terms{.name = "split", .qps = 3, .split = true},
                                         Terms{.name = "split_2_29", .version = 22907, .qps = 3, .split = true},
                                         Terms{.name = "adaptive_routing", .qps = 2, .adaptive_routing = true}),
                         [](const auto& row) { return std::string{row.param.name}; });

// ---- one of them

/// The test is the peer, 10.0.0.1; the ghost is 10.0.0.2.
class OneNet : public testing::Test {
 protected:
  static constexpr Qpn peer_qpn{0x77};
  static constexpr std::uint64_t peer_memory = 0x7f00'0000'9000;
  static constexpr std::uint32_t peer_key = 0x5500;

  OneNet() { host.neighbours.learn(from_peer.source_ip, from_peer.source_mac); }

  [[nodiscard]] ib::Metadata peer_end() const {
    ib::Metadata end;
    end.qps = {{.qpn = peer_qpn.value}};
    end.devices = {{.mtu_code = 5, .gid = from_peer.source_ip, .rkey = peer_key}};
    end.name = "mlx5_0";
    end.address = peer_memory;
    end.ndevs = 1;
    return end;
  }

  // The ghost receives.
  void listen() {
    Handle handle{};
    id = host.net.listen(NetHost::ghost, config, log, handle);
    magic = ib::decode_handle(handle)->magic;
  }
  void say_hello() {
    stream = host.streams.accept(NetHost::port, from_peer.source_ip, now);
    say(ib::encode(ib::Hello{.magic = magic}));
  }
  void receiver_up_to_metadata(const ib::Metadata& end, std::int32_t listed = 1) {
    listen();
    say_hello();
    say(ib::encode(version, ib::DeviceList{.ndevs = listed, .devs = {}}));
    say(ib::encode(version, end));
  }
  void receiver_ready() {
    receiver_up_to_metadata(peer_end());
    take_ghost_end(host.streams.take(stream));
    say(std::array{std::byte{1}, std::byte{0}, std::byte{0}, std::byte{0}});
    ASSERT_EQ(log.ready, 1U);
  }

  // The ghost sends.
  void connect() {
    id = host.net.connect(NetHost::ghost, config,
                          ib::encode(ib::ListenHandle{.address = from_peer.source_ip, .port = 999}), log, now);
    host.endpoint.wheel.run(now);
    ASSERT_EQ(host.streams.calls.size(), 1U);
    stream = host.streams.calls[0].id;
  }
  void sender_up_to_metadata(const ib::Metadata& end, std::int32_t listed = 1) {
    connect();
    host.streams.open.at(stream).user->on_open(stream, NetHost::ghost, 999, from_peer.source_ip, now);
    say(ib::encode(version, ib::DeviceList{.ndevs = listed, .devs = {}}));
    ghost_said = host.streams.take(stream);
    say(ib::encode(version, end));
  }
  void sender_ready() {
    sender_up_to_metadata(peer_end());
    ghost_said.erase(ghost_said.begin(), ghost_said.begin() + ib::hello_size);
    take_ghost_end(ghost_said);
    ASSERT_EQ(log.ready, 1U);
  }

  template <class Container>
  void say(const Container& bytes) {
    host.streams.deliver(stream, bytes, now);
  }
  void take_ghost_end(ConstBytes said) {
    const auto end = ib::decode_metadata(version, said.subspan(ib::device_list_size(version)));
    ASSERT_TRUE(end);
    ghost_end = *end;
  }
  /// A packet from the peer; answers what the ghost says to it.
  std::vector<Packet> receive(const Packet& packet) {
    host.endpoint.receive(test::encode(packet, from_peer, Qpn{ghost_end.qps[0].qpn}), now);
    return said();
  }
  std::vector<Packet> said() {
    std::vector<Packet> packets;
    for (const Bytes& frame : host.endpoint.sent(now)) {
      wire::Parsed parsed;
      EXPECT_EQ(wire::parse(frame, {}, parsed), Drop::none);
      packets.push_back(test::decode(frame, parsed));
    }
    return packets;
  }
  std::vector<Packet> write_elements(std::uint64_t slot, const std::vector<ib::ClearToSend>& elements) {
    Packet write{.opcode = wire::Opcode::rc_rdma_write_only, .psn = psn++, .ack_request = true};
    write.address = ghost_end.address + slot * 512;
    write.rkey = ghost_end.devices[0].rkey;
    for (const ib::ClearToSend& element : elements) {
      test::append(write.payload, ib::encode(version, element));
    }
    write.length = static_cast<std::uint32_t>(write.payload.size());
    return receive(write);
  }
  static ib::ClearToSend element(std::uint64_t sequence) {
    return {.address = 0x1'0000, .size = 5000, .rkeys = {0x99}, .tag = 3, .sequence = sequence};
  }
  void expect_closed(std::string_view why) {
    ASSERT_EQ(log.closed.size(), 1U) << "not " << why;
    EXPECT_EQ(log.closed[0].first, id);
    EXPECT_THAT(log.closed[0].second, HasSubstr(std::string{why}));
    EXPECT_TRUE(host.streams.open.at(stream).closed);
    EXPECT_EQ(host.endpoint.transport->qp_count(), 0U);
    EXPECT_EQ(host.memory().size(), 0U);
    EXPECT_FALSE(host.net.send(id, {}, now));
    EXPECT_FALSE(host.net.post(id, {}, 0, now));
    host.net.close(id);
  }
  void pass(Duration time) {
    const Instant end = now + time;
    static_cast<void>(said());
    while (host.endpoint.wheel.next_deadline() <= end) {
      now = host.endpoint.wheel.next_deadline();
      host.endpoint.wheel.run(now);
      static_cast<void>(said());
    }
    now = end;
  }

  const Version& version = **find_version(22809);
  wire::Path from_peer = test::path_between(1, 2);
  NetHost host{2};
  NetLog log;
  NetConfig config = config_of(22809);
  NetId id{};
  std::uint64_t magic = 0;
  ghost::StreamId stream{};
  Bytes ghost_said;
  ib::Metadata ghost_end;
  std::uint32_t psn = 0;
  Instant now{};
};

TEST_F(OneNet, EveryListenerHasItsOwnMagicAndStrangersAreClosed) {
  std::set<std::uint64_t> magics;
  std::vector<NetId> ids;
  for (int i = 0; i < 3000; ++i) {
    listen();
    magics.insert(magic);
    ids.push_back(id);
  }
  EXPECT_EQ(magics.size(), 3000U);
  EXPECT_EQ(host.streams.listeners.size(), 1U);
  const std::uint64_t right = magic;
  for (const ib::Hello& hello : {ib::Hello{.magic = right + 1}, ib::Hello{}, ib::Hello{.magic = right, .type = 3}}) {
    stream = host.streams.accept(NetHost::port, from_peer.source_ip, now);
    say(ib::encode(hello));
    EXPECT_TRUE(host.streams.open.at(stream).closed);
  }
  EXPECT_TRUE(log.closed.empty()) << "the listeners wait on";
  say_hello();
  EXPECT_FALSE(host.streams.open.at(stream).closed);
  const ghost::StreamId first = std::exchange(stream, {});
  say_hello();
  EXPECT_TRUE(host.streams.open.at(stream).closed) << "one connection each";
  EXPECT_FALSE(host.streams.open.at(first).closed);
  for (const NetId each : ids) {
    host.net.close(each);
  }
  EXPECT_TRUE(host.streams.open.at(first).closed);
  EXPECT_TRUE(log.closed.empty()) << "whoever closes knows";
}

TEST_F(OneNet, TheSameSeedDrawsTheSameMagics) {
  NetHost other{2};
  Handle mine{};
  Handle others{};
  host.net.listen(NetHost::ghost, config, log, mine);
  other.net.listen(NetHost::ghost, config, log, others);
  EXPECT_EQ(mine, others);
}

struct WrongEnd {
  std::string name;
  std::function<void(ib::Metadata&)> spoil;
  std::string why;
};

const std::vector<WrongEnd>& wrong_ends() {
  static const std::vector<WrongEnd> all = {
      {"no devices", [](auto& e) { e.ndevs = 0; }, "0 devices"},
      {"many devices", [](auto& e) { e.ndevs = 99; }, "99 devices"},
      {"minus one device", [](auto& e) { e.ndevs = -1; }, "-1 devices"},
      {"other than listed", [](auto& e) { e.ndevs = 2; }, "2 devices, its device list 1"},
      {"no queue pair", [](auto& e) { e.qps[0].qpn = 0; }, "no queue pair"},
      {"the GSI", [](auto& e) { e.qps[0].qpn = 1; }, "queue pair number 1"},
      {"25 bits", [](auto& e) { e.qps[0].qpn = 0x1000000; }, "queue pair number 16777216"},
      {"on no device", [](auto& e) { e.qps[0].device = 1; }, "on device 1 of 1"},
      {"on device -1", [](auto& e) { e.qps[0].device = -1; }, "on device -1 of 1"},
      {"InfiniBand", [](auto& e) { e.devices[0].link_layer = ib::LinkLayer::infiniband; }, "link layer 1"},
      {"MTU code 9", [](auto& e) { e.devices[0].mtu_code = 9; }, "MTU code 9"},
      {"MTU code 0", [](auto& e) { e.devices[0].mtu_code = 0; }, "MTU code 0"},
      {"no address", [](auto& e) { e.address = 0; }, "no address"},
      {"IPv6", [](auto& e) { e.devices[0].gid = *parse_ip("fd00::1"); }, "no address of its family"},
  };
  return all;
}

TEST_F(OneNet, AReceiverRefusesWrongMetadata) {
  for (const WrongEnd& wrong : wrong_ends()) {
    SCOPED_TRACE(wrong.name);
    ib::Metadata end = peer_end();
    wrong.spoil(end);
    log.closed.clear();
    receiver_up_to_metadata(end);
    expect_closed(wrong.why);
  }
}

TEST_F(OneNet, ASenderRefusesWrongMetadata) {
  for (const WrongEnd& wrong : wrong_ends()) {
    SCOPED_TRACE(wrong.name);
    ib::Metadata end = peer_end();
    wrong.spoil(end);
    log.closed.clear();
    host.streams.calls.clear();
    sender_up_to_metadata(end);
    expect_closed(wrong.why);
  }
  ib::Metadata end = peer_end();
  end.qps.push_back({.qpn = 0x78});
  log.closed.clear();
  host.streams.calls.clear();
  sender_up_to_metadata(end);
  expect_closed("2 queue pairs, the sender 1");
}

TEST_F(OneNet, WrongDeviceListsAreRefused) {
  for (const std::int32_t devices : {0, -1, 5, 99}) {
    log.closed.clear();
    receiver_up_to_metadata(peer_end(), devices);
    expect_closed("device list has " + std::to_string(devices));
    log.closed.clear();
    host.streams.calls.clear();
    sender_up_to_metadata(peer_end(), devices);
    expect_closed("device list has " + std::to_string(devices));
  }
}

TEST_F(OneNet, AnEndThatLeavesMidwayIsNamed) {
  const Bytes list = ib::encode(version, ib::DeviceList{});
  Bytes whole = list;
  test::append(whole, ib::encode(version, peer_end()));
  test::append(whole, std::array{std::byte{1}, std::byte{0}, std::byte{0}});
  for (std::size_t size = 0; size <= whole.size(); size += size < 40 || size + 40 > whole.size() ? 1 : 97) {
    log.closed.clear();
    listen();
    say_hello();
    say(ConstBytes{whole}.first(size));
    host.streams.end(stream, now);
    expect_closed(size < 20 ? "device list" : size < 20U + 3648U ? "metadata" : "readiness");
  }
}

TEST_F(OneNet, SurplusBytesEndTheConnection) {
  listen();
  say_hello();
  say(ib::encode(version, ib::DeviceList{}));
  Bytes metadata = ib::encode(version, peer_end());
  metadata.resize(metadata.size() + 5, std::byte{7});
  say(metadata);
  expect_closed("not ready: 117901063");

  log = {};
  receiver_ready();
  say(Bytes(3));
  expect_closed("3 bytes on the side connection");
}

TEST_F(OneNet, RandomBytesNeverDoMoreThanCloseTheConnection) {
  Rng rng{11};
  for (int round = 0; round < 500; ++round) {
    log.closed.clear();
    listen();
    say_hello();
    Bytes bytes = ib::encode(version, ib::DeviceList{});
    test::append(bytes, ib::encode(version, peer_end()));
    for (std::uint64_t i = rng.below(40); i != 0; --i) {
      bytes[rng.below(round % 2 == 0 ? bytes.size() : 44)] = static_cast<std::byte>(rng.next());
    }
    say(bytes);
    if (log.closed.empty()) {
      host.net.close(id);
    } else {
      EXPECT_NE(log.closed[0].second, "");
    }
    static_cast<void>(said());
  }
  EXPECT_EQ(host.endpoint.transport->qp_count(), 0U);
  EXPECT_EQ(host.memory().size(), 0U);
}

TEST_F(OneNet, APeerThatNobodyAnswersForIsNotConnectedTo) {
  ib::Metadata end = peer_end();
  end.devices[0].gid = IpAddress::v4(0x0a0000fe);
  receiver_up_to_metadata(end);
  EXPECT_TRUE(log.closed.empty());
  pass(60s);
  expect_closed("no neighbour has the peer's address 10.0.0.254");
}

TEST_F(OneNet, AnAnswerFromANeighbourCompletesTheConnection) {
  ib::Metadata end = peer_end();
  end.devices[0].gid = IpAddress::v4(0x0a0000fe);
  receiver_up_to_metadata(end);
  EXPECT_EQ(host.streams.take(stream).size(), 20U) << "the device list; the metadata waits";
  host.net.close(id);
  pass(60s);  // the answer to a closed connection goes nowhere
  EXPECT_TRUE(log.closed.empty());
}

TEST_F(OneNet, ConnectionsThatCannotBeMadeSaySo) {
  connect();
  host.streams.end(stream, now);
  expect_closed("no connection to 10.0.0.1 port 999");

  for (const auto& [handle, why] :
       {std::pair{Handle{}, "the handle has no address"},
        {ib::encode(ib::ListenHandle{.address = *parse_ip("fd00::1"), .port = 1}), "no address of the family"}}) {
    log.closed.clear();
    id = host.net.connect(NetHost::ghost, config, handle, log, now);
    EXPECT_TRUE(log.closed.empty());
    host.endpoint.wheel.run(now);
    expect_closed(why);
  }
}

TEST_F(OneNet, WrongClearToSendsEndTheConnection) {
  struct Wrong {
    std::uint64_t slot;
    std::vector<ib::ClearToSend> elements;
    std::string why;
  };
  auto no_address = element(1);
  no_address.address = 0;
  auto no_key = element(1);
  no_key.rkeys[0] = 0;
  auto none_grouped = element(1);
  none_grouped.grouped = 0;
  auto nine = element(1);
  nine.grouped = 9;
  for (const Wrong& wrong : {Wrong{0, {no_address}, "address or key 0"}, Wrong{0, {no_key}, "address or key 0"},
                             Wrong{0, {none_grouped}, "has 0 elements"}, Wrong{0, {nine}, "has 9 elements"},
                             Wrong{1, {element(2)}, "clear-to-send 2 in slot 1, where 1 is next"},
                             Wrong{0, {element(2)}, "clear-to-send 2 in slot 0, where 1 is next"},
                             Wrong{0, {element(0)}, "clear-to-send 0 in slot 0, where 1 is next"},
                             Wrong{255, {element(256)}, "clear-to-send 256 in slot 255, where 1 is next"}}) {
    SCOPED_TRACE(wrong.why);
    log = {};
    host.streams.calls.clear();
    psn = 0;
    sender_ready();
    write_elements(wrong.slot, wrong.elements);
    expect_closed(wrong.why);
  }
}

TEST_F(OneNet, MoreClearToSendsThanSlotsEndTheConnection) {
  sender_ready();
  for (std::uint64_t k = 0; k < 256; ++k) {
    write_elements(k, {element(k + 1)});
  }
  EXPECT_EQ(host.net.clear_to_send(id), 256U);
  EXPECT_TRUE(log.closed.empty());
  write_elements(0, {element(257)});
  expect_closed("more than 256");
}

TEST_F(OneNet, AGroupIsSentWhenAllOfItIsThere) {
  sender_ready();
  rdma::Region& region = host.add_memory(0x2000, 0x4000);
  const Bytes data = test::pattern(0x4000);
  region.write(0x2000, data);
  std::vector<ib::ClearToSend> elements(3, element(1));
  for (std::uint32_t i = 0; i < 3; ++i) {
    elements[i].grouped = 3;
    elements[i].tag = 10 + i;
    elements[i].address += i * 0x10000;
    elements[i].rkeys[0] += i;
  }
  write_elements(0, elements);
  EXPECT_THAT(log.clear, ElementsAre(testing::Pair(5000, 10), testing::Pair(5000, 11), testing::Pair(5000, 12)));
  const std::uint32_t key = region.spec().key;
  EXPECT_TRUE(host.net.send(id, {0x2000, key, 100}, now));
  EXPECT_TRUE(host.net.send(id, {0x2100, key, 0}, now));
  EXPECT_TRUE(said().empty());
  EXPECT_TRUE(host.net.send(id, {0x2200, key, 9000}, now)) << "cut to 5000";
  EXPECT_FALSE(host.net.send(id, {0x2200, key, 1}, now));
  const std::vector<Packet> packets = said();
  ASSERT_EQ(packets.size(), 5U);
  EXPECT_EQ(packets[0].opcode, wire::Opcode::rc_rdma_write_only);
  EXPECT_EQ(packets[0].address, 0x1'0000U);
  EXPECT_EQ(packets[0].rkey, 0x99U);
  EXPECT_EQ(packets[0].length, 100U);
  EXPECT_EQ(packets[1].length, 0U);
  EXPECT_EQ(packets[2].opcode, wire::Opcode::rc_rdma_write_first);
  EXPECT_EQ(packets[2].address, 0x3'0000U);
  EXPECT_EQ(packets[2].rkey, 0x9bU);
  EXPECT_EQ(packets[2].length, 5000U);
  EXPECT_EQ(packets[3].opcode, wire::Opcode::rc_rdma_write_last);
  const Packet& sizes = packets[4];
  EXPECT_EQ(sizes.opcode, wire::Opcode::rc_rdma_write_only_with_immediate);
  EXPECT_EQ(sizes.address, peer_memory);
  EXPECT_EQ(sizes.rkey, peer_key);
  EXPECT_EQ(test::to_hex(sizes.payload),
            "64000000"
            "00000000"
            "88130000");
  EXPECT_EQ(log.sent, 0U);
  receive({.opcode = wire::Opcode::rc_acknowledge, .psn = 4, .syndrome = 0x1f, .msn = 4});
  EXPECT_EQ(log.sent, 3U);

  // The next group's sizes go to the next row.
  for (auto& each : elements) {
    each.sequence = 2;
    each.grouped = 2;
  }
  write_elements(1, {elements[0], elements[1]});
  EXPECT_TRUE(host.net.send(id, {0x2000, key, 1}, now));
  EXPECT_TRUE(host.net.send(id, {0x2000, key, 2}, now));
  const std::vector<Packet> more = said();
  ASSERT_EQ(more.size(), 3U);
  EXPECT_EQ(more[2].address, peer_memory + 32);
  EXPECT_EQ(test::to_hex(more[2].payload),
            "01000000"
            "02000000");
}

TEST_F(OneNet, AUserMayUseAWholeGroupInTheFirstCall) {
  sender_ready();
  log.then_clear = [this](NetId which, Instant then) {
    while (host.net.clear_to_send(which) != 0) {
      ASSERT_TRUE(host.net.send(which, {}, then));
    }
  };
  auto each = element(1);
  each.grouped = 8;
  write_elements(0, std::vector(8, each));
  EXPECT_EQ(log.clear.size(), 8U);
  receive({.opcode = wire::Opcode::rc_acknowledge, .psn = 8, .syndrome = 0x1f, .msn = 8});
  EXPECT_EQ(log.sent, 8U);
}

TEST_F(OneNet, AGroupWhoseElementsDisagreeIsThatOfItsFirst) {
  sender_ready();
  auto first = element(1);
  auto second = element(1);
  first.grouped = 2;
  second.grouped = 7;
  write_elements(0, {first, second});
  ASSERT_TRUE(host.net.send(id, {}, now));
  ASSERT_TRUE(host.net.send(id, {}, now));
  EXPECT_EQ(said().size(), 3U);
}

TEST_F(OneNet, AGroupInTwoWritesIsTakenWhenBothAreThere) {
  sender_ready();
  auto first = element(1);
  first.grouped = 2;
  write_elements(0, {first});
  EXPECT_TRUE(log.clear.empty());
  EXPECT_TRUE(log.closed.empty());
  Packet second{.opcode = wire::Opcode::rc_rdma_write_only, .psn = psn++};
  second.address = ghost_end.address + 64;
  second.rkey = ghost_end.devices[0].rkey;
  second.length = 64;
  test::append(second.payload, ib::encode(version, first));
  receive(second);
  EXPECT_EQ(log.clear.size(), 2U);
}

TEST_F(OneNet, ARequestThatNobodyAcknowledgesNamesTheStatus) {
  sender_ready();
  write_elements(0, {element(1)});
  ASSERT_TRUE(host.net.send(id, {}, now));
  pass(60s);
  expect_closed("to 10.0.0.1: IBV_WC_RETRY_EXC_ERR(12)");

  log = {};
  receiver_ready();
  ASSERT_TRUE(host.net.post(id, {1, 1, 1}, 0, now));
  pass(60s);
  expect_closed("IBV_WC_RETRY_EXC_ERR(12)");
}

TEST_F(OneNet, ARefusedWriteNamesTheStatus) {
  receiver_ready();
  ASSERT_TRUE(host.net.post(id, {1, 1, 1}, 0, now));
  ASSERT_EQ(said().size(), 1U);
  constexpr std::uint8_t remote_access_error = 0x62;
  receive({.opcode = wire::Opcode::rc_acknowledge, .psn = 0, .syndrome = remote_access_error});
  expect_closed("IBV_WC_REM_ACCESS_ERR(10)");
}

TEST_F(OneNet, AMessageBeyondWhatWasOfferedEndsTheConnection) {
  receiver_ready();
  ASSERT_TRUE(host.net.post(id, {1, 1, 100}, 0, now));
  Packet message{.opcode = wire::Opcode::rc_rdma_write_only_with_immediate, .psn = 0};
  message.imm = 0x65000000;  // 101, as 2.28 puts it on the wire
  receive(message);
  expect_closed("message 0 has 101 bytes, where 100 were offered");
}

TEST_F(OneNet, ASendMessageEndsTheConnection) {
  receiver_ready();
  ASSERT_TRUE(host.net.post(id, {1, 1, 100}, 0, now));
  receive({.opcode = wire::Opcode::rc_send_only, .psn = 0});
  expect_closed("no RDMA write with immediate");
}

TEST_F(OneNet, PartsThatDisagreeEndTheConnection) {
  config.split_data_on_qps = true;
  ib::Metadata end = peer_end();
  end.qps.push_back({.qpn = 0x78});
  receiver_up_to_metadata(end);
  take_ghost_end(host.streams.take(stream));
  say(std::array{std::byte{1}, std::byte{0}, std::byte{0}, std::byte{0}});
  ASSERT_TRUE(host.net.post(id, {1, 1, 100}, 0, now));
  Packet message{.opcode = wire::Opcode::rc_rdma_write_only_with_immediate, .psn = 0};
  message.imm = 0x32000000;
  receive(message);
  EXPECT_TRUE(log.received.empty()) << "one of two";
  std::swap(ghost_end.qps[0], ghost_end.qps[1]);
  message.imm = 0x33000000;
  receive(message);
  expect_closed("message 0 has 51 bytes, where 50 were said");
}

TEST_F(OneNet, OutstandingReceivesAreLimitedToTheSlots) {
  receiver_ready();
  for (int k = 0; k < 256; ++k) {
    ASSERT_TRUE(host.net.post(id, {1, 1, 0}, 0, now));
  }
  EXPECT_FALSE(host.net.post(id, {1, 1, 0}, 0, now));
  Packet message{.opcode = wire::Opcode::rc_rdma_write_only_with_immediate, .psn = 0};
  receive(message);
  EXPECT_THAT(log.received, ElementsAre(0));
  EXPECT_TRUE(host.net.post(id, {1, 1, 0}, 0, now));
}

TEST_F(OneNet, NothingIsPostedOrSentBeforeBothEndsAreReady) {
  receiver_up_to_metadata(peer_end());
  EXPECT_NE(host.net.qpn(id), Qpn{});
  EXPECT_FALSE(host.net.post(id, {1, 1, 1}, 0, now));
  host.net.close(id);
  EXPECT_EQ(host.net.qpn(id), Qpn{});
  sender_up_to_metadata(peer_end(), 1);
  EXPECT_FALSE(host.net.send(id, {}, now)) << "not cleared";
}

// The smaller MTU is the sender's; the receiver uses the sender's as given (and answers the smaller).
TEST_F(OneNet, PathMtuFollowsTheSender) {
  for (const auto& [own, code, sending, receiving, answer] :
       {std::tuple{4096U, 3U, 1024U, 1024U, 3U}, {1024U, 5U, 1024U, 4096U, 3U}}) {
    config.path_mtu = own;
    ib::Metadata end = peer_end();
    end.devices[0].mtu_code = code;
    log = {};
    host.streams.calls.clear();
    sender_up_to_metadata(end);
    EXPECT_EQ(host.endpoint.transport->find_qp(NetHost::ghost, host.net.qpn(id))->attr().path_mtu, sending);
    host.net.close(id);
    receiver_up_to_metadata(end);
    EXPECT_EQ(host.endpoint.transport->find_qp(NetHost::ghost, host.net.qpn(id))->attr().path_mtu, receiving);
    take_ghost_end(host.streams.take(stream));
    EXPECT_EQ(ghost_end.devices[0].mtu_code, answer);
    host.net.close(id);
  }
}

TEST_F(OneNet, AUserMayCloseFromAnyCall) {
  const auto closes = [this](NetId which, auto&&...) { host.net.close(which); };
  log.then_ready = closes;
  receiver_ready();
  EXPECT_EQ(host.endpoint.transport->qp_count(), 0U);
  host.streams.calls.clear();
  log.ready = 0;
  sender_ready();
  EXPECT_EQ(host.endpoint.transport->qp_count(), 0U);
  log.then_ready = nullptr;

  log.ready = 0;
  log.then_received = closes;
  receiver_ready();
  ASSERT_TRUE(host.net.post(id, {1, 1, 0}, 0, now));
  ASSERT_TRUE(host.net.post(id, {1, 1, 0}, 0, now));
  receive({.opcode = wire::Opcode::rc_rdma_write_only_with_immediate, .psn = 0});
  EXPECT_EQ(host.endpoint.transport->qp_count(), 0U);

  log.ready = 0;
  host.streams.calls.clear();
  log.then_clear = closes;
  sender_ready();
  auto pair = element(1);
  pair.grouped = 2;
  write_elements(0, {pair, pair});
  EXPECT_EQ(log.clear.size(), 1U);
  EXPECT_EQ(host.endpoint.transport->qp_count(), 0U);
  log.then_clear = nullptr;

  log.ready = 0;
  psn = 0;
  host.streams.calls.clear();
  log.then_sent = closes;
  sender_ready();
  write_elements(0, {element(1)});
  ASSERT_TRUE(host.net.send(id, {}, now));
  static_cast<void>(said());
  receive({.opcode = wire::Opcode::rc_acknowledge, .psn = 0, .syndrome = 0x1f, .msn = 1});
  EXPECT_EQ(log.sent, 1U);
  EXPECT_EQ(host.endpoint.transport->qp_count(), 0U);
  EXPECT_EQ(host.memory().size(), 0U);
  EXPECT_TRUE(log.closed.empty());
}

}  // namespace
}  // namespace nbx::nccl
