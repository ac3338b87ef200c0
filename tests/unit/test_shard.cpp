// The way of a frame: who gets it, what the profile does to it in which direction, and what comes back when.
#include <gtest/gtest.h>

#include "support/shard_rig.hpp"
#include "wire/build.hpp"
#include "wire/build_l3.hpp"
#include "wire/ethernet.hpp"
#include "wire/ip.hpp"
#include "wire/mac_control.hpp"

namespace nbx::test {
namespace {

using namespace std::chrono_literals;

const Mac node_mac = *parse_mac("52:54:00:00:00:01");
const Mac other_mac = *parse_mac("52:54:00:00:00:02");
const Mac ghost_mac = *parse_mac("02:00:00:00:00:09");
const IpAddress node_ip = *parse_ip("10.77.0.1");
const IpAddress other_ip = *parse_ip("10.77.0.2");
const IpAddress ghost_ip = *parse_ip("10.77.0.9");

Bytes arp_request(const Mac& mac, const IpAddress& ip, const IpAddress& target) {
  Bytes bytes(wire::l3_frame_max);
  bytes.resize(wire::build_arp_request(bytes, {.mac = mac, .ip = ip}, target));
  return bytes;
}

Bytes roce_send(const IpAddress& to, Qpn qpn, std::size_t payload, std::uint8_t traffic_class = 0,
                std::uint16_t udp_source_port = 0xc000) {
  const wire::Encapsulation encapsulation({.source_mac = node_mac,
                                           .destination_mac = ghost_mac,
                                           .source_ip = node_ip,
                                           .destination_ip = to,
                                           .udp_source_port = udp_source_port,
                                           .traffic_class = traffic_class});
  Bytes bytes(encapsulation.frame_size(payload));
  encapsulation.begin(bytes, {.opcode = wire::Opcode::rc_send_only, .dest_qpn = qpn, .ack_request = true}, payload);
  encapsulation.seal(bytes, payload);
  return bytes;
}

Bytes tcp_syn(const Mac& to_mac, const IpAddress& to, std::size_t padding) {
  Bytes bytes(14 + 20 + 20 + padding);
  auto* link = mutable_overlay<wire::EthernetHeader>(bytes);
  link->destination = to_mac;
  link->source = node_mac;
  link->ether_type = wire::ether_type::ipv4;
  auto* ip = mutable_overlay<wire::Ipv4Header>(MutableBytes{bytes}.subspan(14));
  ip->version_ihl = 0x45;
  ip->total_length = 40;
  ip->ttl = 64;
  ip->protocol = 6;
  ip->source = node_ip.v4_value();
  ip->destination = to.v4_value();
  ip->checksum = wire::checksum_finish(wire::checksum_add(0, ConstBytes{bytes}.subspan(14, 20)));
  return bytes;
}

TEST(Shard, AnswersArpAtOnceUnderAnIdealProfile) {
  ShardRig rig(one_ghost_plan());
  rig.receive(arp_request(node_mac, node_ip, ghost_ip));
  const auto sent = rig.take_sent();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].at, Instant{});
  EXPECT_EQ(wire::destination_mac(sent[0].bytes), node_mac);
  EXPECT_EQ(wire::source_mac(sent[0].bytes), ghost_mac);
}

TEST(Shard, AddsTheDelaysOfBothDirectionsExactly) {
  pipeline::ShardPlan plan = one_ghost_plan();
  plan.profile.from_node.delay = {{.constant = 2ms}};
  plan.profile.to_node.delay = {{.constant = 5ms}};
  ShardRig rig(plan);
  rig.receive(arp_request(node_mac, node_ip, ghost_ip));
  rig.run_for(1s);
  const auto sent = rig.take_sent();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].at, Instant{} + Duration{7ms});
}

TEST(Shard, LosesWhatTheProfileListsInItsDirectionOnly) {
  pipeline::ShardPlan plan = one_ghost_plan();
  plan.profile.from_node.loss = {{.match = {}, .select = fabric::Listed{{2}}}};
  ShardRig rig(plan);
  for (int i = 0; i < 3; ++i) {
    rig.receive(arp_request(node_mac, node_ip, ghost_ip));
  }
  EXPECT_EQ(rig.take_sent().size(), 2U);
  EXPECT_EQ(rig.count(Drop::loss), 1U);
  EXPECT_EQ(rig.count(Counter::rx_packets_phy), 3U);
  EXPECT_EQ(rig.count(Counter::tx_packets_phy), 2U);
}

TEST(Shard, DropsRoceForAnAddressThatIsNotTheGhosts) {
  ShardRig rig(one_ghost_plan());
  rig.receive(roce_send(*parse_ip("10.77.0.10"), Qpn{0x11}, 64));
  EXPECT_EQ(rig.count(Drop::not_for_us), 1U);
  rig.receive(roce_send(ghost_ip, Qpn{0x11}, 64));
  EXPECT_EQ(rig.count(Drop::qp_unknown), 1U);
  EXPECT_TRUE(rig.take_sent().empty());
}

