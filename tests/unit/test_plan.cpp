// From files to the plans of shards: what a key says arrives where the dataplane reads it.
#include <gtest/gtest.h>

#include <filesystem>

#include "config/checks.hpp"
#include "config/load.hpp"
#include "plan/plan.hpp"

namespace nbx::plan {
namespace {

using namespace std::chrono_literals;

const std::filesystem::path files = std::filesystem::path(NBX_CAPTURES).parent_path() / "config/good";

std::vector<pipeline::ShardPlan> plans_of(const std::string& name) {
  const config::Loaded loaded = config::load_cluster((files / name).string());
  EXPECT_TRUE(loaded.ok());
  return make_plans(loaded.config);
}

TEST(Plan, OfTheLeastCluster) {
  const auto plans = plans_of("minimal.yaml");
  ASSERT_EQ(plans.size(), 1U);
  EXPECT_EQ(plans[0].port_name, "p0");
  EXPECT_EQ(plans[0].profile.name, "ideal");
  EXPECT_TRUE(plans[0].profile.verify_icrc);
  EXPECT_TRUE(plans[0].profile.to_node.rate.rate.unlimited());
  ASSERT_EQ(plans[0].ghosts.size(), 1U);
  EXPECT_EQ(plans[0].ghosts[0].identity.mac, (Mac{{0x02, 0x4e, 0x42, 0, 0, 0}}));
  EXPECT_EQ(plans[0].ghosts[0].identity.traffic_class, 2);  // ECT(0), RFC 3168
  EXPECT_EQ(plans[0].ghosts[0].defaults.path_mtu, 4096U);   // fits the default MTU of 4200
}

TEST(Plan, Ports) {
  const auto plans = plans_of("full.yaml");
  ASSERT_EQ(plans.size(), 3U);
  EXPECT_EQ(plans[1].port, PortId{1});
  EXPECT_EQ(plans[1].mtu, 1500U);
  EXPECT_EQ(plans[0].seed, 42U);
  EXPECT_EQ(plans[0].ports, 3U);
  ASSERT_EQ(plans[0].neighbours.size(), 2U);
  EXPECT_EQ(plans[0].neighbours[1].first, *parse_ip("fd77::1"));
  EXPECT_EQ(to_string(plans[0].neighbours[1].second), "52:54:00:00:00:01");
  EXPECT_FALSE(plans[0].transport.send_cnp);
  EXPECT_EQ(plans[0].transport.cnp_interval, 4us);
  EXPECT_EQ(plans[0].transport.cnp_traffic_class, 40 << 2);
  EXPECT_EQ(plans[0].transport.cnp_scope, cc::CnpScope::ip);
  ASSERT_TRUE(plans[0].transport.rate_limit && plans[0].transport.rate_limit->dcqcn);
  EXPECT_EQ(plans[0].transport.rate_limit->line, BitRate::gbps(100));
  EXPECT_EQ(plans[0].transport.rate_limit->dcqcn->rp_ai_rate, 5U) << "given";
  EXPECT_EQ(plans[0].transport.rate_limit->dcqcn->rp_time_reset, 55U) << "the preset's";
  EXPECT_EQ(plans[0].cm.response_timeout, 18);
}

TEST(Plan, Network) {
  const auto plans = plans_of("network.yaml");
  ASSERT_EQ(plans.size(), 1U);
  ASSERT_TRUE(plans[0].network);
  const pipeline::NetworkPlan& network = *plans[0].network;
  EXPECT_EQ(network.topology.switches.size(), 4U);
  EXPECT_EQ(network.topology.cables.size(), 8U + 4U);
  EXPECT_EQ(network.ports[0].node, 0U);
  EXPECT_EQ(network.ports[0].ghosts, (std::vector<switching::HostId>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(network.classes.of_dscp[26], 3);
  EXPECT_EQ(network.classes.of_dscp[40], 5) << "DSCP / 8";
  const switching::PriorityBufferSpec& lossless = network.spec.switches.buffer.priority[3];
  EXPECT_TRUE(lossless.lossless);
  // 400 Gb/s x (2 x 1 us + 500 ns) = 125,000 bytes, and three frames of MTU 4200 with headers, preamble, FCS and gap.
  EXPECT_EQ(lossless.headroom_bytes, 125'000U + 3 * (4200 + 22 + 24));
  EXPECT_EQ(network.spec.switches.ecn[3].pmax_ppm, 200'000U);
}

TEST(Plan, NetworkOverSeveralPorts) {
  const auto plans = plans_of("network-ports.yaml");
  ASSERT_EQ(plans.size(), 2U);
  const pipeline::NetworkPlan& network = *plans[1].network;
  ASSERT_EQ(network.ports.size(), 2U);
  const pipeline::NetworkPort& first = network.ports[0];
  const pipeline::NetworkPort& second = network.ports[1];
  EXPECT_EQ(first.node, 0U);
  EXPECT_EQ(first.ghosts, (std::vector<switching::HostId>{1, 2})) << "whatever the order of the file";
  EXPECT_EQ(second.node, 3U);
  EXPECT_EQ(second.ghosts, (std::vector<switching::HostId>{4}));
  EXPECT_FALSE(first.storm);
  EXPECT_TRUE(second.storm);
  EXPECT_TRUE(!first.receivers[0] && first.receivers[1] && !second.receivers[0]);
  ASSERT_EQ(network.pins.size(), 1U);
  EXPECT_EQ(network.pins[0].from, 0U) << "by the name of its port";
  EXPECT_EQ(network.pins[0].to, 3U);
  EXPECT_EQ(network.traffic[0].to, (std::vector<switching::HostId>{0, 3})) << "`node`: all of them";
  const std::vector<std::pair<Mac, PortId>> elsewhere{{*parse_mac("52:54:00:00:00:02"), PortId{1}},
                                                      {plans[1].ghosts[0].identity.mac, PortId{1}}};
  EXPECT_EQ(plans[0].elsewhere, elsewhere);
  EXPECT_EQ(plans[0].neighbours.size(), 1U) << "behind whatever port";
}

TEST(Plan, GhostsWithACountCountUp) {
  const auto plans = plans_of("full.yaml");
  ASSERT_EQ(plans[1].ghosts.size(), 3U);
  const ghost::Identity& last = plans[1].ghosts[2].identity;
  EXPECT_EQ(last.name, "h2");
  EXPECT_EQ(to_string(last.addresses[0].ip), "10.78.1.0");
  EXPECT_EQ(to_string(last.addresses[1].ip), "fd78::1:1");
  EXPECT_EQ(last.addresses[0].prefix, 16);
  EXPECT_NE(last.mac, plans[1].ghosts[1].identity.mac);
  EXPECT_EQ(plans[1].ghosts[0].defaults.path_mtu, 1024U);  // the largest that fits an MTU of 1500
}

TEST(Plan, GhostsKeepWhatTheFileSays) {
  const pipeline::GhostPlan ghost = plans_of("full.yaml")[0].ghosts[0];
  EXPECT_EQ(ghost.identity.vlan_tci, 7);
  EXPECT_EQ(ghost.identity.traffic_class, 26 << 2);
  EXPECT_EQ(ghost.defaults.path_mtu, 2048U);
  EXPECT_EQ(ghost.defaults.min_rnr_timer, 1);
  ASSERT_EQ(ghost.personalities.size(), 7U);
  EXPECT_EQ(std::get<ghost::PingpongOptions>(ghost.personalities[1]).port, 18516);
  EXPECT_EQ(std::get<ghost::SinkOptions>(ghost.personalities[4]).region_bytes, 1U << 20U);
  const auto& source = std::get<ghost::SourceOptions>(ghost.personalities[5]);
  EXPECT_EQ(source.connect, "10.77.0.1");
  EXPECT_EQ(source.operation, rdma::WrOpcode::rdma_write);
  EXPECT_EQ(source.start, 1ms);
}

TEST(Plan, Regions) {
  const pipeline::GhostPlan ghost = plans_of("full.yaml")[0].ghosts[0];
  ASSERT_EQ(ghost.regions.size(), 5U);
  EXPECT_EQ(ghost.regions[0].content.kind, pipeline::RegionContent::Kind::pattern);
  EXPECT_EQ(ghost.regions[0].spec.access, 0x0f);  // every bit of ibv_access_flags that we know
  EXPECT_EQ(ghost.regions[1].spec.access, rdma::access::remote_read);
  EXPECT_EQ(ghost.regions[1].content.bytes,
            (std::vector<std::byte>{std::byte{0}, std::byte{1}, std::byte{0xfe}, std::byte{0xff}}));
  EXPECT_EQ(ghost.regions[2].content.bytes.size(), 5U);
  EXPECT_EQ(ghost.regions[3].spec.backing, rdma::Backing::sink);
  EXPECT_EQ(ghost.regions[3].spec.length, 1U << 30U);
  EXPECT_EQ(ghost.regions[4].content.bytes.back(), std::byte{8});
}

TEST(Plan, QueuePairs) {
  const pipeline::GhostPlan ghost = plans_of("full.yaml")[0].ghosts[0];
  ASSERT_EQ(ghost.qps.size(), 2U);
  const rdma::QpAttr& rc = ghost.qps[0].attr;
  EXPECT_EQ(rc.qpn, Qpn{0x11});
  EXPECT_EQ(rc.dest_qpn, Qpn{0x12});
  EXPECT_EQ(rc.sq_psn, Psn{0xfffffe});
  EXPECT_EQ(rc.rq_psn, Psn{100});
  EXPECT_EQ(rc.path_mtu, 1024U);   // its own
  EXPECT_EQ(rc.timeout, 14);       // its own
  EXPECT_EQ(rc.min_rnr_timer, 1);  // the ghost's
  EXPECT_EQ(rc.access, rdma::access::remote_write | rdma::access::remote_read);
  EXPECT_EQ(rc.max_rd_atomic, 1);
  EXPECT_EQ(rc.path.source_ip, *parse_ip("10.77.0.9"));
  EXPECT_EQ(to_string(rc.path.destination_mac), "52:54:00:00:00:01");  // from the node
  EXPECT_EQ(rc.path.vlan_tci, 7);
  EXPECT_EQ(ghost.qps[0].receives.region, 0x11U);
  const auto& requests = ghost.qps[0].requests;
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[0].at, 1ms);  // by time, not by place in the file
  EXPECT_EQ(requests[0].wr.compare_add, 5U);
  EXPECT_EQ(requests[0].wr.wr_id, 99U);
  EXPECT_EQ(requests[1].wr.opcode, rdma::WrOpcode::rdma_read);
  EXPECT_EQ(requests[1].wr.local.length, 4096U);
  EXPECT_EQ(requests[2].wr.imm_data, 0x77U);
  EXPECT_FALSE(requests[2].wr.signaled);
  const rdma::SendWr& datagram = ghost.qps[1].requests.at(0).wr;
  EXPECT_EQ(datagram.remote_qpn, Qpn{19});
  EXPECT_EQ(datagram.remote_qkey, 0x11111111U);
  EXPECT_EQ(datagram.path.source_ip, *parse_ip("fd77::9"));
}

TEST(Plan, Listeners) {
  const pipeline::GhostPlan ghost = plans_of("full.yaml")[0].ghosts[0];
  ASSERT_EQ(ghost.listeners.size(), 2U);
  EXPECT_EQ(ghost.listeners[0].service_id, 0x0106'0000U + 7471);  // IBTA A11.2.1
  EXPECT_EQ(ghost.listeners[0].private_data.size(), 7U);
  EXPECT_EQ(ghost.listeners[0].attr.timeout, 9);
  EXPECT_EQ(ghost.listeners[0].attr.path_mtu, 2048U);
  EXPECT_EQ(ghost.listeners[0].receives.count, 2U);
  EXPECT_EQ(ghost.listeners[1].service_id, 0x1000000000000001U);
}

TEST(Plan, ProfileRules) {
  const fabric::DirectionSpec from_node = plans_of("full.yaml")[1].profile.from_node;
  ASSERT_EQ(from_node.loss.size(), 4U);
  EXPECT_EQ(from_node.loss[0].match.classes, 0b101);  // data, nak
  EXPECT_EQ(from_node.loss[0].match.psn_last, Psn{15});
  EXPECT_DOUBLE_EQ(std::get<fabric::GilbertElliott>(from_node.loss[0].select).loss_in_bad, 0.9);
  EXPECT_EQ(from_node.loss[1].match.ghosts.size(), 3U);  // h*
  EXPECT_EQ(from_node.loss[1].match.nth, (std::vector<std::uint64_t>{1, 3}));
  EXPECT_EQ(std::get<fabric::Listed>(from_node.loss[1].select).frames, (std::vector<std::uint64_t>{2, 5}));
  EXPECT_EQ(from_node.loss[2].match.psn_first, Psn{7});
  EXPECT_EQ(from_node.loss[2].match.psn_last, Psn{7});
  EXPECT_EQ(std::get<fabric::EveryNth>(from_node.loss[3].select).offset, 50U);
  EXPECT_EQ(from_node.corrupt.at(0).target, fabric::CorruptTarget::header);
  EXPECT_TRUE(from_node.ecn.at(0).force);
  EXPECT_EQ(from_node.rate.queue_bytes, 256U << 10U);
  EXPECT_FALSE(from_node.rate.count_overhead);
  ASSERT_EQ(from_node.delay.size(), 5U);
  EXPECT_EQ(from_node.delay[0].constant, 1500us);
  EXPECT_EQ(from_node.delay[1].constant, 2ms);  // wins over the merged one
  EXPECT_EQ(std::get<fabric::Uniform>(from_node.delay[1].jitter).spread, 100us);
  EXPECT_TRUE(from_node.delay[1].may_reorder);
  EXPECT_DOUBLE_EQ(std::get<fabric::Pareto>(from_node.delay[3].jitter).shape, 2.5);
  EXPECT_EQ(std::get<fabric::Table>(from_node.delay[4].jitter).values.size(), 4U);
  EXPECT_EQ(from_node.reorder.at(0).distance, 5U);
  EXPECT_EQ(from_node.delay_line_frames, 100000U);
}

/// A direction's own stage, then `both`, then what the profile extends.
TEST(Plan, ProfilesInherit) {
  const auto plans = plans_of("full.yaml");
  const fabric::ProfileSpec& everything = plans[1].profile;
  ASSERT_EQ(everything.to_node.loss.size(), 1U);
  EXPECT_DOUBLE_EQ(std::get<fabric::Bernoulli>(everything.to_node.loss[0].select).probability, 0.01);
  EXPECT_EQ(everything.to_node.rate.rate, BitRate::gbps(100));
  EXPECT_EQ(everything.to_node.rate.queue_bytes, config::default_queue_bytes);
  const fabric::ProfileSpec& extended = plans[2].profile;
  EXPECT_EQ(extended.name, "lossy-0.1pct");
  EXPECT_FALSE(extended.verify_icrc);
  EXPECT_TRUE(extended.from_node.loss.empty());  // `loss: []` ends what is inherited
  EXPECT_EQ(extended.to_node.loss.size(), 1U);
  EXPECT_EQ(extended.from_node.delay.at(0).constant, 2us);
}

TEST(Plan, DelayLinesHoldWhatRateAndDelayAskFor) {
  // 30 ms at 100 Gb/s, and frames of 4200 + 14 + 24 bytes on the wire: 30e-3 * 100e9 / 8 / 4238 = 88485.1
  config::Direction direction;
  direction.delay.emplace().emplace_back().value.rule.constant = 30ms;
  EXPECT_EQ(config::delay_line(direction, 4200).frames, 88486U);
  EXPECT_EQ(plans_of("minimal.yaml")[0].profile.to_node.delay_line_frames, 65536U);
}

TEST(Plan, LargestPathMtuLeavesRoomForEveryHeader) {
  EXPECT_EQ(config::largest_path_mtu(9000), 4096U);
  EXPECT_EQ(config::largest_path_mtu(4096 + 84), 4096U);
  EXPECT_EQ(config::largest_path_mtu(4096 + 83), 2048U);
  EXPECT_EQ(config::largest_path_mtu(1500), 1024U);
}

}  // namespace
}  // namespace nbx::plan
