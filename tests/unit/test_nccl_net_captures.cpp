// A ghost in the place of either end of recorded NET/IB connections: the other end's bytes and packets are those that
// NCCL sent, and what the ghost says must be what NCCL said in its place. Queue pair numbers, and the ghost's own
// addresses and keys, are mapped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "nccl-glue/wire/ib.hpp"
#include "support/ib_capture.hpp"
#include "support/net_rig.hpp"

namespace nbx::nccl {
namespace {

using test::Bytes;
using test::NetHost;
using test::NetLog;
using test::Packet;
using test::RocePacket;

/// A recorded run, and the switches that it was made with.
struct Switches {
  std::string name;
  int version = 22809;
  std::uint8_t qps_per_connection = 1;
  bool split = false;
  bool adaptive_routing = false;
  std::uint8_t traffic_class = 0;
  std::uint8_t service_level = 0;
  std::optional<std::uint8_t> fifo_traffic_class{};
  std::uint32_t parts = 1;  // immediates per message
};

void PrintTo(const Switches& run, std::ostream* os) { *os << run.name; }

/// One recorded message, from its clear-to-send on.
struct Message {
  ib::ClearToSend element;
  Packet announcement;
  Bytes payload{};
  std::uint32_t size = 0;
  std::set<std::size_t> landed{};  // queue pairs whose immediate has been seen
  bool complete = false;
};

/// Everything of one connection, by who said it.
class Conversation {
 public:
  Conversation(const Switches& run, const Version& version, const test::IbCapture& capture,
               const test::TcpConnection& side)
      : tcp(side), list_size(ib::device_list_size(version)) {
    const ConstBytes up{side.from_client};
    const ConstBytes down{side.from_server};
    sender = *ib::decode_metadata(version, up.subspan(ib::hello_size + list_size, version.ib_metadata_size));
    receiver = *ib::decode_metadata(version, down.subspan(list_size, version.ib_metadata_size));
    for (const RocePacket& p : capture.roce) {
      if (belongs(p, sender) || belongs(p, receiver)) {
        packets.push_back(p);
        owner.push_back(npos);
        note(run, version, p);
      }
    }
  }

  /// To which queue pair of the end that `end` describes `p` goes; npos: to none.
  [[nodiscard]] static std::size_t index_of(const RocePacket& p, const ib::Metadata& end) {
    for (std::size_t q = 0; q < end.qps.size(); ++q) {
      const ib::QpRecord& qp = end.qps[q];
      if (qp.qpn == p.qpn.value && end.devices[static_cast<std::size_t>(qp.device)].gid == p.destination) {
        return q;
      }
    }
    return npos;
  }
  [[nodiscard]] static bool belongs(const RocePacket& p, const ib::Metadata& end) { return index_of(p, end) != npos; }
  [[nodiscard]] bool from_sender(const RocePacket& p) const { return belongs(p, receiver); }
  [[nodiscard]] static bool is_ack(const RocePacket& p) { return p.packet.opcode == wire::Opcode::rc_acknowledge; }

  static constexpr std::size_t npos = ~std::size_t{0};

  test::TcpConnection tcp;
  std::size_t list_size;
  ib::Metadata sender;
  ib::Metadata receiver;
  std::vector<RocePacket> packets;
  std::vector<std::size_t> owner;  // of each packet: the message that it carries or announces
  std::vector<Message> messages;

