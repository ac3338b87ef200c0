// Personalities against each other, as two ghosts of one shard, and against what a real client said in a capture.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "ghost/personalities/perftest_handshake.hpp"
#include "support/shard_rig.hpp"
#include "wire/build_l3.hpp"

namespace nbx::test {
namespace {

using namespace std::chrono_literals;

/// Ghost g0 with `server` and ghost g1, 10.77.0.10, with `client`.
pipeline::ShardPlan pair_plan(ghost::PersonalityOptions server, ghost::PersonalityOptions client) {
  pipeline::ShardPlan plan = one_ghost_plan();
  plan.ghosts[0].personalities = {std::move(server)};
  pipeline::GhostPlan second;
  second.identity.name = "g1";
  second.identity.mac = *parse_mac("02:00:00:00:00:0a");
  second.identity.addresses = {{*parse_ip("10.77.0.10"), 24}};
  second.personalities = {std::move(client)};
  plan.ghosts.push_back(second);
  return plan;
}

std::string status(ShardRig& rig, std::uint32_t ghost) {
  return rig.shard().personalities(GhostId{ghost})[0]->status();
}

TEST(Personalities, RpingMeetsRping) {
  ShardRig rig(
      pair_plan(ghost::RpingOptions{}, ghost::RpingOptions{.connect = "10.77.0.9", .count = 25, .size = 3000}));
  rig.run_for(2s);
  EXPECT_EQ(status(rig, 0), "listens on 7174: 0 open, 1 done, 0 failed");
  EXPECT_EQ(status(rig, 1), "called 10.77.0.9: 0 open, 1 done, 0 failed");
  EXPECT_EQ(rig.count(Counter::rx_read_requests), 25U);
  EXPECT_EQ(rig.count(Counter::rx_write_requests), 25U);
  EXPECT_EQ(rig.count(Counter::rx_sends), 100U) << "two advertisements and two answers a round";
}

TEST(Personalities, RcopsMeetsRcopsWithAllDataChecked) {
  ShardRig rig(pair_plan(ghost::RcopsOptions{}, ghost::RcopsOptions{.connect = "10.77.0.9", .length = 100'000}));
  rig.run_for(2s);
  EXPECT_EQ(status(rig, 0), "listens on 7471: 0 open, 1 done, 0 failed");
  EXPECT_EQ(status(rig, 1), "called 10.77.0.9: 0 open, 1 done, 0 failed");
  EXPECT_EQ(rig.count(Counter::rx_atomic_requests), 2U);
}

TEST(Personalities, SourceFillsASinkOfUnknownAddress) {
  ShardRig rig(pair_plan(ghost::SinkOptions{.region_bytes = 1 << 20},
                         ghost::SourceOptions{.connect = "10.77.0.9",
                                              .port = 7476,
                                              .operation = rdma::WrOpcode::rdma_write,
                                              .message_size = 10'000,
                                              .count = 50}));
  rig.run_for(2s);
  EXPECT_EQ(status(rig, 1), "called 10.77.0.9: 0 open, 1 done, 0 failed");
  EXPECT_EQ(rig.count(Counter::rx_write_requests), 50U);
  EXPECT_EQ(rig.count(Counter::req_remote_access_errors), 0U);
}

TEST(Personalities, SourceSendsMessagesOfRandomSizesAtARate) {
  ShardRig rig(pair_plan(ghost::SinkOptions{.region_bytes = 1 << 20},
                         ghost::SourceOptions{.connect = "10.77.0.9",
                                              .port = 7476,
                                              .operation = rdma::WrOpcode::rdma_write,
                                              .sizes = traffic::UniformSize{1, 20'000},
                                              .rate = BitRate::gbps(1),
                                              .count = 0}));
  const auto received = [&rig] {
    std::uint64_t bytes = 0;
    rig.shard().transport().for_each_qp([&](const rdma::Qp& qp) { bytes += qp.stats().payload_bytes_rx; });
    return bytes;
  };
  rig.run_for(1s);  // for the connection
  const std::uint64_t messages_before = rig.count(Counter::rx_write_requests);
  const std::uint64_t bytes_before = received();
  rig.run_for(1s);
  const std::uint64_t messages = rig.count(Counter::rx_write_requests) - messages_before;
  EXPECT_NEAR(static_cast<double>(messages), 1e9 / 8 / 10'000.5, 4 * std::sqrt(12'500)) << "Poisson";
  EXPECT_NEAR(static_cast<double>(received() - bytes_before), 1e9 / 8, 0.05e9 / 8);
  EXPECT_EQ(rig.count(Counter::req_remote_access_errors), 0U);
}

TEST(Personalities, EchoReturnsEveryMessage) {
  ShardRig rig(pair_plan(ghost::EchoOptions{},
                         ghost::SourceOptions{.connect = "10.77.0.9", .port = 7475, .message_size = 100, .count = 0}));
  rig.run_for(1ms);
  EXPECT_GT(rig.count(Counter::rx_sends), 0U);
  EXPECT_GT(rig.count(Drop::receive_missing), 0U) << "the source posts no receives: its echoes wait";
}

TEST(Personalities, ACallThatNobodyTakesIsRepeatedAndGivenUp) {
  ShardRig rig(pair_plan(ghost::SinkOptions{}, ghost::RpingOptions{.connect = "10.77.0.9"}));
  rig.run_for(10s);
  EXPECT_EQ(status(rig, 1).substr(0, 15), "calls 10.77.0.9");
  rig.run_for(600s);
  EXPECT_EQ(status(rig, 1).substr(0, 26), "gave up calling 10.77.0.9,");
  EXPECT_EQ(rig.shard().cm().connections(), 0U);
}

/// Streams that a test speaks through.
class ScriptedStreams final : public ghost::Streams {
 public:
  void listen(GhostId, std::uint16_t port, ghost::StreamUser& user) override { listeners[port] = &user; }
  ghost::StreamId connect(GhostId, const IpAddress&, std::uint16_t, ghost::StreamUser&) override {
    return ghost::StreamId::none;
  }
  void send(ghost::StreamId id, ConstBytes bytes) override {
    sent[id].append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void close(ghost::StreamId id) override { closed.push_back(id); }

  std::map<std::uint16_t, ghost::StreamUser*> listeners;
  std::map<ghost::StreamId, std::string> sent;
  std::vector<ghost::StreamId> closed;
};

class TcpHandshake : public testing::Test {
 protected:
  void begin(std::vector<ghost::PersonalityOptions> personalities) {
    pipeline::ShardPlan plan = one_ghost_plan();
    plan.ghosts[0].personalities = std::move(personalities);
    plan.neighbours = {{*parse_ip("10.77.0.2"), *parse_mac("52:54:00:00:00:02")}};
    rig = std::make_unique<ShardRig>(plan, &streams);
    streams.listeners.at(18515)->on_open(id, GhostId{0}, 18515, *parse_ip("10.77.0.2"), rig->now());
  }
  void say(const std::string& text) {
    streams.listeners.at(18515)->on_bytes(id, std::as_bytes(std::span{text}), rig->now());
    rig->run_for(0s);
  }
  std::string answer() { return std::exchange(streams.sent[id], {}); }

  static constexpr ghost::StreamId id{7};
  ScriptedStreams streams;
  std::unique_ptr<ShardRig> rig;
};

// What ib_write_bw and ibv_rc_pingpong of a Linux client sent (captures/rxe-perftest.pcap and rxe-pingpong.pcap).
const std::string preamble{"6.06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0\0@5\0", 26};
const std::string write_bw_end{
    "0000:0001:000011:adbbd8:00000239:000055ff75086328:00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:02:00000000:\0",
    108};
const std::string send_end{
    "0000:0001:000013:498494:00000000:000055d6e69d5000:00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:02:00000000:\0",
    108};
const std::string pingpong_end{"0000:000011:273589:00000000000000000000ffff0a4d0002\0", 52};

TEST_F(TcpHandshake, AnswersPerftestInKindWhateverTheSegments) {
  begin({ghost::PerftestOptions{}});
  const std::string all = preamble + write_bw_end + write_bw_end;
  for (const char c : all) {
    say(std::string(1, c));
  }
  const std::string got = answer();
  ASSERT_EQ(got.size(), all.size());
  EXPECT_EQ(got.substr(0, preamble.size()), preamble);
  const auto end = ghost::decode_text(std::as_bytes(std::span{got}.subspan(26, 108)));
  ASSERT_TRUE(end);
  EXPECT_EQ(end->gid, *parse_ip("10.77.0.9"));
  EXPECT_NE(end->rkey, 0U);
  rdma::Qp* qp = rig->shard().transport().find_qp(GhostId{0}, Qpn{end->qpn});
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(qp->attr().dest_qpn, Qpn{0x11});
  EXPECT_EQ(qp->attr().rq_psn, Psn{0xadbbd8});
  EXPECT_EQ(qp->attr().sq_psn, Psn{end->psn});
  EXPECT_EQ(got.substr(26, 108), got.substr(134, 108)) << "the same queue pair: the same end";
  EXPECT_EQ(rig->shard().transport().qp_count(), 1U);

  const std::string report{"\0\0\0\0\0\0\x23\x28", 8};
  say(report + std::string{"done\0", 5});
  EXPECT_EQ(answer(), report + std::string("done\0", 5));
  streams.listeners.at(18515)->on_close(id, rig->now());
  rig->run_for(0s);
  EXPECT_EQ(rig->shard().transport().qp_count(), 0U);
}

TEST_F(TcpHandshake, StartsTheWriteLatencyTestAfterTheFourthRecord) {
  begin({ghost::PerftestOptions{}});
  say(preamble + write_bw_end + write_bw_end + write_bw_end);
  EXPECT_TRUE(rig->take_sent().empty());
  say(write_bw_end);
  const auto sent = rig->take_sent();
  ASSERT_EQ(sent.size(), 1U);
  wire::Parsed p;
  ASSERT_EQ(wire::parse(sent[0].bytes, {}, p), Drop::none);
  EXPECT_EQ(p.opcode, static_cast<std::uint8_t>(wire::Opcode::rc_rdma_write_only));
  EXPECT_EQ(p.payload_size, 4096);
  EXPECT_EQ(sent[0].bytes[p.payload_offset], std::byte{1}) << "the number of the message, in every byte";
  EXPECT_EQ(sent[0].bytes[p.payload_offset + 4095], std::byte{1});
}

TEST_F(TcpHandshake, DoesNotStartOneForSends) {
  begin({ghost::PerftestOptions{}});
  say(preamble + send_end + send_end + send_end + send_end);
  EXPECT_TRUE(rig->take_sent().empty());
}

TEST_F(TcpHandshake, TellsPingpongFromPerftestOnOnePort) {
  begin({ghost::PerftestOptions{}, ghost::PingpongOptions{}});
  say(pingpong_end);
  const std::string got = answer();
  ASSERT_EQ(got.size(), pingpong_end.size());
  EXPECT_EQ(got.substr(19), std::string("00000000000000000000ffff0a4d0009\0", 33));
  EXPECT_EQ(rig->shard().transport().qp_count(), 1U);
  say(std::string{"done\0", 5});
  streams.listeners.at(18515)->on_close(id, rig->now());
  EXPECT_EQ(rig->shard().transport().qp_count(), 1U) << "the programs go on without the stream";
  rig->run_for(60s);
  EXPECT_EQ(rig->shard().transport().qp_count(), 0U) << "until nothing comes any more";
}

TEST_F(TcpHandshake, ClosesOnNonsense) {
  begin({ghost::PerftestOptions{}, ghost::PingpongOptions{}});
  say("GET / HTTP/1.1\r\n");
  EXPECT_EQ(streams.closed, std::vector{id});
  EXPECT_EQ(rig->shard().transport().qp_count(), 0U);
}

TEST_F(TcpHandshake, RefusesAnEndThatItCannotReach) {
  begin({ghost::PerftestOptions{}});
  std::string elsewhere = write_bw_end;
  elsewhere.replace(50, 47, "fd:99:00:00:00:00:00:00:00:00:00:00:00:00:00:02");  // a family with an address of ours
  say(preamble + elsewhere);
  EXPECT_EQ(answer().size(), preamble.size() + 108) << "the stream's peer tells the MAC";
}

TEST(Perftest, StructAndTextSayTheSame) {
  const auto end = ghost::decode_text(std::as_bytes(std::span{write_bw_end}));
  ASSERT_TRUE(end);
  EXPECT_EQ(ghost::encode_text(*end), write_bw_end);
  const std::string image = ghost::encode_struct(*end);
  const auto again = ghost::decode_struct(std::as_bytes(std::span{image}));
  ASSERT_TRUE(again);
  EXPECT_EQ(ghost::encode_text(*again), write_bw_end);
}

}  // namespace
}  // namespace nbx::test