TEST(Shard, AGhostRoutesToTheOthersOfItsPort) {
  pipeline::ShardPlan plan = one_ghost_plan();
  pipeline::GhostPlan far;
  far.identity.mac = *parse_mac("02:00:00:00:00:0a");
  far.identity.addresses = {{*parse_ip("10.78.0.1"), 16}};
  plan.ghosts.push_back(far);
  plan.profile.from_node.loss = {{.match = {.ghosts = {GhostId{1}}}, .select = fabric::Listed{{1}}}};
  ShardRig rig(plan);
  rig.receive(roce_send(*parse_ip("10.78.0.1"), Qpn{0x11}, 64));  // to the MAC of the first ghost
  EXPECT_EQ(rig.count(Drop::loss), 1U) << "the profile sees the ghost that it is for";
  rig.receive(roce_send(*parse_ip("10.78.0.1"), Qpn{0x11}, 64));
  EXPECT_EQ(rig.count(Drop::qp_unknown), 1U);
  EXPECT_EQ(rig.count(Drop::not_for_us), 0U);
}

TEST(Shard, DropsABadIcrcUnlessTheProfileTrustsIt) {
  pipeline::ShardPlan plan = one_ghost_plan();
  Bytes damaged = roce_send(ghost_ip, Qpn{0x11}, 64);
  damaged[damaged.size() - 10] ^= std::byte{1};
  ShardRig strict(plan);
  strict.receive(damaged);
  EXPECT_EQ(strict.count(Drop::icrc_mismatch), 1U);
  plan.profile.verify_icrc = false;
  ShardRig trusting(plan);
  trusting.receive(damaged);
  EXPECT_EQ(trusting.count(Drop::icrc_mismatch), 0U);
  EXPECT_EQ(trusting.count(Drop::qp_unknown), 1U);
}

TEST(Shard, ChecksWhatTheProfileDamaged) {
  for (const bool verify : {true, false}) {
    pipeline::ShardPlan plan = one_ghost_plan();
    plan.profile.verify_icrc = verify;
    plan.profile.from_node.corrupt = {{.match = {}, .select = fabric::Bernoulli{1}}};
    ShardRig rig(plan);
    rig.receive(roce_send(ghost_ip, Qpn{0x11}, 64));
    EXPECT_EQ(rig.count(Drop::icrc_mismatch), verify ? 1U : 0U);
    EXPECT_EQ(rig.count(Drop::qp_unknown), verify ? 0U : 1U);
    EXPECT_EQ(rig.count(Counter::impair_corrupted), 1U);
  }
}

TEST(Shard, GivesTheKernelTheBareIpPacket) {
  NullStreams streams;
  ShardRig rig(one_ghost_plan(), &streams);
  const Bytes syn = tcp_syn(ghost_mac, ghost_ip, 6);  // Ethernet padding behind it
  rig.receive(syn);
  const auto packets = rig.take_kernel();
  ASSERT_EQ(packets.size(), 1U);
  EXPECT_EQ(packets[0], Bytes(syn.begin() + 14, syn.end() - 6));
}

TEST(Shard, NoProfileTouchesTheEmulatorsOwnTcp) {
  constexpr std::uint16_t own = 4790;
  pipeline::ShardPlan plan = one_ghost_plan();
  plan.beside_tcp_port = own;
  plan.profile.from_node = {.loss = {{.match = {}, .select = fabric::Bernoulli{1}}}};
  plan.profile.to_node.delay = {{.constant = 5ms}};
  NullStreams streams;
  ShardRig rig(plan, &streams);
  Bytes segment = tcp_syn(ghost_mac, ghost_ip, 0);
  rig.receive(segment);
  EXPECT_TRUE(rig.take_kernel().empty());
  mutable_overlay<wire::UdpHeader>(MutableBytes{segment}.subspan(14 + 20))->destination_port = own;
  rig.receive(segment);
  EXPECT_EQ(rig.take_kernel().size(), 1U);
}

TEST(Shard, CountsKernelFramesWithoutAnExceptionPath) {
  ShardRig rig(one_ghost_plan());
  rig.receive(tcp_syn(ghost_mac, ghost_ip, 6));
  EXPECT_EQ(rig.count(Drop::exception_path_missing), 1U);
}

TEST(Shard, SendsKernelPacketsFromTheGhostToAKnownNeighbour) {
  NullStreams streams;
  ShardRig rig(one_ghost_plan(), &streams);
  Bytes packet = tcp_syn(ghost_mac, node_ip, 0);
  packet.erase(packet.begin(), packet.begin() + 14);
  mutable_overlay<wire::Ipv4Header>(packet)->source = ghost_ip.v4_value();

  rig.shard().receive_from_kernel(packet, rig.now());
  rig.run_for(0s);
  auto sent = rig.take_sent();
  ASSERT_EQ(sent.size(), 1U) << "the MAC is not known: the ghost asks";
  EXPECT_EQ(wire::destination_mac(sent[0].bytes), broadcast_mac);

  rig.receive(arp_request(node_mac, node_ip, ghost_ip));  // a question tells the asker's MAC, too
  rig.take_sent();
  rig.shard().receive_from_kernel(packet, rig.now());
  rig.run_for(0s);
  sent = rig.take_sent();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(wire::destination_mac(sent[0].bytes), node_mac);
  EXPECT_EQ(wire::source_mac(sent[0].bytes), ghost_mac);
  EXPECT_TRUE(std::equal(packet.begin(), packet.end(), sent[0].bytes.begin() + 14));
}