 private:
  void note(const Switches& run, const Version& version, const RocePacket& p) {
    if (is_ack(p)) {
      return;
    }
    if (!from_sender(p)) {
      owner.back() = messages.size();
      messages.push_back({.element = *ib::decode_clear_to_send(version, p.packet.payload), .announcement = p.packet});
      return;
    }
    const std::size_t q = index_of(p, receiver);
    const auto& op = wire::traits(p.packet.opcode);
    if (op.starts() && p.packet.address != 0) {
      current_[q] = oldest_at(p, q);
    }
    const std::size_t k = current_.at(q);
    owner.back() = k;
    Message& message = messages.at(k);
    if (op.starts() && p.packet.address != 0) {
      at_[q] = p.packet.address - message.element.address;
    }
    std::size_t& at = at_[q];
    message.payload.resize(std::max(message.payload.size(), at + p.packet.payload.size()));
    std::ranges::copy(p.packet.payload, message.payload.begin() + static_cast<std::ptrdiff_t>(at));
    at += p.packet.payload.size();
    if (op.has(wire::ext::immdt)) {
      message.landed.insert(q);
      message.size = ib::size_of_immediate(version, p.packet.imm);
      message.complete = message.landed.size() == run.parts;
    }
  }
  /// The message whose buffer a first packet writes to, which nothing on its queue pair has completed.
  [[nodiscard]] std::size_t oldest_at(const RocePacket& p, std::size_t q) const {
    const auto found = std::ranges::find_if(messages, [&](const Message& m) {
      return !m.complete && !m.landed.contains(q) && m.element.address <= p.packet.address &&
             p.packet.address < m.element.address + m.element.size;
    });
    return static_cast<std::size_t>(found - messages.begin());
  }

  std::map<std::size_t, std::size_t> current_;  // by queue pair: the message under way, and the next byte
  std::map<std::size_t, std::size_t> at_;
};

class Replay : public testing::TestWithParam<std::tuple<Switches, std::size_t>> {
 protected:
  const Switches& run = std::get<0>(GetParam());
  const Version& version = **find_version(run.version);
  Conversation talk{run, version, test::read_ib_capture(run.name),
                    test::read_ib_capture(run.name).side_connections().at(std::get<1>(GetParam()))};
  bool one_device = talk.sender.ndevs == 1;
  NetConfig config{.version = &version,
                   .port = NetHost::port,
                   .qps_per_connection = run.qps_per_connection,
                   .split_data_on_qps = run.split,
                   .adaptive_routing = run.adaptive_routing,
                   .traffic_class = run.traffic_class,
                   .service_level = run.service_level,
                   .fifo_traffic_class = run.fifo_traffic_class};
  NetLog log;
  Instant now{};

  static wire::Path path_to(const IpAddress& ghost, const IpAddress& peer) {
    wire::Path path = test::path_between(2, 1);
    path.source_ip = ghost;
    path.destination_ip = peer;
    return path;
  }
  void know_peers(NetHost& host, const ib::Metadata& peer) {
    for (const ib::DeviceRecord& device : peer.devices) {
      host.neighbours.learn(device.gid, test::path_between(2, 1).destination_mac);
    }
  }
  /// A recorded packet to the ghost: from the peer's device behind that queue pair to the ghost's queue pair.
  void inject(NetHost& host, const RocePacket& p, const ib::Metadata& recorded, const ib::Metadata& ghost) {
    const std::size_t q = Conversation::index_of(p, recorded);
    const wire::Path path = path_to(p.source, ghost.devices[0].gid);
    host.endpoint.receive(test::encode(p.packet, path, Qpn{ghost.qps[q].qpn}), now);
    collect(host);
  }
  void collect(NetHost& host) {
    for (const Bytes& frame : host.endpoint.sent(now)) {
      wire::Parsed parsed;
      ASSERT_EQ(wire::parse(frame, {}, parsed), Drop::none);
      RocePacket p{wire::source_ip(frame, parsed), wire::destination_ip(frame, parsed), parsed.dest_qpn,
                   parsed.traffic_class, test::decode(frame, parsed)};
      if (Conversation::is_ack(p)) {
        acknowledged = true;
        continue;
      }
      said.push_back(p);
    }
  }
  /// `mine` with the recorded numbers in the places that each host chooses for itself.
  [[nodiscard]] Bytes with_numbers_of(const ib::Metadata& recorded, ib::Metadata mine) const {
    EXPECT_EQ(mine.qps.size(), recorded.qps.size());
    for (std::size_t q = 0; q < mine.qps.size(); ++q) {
      mine.qps[q].qpn = recorded.qps[q].qpn;
    }
    mine.devices[0].rkey = recorded.devices[0].rkey;
    mine.name = recorded.name;
    mine.address = recorded.address;
    return ib::encode(version, mine);
  }
  void expect_said(std::vector<RocePacket> expected) {
    for (auto* each : {&said, &expected}) {
      for (RocePacket& p : *each) {
        p.packet.ack_request = false;  // where a long message asks is each requester's own affair
      }
    }
    ASSERT_EQ(said.size(), expected.size());
    for (std::size_t i = 0; i < said.size(); ++i) {
      EXPECT_EQ(said[i].packet, expected[i].packet) << "packet " << i;
      EXPECT_EQ(said[i].qpn, expected[i].qpn) << "packet " << i;
      EXPECT_EQ(said[i].destination, expected[i].destination) << "packet " << i;
      EXPECT_EQ(said[i].traffic_class, expected[i].traffic_class) << "packet " << i;
    }
  }

