// What `nbx inspect` says of recorded traffic (expected numbers are tshark 4.0.17's) and of frames that were made to
// show one thing each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "inspect/analysis.hpp"
#include "inspect/inspect.hpp"
#include "wire/build.hpp"

namespace nbx::analysis {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string capture_path(const std::string& name) { return std::string(NBX_CAPTURES) + "/" + name; }

json inspected(const std::string& name) {
  std::ostringstream out;
  std::ostringstream errors;
  EXPECT_EQ(inspect({.file = capture_path(name), .json = true}, out, errors), 0) << errors.str();
  EXPECT_EQ(errors.str(), "");
  return json::parse(out.str());
}

std::uint64_t sum(const json& flows, const char* key) {
  return std::accumulate(flows.begin(), flows.end(), std::uint64_t{0},
                         [key](std::uint64_t s, const json& flow) { return s + flow[key].get<std::uint64_t>(); });
}

std::map<std::string, std::uint64_t> merged(const json& flows, const char* key) {
  std::map<std::string, std::uint64_t> all;
  for (const json& flow : flows) {
    for (const auto& [name, n] : flow[key].items()) {
      all[name] += n.get<std::uint64_t>();
    }
  }
  return all;
}

// tshark -r FILE -Y infiniband.bth -T fields -e ip.src -e ipv6.src -e ip.dst -e ipv6.dst -e infiniband.bth.destqp
//   -e infiniband.bth.psn -e infiniband.bth.opcode -e infiniband.aeth.syndrome
// "again": lines of RC and UC other than ACKs whose first six fields, requests and responses apart, were there before.
struct RecordedTotals {
  const char* file;
  std::uint64_t roce;
  std::uint64_t acks;
  std::uint64_t naks;
  std::uint64_t again;
};

TEST(Inspect, TotalsAreTsharks) {
  for (const RecordedTotals& r : {RecordedTotals{"rxe-cm.pcap", 301, 135, 0, 0},
                                  {"rxe-loss.pcap", 58, 13, 2, 11},
                                  {"rxe-ops.pcap", 41, 10, 0, 0},
                                  {"rxe-perftest.pcap", 139, 42, 0, 0},
                                  {"rxe-pingpong.pcap", 256, 25, 0, 4}}) {
    const json report = inspected(r.file);
    const json& flows = report["flows"];
    EXPECT_EQ(report["kinds"]["roce_v2"], r.roce) << r.file;
    EXPECT_EQ(sum(flows, "packets"), r.roce) << r.file;
    EXPECT_EQ(sum(flows, "acks"), r.acks) << r.file;
    EXPECT_EQ(sum(flows, "retransmissions"), r.again) << r.file;
    EXPECT_EQ(sum(flows, "response_retransmissions"), 0U) << r.file;
    EXPECT_EQ(sum(flows, "rnr_naks"), 0U) << r.file;
    EXPECT_EQ(sum(flows, "icrc_good"), r.roce) << r.file;
    EXPECT_TRUE(report["malformed"].empty()) << r.file;
    const auto naks = merged(flows, "naks");
    EXPECT_EQ(naks.empty() ? 0 : naks.at("psn_sequence_error"), r.naks) << r.file;
  }
}

TEST(Inspect, OpcodesAreTsharks) {
  const std::map<std::string, std::uint64_t> expected{{"rc_send_first", 2},
                                                      {"rc_send_middle", 2},
                                                      {"rc_send_last", 1},
                                                      {"rc_send_last_with_immediate", 1},
                                                      {"rc_send_only", 6},
                                                      {"rc_rdma_write_first", 2},
                                                      {"rc_rdma_write_middle", 2},
                                                      {"rc_rdma_write_last", 1},
                                                      {"rc_rdma_write_last_with_immediate", 1},
                                                      {"rc_rdma_read_request", 1},
                                                      {"rc_rdma_read_response_first", 1},
                                                      {"rc_rdma_read_response_middle", 1},
                                                      {"rc_rdma_read_response_last", 1},
                                                      {"rc_acknowledge", 10},
                                                      {"rc_atomic_acknowledge", 2},
                                                      {"rc_compare_swap", 1},
                                                      {"rc_fetch_add", 1},
                                                      {"ud_send_only", 5}};
  EXPECT_EQ(merged(inspected("rxe-ops.pcap")["flows"], "opcodes"), expected);
}

TEST(Inspect, LossIsSeenWhereItHappened) {
  const json report = inspected("rxe-loss.pcap");
  EXPECT_EQ(report["cm_messages"], (json{{"REQ", 1}, {"REP", 1}, {"RTU", 1}, {"DREQ", 2}, {"DREP", 1}}));
  const json& client = report["flows"][0];
  const json& server = report["flows"][1];
  EXPECT_EQ(client["source"], "10.77.0.2");
  EXPECT_EQ(client["dest_qpn"], 0x11);
  EXPECT_EQ(client["packets"], 30);
  EXPECT_EQ(client["retransmissions"], 8);  // frames 22 23 29 30 52 53 54 67
  EXPECT_EQ(server["source"], "10.77.0.1");
  EXPECT_EQ(server["retransmissions"], 3);                       // frames 41 43 59
  EXPECT_EQ(server["naks"], (json{{"psn_sequence_error", 2}}));  // frames 21 28
  EXPECT_EQ(client["read_latency_ns"]["max"], 1'086'000);        // frame 61 to 64
  EXPECT_EQ(client["ack_latency_ns"]["max"], 2'282'356'000);     // frame 65 to 68: CMP_SWAP, lost once
  // 10000-byte messages: 2 SENDs, 2 WRITEs; a SEND of 16 bytes twice at either end
  EXPECT_EQ(server["goodput_bytes"], 7 * 16 - 3 * 16 + 10'000);
}

// --- frames that show one thing each ---

const IpAddress node = IpAddress::v4(0x0a00'0001);
const IpAddress ghost = IpAddress::v4(0x0a00'0002);
constexpr Qpn ghost_qpn{0x100};
constexpr Qpn node_qpn{0x200};

struct Sent {
  std::int64_t time_ns = 0;
  wire::Opcode opcode{};
  std::uint32_t psn = 0;
  std::uint32_t size = 0;  // behind the extension headers
  bool from_ghost = false;
  std::vector<std::uint8_t> headers{};
  std::string comment{};
  capture::Direction direction = capture::Direction::unknown;
  std::uint32_t interface = 0;
  std::size_t cut = 0;  // bytes captured; 0: all
  std::uint8_t traffic_class = 0;
  bool break_icrc = false;
  Qpn dest_qpn{0};  // 0: the usual one
  std::uint16_t port = 0xc000;
};

void feed(Analysis& analysis, const Sent& s) {
  wire::Path path;
  path.source_ip = s.from_ghost ? ghost : node;
  path.destination_ip = s.from_ghost ? node : ghost;
  path.traffic_class = s.traffic_class;
  path.udp_source_port = s.port;
  const wire::Encapsulation encapsulation(path);
  std::vector<std::uint8_t> headers = s.headers;
  headers.resize(wire::traits(s.opcode).header_size);
  const std::size_t behind_bth = headers.size() + s.size;
  std::vector<std::byte> frame(encapsulation.frame_size(behind_bth));
  const Qpn usual = s.from_ghost ? node_qpn : ghost_qpn;
  const std::size_t at = encapsulation.begin(
      frame, {.opcode = s.opcode, .dest_qpn = s.dest_qpn.value != 0 ? s.dest_qpn : usual, .psn = {s.psn}}, behind_bth);
  std::ranges::transform(headers, frame.begin() + static_cast<std::ptrdiff_t>(at),
                         [](std::uint8_t b) { return std::byte{b}; });
  encapsulation.seal(frame, behind_bth);
  frame.back() ^= std::byte{s.break_icrc};
  capture::Record record;
  record.timestamp_ns = s.time_ns;
  record.interface = s.interface;
  record.original_size = static_cast<std::uint32_t>(frame.size());
  record.captured = s.cut == 0 ? ConstBytes(frame) : ConstBytes(frame).first(s.cut);
  record.direction = s.direction;
  record.comment = s.comment;
  capture::Reader::Interface interface;
  interface.link_type = capture::linktype_ethernet;
  analysis.add(record, interface);
}

void feed(Analysis& analysis, const std::vector<Sent>& frames) {
  for (const Sent& s : frames) {
    feed(analysis, s);
  }
}

const Flow& flow_of(const Analysis& analysis, bool from_ghost = false, std::uint32_t interface = 0) {
  const auto it = analysis.flows().find(from_ghost ? FlowKey{interface, ghost, node, node_qpn}
                                                   : FlowKey{interface, node, ghost, ghost_qpn});
  EXPECT_NE(it, analysis.flows().end());
  return it->second;
}

std::vector<std::uint8_t> reth(std::uint64_t va, std::uint32_t length) {
  wire::Reth image{};
  image.virtual_address = va;
  image.rkey = 7U;
  image.dma_length = length;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&image);
  return {bytes, bytes + sizeof image};
}
std::vector<std::uint8_t> aeth(std::uint8_t syndrome) { return {syndrome, 0, 0, 1}; }

using enum wire::Opcode;

TEST(Analysis, EveryKindOfNak) {
  Analysis analysis;
  for (const std::uint8_t syndrome : {0x1f, 0x00, 0x60, 0x61, 0x62, 0x63, 0x64, 0x7f, 0x20, 0x3f}) {
    feed(analysis, {.opcode = rc_acknowledge, .from_ghost = true, .headers = aeth(syndrome)});
  }
  const Flow& flow = flow_of(analysis, true);
  EXPECT_EQ(flow.acks, 2U);
  EXPECT_EQ(flow.rnr_naks, 2U);
  EXPECT_EQ(flow.naks,
            (std::map<std::uint8_t, std::uint64_t>{{0x60, 1}, {0x61, 1}, {0x62, 1}, {0x63, 1}, {0x64, 1}, {0x7f, 1}}));
  EXPECT_EQ(flow.retransmissions, 0U);  // acknowledgements may repeat their PSN
}

TEST(Analysis, OrderAndRepetition) {
  Analysis analysis;
  for (const std::uint32_t psn : {0xffffffU, 0U, 3U, 1U, 3U, 4U, 2U}) {
    feed(analysis, {.opcode = rc_send_only, .psn = psn, .size = 100});
  }
  const Flow& flow = flow_of(analysis);
  EXPECT_EQ(flow.out_of_order, 2U);     // 1 and 2
  EXPECT_EQ(flow.retransmissions, 1U);  // 3
  EXPECT_EQ(flow.payload_bytes, 700U);
  EXPECT_EQ(flow.goodput_bytes, 600U);
}

TEST(Analysis, CongestionSignals) {
  Analysis analysis;
  feed(analysis, {{.opcode = rc_send_only, .psn = 1, .traffic_class = 0x6b},
                  {.opcode = rc_send_only, .psn = 2, .traffic_class = 0x6a},
                  {.opcode = rc_send_only, .psn = 3, .traffic_class = 0x69},
                  {.opcode = cnp, .from_ghost = true}});
  EXPECT_EQ(flow_of(analysis).ce_marks, 1U);
  EXPECT_EQ(flow_of(analysis, true).cnps, 1U);
}

TEST(Analysis, IcrcVerdicts) {
  Analysis analysis;
  feed(analysis, {{.opcode = rc_send_only, .psn = 1, .size = 256},
                  {.opcode = rc_send_only, .psn = 2, .size = 256, .break_icrc = true},
                  {.opcode = rc_send_only, .psn = 3, .size = 256, .cut = 64}});
  const Flow& flow = flow_of(analysis);
  EXPECT_EQ(flow.icrc_good, 1U);
  EXPECT_EQ(flow.icrc_bad, 1U);
  EXPECT_EQ(analysis.cut(), 1U);
  EXPECT_EQ(flow.packets, 3U);
  EXPECT_EQ(flow.payload_bytes, 3 * 256U);
  EXPECT_EQ(flow.goodput_bytes, 2 * 256U);
  EXPECT_EQ(analysis.malformed(), (std::map<Drop, std::uint64_t>{{Drop::icrc_mismatch, 1}}));
}

TEST(Analysis, LatencyIsFromTheFirstTransmission) {
  Analysis analysis;
  feed(analysis, {{.time_ns = 1'000, .opcode = rc_rdma_write_first, .psn = 10, .size = 256},
                  {.time_ns = 2'000, .opcode = rc_rdma_write_last, .psn = 11, .size = 256},
                  {.time_ns = 9'000, .opcode = rc_rdma_write_last, .psn = 11, .size = 256},
                  {.time_ns = 9'500, .opcode = rc_send_only, .psn = 12},
                  {.time_ns = 9'600, .opcode = rc_send_only, .psn = 13},
                  {.time_ns = 10'000, .opcode = rc_acknowledge, .psn = 12, .from_ghost = true, .headers = aeth(0x1f)},
                  {.time_ns = 10'100, .opcode = rc_acknowledge, .psn = 12, .from_ghost = true, .headers = aeth(0x1f)}});
  const Quantiles& latency = flow_of(analysis).ack_latency;
  EXPECT_EQ(latency.count(), 2U);  // 11 and 12
  EXPECT_EQ(latency.min(), 500);
  EXPECT_EQ(latency.max(), 8'000);
}

TEST(Analysis, ReadLatencyAndTheRestOfARead) {
  Analysis analysis;
  feed(analysis, {{.time_ns = 0, .opcode = rc_send_only, .psn = 19},
                  {.time_ns = 1'000, .opcode = rc_rdma_read_request, .psn = 20, .headers = reth(0x1000, 768)},
                  {.time_ns = 2'000,
                   .opcode = rc_rdma_read_response_first,
                   .psn = 20,
                   .size = 256,
                   .from_ghost = true,
                   .headers = aeth(0x1f)},
                  {.time_ns = 5'000, .opcode = rc_rdma_read_request, .psn = 21, .headers = reth(0x1100, 512)},
                  {.time_ns = 6'000,
                   .opcode = rc_rdma_read_response_first,
                   .psn = 21,
                   .size = 256,
                   .from_ghost = true,
                   .headers = aeth(0x1f)},
                  {.time_ns = 7'000,
                   .opcode = rc_rdma_read_response_last,
                   .psn = 22,
                   .size = 256,
                   .from_ghost = true,
                   .headers = aeth(0x1f)},
                  {.time_ns = 8'000,
                   .opcode = rc_rdma_read_response_last,
                   .psn = 22,
                   .size = 256,
                   .from_ghost = true,
                   .headers = aeth(0x1f)},
                  {.time_ns = 9'000, .opcode = rc_rdma_read_request, .psn = 23, .headers = reth(0x1000, 768)}});
  const Flow& requests = flow_of(analysis);
  EXPECT_EQ(requests.retransmissions, 1U);
  EXPECT_EQ(requests.read_latency.count(), 1U);
  EXPECT_EQ(requests.read_latency.max(), 6'000);
  EXPECT_EQ(requests.ack_latency.max(), 2'000);  // the SEND: answered by the first response behind it
  EXPECT_EQ(flow_of(analysis, true).response_retransmissions, 1U);
  EXPECT_EQ(flow_of(analysis, true).goodput_bytes, 768U);
}

TEST(Analysis, LostAnswersAnswerNothing) {
  Analysis analysis;
  const auto ack = [](std::int64_t t, std::string comment, bool bad) {
    return Sent{.time_ns = t,
                .opcode = rc_acknowledge,
                .psn = 1,
                .from_ghost = true,
                .headers = aeth(0x1f),
                .comment = std::move(comment),
                .break_icrc = bad};
  };
  feed(analysis, {{.time_ns = 0, .opcode = rc_send_only, .psn = 1},
                  ack(10, "nbx: dropped loss", false),
                  ack(20, "nbx: corrupted", true),
                  ack(30, "", false)});
  EXPECT_EQ(flow_of(analysis).ack_latency.count(), 1U);
  EXPECT_EQ(flow_of(analysis).ack_latency.max(), 30);
}

TEST(Analysis, PairsFlowsOfManyQueuePairs) {
  Analysis analysis;
  const auto request = [](std::int64_t t, std::uint32_t psn, std::uint32_t qpn, std::uint16_t port) {
    return Sent{.time_ns = t, .opcode = rc_send_only, .psn = psn, .dest_qpn = Qpn{qpn}, .port = port};
  };
  const auto ack = [](std::int64_t t, std::uint32_t psn, std::uint32_t qpn, std::uint16_t port) {
    return Sent{.time_ns = t,
                .opcode = rc_acknowledge,
                .psn = psn,
                .from_ghost = true,
                .headers = aeth(0x1f),
                .dest_qpn = Qpn{qpn},
                .port = port};
  };
  // Two start at PSN 0: only the port tells them apart. The third is alone with its PSN. The last two cannot be told
  // apart.
  feed(analysis, {request(0, 0, 1, 50'001), request(0, 0, 2, 50'002), request(0, 500, 3, 50'001),
                  request(0, 900, 4, 50'009), request(0, 900, 5, 50'009), ack(20, 0, 12, 50'002),
                  ack(30, 500, 13, 50'009), ack(10, 0, 11, 50'001), ack(40, 900, 14, 50'009)});
  const auto latency = [&analysis](std::uint32_t qpn) {
    const Quantiles& q = analysis.flows().at({0, node, ghost, Qpn{qpn}}).ack_latency;
    return q.count() == 0 ? -1 : q.max();
  };
  EXPECT_EQ(latency(1), 10);
  EXPECT_EQ(latency(2), 20);
  EXPECT_EQ(latency(3), 30);
  EXPECT_EQ(latency(4), -1);
  EXPECT_EQ(latency(5), -1);
}

TEST(Analysis, CommentsOfTheEmulator) {
  using enum capture::Direction;
  Analysis analysis;
  feed(analysis,
       {{.opcode = rc_send_only, .psn = 1, .size = 10, .comment = "nbx: dropped loss", .direction = inbound},
        {.opcode = rc_send_only, .psn = 1, .size = 10, .comment = "nbx: delay=5000000ns", .direction = inbound},
        {.opcode = rc_send_only,
         .psn = 1,
         .size = 10,
         .comment = "nbx: delay=5000000ns duplicate",
         .direction = inbound},
        {.opcode = rc_send_only, .psn = 2, .comment = "somebody's note", .direction = inbound},
        {.opcode = rc_acknowledge,
         .psn = 1,
         .from_ghost = true,
         .headers = aeth(0x1f),
         .comment = "nbx: delay=5000000ns late=120ns ecn-marked",
         .direction = outbound},
        {.opcode = rc_acknowledge,
         .psn = 1,
         .from_ghost = true,
         .headers = aeth(0x1f),
         .comment = "nbx: delay=5000001ns late=0ns reordered",
         .direction = outbound},
        {.opcode = rc_acknowledge,
         .psn = 1,
         .from_ghost = true,
         .headers = aeth(0x1f),
         .comment = "nbx: dropped something_new",
         .direction = outbound}});
  const Flow& sends = flow_of(analysis);
  EXPECT_EQ(sends.retransmissions, 1U);  // the copy is the emulator's, the second is the node's
  EXPECT_EQ(sends.goodput_bytes, 10U);
  EXPECT_EQ(sends.treatment.dropped, 1U);
  EXPECT_EQ(sends.treatment.delayed, 2U);
  EXPECT_EQ(sends.treatment.duplicated, 1U);

  const auto& directions = analysis.interfaces().at(0).directions;
  const DirectionReport& in = directions[static_cast<std::size_t>(inbound)];
  EXPECT_EQ(in.frames, 4U);
  EXPECT_EQ(in.dropped.at("loss"), 1U);
  EXPECT_EQ(in.delay_asked.count(), 2U);
  EXPECT_EQ(in.delay_late.count(), 0U);
  const DirectionReport& out = directions[static_cast<std::size_t>(outbound)];
  EXPECT_EQ(out.dropped.at("other"), 1U);
  EXPECT_EQ(out.delay_asked.min(), 5'000'000);
  EXPECT_EQ(out.delay_asked.max(), 5'000'001);
  EXPECT_EQ(out.delay_late.median(), 0);
  EXPECT_EQ(out.delay_late.max(), 120);
  EXPECT_EQ(out.treatment.marked, 1U);
  EXPECT_EQ(out.treatment.reordered, 1U);
}

TEST(Analysis, TransitIsNoRetransmission) {
  Analysis analysis;
  feed(analysis,
       {{.opcode = rc_send_only, .psn = 1, .interface = 0}, {.opcode = rc_send_only, .psn = 1, .interface = 1}});
  EXPECT_EQ(flow_of(analysis, false, 0).retransmissions, 0U);
  EXPECT_EQ(flow_of(analysis, false, 1).packets, 1U);
}

TEST(Analysis, DatagramPsnsAreNotOrdered) {
  Analysis analysis;
  for (const std::uint32_t psn : {7U, 7U, 3U}) {
    feed(analysis, {.opcode = ud_send_only, .psn = psn, .size = 20});
  }
  const Flow& flow = flow_of(analysis);
  EXPECT_EQ(flow.retransmissions + flow.out_of_order, 0U);
  EXPECT_EQ(flow.goodput_bytes, 60U);
}

TEST(PsnWindow, RemembersWhatItCan) {
  using enum PsnWindow::Verdict;
  PsnWindow window(Psn{0xff'ff00});
  for (std::uint32_t i = 0; i < 100'000; ++i) {
    ASSERT_EQ(window.see(Psn{0xff'ff00}.plus(i)), in_order) << i;
  }
  EXPECT_EQ(window.see(Psn{0xff'ff00}.plus(99'999)), again);
  EXPECT_EQ(window.see(Psn{0xff'ff00}.plus(70'000)), again);
  EXPECT_EQ(window.see(Psn{0xff'ff00}.plus(1)), again);  // older than the window, but within the stream
  EXPECT_EQ(window.see(Psn{0xff'ff00}.plus(100'005)), in_order);
  EXPECT_EQ(window.see(Psn{0xff'ff00}.plus(100'001)), out_of_order);
  EXPECT_FALSE(window.seen(Psn{0xff'ff00}.plus(100'002)));
  EXPECT_EQ(window.see(Psn{0x80'0000}), restart);
  EXPECT_EQ(window.see(Psn{0x80'0001}), in_order);
  EXPECT_EQ(window.see(Psn{0x7f'ffff}), out_of_order);
  EXPECT_EQ(window.see(Psn{0x7f'ffff}), again);
}

TEST(Quantiles, ExactWhereTheySaySo) {
  Quantiles q(4);  // exact below 32
  for (std::int64_t v = 31; v >= 1; --v) {
    q.add(v);
  }
  EXPECT_EQ(q.median(), 16);
  EXPECT_EQ(q.quantile(99), 31);
  EXPECT_EQ(q.quantile(1), 1);
  EXPECT_EQ(q.min(), 1);
}

TEST(Quantiles, WithinTheirResolutionAbove) {
  for (std::int64_t v = 1; v < std::int64_t{1} << 61; v = v * 3 + 1) {
    Quantiles q(7);
    q.add(v);
    q.add(v);
    q.add(v * 2);
    EXPECT_NEAR(static_cast<double>(q.median()), static_cast<double>(v), static_cast<double>(v) / 256) << v;
    EXPECT_EQ(q.max(), v * 2);
  }
  Quantiles q(7);
  q.add(-5);
  q.add(std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(q.min(), -5);
  EXPECT_EQ(q.max(), std::numeric_limits<std::int64_t>::max());
}

TEST(Inspect, Text) {
  std::ostringstream out;
  std::ostringstream errors;
  EXPECT_EQ(inspect({.file = capture_path("rxe-loss.pcap"), .qps = 2}, out, errors), 0);
  for (const char* line : {"75 frames, 78394 bytes, 11.679910000 s from 2026-12-01 21:29:03.063172000 UTC",
                           "CM messages: REQ 1, REP 1, RTU 1, DREQ 2, DREP 1", "  NAKs: psn_sequence_error 2\n",
                           "  retransmissions: requests 8\n", "10.77.0.2 > 10.77.0.1 QP 0x000011 at interface 0\n",
                           "2 more flows, with fewer bytes"}) {
    EXPECT_THAT(out.str(), HasSubstr(line));
  }
}

TEST(Inspect, ExitStatus) {
  std::ostringstream out;
  std::ostringstream errors;
  EXPECT_EQ(inspect({.file = "/nonexistent.pcap"}, out, errors), 2);
  EXPECT_EQ(errors.str(), "/nonexistent.pcap: cannot open: No such file or directory\n");
  errors.str("");
  EXPECT_EQ(inspect({.file = capture_path("README.md")}, out, errors), 2);
  EXPECT_THAT(errors.str(), HasSubstr("neither pcap nor pcapng"));
  EXPECT_EQ(out.str(), "");

  const std::string cut = testing::TempDir() + "cut.pcap";
  {
    std::ifstream whole(capture_path("rxe-ops.pcap"), std::ios::binary);
    std::ofstream(cut, std::ios::binary) << std::string(std::istreambuf_iterator<char>(whole), {}).substr(0, 2'000);
  }
  errors.str("");
  EXPECT_EQ(inspect({.file = cut}, out, errors), 1);
  EXPECT_THAT(errors.str(), HasSubstr("the file ends in the middle"));
  EXPECT_THAT(out.str(), HasSubstr("rc_send_only"));
  std::remove(cut.c_str());
}

}  // namespace
}  // namespace nbx::analysis
