// Other tools' files: what becomes of them, what is said of what cannot be had, and where damaged ones are damaged.
#include <gtest/gtest.h>

#include "config/job.hpp"
#include "config/load.hpp"
#include "import/import.hpp"

namespace nbx::import {
namespace {

using config::Severity;

std::string place(const config::Diagnostic& diagnostic) {
  return std::to_string(diagnostic.pos.line) + ":" + std::to_string(diagnostic.pos.column);
}

config::Profile profile_of(const Imported& imported) {
  const config::LoadedProfile loaded = config::change_profile({}, "imported.yaml", imported.yaml);
  EXPECT_TRUE(loaded.ok()) << imported.yaml << (loaded.ok() ? "" : loaded.diagnostics.front().message);
  return loaded.profile;
}

TEST(Netem, EveryWordHasItsPlace) {
  const Imported line = from_netem(
      "line",
      "tc qdisc add dev eth0 root netem limit 5000 delay 100ms 10ms distribution normal loss 0.3% duplicate 1% "
      "corrupt 0.1% rate 10mbit\n",
      config::Way::to_node);
  ASSERT_TRUE(line.ok() && line.diagnostics.empty());
  EXPECT_EQ(line.yaml,
            "name: imported-netem\nto_node:\n  delay: {constant: 100ms, normal: 10ms, may_reorder: true}\n"
            "  loss: 0.003\n  corrupt: 0.001\n  delay_line_frames: 5000\n  duplicate: 0.01\n"
            "  rate: {limit: 10Mb/s, count_overhead: false}\n");
  profile_of(line);
}

TEST(Netem, WhatTcShowsIsRead) {
  const Imported shown =
      from_netem("line", "qdisc netem 8001: dev eth0 root refcnt 2 limit 1000 delay 10ms  1ms loss 1% rate 1Gbit\n",
                 config::Way::both);
  ASSERT_TRUE(shown.ok() && shown.diagnostics.empty());
  EXPECT_EQ(shown.yaml,
            "name: imported-netem\nboth:\n  delay: {constant: 10ms, uniform: 1ms, may_reorder: true}\n  loss: 0.01\n"
            "  delay_line_frames: 1000\n  rate: {limit: 1Gb/s, count_overhead: false}\n");
}

TEST(Netem, GilbertElliottHasNetemsDefaults) {
  // tc-netem(8): r is 1-p, 1-h is 100 %, 1-k is 0 % when they are not given.
  EXPECT_NE(from_netem("line", "netem loss gemodel 1%", config::Way::both)
                .yaml.find("{p: 0.01, r: 0.99, in_bad: 1, in_good: 0}"),
            std::string::npos);
  EXPECT_NE(from_netem("line", "netem loss gemodel 1% 10% 70% 0.1%", config::Way::both)
                .yaml.find("{p: 0.01, r: 0.1, in_bad: 0.7, in_good: 0.001}"),
            std::string::npos);
}

TEST(Netem, UnitsAreThoseOfTc) {
  for (const auto& [written, meant] : {std::pair{"delay 2000", "constant: 2ms}"},
                                       {"delay 2sec", "constant: 2s}"},
                                       {"rate 1gbit", "limit: 1Gb/s,"},
                                       {"rate 1mbps", "limit: 8Mb/s,"},
                                       {"rate 64000", "limit: 64kb/s,"},
                                       {"rate 1000kibit", "limit: 1024kb/s,"}}) {
    const Imported line = from_netem("line", written, config::Way::both);
    ASSERT_TRUE(line.ok()) << written;
    EXPECT_NE(line.yaml.find(meant), std::string::npos) << line.yaml;
    profile_of(line);
  }
}

TEST(Netem, WhatCannotBeHadIsSaidWhereItStands) {
  const Imported line = from_netem("line", "netem delay 10ms 1ms 25% reorder 25% 50% loss 1% 5%", config::Way::both);
  ASSERT_TRUE(line.ok());
  ASSERT_EQ(line.diagnostics.size(), 3U);
  EXPECT_EQ(place(line.diagnostics[0]), "1:22");
  EXPECT_EQ(place(line.diagnostics[1]), "1:26");
  EXPECT_EQ(place(line.diagnostics[2]), "1:50");
  profile_of(line);
}

TEST(Netem, DamageHasAPlace) {
  for (const auto& [text, where] : {std::pair{"netem delay", "1:7"},
                                    {"netem delay soon", "1:13"},
                                    {"netem loss 101%", "1:12"},
                                    {"netem lag 5ms", "1:7"},
                                    {"netem rate 5furlongs", "1:12"},
                                    {"\nnetem delay 1ms\nnetem loss 1%", "3:1"}}) {
    const Imported line = from_netem("line", text, config::Way::both);
    EXPECT_FALSE(line.ok()) << text;
    ASSERT_FALSE(line.diagnostics.empty()) << text;
    EXPECT_EQ(place(line.diagnostics.front()), where) << text;
    EXPECT_TRUE(line.yaml.empty());
  }
}

TEST(Mahimahi, ChancesBecomeRates) {
  // 100 chances in the first tenth of a second are 1,500 x 8 x 100 / 0.1 s = 12 Mb/s, and so in the second; none, then
  // one.
  std::string trace;
  for (int i = 0; i < 200; ++i) {
    trace += std::to_string(i) + "\n";
  }
  const Imported imported = from_mahimahi("trace", trace + "310\n", config::Way::from_node);
  ASSERT_TRUE(imported.ok());
  EXPECT_EQ(imported.yaml,
            "name: imported-mahimahi\nfailures:\n"
            "  - {at: 0ms, for: 200ms, direction: from_node, rate: {limit: 12Mb/s, count_overhead: false}}\n"
            "  - {at: 200ms, for: 100ms, direction: from_node, rate: {limit: 1b/s, count_overhead: false}}\n"
            "  - {at: 300ms, for: 100ms, direction: from_node, rate: {limit: 120kb/s, count_overhead: false}}\n");
  profile_of(imported);
  EXPECT_EQ(place(from_mahimahi("trace", "1\n5\n4\n", config::Way::both).diagnostics.front()), "3:1");
  EXPECT_EQ(place(from_mahimahi("trace", "1\nx\n", config::Way::both).diagnostics.front()), "2:1");
  EXPECT_FALSE(from_mahimahi("trace", "", config::Way::both).ok());
}

constexpr const char* header =
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 vpp: 8 ga: 1 "
    "all_gpus: 8 checkpoints: 0 checkpoint_initiates: 0\n";

TEST(SimAi, ForwardThenBackwardInReverse) {
  const Imported imported =
      from_simai("workload", std::string(header) +
                                 "2\n"
                                 "attention -1 1000 ALLREDUCE 4096 2000 NONE 0 0 REDUCESCATTER 8192 1\n"
                                 "mlp -1 500 ALLTOALL_EP 512 600 ALLGATHER 1024 700 NONE 0 1\n");
  ASSERT_TRUE(imported.ok()) << imported.diagnostics.front().message;
  const config::LoadedJob job = config::parse_job("imported.yaml", imported.yaml, 8);
  ASSERT_TRUE(job.ok()) << imported.yaml;
  std::string names;
  for (const auto& operation : job.job.each_step) {
    names += operation->name + "; ";
  }
  EXPECT_EQ(
      names,
      "attention, forward; attention, forward; mlp, forward; mlp, forward; mlp, gradients of inputs; mlp, gradients "
      "of inputs; mlp, gradients of weights; attention, gradients of inputs; attention, gradients of weights; ");
  const auto& tensor = std::get<config::AllReduce>(job.job.each_step[1]->what);
  EXPECT_EQ(tensor.bytes.value, 4096U);
  EXPECT_EQ(tensor.group.size, 2U);
  EXPECT_EQ(tensor.group.stride, 1U);
  const auto& expert = std::get<config::AllToAll>(job.job.each_step[3]->what);
  EXPECT_EQ(expert.group.size, 2U);
  EXPECT_EQ(expert.group.stride, 2U);
  const auto& data = std::get<config::ReduceScatter>(job.job.each_step[8]->what);
  EXPECT_EQ(data.group.size, 4U);
  EXPECT_EQ(data.group.stride, 2U);
}

TEST(SimAi, DamageHasAPlace) {
  const std::string good = "a -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n";
  for (const auto& [text, where] : {std::pair{std::string("DATA\n1\n"), "1:1"},
                                    {std::string(header) + "2\n" + good, "2:1"},
                                    {std::string(header) + "1\na -1 1 NONE 0\n", "3:1"},
                                    {std::string(header) + "1\na -1 1 SHUFFLE 8 1 NONE 0 1 NONE 0 1\n", "3:8"},
                                    {std::string(header) + "1\na -1 soon NONE 0 1 NONE 0 1 NONE 0 1\n", "3:6"}}) {
    const Imported imported = from_simai("workload", text);
    ASSERT_FALSE(imported.ok()) << text;
    EXPECT_EQ(place(imported.diagnostics.front()), where) << text;
  }
}

// The bytes of Protocol Buffers by hand: a key is a field's number and wire type (0: varint, 2: length).
std::string varint(std::uint64_t n) {
  std::string bytes;
  for (; n >= 128; n >>= 7U) {
    bytes += static_cast<char>(n | 128U);
  }
  return bytes + static_cast<char>(n);
}
std::string number(unsigned field, std::uint64_t value) { return varint(field << 3U) + varint(value); }
std::string sized(const std::string& bytes) { return varint(bytes.size()) + bytes; }
std::string text(unsigned field, const std::string& bytes) { return varint(field << 3U | 2U) + sized(bytes); }
/// With an int64_val.
std::string attribute(const std::string& name, std::uint64_t value) {
  return text(10, text(1, name) + number(9, value));
}
/// id, name, type, data_deps
std::string node(std::uint64_t id, const std::string& name, unsigned type, const std::string& deps,
                 const std::string& more) {
  return sized(number(1, id) + text(2, name) + number(3, type) + text(5, deps) + more);
}
std::string collective(std::uint64_t id, unsigned kind, std::uint64_t bytes, const std::string& deps) {
  // is_cpu_op has a bool_val, which is left alone.
  return node(
      id, "c" + std::to_string(id), 7, deps,
      text(10, text(1, "is_cpu_op") + number(27, 0)) + attribute("comm_type", kind) + attribute("comm_size", bytes));
}
const std::string version = sized(text(1, "0.0.4"));

TEST(Chakra, DependenciesBecomeOrder) {
  // 1 computes, 2 and 3 wait for it, 4 waits for both; in the file 4 is first.
  const Imported imported =
      from_chakra("trace", version + collective(4, 6, 512, varint(2) + varint(3)) +
                               node(1, "gemm", 4, "", number(7, 25)) + collective(2, 0, 1048576, varint(1)) +
                               node(3, "send", 5, varint(1),
                                    attribute("comm_src", 0) + attribute("comm_dst", 3) + attribute("comm_size", 64)));
  ASSERT_TRUE(imported.ok()) << imported.diagnostics.front().message;
  EXPECT_EQ(imported.yaml,
            "job: imported-chakra\neach_step:\n  - {compute: 25us, name: \"gemm #1\", after: []}\n"
            "  - {all_reduce: 1048576B, name: \"c2 #2\", after: [\"gemm #1\"]}\n"
            "  - {flow: {from: 0, to: 3, bytes: 64B}, name: \"send #3\", after: [\"gemm #1\"]}\n"
            "  - {all_to_all: 512B, name: \"c4 #4\", after: [\"c2 #2\", \"send #3\"]}\n");
  EXPECT_TRUE(config::parse_job("imported.yaml", imported.yaml, 4).ok());
}

TEST(Chakra, WhatIsLeftOutIsSaid) {
  const Imported imported = from_chakra("trace", version + collective(1, 0, 8, "") + collective(2, 9, 0, varint(1)));
  ASSERT_TRUE(imported.ok());
  ASSERT_EQ(imported.diagnostics.size(), 1U);
  EXPECT_EQ(place(imported.diagnostics[0]), "1:" + std::to_string(version.size() + collective(1, 0, 8, "").size() + 1));
}

TEST(Chakra, ProcessGroupsAreSaidNotToBeHonoured) {
  const std::string in_group =
      node(1, "c1", 7, "",
           attribute("comm_type", 0) + attribute("comm_size", 8) + text(10, text(1, "pg_name") + text(29, "tp0")));
  const Imported imported = from_chakra("trace", version + in_group);
  ASSERT_TRUE(imported.ok());
  ASSERT_EQ(imported.diagnostics.size(), 1U);
  EXPECT_EQ(imported.diagnostics[0].message,
            "node 1: its process group, pg_name 'tp0', is not honoured: all ranks take part");
  EXPECT_EQ(place(imported.diagnostics[0]), "1:" + std::to_string(version.size() + 1));
}

TEST(Chakra, DamageHasAByte) {
  const std::string good = version + collective(1, 0, 8, "");
  for (const auto& [bytes, where] : {std::pair{good.substr(0, good.size() - 1), version.size()},
                                     {good + node(2, "x", 4, varint(7), number(7, 1)), good.size()},
                                     {good + collective(1, 0, 8, ""), good.size()},
                                     {good + node(2, "x", 4, varint(2), number(7, 1)), good.size()},
                                     {good + node(2, "x", 7, "", attribute("comm_type", 0)), good.size()},
                                     {std::string(), std::size_t{0}}}) {
    const Imported imported = from_chakra("trace", bytes);
    ASSERT_FALSE(imported.ok());
    EXPECT_EQ(place(imported.diagnostics.front()), "1:" + std::to_string(where + 1));
    EXPECT_TRUE(imported.yaml.empty());
  }
}

constexpr const char* hpcc_map =
    "KMAX_MAP 2 25000000000 400 100000000000 1600\nKMIN_MAP 2 25000000000 100 100000000000 400\n"
    "PMAX_MAP 2 25000000000 0.2 100000000000 0.8\n";

/// SimAI's own values, and what they are in mlx5's words: g = 1/256 keeps 1,020 of 1,024.
TEST(Hpcc, CongestionSettingsBecomeKeysOfTheCluster) {
  const Imported imported =
      from_hpcc("SimAI.conf",
                "ENABLE_QCN 1\nUSE_DYNAMIC_PFC_THRESHOLD 1\n\nCC_MODE 1 {DCQCN}\nALPHA_RESUME_INTERVAL 1\n"
                "RATE_DECREASE_INTERVAL 4\nCLAMP_TARGET_RATE 0\nRP_TIMER 900 \nEWMA_GAIN 0.00390625\n"
                "FAST_RECOVERY_TIMES 1\nRATE_AI 50Mb/s\nRATE_HAI 100Mb/s\nMIN_RATE 100Mb/s\nU_TARGET 0.95\n"
                "ERROR_RATE_PER_LINK 0.0000\nLINK_DOWN 0 0 0\nBUFFER_SIZE 32\nPAUSE_TIME 5\nFCT_OUTPUT_FILE x\n"
                "QLEN_MON_FILE x\n" +
                    std::string(hpcc_map),
                BitRate::gbps(100));
  ASSERT_TRUE(imported.ok()) << imported.diagnostics.front().message;
  EXPECT_TRUE(imported.diagnostics.empty());
  const config::Loaded loaded = config::parse_cluster(
      "imported.yaml",
      "cluster: c\nports: [{name: p0}]\nghosts: [{name: g, addresses: [10.0.0.9/24]}]\n" + imported.yaml);
  ASSERT_TRUE(loaded.ok()) << imported.yaml << loaded.diagnostics.front().message;
  EXPECT_EQ(imported.yaml,
            "# Keys for a cluster file.\nnetwork:\n  topology: rack\n  host_rate: 100Gb/s\n  fabric_rate: 100Gb/s\n"
            "  buffer: 32MiB\n  pfc_quanta: 976\n  priorities:\n"
            "    - {priority: 3, lossless: true, ecn: {kmin: 400000B, kmax: 1600000B, pmax: 0.8}}\n"
            "transport:\n  line_rate: 100Gb/s\n  dcqcn: {preset: hpcc-production, rp_dce_tcp_rtt: 1, "
            "rp_rate_reduce_monitor_period: 4, rp_clamp_tgt_rate: false, rp_time_reset: 900, rp_dce_tcp_g: 1020, "
            "rp_threshold: 1, rp_ai_rate: 50, rp_hai_rate: 100, rp_min_rate: 100}\n");
}

TEST(Hpcc, WhatCannotBeHadIsSaidWhereItStands) {
  const Imported imported = from_hpcc(
      "config", "CC_MODE 3\nHAS_WIN 1\nERROR_RATE_PER_LINK 0.001\nPACKET_PAYLOAD_SIZE 9000\nTOPOLOGY_FILE t.txt\n",
      BitRate::gbps(100));
  ASSERT_TRUE(imported.ok());
  std::string places;
  for (const auto& diagnostic : imported.diagnostics) {
    places += place(diagnostic) + " ";
  }
  EXPECT_EQ(places, "1:9 2:1 3:1 4:21 5:1 ");
  EXPECT_EQ(imported.yaml.find("dcqcn"), std::string::npos);
}

TEST(Hpcc, DamageHasAPlace) {
  for (const auto& [text, where] : {std::pair<std::string, const char*>{"RATE_AI fast\n", "1:9"},
                                    {"ENABLE_QCN maybe\n", "1:12"},
                                    {"\nEWMA_GAIN 2\n", "2:11"},
                                    {"BUFFER_SIZE\n", "1:1"},
                                    {"KMIN_MAP 2 100000000000 400\n", "1:10"},
                                    {"KMIN_MAP 1 25000000000 400\n", "1:1"},
                                    {"PMAX_MAP 1 100000000000 2\n", "1:25"},
                                    {"RP_TIMER 1\nRP_TIMER 2\n", "2:1"},
                                    {"PAUSE_TIME 1000000\n", "1:12"},
                                    {"", "1:1"}}) {
    const Imported imported = from_hpcc("config", text, BitRate::gbps(100));
    ASSERT_FALSE(imported.ok()) << text;
    EXPECT_EQ(place(imported.diagnostics.back()), where) << text;
    EXPECT_TRUE(imported.yaml.empty());
  }
}

const std::string simccl_header = "ID\tparent_id\tsrc\tdst\tsize\tchannel_id\n";

TEST(SimCcl, FlowsWaitForTheirParents) {
  const Imported imported =
      from_simccl("flows.csv", simccl_header + "0\t-1\t0\t1\t512KB\t0\n1\t0\t1\t2\t512KB\t0\n2\t0,1\t3\t0\t1MB\t1\n");
  ASSERT_TRUE(imported.ok()) << imported.diagnostics.front().message;
  EXPECT_EQ(imported.yaml,
            "job: imported-simccl\neach_step:\n"
            "  - {flow: {from: 0, to: 1, bytes: 524288B}, name: flow 0, after: []}\n"
            "  - {flow: {from: 1, to: 2, bytes: 524288B}, name: flow 1, after: [flow 0]}\n"
            "  - {flow: {from: 3, to: 0, bytes: 1048576B}, name: flow 2, after: [flow 0, flow 1]}\n");
  EXPECT_TRUE(config::parse_job("imported.yaml", imported.yaml, 4).ok());
  // Rank 3 takes part in neither of flow 2's parents; and channels are not kept apart.
  ASSERT_EQ(imported.diagnostics.size(), 3U);
  EXPECT_EQ(place(imported.diagnostics[0]), "4:3");
  EXPECT_EQ(place(imported.diagnostics[1]), "4:5");
  EXPECT_EQ(place(imported.diagnostics[2]), "1:27");
}

TEST(SimCcl, DamageHasAPlace) {
  const std::string good = simccl_header + "0\t-1\t0\t1\t8\t0\n";
  for (const auto& [text, where] : {std::pair<std::string, const char*>{"id,src,dst\n", "1:1"},
                                    {simccl_header, "1:1"},
                                    {good + "1\t-1\t0\t1\t8\n", "3:1"},
                                    {good + "0\t-1\t0\t1\t8\t0\n", "3:1"},
                                    {good + "1\t7\t0\t1\t8\t0\n", "3:3"},
                                    {good + "1\t0,x\t0\t1\t8\t0\n", "3:5"},
                                    {good + "1\t-1\t0\t0\t8\t0\n", "3:8"},
                                    {good + "1\t-1\t0\t1\t8TB\t0\n", "3:10"}}) {
    const Imported imported = from_simccl("flows.csv", text);
    ASSERT_FALSE(imported.ok()) << text;
    EXPECT_EQ(place(imported.diagnostics.back()), where) << text;
  }
}

std::string otg(const std::string& flow, const std::string& peer = "10.1.1.2") {
  return R"({"ports": [{"name": "tx"}],
 "devices": [
  {"name": "d1", "ethernets": [{"name": "e1", "ipv4_addresses": [{"name": "ip1", "address": "10.1.1.1"}]}],
   "rocev2": {"ipv4_interfaces": [{"ipv4_name": "ip1", "ib_mtu": 1024, "peers": [{"name": "p",
    "destination_ip_address": ")" +
         peer + R"(", "qps": [{"qp_name": "QP_1"}]}]}]}},
  {"name": "d2", "ethernets": [{"name": "e2", "ipv4_addresses": [{"name": "ip2", "address": "10.1.1.2"}]}]}],
 "stateful_flows": {"rocev2": [{"tx_ports": [{"port_name": "tx", "transmit_type": {"choice": "target_line_rate",
  "target_line_rate": {"value": 98, "flows": [
   )" + flow +
         "]}}}]}]}}\n";
}

TEST(Otg, FlowsOfQueuePairsBecomeFlowsOfRanks) {
  const Imported imported =
      from_otg("otg.json", otg(R"({"name": "f", "tx_endpoint": "QP_1", "message_size": 4, "message_size_unit": "kb",
    "rocev2_verb": {"choice": "send_with_immediate"}}, {"name": "g", "tx_endpoint": "QP_1"})"));
  ASSERT_TRUE(imported.ok()) << imported.diagnostics.back().message;
  EXPECT_EQ(imported.yaml,
            "job: imported-otg\neach_step:\n  - {flow: {from: 0, to: 1, bytes: 4096B}, name: \"f\", after: []}\n"
            "  - {flow: {from: 0, to: 1, bytes: 1048576B}, name: \"g\", after: []}\n");
  EXPECT_TRUE(config::parse_job("imported.yaml", imported.yaml, 2).ok());
  std::string places;
  for (const auto& diagnostic : imported.diagnostics) {
    places += place(diagnostic) + " ";
  }
  EXPECT_EQ(places, "4:56 8:23 10:31 ");
}

TEST(Otg, DamageHasAPlace) {
  for (const auto& [text, where] :
       {std::pair<std::string, const char*>{"[1, 2]", "1:1"},
        {"{\"devices\": [", "1:1"},
        {"{\"devices\": 5}", "1:13"},
        {otg(R"({"name": "f", "tx_endpoint": "QP_9"})"), "9:33"},
        {otg(R"({"name": "f"})"), "9:4"},
        {otg(R"({"name": "f", "tx_endpoint": "QP_1", "message_size": 70000})"), "9:57"},
        {otg(R"({"name": "f", "tx_endpoint": "QP_1", "message_size_unit": "furlongs"})"), "9:62"},
        {otg("", "10.1.1.9"), "5:31"},
        {otg(""), "1:1"}}) {
    const Imported imported = from_otg("otg.json", text);
    ASSERT_FALSE(imported.ok()) << text;
    EXPECT_EQ(place(imported.diagnostics.back()), where) << text << imported.diagnostics.back().message;
    EXPECT_TRUE(imported.yaml.empty());
  }
}

}  // namespace
}  // namespace nbx::import
