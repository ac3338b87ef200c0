// One network behind two ports: real nodes and ghosts of both cross the same queues, and who is behind which port is
// learned as transit learns it. All times are computed from rates, cables and switches.
#include <gtest/gtest.h>

#include "support/two_ports.hpp"
#include "wire/build.hpp"
#include "wire/build_l3.hpp"
#include "wire/ethernet.hpp"
#include "wire/ip.hpp"

namespace nbx::test {
namespace {

using namespace std::chrono_literals;

struct Host {
  Mac mac;
  IpAddress ip;
};
const std::array<Host, 2> nodes{Host{*parse_mac("52:54:00:00:00:01"), *parse_ip("10.77.0.1")},
                                Host{*parse_mac("52:54:00:00:00:02"), *parse_ip("10.77.0.2")}};
const std::array<Host, 2> ghosts{Host{*parse_mac("02:00:00:00:00:09"), *parse_ip("10.77.0.9")},
                                 Host{*parse_mac("02:00:00:00:00:0a"), *parse_ip("10.77.0.10")}};

Bytes who_has(const Host& asker, const IpAddress& target) {
  Bytes bytes(wire::l3_frame_max);
  bytes.resize(wire::build_arp_request(bytes, {.mac = asker.mac, .ip = asker.ip}, target));
  return bytes;
}

Bytes roce(const Host& from, const Host& to, std::size_t payload, std::uint8_t traffic_class = 0) {
  const wire::Encapsulation encapsulation({.source_mac = from.mac,
                                           .destination_mac = to.mac,
                                           .source_ip = from.ip,
                                           .destination_ip = to.ip,
                                           .udp_source_port = 0xc000,
                                           .traffic_class = traffic_class});
  Bytes bytes(encapsulation.frame_size(payload));
  encapsulation.begin(bytes, {.opcode = wire::Opcode::rc_send_only, .dest_qpn = Qpn{0x11}, .ack_request = true},
                      payload);
  encapsulation.seal(bytes, payload);
  return bytes;
}

Duration line(std::size_t size, std::uint64_t gbps) {
  return Duration{static_cast<std::int64_t>((size + 24) * 8 * 1000 / gbps)};
}
constexpr Duration hop = 1us + 500ns;  // a cable and the switch behind it
constexpr std::size_t smallest = 60;   // Ethernet frame, without FCS

/// Both real nodes have spoken, so that either port knows who is behind the other.
void introduce(TwoPorts& rig) {
  for (const std::size_t i : {0U, 1U}) {
    rig.receive(i, who_has(nodes[i], nodes[1 - i].ip));
    rig.run_for(1ms);
    ASSERT_EQ(rig.take_sent(1 - i).size(), 1U) << "to all";
  }
}

TEST(NetworkPorts, AFrameFromNodeToNodeCrossesEveryHop) {
  TwoPorts rig(two_switches({}));
  introduce(rig);
  const Bytes frame = roce(nodes[0], nodes[1], 1024);
  const Instant start = rig.now();
  rig.receive(0, frame);
  rig.run_for(1ms);
  const auto sent = rig.take_sent(1);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].at, start + 3 * line(frame.size(), 10) + 2 * hop + 1us);
  EXPECT_EQ(sent[0].bytes, frame);
  EXPECT_TRUE(rig.take_sent(0).empty());
}

// The trunk is ten times slower than the node's cable: the frame for the other port's node waits in its queue behind
// the one for that port's ghost.
TEST(NetworkPorts, FramesToNodeAndGhostOfAPortShareAQueue) {
  TwoPorts rig(two_switches({.trunk_rate = BitRate::gbps(1)}));
  introduce(rig);
  rig.receive(1, who_has(nodes[1], ghosts[0].ip));  // the answer tells port 1 who is behind port 0
  rig.receive(0, who_has(nodes[0], ghosts[1].ip));
  rig.run_for(1ms);
  rig.take_sent(0);
  rig.take_sent(1);
  const Bytes first = roce(nodes[0], ghosts[1], 1024);
  const Bytes second = roce(nodes[0], nodes[1], 64);
  const Instant start = rig.now();
  rig.receive(0, first);
  rig.receive(0, second);
  rig.run_for(line(first.size(), 10) + hop + line(first.size(), 1) + hop + line(first.size(), 10) + 1us - Duration{1});
  EXPECT_EQ(rig.count(1, Drop::qp_unknown), 0U);
  rig.run_for(Duration{1});
  EXPECT_EQ(rig.count(1, Drop::qp_unknown), 1U) << "the ghost has it";
  rig.run_for(1ms);
  const auto sent = rig.take_sent(1);
  ASSERT_EQ(sent.size(), 1U);
  const Instant trunk_free = start + line(first.size(), 10) + hop + line(first.size(), 1);
  EXPECT_EQ(sent[0].at, trunk_free + line(second.size(), 1) + hop + line(second.size(), 10) + 1us);
}