TEST(Shard, ForwardsBetweenPortsAndLearnsWhoIsWhere) {
  pipeline::ShardPlan plan0 = one_ghost_plan();
  plan0.ports = 2;
  plan0.profile.from_node.delay = {{.constant = 1ms}};
  pipeline::ShardPlan plan1;
  plan1.port = PortId{1};
  plan1.port_name = "p1";
  plan1.ports = 2;
  plan1.profile.to_node.delay = {{.constant = 3ms}};
  ShardRig rig0(plan0);
  ShardRig rig1(plan1);

  // Node 0 asks for node 1: flooded to port 1, through both profiles.
  rig0.receive(arp_request(node_mac, node_ip, other_ip));
  rig0.run_for(1ms);
  rig1.run_until(rig0.now());
  rig0.pass_to(rig1);
  rig1.run_for(3ms);
  auto sent = rig1.take_sent();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].at, Instant{} + Duration{4ms});
  EXPECT_EQ(sent[0].bytes, arp_request(node_mac, node_ip, other_ip));

  // Node 1's frame to node 0 goes to port 0 alone, and its question for the ghost behind port 0 is answered there.
  rig1.receive(arp_request(other_mac, other_ip, ghost_ip));
  rig0.run_until(rig1.now());
  rig1.pass_to(rig0);
  EXPECT_TRUE(rig0.take_sent().empty()) << "the answer goes back to port 1, not to node 0";
  rig0.pass_to(rig1);
  rig1.run_for(3ms);
  sent = rig1.take_sent();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(wire::destination_mac(sent[0].bytes), other_mac);
  EXPECT_EQ(wire::source_mac(sent[0].bytes), ghost_mac);
}

/// As IEEE 802.1D 7.7.1 and 802.1Q 8.6.3 have it: to all ports but the one it came from, and what is meant for the
/// other end of a cable to none.
TEST(Shard, FloodsAGhostsQuestionAndKeepsLldpAtItsCable) {
  pipeline::ShardPlan plan = one_ghost_plan();
  plan.ports = 3;
  NullStreams streams;
  ShardRig rig(plan, &streams);
  Bytes packet(40);
  auto* ip = mutable_overlay<wire::Ipv4Header>(packet);
  ip->version_ihl = 0x45;
  ip->total_length = 40;
  ip->ttl = 64;
  ip->protocol = 6;
  ip->source = ghost_ip.v4_value();
  ip->destination = other_ip.v4_value();
  ip->checksum = wire::checksum_finish(wire::checksum_add(0, ConstBytes{packet}.first(20)));
  rig.shard().receive_from_kernel(packet, rig.now());
  rig.run_for(1us);
  const auto sent = rig.take_sent();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(wire::destination_mac(sent[0].bytes), broadcast_mac);
  EXPECT_EQ(wire::source_mac(sent[0].bytes), ghost_mac);
  for (const std::uint8_t port : {1, 2}) {
    FrameList& queue = rig.shard().to_peer(PortId{port});
    Frame* copy = queue.pop_front();
    ASSERT_NE(copy, nullptr);
    EXPECT_EQ(Bytes(copy->data, copy->data + copy->size), sent[0].bytes);
    rig.shard().release(*copy);
    EXPECT_TRUE(queue.empty());
  }

  Bytes lldp = arp_request(node_mac, node_ip, other_ip);
  const Mac nearest_bridge = *parse_mac("01:80:c2:00:00:0e");
  std::memcpy(lldp.data(), nearest_bridge.octets.data(), 6);
  lldp[12] = std::byte{0x88};
  lldp[13] = std::byte{0xcc};
  rig.receive(lldp);
  rig.run_for(1us);
  EXPECT_TRUE(rig.shard().to_peer(PortId{1}).empty() && rig.shard().to_peer(PortId{2}).empty());
  EXPECT_EQ(rig.count(Drop::not_for_us), 1U);
}

// --- with a network between the port and the ghost: one switch, cables of 1 us, 500 ns in the switch ---

pipeline::ShardPlan plan_with_switch(BitRate node_rate, BitRate ghost_rate) {
  pipeline::ShardPlan plan = one_ghost_plan();
  plan.network.emplace();
  switching::Topology& topology = plan.network->topology;
  topology.add_host("node");
  topology.add_host("g0");
  topology.add_switch("s0");
  topology.connect_host(0, 0, {node_rate, 1us});
  topology.connect_host(1, 0, {ghost_rate, 1us});
  plan.network->ports[0].ghosts = {1};
  plan.network->spec.switches.buffer.size_bytes = 1U << 20U;
  plan.network->spec.switches.latency = 500ns;
  return plan;
}
constexpr Duration smallest_frame_at_10g{(60 + 24) * 8 * 100};  // 67.2 ns