  std::vector<RocePacket> said;
  bool acknowledged = false;
};

/// Memory of a ghost at the recorded addresses, under the recorded keys of all devices.
class RecordedBuffers {
 public:
  RecordedBuffers(NetHost& host, const std::vector<Message>& messages) {
    std::uint64_t end = 0;
    for (const Message& m : messages) {
      begin_ = std::min(begin_, m.element.address);
      end = std::max(end, m.element.address + m.element.size);
    }
    bytes_.resize(end - begin_);
    for (const std::uint32_t key : messages.front().element.rkeys) {
      if (key != 0) {
        host.memory().add({.addr = begin_,
                           .length = bytes_.size(),
                           .key = key,
                           .access = rdma::access::remote_write,
                           .backing = rdma::Backing::external,
                           .external = bytes_.data()});
      }
    }
  }
  [[nodiscard]] ConstBytes at(std::uint64_t address, std::size_t size) const {
    return ConstBytes{bytes_}.subspan(address - begin_, size);
  }

 private:
  std::uint64_t begin_ = ~std::uint64_t{0};
  Bytes bytes_;
};

TEST_P(Replay, AGhostReceivesAsNcclDid) {
  ASSERT_FALSE(talk.messages.empty());
  NetHost host(path_to(talk.tcp.server.ip, talk.tcp.client.ip));
  know_peers(host, talk.sender);
  RecordedBuffers buffers(host, talk.messages);
  Handle handle{};
  const NetId id = host.net.listen(NetHost::ghost, config, log, handle);
  const auto listening = ib::decode_handle(handle);
  EXPECT_EQ(listening->address, talk.tcp.server.ip);

  Bytes up = talk.tcp.from_client;
  std::ranges::copy(ib::encode(ib::Hello{.magic = listening->magic}), up.begin());
  const ghost::StreamId stream = host.streams.accept(NetHost::port, talk.tcp.client.ip, now);
  const ConstBytes handshake = ConstBytes{up}.first(up.size() - ib::ready_size);
  for (std::size_t at = 0; at < handshake.size(); at += 999) {
    host.streams.deliver(stream, handshake.subspan(at, std::min<std::size_t>(999, handshake.size() - at)), now);
  }
  const Bytes answer = host.streams.take(stream);
  ASSERT_EQ(answer.size(), talk.tcp.from_server.size());
  const auto mine = ib::decode_metadata(version, ConstBytes{answer}.subspan(talk.list_size));
  if (one_device) {
    Bytes expected(answer.begin(), answer.begin() + static_cast<std::ptrdiff_t>(talk.list_size));
    test::append(expected, with_numbers_of(talk.receiver, *mine));
    EXPECT_EQ(test::to_hex(expected), test::to_hex(talk.tcp.from_server));
  }
  EXPECT_EQ(log.ready, 0U);
  host.streams.deliver(stream, ConstBytes{up}.last(ib::ready_size), now);
  ASSERT_EQ(log.ready, 1U);

  std::size_t complete = 0;
  log.then_received = [&](NetId, std::uint64_t size, Instant) {
    const Message& message = talk.messages[complete++];
    EXPECT_TRUE(std::ranges::equal(buffers.at(message.element.address, size), message.payload)) << complete;
  };
  std::vector<RocePacket> expected;
  for (std::size_t i = 0; i < talk.packets.size(); ++i) {
    RocePacket p = talk.packets[i];
    if (talk.from_sender(p)) {
      if (one_device || !Conversation::is_ack(p)) {  // with two, NCCL's clear-to-sends took turns
        inject(host, p, talk.receiver, *mine);
      }
      continue;
    }
    if (Conversation::is_ack(p)) {
      continue;
    }
    const ib::ClearToSend& element = talk.messages[talk.owner[i]].element;
    ASSERT_TRUE(host.net.post(id, {element.address, element.rkeys[0], element.size}, element.tag, now));
    collect(host);
    if (!one_device) {
      ib::ClearToSend only = element;
      only.rkeys[1] = 0;
      const auto image = ib::encode(version, only);
      p.packet.payload.assign(image.begin(), image.end());
      p.packet.psn = static_cast<std::uint32_t>(element.sequence - 1);
      p.packet.rkey = talk.sender.devices[0].rkey;
      p.qpn = Qpn{talk.sender.qps[0].qpn};
      p.destination = talk.sender.devices[0].gid;
    }
    expected.push_back(p);
  }
  expect_said(expected);
  std::vector<std::uint64_t> sizes;
  for (const Message& m : talk.messages) {
    if (m.complete) {
      sizes.push_back(m.size);
    }
  }
  EXPECT_EQ(log.received, sizes);
  EXPECT_EQ(acknowledged, !sizes.empty());

  EXPECT_TRUE(log.closed.empty());
  host.streams.end(stream, now);
  EXPECT_THAT(log.closed, testing::ElementsAre(testing::Pair(id, "")));
  EXPECT_EQ(host.endpoint.transport->qp_count(), 0U);
}

TEST_P(Replay, AGhostSendsAsNcclDid) {
  NetHost host(path_to(talk.tcp.client.ip, talk.tcp.server.ip));
  know_peers(host, talk.receiver);
  const Handle handle = ib::encode(ib::ListenHandle{.address = talk.tcp.server.ip, .port = talk.tcp.server.port});
  const NetId id = host.net.connect(NetHost::ghost, config, handle, log, now);
  EXPECT_TRUE(host.streams.calls.empty()) << "nothing happens inside the call";
  host.endpoint.wheel.run(now);
  ASSERT_EQ(host.streams.calls.size(), 1U);
  const test::TestStreams::Call call = host.streams.calls[0];
  EXPECT_EQ(call.peer, talk.tcp.server.ip);
  EXPECT_EQ(call.port, talk.tcp.server.port);
  host.streams.open.at(call.id).user->on_open(call.id, NetHost::ghost, call.port, call.peer, now);

  const std::size_t first = ib::hello_size + talk.list_size;
  const Bytes opening = host.streams.take(call.id);
  ASSERT_EQ(opening.size(), first);
  if (one_device) {
    EXPECT_EQ(test::to_hex(opening), test::to_hex(ConstBytes{talk.tcp.from_client}.first(first)));
  }
  host.streams.deliver(call.id, ConstBytes{talk.tcp.from_server}.first(talk.list_size), now);
  const Bytes metadata = host.streams.take(call.id);
  ASSERT_EQ(metadata.size(), version.ib_metadata_size);
  const auto mine = ib::decode_metadata(version, metadata);
  EXPECT_EQ(mine->qps.size(), talk.sender.qps.size());
  if (one_device) {
    EXPECT_EQ(test::to_hex(with_numbers_of(talk.sender, *mine)),
              test::to_hex(ConstBytes{talk.tcp.from_client}.subspan(first, version.ib_metadata_size)));
  }
  EXPECT_EQ(log.ready, 0U);
  host.streams.deliver(call.id, ConstBytes{talk.tcp.from_server}.subspan(talk.list_size), now);
  ASSERT_EQ(log.ready, 1U) << (log.closed.empty() ? "" : log.closed[0].second);
  EXPECT_EQ(test::to_hex(host.streams.take(call.id)),
            test::to_hex(ConstBytes{talk.tcp.from_client}.last(ib::ready_size)));

  constexpr std::uint64_t own = 0x1000;
  Bytes payloads;
  std::vector<std::uint64_t> offset;
  for (const Message& m : talk.messages) {
    offset.push_back(payloads.size());
    test::append(payloads, m.payload);
  }
  rdma::Region& region = host.add_memory(own, payloads.size() + 1);
  region.write(own, payloads);

  std::size_t next = 0;
  std::vector<RocePacket> expected;
  for (std::size_t i = 0; i < talk.packets.size(); ++i) {
    RocePacket p = talk.packets[i];
    if (!talk.from_sender(p)) {
      if (!Conversation::is_ack(p)) {
        p.packet.address = p.packet.address - talk.sender.address + mine->address;
        p.packet.rkey = mine->devices[0].rkey;
      }
      inject(host, p, talk.sender, *mine);
      continue;
    }
    if (Conversation::is_ack(p) || !talk.messages[talk.owner[i]].complete) {
      continue;
    }
    for (; next <= talk.owner[i]; ++next) {
      const Message& message = talk.messages[next];
      ASSERT_TRUE(host.net.send(id, {own + offset[next], region.spec().key, message.size}, now));
      collect(host);
    }
    expected.push_back(p);
  }
  // Queue pairs are independent of each other.
  const auto by_queue_pair = [](const RocePacket& p) { return std::pair{p.destination, p.qpn}; };
  std::ranges::stable_sort(said, {}, by_queue_pair);
  std::ranges::stable_sort(expected, {}, by_queue_pair);
  expect_said(expected);
  EXPECT_EQ(log.clear.size(), talk.messages.size());
  for (const auto& [size, tag] : log.clear) {
    EXPECT_EQ(size, talk.messages[0].element.size);
    EXPECT_EQ(tag, talk.messages[0].element.tag);
  }
  EXPECT_EQ(host.net.clear_to_send(id), talk.messages.size() - next);
  EXPECT_EQ(log.sent, next);
  EXPECT_TRUE(log.closed.empty()) << log.closed[0].second;
}

INSTANTIATE_TEST_SUITE_P(
    Recorded, Replay,
    testing::Combine(
        testing::Values(
            Switches{.name = "nccl-simple.pcap"}, Switches{.name = "nccl-qps2.pcap", .qps_per_connection = 2},
            Switches{.name = "nccl-qps2-split.pcap", .qps_per_connection = 2, .split = true, .parts = 2},
            Switches{.name = "nccl-2nics.pcap", .parts = 2}, Switches{.name = "nccl-ar.pcap", .adaptive_routing = true},
            Switches{.name = "nccl-tc.pcap", .traffic_class = 106, .service_level = 3, .fifo_traffic_class = 184},
            Switches{.name = "nccl-fifo-wrap.pcap"}, Switches{.name = "nccl-2.29.7-simple.pcap", .version = 22907}),
        testing::Values(0U, 1U)),
    [](const auto& row) {
      std::string name = std::get<0>(row.param).name;
      name = name.substr(0, name.rfind('.')) + "_connection_" + std::to_string(std::get<1>(row.param));
      std::ranges::replace_if(
          name, [](char c) { return c == '-' || c == '.'; }, '_');
      return name;
    });

}  // namespace
}  // namespace nbx::nccl