// At the second node's cable, of 1 Gb/s, the answer of its own port's ghost waits behind the other node's frame.
TEST(NetworkPorts, AGhostsFrameWaitsBehindTheOtherNodes) {
  TwoPorts rig(two_switches({.second_node_rate = BitRate::gbps(1)}));
  introduce(rig);
  const Bytes frame = roce(nodes[0], nodes[1], 1024);
  const Instant start = rig.now();
  rig.receive(0, frame);
  const Duration until_cable = 2 * line(frame.size(), 10) + 2 * hop;
  rig.run_for(until_cable);
  rig.receive(1, who_has(nodes[1], ghosts[1].ip));  // to all: at once; the answer is at the switch 1.5 us later
  rig.run_for(1ms);
  const auto sent = rig.take_sent(1);
  ASSERT_EQ(sent.size(), 2U);
  const Instant first_left = start + until_cable + line(frame.size(), 1);
  EXPECT_EQ(sent[0].at, first_left + 1us);
  EXPECT_EQ(sent[1].at, first_left + line(smallest, 1) + 1us);
  EXPECT_EQ(wire::source_mac(sent[1].bytes), ghosts[1].mac);
}

TEST(NetworkPorts, ASlowNodePausesTheOtherHopByHop) {
  pipeline::NetworkPlan plan = two_switches(
      {.host_rate = BitRate::gbps(100), .second_node_rate = BitRate::gbps(1), .trunk_rate = BitRate::gbps(100)});
  plan.spec.switches.buffer.priority[3] = {
      .lossless = true, .headroom_bytes = 100'000, .xoff_bytes = 5'000, .xon_bytes = 2'000};
  TwoPorts rig(plan);
  introduce(rig);
  for (int i = 0; i < 60; ++i) {
    rig.receive(0, roce(nodes[0], nodes[1], 1024, 24 << 2));  // DSCP 24: priority 3
  }
  rig.run_for(10ms);
  EXPECT_EQ(rig.take_sent(1).size(), 60U) << "all have come";
  EXPECT_GE(rig.count(0, Counter::tx_pfc_frames), 2U);
  EXPECT_EQ(rig.count(1, Counter::tx_pfc_frames), 0U) << "the one that is slow is not paused";
  const pipeline::NetworkReport report = rig.network().report(rig.now());
  ASSERT_EQ(report.nodes.size(), 2U);
  EXPECT_EQ(report.nodes[0].port, "p0");
  EXPECT_TRUE(report.nodes[0].to_node.pfc[3].seen());
  EXPECT_FALSE(report.nodes[1].to_node.pfc[3].seen());
  EXPECT_GE(report.xoffs, 2U) << "the switch of the slow node stopped the other one, and that the node";
}

TEST(NetworkPorts, PfcOfANodeHoldsWhatTheOtherSends) {
  TwoPorts rig(two_switches({}));
  introduce(rig);
  Bytes pfc(wire::l3_frame_max);
  pfc.resize(wire::build_pfc(pfc, nodes[1].mac, 1, {1000}));
  const Instant start = rig.now();
  rig.receive(1, pfc);
  const Bytes frame = roce(nodes[0], nodes[1], 64);
  rig.receive(0, frame);
  rig.run_for(1ms);
  const auto sent = rig.take_sent(1);
  ASSERT_EQ(sent.size(), 1U);
  const Instant resumed = start + line(smallest, 10) + 1us + Duration{1000 * 51'200};
  EXPECT_EQ(sent[0].at, resumed + line(frame.size(), 10) + 1us);
  EXPECT_TRUE(rig.network().report(rig.now()).nodes[1].from_node.pfc[0].seen());
}

TEST(NetworkPorts, LossesCountAtThePortThatTheFrameWasFor) {
  pipeline::NetworkPlan plan = two_switches({.host_rate = BitRate::gbps(100), .trunk_rate = BitRate::gbps(1)});
  plan.spec.switches.buffer.size_bytes = 10'000;
  TwoPorts rig(plan);
  introduce(rig);
  for (int i = 0; i < 40; ++i) {
    rig.receive(0, roce(nodes[0], nodes[1], 1024));
  }
  rig.run_for(10ms);
  const auto lost = [&](std::size_t port) {
    return rig.count(port, Drop::network_dynamic_threshold) + rig.count(port, Drop::network_buffer_full);
  };
  EXPECT_GT(lost(1), 0U);
  EXPECT_EQ(lost(1) + rig.take_sent(1).size(), 40U);
  EXPECT_EQ(lost(0), 0U);
}

/// Of TCP, from a ghost.
Bytes kernel_packet(const Host& from, const IpAddress& to) {
  Bytes packet(40);
  auto* ip = mutable_overlay<wire::Ipv4Header>(packet);
  ip->version_ihl = 0x45;
  ip->total_length = 40;
  ip->ttl = 64;
  ip->protocol = 6;
  ip->source = from.ip.v4_value();
  ip->destination = to.v4_value();
  ip->checksum = wire::checksum_finish(wire::checksum_add(0, ConstBytes{packet}.first(20)));
  return packet;
}

TEST(NetworkPorts, GhostsOfBothPortsFindEachOther) {
  TwoPorts rig(two_switches({}));
  const Bytes packet = kernel_packet(ghosts[0], ghosts[1].ip);
  rig.receive_from_kernel(0, packet);  // the ghost asks who that is
  rig.run_for(1ms);
  EXPECT_EQ(rig.take_sent(0).size(), 1U) << "its own real node, too";
  EXPECT_TRUE(rig.take_sent(1).empty()) << "its ghost has answered";
  rig.receive_from_kernel(0, packet);
  rig.run_for(3 * line(smallest, 10) + 2 * hop + 1us - Duration{1});
  EXPECT_EQ(rig.take_kernel(1), 0U);
  rig.run_for(Duration{1});
  EXPECT_EQ(rig.take_kernel(1), 1U);
  EXPECT_TRUE(rig.take_sent(0).empty() && rig.take_sent(1).empty());
}

// What a switch floods, it floods in the network: a copy for each port waits in its queues as everything does.
TEST(NetworkPorts, WhatIsForAllCrossesEveryHop) {
  const Duration across = 3 * line(smallest, 10) + 2 * hop + 1us;
  TwoPorts rig(two_switches({}));
  Instant start = rig.now();
  rig.receive(0, who_has(nodes[0], nodes[1].ip));
  rig.run_for(1ms);
  auto sent = rig.take_sent(1);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].at, start + across);
  EXPECT_TRUE(rig.take_sent(0).empty()) << "not back to where it came from";

  // A ghost's question goes to the node of the other port and, behind that copy on its cable, to that of its own.
  start = rig.now();
  rig.receive_from_kernel(0, kernel_packet(ghosts[0], *parse_ip("10.77.0.99")));
  rig.run_for(1ms);
  for (const std::size_t port : {0U, 1U}) {
    sent = rig.take_sent(port);
    ASSERT_EQ(sent.size(), 1U) << port;
    EXPECT_EQ(wire::destination_mac(sent[0].bytes), broadcast_mac);
    EXPECT_EQ(wire::source_mac(sent[0].bytes), ghosts[0].mac);
    EXPECT_EQ(sent[0].at, start + (port == 0 ? 3 * line(smallest, 10) + hop + 1us : across)) << port;
  }

  // A MAC that nobody has spoken from.
  const Host stranger{*parse_mac("52:54:00:00:00:99"), *parse_ip("10.77.0.98")};
  start = rig.now();
  const Bytes frame = roce(nodes[0], stranger, 64);
  rig.receive(0, frame);
  rig.run_for(1ms);
  sent = rig.take_sent(1);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].at, start + 3 * line(frame.size(), 10) + 2 * hop + 1us);
}

TEST(NetworkPorts, WhatIsForAllIsLostOnADeadCable) {
  TwoPorts rig(two_switches({}));
  const switching::LinkId trunk = 2 * 4;  // the fifth cable
  rig.network().take_link_down(trunk, rig.now() + 1s, rig.now());
  rig.receive(0, who_has(nodes[0], nodes[1].ip));
  rig.run_for(10ms);
  EXPECT_TRUE(rig.take_sent(1).empty());
  EXPECT_EQ(rig.count(1, Drop::network_link_down) + rig.count(1, Drop::network_no_route), 1U);
}

TEST(NetworkPorts, KeepNoFrameWhenTheyEnd) {
  TwoPorts rig(two_switches({.trunk_rate = BitRate::gbps(1)}));
  introduce(rig);
  for (int i = 0; i < 10; ++i) {
    rig.receive(0, roce(nodes[0], nodes[1], 1024));
    rig.receive(1, roce(nodes[1], ghosts[0], 1024));
  }
  EXPECT_EQ(rig.outstanding_after_end(), 0U);
}

}  // namespace
}  // namespace nbx::test