TEST(ShardNetwork, AFrameTakesTheTimeOfCablesSwitchAndLines) {
  ShardRig rig(plan_with_switch(BitRate::gbps(10), BitRate::gbps(10)));
  rig.receive(arp_request(node_mac, node_ip, ghost_ip));  // to all: not through the network, its answer is
  rig.run_for(1ms);
  const auto sent = rig.take_sent();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].at, Instant{} + Duration{2us} + Duration{500ns} + 2 * smallest_frame_at_10g);
}

TEST(ShardNetwork, PfcOfTheNodeHoldsThatPriorityForItsQuanta) {
  for (const unsigned priority : {0U, 1U}) {
    ShardRig rig(plan_with_switch(BitRate::gbps(10), BitRate::gbps(10)));
    Bytes pfc(wire::l3_frame_max);
    std::array<std::uint16_t, 8> quanta{};
    quanta[priority] = 1000;
    pfc.resize(wire::build_pfc(pfc, node_mac, static_cast<std::uint8_t>(1U << priority), quanta));
    rig.receive(pfc);
    rig.run_for(2us);
    rig.receive(arp_request(node_mac, node_ip, ghost_ip));  // priority 0
    rig.run_for(1ms);
    const auto sent = rig.take_sent();
    ASSERT_EQ(sent.size(), 1U);
    const Instant at_switch = Instant{} + Duration{2us} + smallest_frame_at_10g + Duration{1500ns};
    const Instant resumed = Instant{} + smallest_frame_at_10g + Duration{1us} + Duration{1000 * 51'200};
    EXPECT_EQ(sent[0].at, (priority == 0 ? resumed : at_switch) + smallest_frame_at_10g + Duration{1us});
  }
}

TEST(ShardNetwork, TheSwitchPausesTheNodeAndLosesNothing) {
  pipeline::ShardPlan plan = plan_with_switch(BitRate::gbps(100), BitRate::gbps(1));
  plan.network->spec.switches.buffer.priority[3] = {
      .lossless = true, .headroom_bytes = 100'000, .xoff_bytes = 5'000, .xon_bytes = 2'000};
  ShardRig rig(plan);
  for (int i = 0; i < 40; ++i) {
    rig.receive(roce_send(ghost_ip, Qpn{0x11}, 1024, 24 << 2));  // DSCP 24: priority 3
  }
  rig.run_for(10ms);
  EXPECT_EQ(rig.count(Drop::qp_unknown), 40U) << "all have come";
  const auto sent = rig.take_sent();
  ASSERT_GE(sent.size(), 2U);
  EXPECT_EQ(rig.count(Counter::tx_pfc_frames), sent.size());
  wire::Parsed parsed;
  ASSERT_EQ(wire::parse(sent[0].bytes, {}, parsed), Drop::none);
  ASSERT_EQ(parsed.kind, wire::FrameKind::pfc);
  const auto& first = *overlay<wire::PfcControl>(ConstBytes{sent.front().bytes}.subspan(parsed.l3_offset));
  EXPECT_EQ(first.class_enable.value(), 1U << 3U);
  EXPECT_EQ(first.quanta[3].value(), 0xffff);
  const auto& last = *overlay<wire::PfcControl>(ConstBytes{sent.back().bytes}.subspan(parsed.l3_offset));
  EXPECT_EQ(last.quanta[3].value(), 0) << "goes on";
}

constexpr unsigned flows = 32;
/// How many of so many flows, each of one packet, come to the ghost.
std::uint64_t arrivals(ShardRig& rig) {
  const std::uint64_t before = rig.count(Drop::qp_unknown);
  for (unsigned flow = 0; flow < flows; ++flow) {
    rig.receive(roce_send(ghost_ip, Qpn{0x11}, 64, 0, static_cast<std::uint16_t>(0xc000 + flow)));
  }
  rig.run_for(1ms);
  return rig.count(Drop::qp_unknown) - before;
}

TEST(ShardNetwork, AStormIsStartedAndStoppedWhileItRuns) {
  ShardRig rig(plan_with_switch(BitRate::gbps(100), BitRate::gbps(100)));
  pipeline::EmulatedNetwork& network = *rig.shard().network();
  network.set_storm(PortId{0}, std::nullopt, rig.now());
  rig.run_for(1ms);
  EXPECT_TRUE(rig.take_sent().empty()) << "none blows";
  network.set_storm(PortId{0}, pipeline::StormPlan{.pauses = {.class_enable = 8, .period = 100us, .duration = 1ms}},
                    rig.now());
  rig.run_for(250us);
  EXPECT_EQ(rig.take_sent().size(), 3U);
  network.set_storm(PortId{0}, std::nullopt, rig.now());
  rig.run_for(5ms);
  EXPECT_EQ(rig.take_sent().size(), 1U) << "the resume";
  network.set_storm(PortId{0}, pipeline::StormPlan{.pauses = {.class_enable = 8, .period = 100us, .duration = 1ms}},
                    rig.now());
  rig.run_for(5ms);
  EXPECT_EQ(rig.take_sent().size(), 11U) << "ends by itself, with a resume";
}

TEST(ShardNetwork, AReceiverIsSlowForATime) {
  ShardRig rig(plan_with_switch(BitRate::gbps(100), BitRate::gbps(100)));
  const pipeline::SlowPlan slow{
      .spec = {.drain = BitRate{8'000'000}, .buffer_bytes = 1U << 20U, .xoff_bytes = 1U << 19U}, .lasts = 10ms};
  rig.shard().network()->set_receiver(PortId{0}, GhostId{0}, slow, rig.now());
  EXPECT_EQ(arrivals(rig), 1ms / 122us) << "frames of 122 bytes, a byte in a microsecond";
  rig.run_for(9ms);
  EXPECT_EQ(rig.count(Drop::qp_unknown), flows) << "what it held came at the end";
  EXPECT_EQ(arrivals(rig), flows);
  rig.shard().network()->set_receiver(PortId{0}, GhostId{0}, slow, rig.now());
  EXPECT_LT(arrivals(rig), flows);
  rig.shard().network()->set_receiver(PortId{0}, GhostId{0}, std::nullopt, rig.now());
  EXPECT_EQ(rig.count(Drop::qp_unknown), 3 * flows);
}

TEST(ShardNetwork, TheRampDropsWhatIsNotEcnCapable) {
  for (const std::uint8_t ect : {0, 2}) {
    pipeline::ShardPlan plan = plan_with_switch(BitRate::gbps(100), BitRate::gbps(1));
    plan.network->spec.switches.ecn[0] = {.enabled = true, .kmin_bytes = 0, .kmax_bytes = 1, .pmax_ppm = 1'000'000};
    ShardRig rig(plan);
    for (int i = 0; i < 10; ++i) {
      rig.receive(roce_send(ghost_ip, Qpn{0x11}, 1024, ect));
    }
    rig.run_for(10ms);
    EXPECT_EQ(rig.count(Drop::qp_unknown) + rig.count(Drop::network_red), 10U);
    EXPECT_EQ(rig.count(Drop::network_red) != 0, ect == 0);
  }
}

// One flow of 100,000 bytes: 98 packets with 58 + 24 bytes each, 864.288 us of a cable of 1 Gb/s.
TEST(ShardNetwork, AFrameWaitsBehindBackgroundTraffic) {
  pipeline::ShardPlan plan = plan_with_switch(BitRate::gbps(1), BitRate::gbps(10));
  plan.network->traffic = {{.name = "t",
                            .from = {1},
                            .to = {0},
                            .rate = BitRate::gbps(1000),  // the first one is soon
                            .sizes = traffic::ConstantSize{100'000},
                            .lasts = 10us,
                            .flows_max = 1}};
  ShardRig rig(plan);
  rig.run_for(150us);  // the ghost has sent all of it
  rig.receive(arp_request(node_mac, node_ip, ghost_ip));
  rig.run_for(1ms);
  const auto sent = rig.take_sent();
  ASSERT_EQ(sent.size(), 1U) << "no frame of the traffic leaves the port";
  EXPECT_GT(sent[0].at, Instant{} + Duration{864us});
  EXPECT_LT(sent[0].at, Instant{} + Duration{864us + 10us + 10us});
  const traffic::Stats& stats = rig.shard().traffic()->stats(0);
  EXPECT_EQ(stats.flows, 1U);
  EXPECT_EQ(stats.completed, 1U);
  EXPECT_EQ(stats.delivered_bytes, 108'036U);
}

TEST(ShardNetwork, KeepsNoFrameWhenItEnds) {
  ShardRig rig(plan_with_switch(BitRate::gbps(100), BitRate::gbps(1)));
  for (int i = 0; i < 10; ++i) {
    rig.receive(roce_send(ghost_ip, Qpn{0x11}, 1024));
  }
  EXPECT_EQ(rig.outstanding_after_end(), 0U);
}

TEST(Shard, KeepsNoFrameWhenItEnds) {
  pipeline::ShardPlan plan = one_ghost_plan();
  plan.profile.to_node.delay = {{.constant = 1s}};
  ShardRig rig(plan);
  rig.receive(arp_request(node_mac, node_ip, ghost_ip));
  EXPECT_EQ(rig.outstanding_after_end(), 0U);
}

TEST(Shard, ReplacesTheProfileWhileFramesWait) {
  pipeline::ShardPlan plan = one_ghost_plan();
  plan.profile.to_node.delay = {{.constant = 10ms}};
  ShardRig rig(plan);
  rig.receive(arp_request(node_mac, node_ip, ghost_ip));
  rig.shard().replace_profile({.name = "ideal"}, rig.now());
  rig.run_for(5ms);
  EXPECT_TRUE(rig.take_sent().empty()) << "what waits keeps its time";
  rig.run_for(5ms);
  ASSERT_EQ(rig.take_sent().size(), 1U);
  rig.receive(arp_request(node_mac, node_ip, ghost_ip));
  EXPECT_EQ(rig.take_sent().size(), 1U) << "what comes later has the new profile";
}

// ---- failures over time: what is asked at each time, and whether an ARP request is answered then

bool answers_arp(ShardRig& rig) {
  rig.receive(arp_request(node_mac, node_ip, ghost_ip));
  return !rig.take_sent().empty();
}

TEST(ShardFailures, AFlapEndsAtItsTime) {
  pipeline::ShardPlan plan = one_ghost_plan();
  plan.profile.failures = {{.at = 1s, .lasts = 500ms, .what = fabric::LinkFailure{}}};
  ShardRig rig(plan);
  rig.run_until(Instant{} + 999ms);
  EXPECT_TRUE(answers_arp(rig));
  rig.run_until(Instant{} + 1s);
  EXPECT_FALSE(answers_arp(rig));
  rig.run_until(Instant{} + 1499ms);
  EXPECT_FALSE(answers_arp(rig));
  rig.run_until(Instant{} + 1500ms);
  EXPECT_TRUE(answers_arp(rig));
  EXPECT_EQ(rig.count(Drop::link_down), 2U);
}

TEST(ShardFailures, AHalfOpenLinkLosesOneDirection) {
  pipeline::ShardPlan plan = one_ghost_plan();
  plan.profile.failures = {{.at = 1s, .from_node = false, .what = fabric::LinkFailure{}}};
  ShardRig rig(plan);
  rig.run_until(Instant{} + 1s);
  EXPECT_FALSE(answers_arp(rig));
  EXPECT_EQ(rig.count(Counter::arp_requests_answered), 1U) << "the ghost heard, and was not heard";
}

TEST(ShardFailures, ADeadGhostNeitherHearsNorSpeaks) {
  pipeline::ShardPlan plan = one_ghost_plan();
  plan.profile.failures = {{.at = 1s, .lasts = 1s, .what = fabric::GhostFailure{{GhostId{0}}}}};
  ShardRig rig(plan);
  rig.run_until(Instant{} + 1s);
  EXPECT_FALSE(answers_arp(rig));
  rig.receive(roce_send(ghost_ip, Qpn{0x11}, 64));
  EXPECT_EQ(rig.count(Drop::qp_unknown), 0U);
  EXPECT_GE(rig.count(Drop::silent), 1U);
  rig.run_until(Instant{} + 2s);
  EXPECT_TRUE(answers_arp(rig));
}

TEST(ShardFailures, ARateChangesAndComesBack) {
  pipeline::ShardPlan plan = one_ghost_plan();
  // A frame of 60 bytes and 24 of overhead: 672 bits, 672 us at 1 Mb/s.
  const fabric::RateSpec slow{.rate = {1'000'000}, .queue_bytes = 100'000};
  plan.profile.failures = {{.at = 1s, .lasts = 1s, .from_node = false, .what = fabric::RateChange{slow}}};
  ShardRig rig(plan);
  EXPECT_TRUE(answers_arp(rig));
  rig.run_until(Instant{} + 1s);
  EXPECT_FALSE(answers_arp(rig)) << "still on the link";
  rig.run_for(10ms);
  const auto sent = rig.take_sent();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].at, Instant{} + 1s + (sent[0].bytes.size() + 24) * Duration{8us});
  rig.run_until(Instant{} + 2s);
  EXPECT_TRUE(answers_arp(rig));
}

TEST(ShardFailures, AnotherProfileEndsThem) {
  for (const auto& what : {decltype(fabric::Failure::what){fabric::LinkFailure{}},
                           decltype(fabric::Failure::what){fabric::GhostFailure{{GhostId{0}}}}}) {
    pipeline::ShardPlan plan = one_ghost_plan();
    plan.profile.failures = {{.at = 1s, .what = what}};
    ShardRig rig(plan);
    rig.run_until(Instant{} + 2s);
    EXPECT_FALSE(answers_arp(rig)) << "for good";
    rig.shard().replace_profile({.name = "ideal"}, rig.now());
    EXPECT_TRUE(answers_arp(rig));
  }
}

// ---- failures in the network

/// The node at one leaf, the ghost at the other, two spines between them.
pipeline::ShardPlan plan_with_spines(std::optional<Duration> reroute_after) {
  pipeline::ShardPlan plan = one_ghost_plan();
  plan.network.emplace();
  plan.network->topology = switching::leaf_spine(
      {.hosts_per_leaf = 1, .host_cable = {BitRate::gbps(100), 1us}, .fabric_cable = {BitRate::gbps(100), 1us}});
  plan.network->ports[0].ghosts = {1};
  plan.network->spec.switches.buffer.size_bytes = 1U << 20U;
  plan.network->reroute_after = reroute_after;
  return plan;
}
/// Both directions.
std::vector<switching::LinkId> cable_between(const pipeline::ShardPlan& plan, const std::string& a,
                                             const std::string& b) {
  std::vector<switching::LinkId> out;
  const switching::Topology& topology = plan.network->topology;
  for (std::uint32_t i = 0; i < topology.cables.size(); ++i) {
    const switching::Topology::Cable& cable = topology.cables[i];
    if (!cable.a.host && topology.switches[cable.a.index] == a && topology.switches[cable.b.index] == b) {
      out.insert(out.end(), {switching::link_of(i, true), switching::link_of(i, false)});
    }
  }
  EXPECT_EQ(out.size(), 2U);
  return out;
}
TEST(ShardNetwork, ADeadCableFarAwayTakesItsFlowsUntilTheRoutesAreMadeAnew) {
  pipeline::ShardPlan plan = plan_with_spines(100ms);
  const auto cables = cable_between(plan, "leaf1", "spine0");
  plan.profile.failures = {{.at = 1s, .lasts = 1s, .what = fabric::CableFailure{cables}}};
  ShardRig rig(plan);
  EXPECT_EQ(arrivals(rig), flows);
  rig.run_until(Instant{} + 1s);
  const std::uint64_t some = arrivals(rig);
  EXPECT_GT(some, 0U);
  EXPECT_LT(some, flows);
  EXPECT_EQ(rig.count(Drop::network_link_down) + rig.count(Drop::network_no_route), flows - some);
  rig.run_until(Instant{} + 1100ms);
  EXPECT_EQ(arrivals(rig), flows);
  rig.run_until(Instant{} + 2s);
  EXPECT_EQ(arrivals(rig), flows);
  rig.run_until(Instant{} + 2100ms);
  EXPECT_EQ(arrivals(rig), flows);
}

TEST(ShardNetwork, WithoutNewRoutesTheyAreLostUntilTheCableIsBack) {
  pipeline::ShardPlan plan = plan_with_spines(std::nullopt);
  const auto cables = cable_between(plan, "leaf1", "spine0");
  ShardRig rig(plan);
  rig.shard().take_links_down(cables, rig.now() + 1s, rig.now());
  const std::uint64_t some = arrivals(rig);
  EXPECT_LT(some, flows);
  rig.run_until(Instant{} + 999ms - 1us);
  EXPECT_EQ(arrivals(rig), some);
  rig.run_until(Instant{} + 1s);
  EXPECT_EQ(arrivals(rig), flows);
  rig.shard().take_links_down(cables, Instant::never(), rig.now());
  EXPECT_EQ(arrivals(rig), some);
  rig.shard().take_links_down(cables, rig.now(), rig.now());
  EXPECT_EQ(arrivals(rig), flows);
}

TEST(ShardNetwork, AHalfOpenCableCarriesTheOtherDirection) {
  ShardRig rig(plan_with_switch(BitRate::gbps(100), BitRate::gbps(100)));
  const switching::LinkId from_ghost = switching::link_of(1, true);
  const switching::LinkId to_ghost = switching::link_of(1, false);
  rig.shard().take_links_down({from_ghost}, Instant::never(), rig.now());
  EXPECT_EQ(arrivals(rig), flows);
  rig.receive(arp_request(node_mac, node_ip, ghost_ip));
  rig.run_for(1ms);
  EXPECT_TRUE(rig.take_sent().empty());
  EXPECT_EQ(rig.count(Drop::network_link_down), 1U) << "the ghost's answer";
  rig.shard().take_links_down({from_ghost}, rig.now(), rig.now());
  rig.shard().take_links_down({to_ghost}, rig.now() + 2ms, rig.now());
  EXPECT_EQ(arrivals(rig), 0U);
  rig.receive(arp_request(node_mac, node_ip, ghost_ip));
  rig.run_for(1ms);
  EXPECT_EQ(rig.take_sent().size(), 1U);
  EXPECT_EQ(arrivals(rig), flows) << "the time is over";
}

TEST(ShardNetwork, APinnedFlowTakesItsCable) {
  for (const unsigned spine : {0U, 1U}) {
    pipeline::ShardPlan plan = plan_with_spines(std::nullopt);
    const auto cables = cable_between(plan, "leaf0", "spine" + std::to_string(spine));
    const auto ports = switching::neighbours(plan.network->topology);
    for (switching::PortIndex port = 0; port < ports[0].size(); ++port) {
      if (ports[0][port].cable == cables[0] / 2) {
        plan.network->pins = {{.from = 0, .to = 1, .source_port = std::nullopt, .hops = {{0, port}}}};
      }
    }
    ASSERT_EQ(plan.network->pins.size(), 1U);
    ShardRig rig(plan);
    const auto beyond = cable_between(plan, "leaf1", "spine" + std::to_string(spine));
    rig.shard().take_links_down(beyond, Instant::never(), rig.now());
    EXPECT_EQ(arrivals(rig), 0U) << "every flow goes where the pin says";
    rig.shard().take_links_down(beyond, rig.now(), rig.now());
    const auto other = cable_between(plan, "leaf1", "spine" + std::to_string(1 - spine));
    rig.shard().take_links_down(other, Instant::never(), rig.now());
    EXPECT_EQ(arrivals(rig), flows) << "and none to the other spine";
  }
  pipeline::ShardPlan plan = plan_with_spines(std::nullopt);
  plan.network->pins = {{.from = 0, .to = 1, .source_port = 0xc003, .hops = {{0, 2}}},
                        {.from = 0, .to = 1, .source_port = std::nullopt, .hops = {{0, 1}}}};
  ShardRig rig(plan);
  rig.shard().take_links_down(cable_between(plan, "leaf1", "spine0"), Instant::never(), rig.now());
  EXPECT_EQ(arrivals(rig), 1U) << "one flow has a pin of its own";
}

TEST(ShardNetwork, ABufferShrinksForATime) {
  pipeline::ShardPlan plan = plan_with_switch(BitRate::gbps(100), BitRate::gbps(1));
  plan.profile.failures = {{.at = 1s, .lasts = 1s, .what = fabric::BufferChange{{0}, 3'000}}};
  ShardRig rig(plan);
  const auto burst = [&rig] {
    for (int i = 0; i < 10; ++i) {
      rig.receive(roce_send(ghost_ip, Qpn{0x11}, 1024));
    }
    rig.run_for(10ms);
    return rig.count(Drop::network_buffer_full) + rig.count(Drop::network_dynamic_threshold);
  };
  EXPECT_EQ(burst(), 0U);
  rig.run_until(Instant{} + 1s);
  const std::uint64_t lost = burst();
  EXPECT_GT(lost, 5U);
  rig.run_until(Instant{} + 2s);
  EXPECT_EQ(burst(), lost);
}

// ---- a ghost that comes back as somebody else

TEST(ShardFailures, AGhostComesBackWithAnotherMac) {
  const Mac other{{0x02, 0, 0, 9, 9, 9}};
  for (const bool announced : {true, false}) {
    pipeline::ShardPlan plan = one_ghost_plan();
    plan.profile.failures = {
        {.at = 1s, .lasts = 1s, .what = fabric::GhostFailure{{GhostId{0}}, fabric::NewIdentity{other, {}, announced}}}};
    ShardRig rig(plan);
    rig.run_until(Instant{} + 1999ms);
    EXPECT_TRUE(rig.take_sent().empty());
    rig.run_until(Instant{} + 2s);
    const auto said = rig.take_sent();
    EXPECT_EQ(said.empty(), !announced);
    for (const auto& frame : said) {
      EXPECT_EQ(wire::source_mac(frame.bytes), other);
      EXPECT_TRUE(wire::destination_mac(frame.bytes).is_multicast());
    }
    rig.receive(roce_send(ghost_ip, Qpn{0x11}, 64));  // to the old MAC
    EXPECT_EQ(rig.count(Drop::qp_unknown), 0U);
    rig.receive(arp_request(node_mac, node_ip, ghost_ip));
    const auto answer = rig.take_sent();
    ASSERT_EQ(answer.size(), 1U);
    EXPECT_EQ(wire::source_mac(answer[0].bytes), other);
  }
}

// ---- events that the ghost's responder takes part in

pipeline::ShardPlan one_qp_plan(const events::Action& action) {
  pipeline::ShardPlan plan = one_ghost_plan();
  pipeline::StaticQp qp;
  qp.attr.qpn = Qpn{0x11};
  qp.attr.dest_qpn = Qpn{0x22};
  qp.attr.path = {
      .source_mac = ghost_mac, .destination_mac = node_mac, .source_ip = ghost_ip, .destination_ip = node_ip};
  qp.receives = {.count = 4, .size = 1024};
  plan.ghosts[0].qps.push_back(qp);
  plan.profile.events = {{.name = "e", .match = {.qp = 1, .psn_offset = 0, .transmission = 1}, .action = action}};
  return plan;
}

/// The syndromes of the acknowledgements that left, in order.
std::vector<std::uint8_t> syndromes(ShardRig& rig) {
  std::vector<std::uint8_t> out;
  for (const ShardRig::Sent& sent : rig.take_sent()) {
    wire::Parsed p;
    EXPECT_EQ(wire::parse(sent.bytes, {}, p), Drop::none);
    EXPECT_EQ(p.dest_qpn, Qpn{0x22});
    out.push_back(p.syndrome);
  }
  return out;
}

TEST(ShardEvents, TheResponderAnswersNotReadyAndThenTakesTheRequest) {
  ShardRig rig(one_qp_plan(events::Rnr{}));
  rig.receive(roce_send(ghost_ip, Qpn{0x11}, 64));
  const std::vector<std::uint8_t> first = syndromes(rig);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0] >> 5U, 1) << "RNR NAK (IBTA table 46)";
  rig.receive(roce_send(ghost_ip, Qpn{0x11}, 64));
  const std::vector<std::uint8_t> second = syndromes(rig);
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0] >> 5U, 0) << "ACK";
  EXPECT_EQ(rig.count(Drop::event), 1U);
}

TEST(ShardEvents, TheResponderRefuses) {
  ShardRig rig(one_qp_plan(events::Nak{events::NakCode::remote_access_error}));
  rig.receive(roce_send(ghost_ip, Qpn{0x11}, 64));
  EXPECT_EQ(syndromes(rig), std::vector<std::uint8_t>{0x62});
  EXPECT_EQ(rig.count(Counter::qp_errors), 1U);
}

TEST(ShardEvents, AQueuePairGoesToTheErrorState) {
  ShardRig rig(one_qp_plan(events::QpError{}));
  rig.receive(roce_send(ghost_ip, Qpn{0x11}, 64));
  EXPECT_TRUE(rig.take_sent().empty());
  EXPECT_EQ(rig.count(Counter::qp_errors), 1U);
}

}  // namespace
}  // namespace nbx::test
