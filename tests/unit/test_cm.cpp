// The connection manager message by message: both roles, every message lost, doubled or out of place. The times are
// IBTA's 4.096 us * 2^code, the reasons those of table 102.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/cm_harness.hpp"

namespace nbx::rdma {
namespace {

using namespace std::chrono_literals;
using test::CmDialogue;
using test::CmHost;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint16_t port = 7174;
constexpr Duration response_time = Duration{4'096'000LL << 20U};  // code 20
constexpr Duration soon = 1ms;
constexpr Duration timewait = Duration{4'096'000LL << 19U};  // the REQ's local ACK timeout

/// As Linux's rdma_cm asks for a reliable connection.
wire::CmReq default_req() {
  wire::CmReq req;
  req.transaction_id = 0x2f47dc426;
  req.local_comm_id = 0x26c47df4;
  req.service_id = tcp_service_id(port);
  req.local_ca_guid = 0x505400fffe000002;
  req.local_qpn = Qpn{0x11};
  req.responder_resources = 3;
  req.initiator_depth = 5;
  req.remote_cm_response_timeout = 20;
  req.starting_psn = Psn{0xabd186};
  req.local_cm_response_timeout = 20;
  req.retry_count = 6;
  req.pkey = 0xffff;
  req.path_mtu = 5;
  req.rnr_retry_count = 4;
  req.max_cm_retries = 15;
  req.primary.local_lid = req.primary.remote_lid = 0xffff;
  req.primary.local_gid = IpAddress::v4(0x0a000001);
  req.primary.remote_gid = IpAddress::v4(0x0a000009);
  req.primary.flow_label = 0xcb880;
  req.primary.traffic_class = 0x68;
  req.primary.hop_limit = 64;
  req.primary.local_ack_timeout = 19;
  const wire::RdmaIpCm header{
      .source_port = 60486, .source_ip = req.primary.local_gid, .destination_ip = req.primary.remote_gid};
  wire::encode(header, std::span{req.private_data}.first<wire::RdmaIpCm::size>());
  test::put_private_data("hello", req.private_data, wire::RdmaIpCm::size);
  return req;
}

class Passive : public CmDialogue {
 protected:
  explicit Passive(const CmConfig& config = {}) : CmDialogue(config) {
    host.cm.listen(CmHost::ghost, tcp_service_id(port), host);
  }

  void hold_requests() {
    host.answer = [](ConnectionId, const ConnectRequest&, Instant) {};
  }
  wire::CmRtu rtu() const {
    return {.transaction_id = req.transaction_id,
            .local_comm_id = req.local_comm_id,
            .remote_comm_id = rep.local_comm_id,
            .private_data = {}};
  }
  wire::CmDreq dreq() const {
    return {.transaction_id = 0x777,
            .local_comm_id = req.local_comm_id,
            .remote_comm_id = rep.local_comm_id,
            .remote_qpn = rep.local_qpn,
            .private_data = {}};
  }
  wire::CmRej rej(wire::RejReason reason) const {
    wire::CmRej r;
    r.transaction_id = req.transaction_id;
    r.local_comm_id = req.local_comm_id;
    r.remote_comm_id = rep.local_comm_id;
    r.rejected = wire::CmAnswered::rep;
    r.reason = reason;
    return r;
  }
  void reach_rep_sent() {
    receive(req);
    rep = sent<wire::CmRep>();
  }
  void reach_established() {
    reach_rep_sent();
    receive(rtu());
    expect_silence();
  }

  wire::CmReq req = default_req();
  wire::CmRep rep{};
};

TEST_F(Passive, a_connection_from_req_to_nothing) {
  reach_established();
  EXPECT_EQ(host.cm.connections(), 1U);
  EXPECT_EQ(host.endpoint.wheel.armed(), 0U) << "an established connection waits for nothing";
  receive(dreq());
  const auto drep = sent<wire::CmDrep>();
  EXPECT_EQ(drep.transaction_id, 0x777U);
  EXPECT_EQ(drep.local_comm_id, rep.local_comm_id);
  EXPECT_EQ(drep.remote_comm_id, req.local_comm_id);
  EXPECT_THAT(host.log, ElementsAre("established", "disconnected remote"));
  pass(timewait);
  host.expect_clean(now);
  EXPECT_EQ(host.count(Counter::cm_requests), 1U);
  EXPECT_EQ(host.count(Counter::cm_established), 1U);
  EXPECT_EQ(host.count(Counter::cm_disconnected), 1U);
  EXPECT_EQ(host.count(Drop::mad_unexpected), 0U);
}

TEST_F(Passive, the_user_is_told_what_the_req_says) {
  reach_rep_sent();
  const ConnectRequest& r = host.request;
  EXPECT_EQ(r.service_id, req.service_id);
  EXPECT_EQ(r.type, QpType::rc);
  EXPECT_EQ(r.remote_qpn, req.local_qpn);
  EXPECT_EQ(r.starting_psn, req.starting_psn);
  EXPECT_EQ(r.path_mtu, 4096U);
  EXPECT_EQ(r.pkey, 0xffff);
  EXPECT_EQ(r.responder_resources, 3);
  EXPECT_EQ(r.initiator_depth, 5);
  EXPECT_EQ(r.local_ack_timeout, 19);
  EXPECT_EQ(r.retry_count, 6);
  EXPECT_EQ(r.rnr_retry_count, 4);
  EXPECT_EQ(host.request_data.size(), 56U) << "behind the header of annex A11";
  EXPECT_EQ(test::text_of(host.request_data, 5), "hello");
}

TEST_F(Passive, a_service_of_its_own_has_all_the_private_data) {
  req.service_id = 0x1234;
  req.private_data = {};
  test::put_private_data("raw", req.private_data);
  host.cm.listen(CmHost::ghost, 0x1234, host);
  reach_rep_sent();
  EXPECT_EQ(host.request_data.size(), 92U);
  EXPECT_EQ(test::text_of(host.request_data, 3), "raw");
}

TEST_F(Passive, the_rep_agrees_to_the_smaller_depths) {  // 12.6.8: what one initiates the other must take
  host.accept_param = {.responder_resources = 4,
                       .initiator_depth = 16,
                       .rnr_retry_count = 2,
                       .private_data = std::as_bytes(std::span{"welcome", 7})};
  reach_rep_sent();
  EXPECT_EQ(rep.transaction_id, req.transaction_id);
  EXPECT_EQ(rep.remote_comm_id, req.local_comm_id);
  EXPECT_EQ(rep.local_comm_id, static_cast<std::uint32_t>(host.asked));
  EXPECT_EQ(rep.local_qpn, host.qps.at(host.asked)->qpn());
  EXPECT_EQ(rep.responder_resources, 4);
  EXPECT_EQ(rep.initiator_depth, 3);
  EXPECT_EQ(rep.rnr_retry_count, 2);
  EXPECT_EQ(rep.failover_accepted, 0);
  EXPECT_EQ(rep.local_ca_guid, 0x000000fffe000009U) << "EUI-64 of 02:00:00:00:00:09";
  EXPECT_EQ(test::text_of(rep.private_data, 7), "welcome");
}

TEST_F(Passive, the_queue_pair_gets_the_reqs_values) {
  reach_rep_sent();
  Qp& qp = *host.qps.at(host.asked);
  EXPECT_EQ(qp.state(), QpState::rtr) << "until the RTU (12.9.7.2)";
  const QpAttr& attr = qp.attr();
  EXPECT_EQ(attr.dest_qpn, req.local_qpn);
  EXPECT_EQ(attr.rq_psn, rep.starting_psn);
  EXPECT_EQ(attr.sq_psn, req.starting_psn);
  EXPECT_EQ(attr.path_mtu, 4096U);
  EXPECT_EQ(attr.pkey, 0xffff);
  EXPECT_EQ(attr.timeout, 19);
  EXPECT_EQ(attr.retry_cnt, 6);
  EXPECT_EQ(attr.rnr_retry, 4);
  EXPECT_EQ(attr.max_rd_atomic, 3);
  EXPECT_EQ(attr.max_dest_rd_atomic, 5);
  EXPECT_EQ(attr.path.destination_ip, req.primary.local_gid);
  EXPECT_EQ(attr.path.destination_mac, path.destination_mac);
  EXPECT_EQ(attr.path.traffic_class, 0x68);
  EXPECT_EQ(attr.path.udp_source_port, 63666) << "as the kernel's queue pairs of rxe-cm.pcap for this flow label";
  receive(rtu());
  EXPECT_EQ(qp.state(), QpState::rts);
}

TEST_F(Passive, starting_psns_differ_between_connections) {
  reach_established();
  const Psn first = rep.starting_psn;
  req.local_comm_id += 1;
  req.local_qpn = Qpn{0x12};
  reach_rep_sent();
  EXPECT_NE(rep.starting_psn, first);
  EXPECT_NE(rep.local_comm_id, 0U);
}

TEST_F(Passive, an_offered_alternate_path_is_declined) {  // 12.6.8.7
  req.alternate.local_gid = IpAddress::v4(0x0a000101);
  reach_rep_sent();
  EXPECT_EQ(rep.failover_accepted, 1);
}

TEST_F(Passive, uc_is_connected_as_well) {
  req.transport_service_type = 1;
  reach_rep_sent();
  EXPECT_EQ(host.qps.at(host.asked)->attr().type, QpType::uc);
}

TEST_F(Passive, duplicate_req_is_ignored_while_the_user_thinks) {
  hold_requests();
  receive(req);
  receive(req);
  expect_silence();
  EXPECT_EQ(host.cm.connections(), 1U);
  EXPECT_EQ(host.count(Counter::cm_duplicates), 1U);
}

TEST_F(Passive, duplicate_req_gets_the_mra_again) {
  hold_requests();
  receive(req);
  host.cm.delay_answer(host.asked, 18, now);
  const auto mra = sent<wire::CmMra>();
  EXPECT_EQ(mra.answered, wire::CmAnswered::req);
  EXPECT_EQ(mra.service_timeout, 18);
  EXPECT_EQ(mra.remote_comm_id, req.local_comm_id);
  receive(req);
  EXPECT_EQ(sent<wire::CmMra>(), mra);
  EXPECT_TRUE(host.accept(host.asked, QpType::rc, now)) << "the user may still accept";
  static_cast<void>(sent<wire::CmRep>());
}

TEST_F(Passive, duplicate_req_gets_the_rep_again) {
  reach_rep_sent();
  receive(req);
  EXPECT_EQ(sent<wire::CmRep>(), rep);
  EXPECT_EQ(host.qps.size(), 1U);
}

TEST_F(Passive, duplicate_req_of_an_established_connection_is_ignored) {
  reach_established();
  receive(req);
  expect_silence();
  EXPECT_EQ(host.cm.connections(), 1U);
}

TEST_F(Passive, duplicate_req_in_timewait_is_stale) {
  reach_established();
  receive(dreq());
  static_cast<void>(mads());
  receive(req);
  EXPECT_EQ(sent<wire::CmRej>().reason, wire::RejReason::stale_connection);
}

TEST_F(Passive, rep_is_sent_again_until_the_rtu) {
  reach_rep_sent();
  pass(response_time - soon);
  expect_silence();
  pass(soon);
  EXPECT_EQ(sent<wire::CmRep>(), rep);
  receive(rtu());
  EXPECT_THAT(host.log, ElementsAre("established"));
  pass(response_time * 20);
  expect_silence();
  EXPECT_EQ(host.count(Counter::cm_retransmissions), 1U);
}

TEST_F(Passive, rep_without_rtu_is_given_up) {
  req.max_cm_retries = 3;
  reach_rep_sent();
  for (unsigned i = 0; i < 3; ++i) {
    pass(response_time);
    EXPECT_EQ(sent<wire::CmRep>(), rep);
  }
  pass(response_time);
  const auto rejected = sent<wire::CmRej>();
  EXPECT_EQ(rejected.reason, wire::RejReason::timeout);
  EXPECT_EQ(rejected.info_size, 8) << "table 102: the GUID";
  EXPECT_THAT(host.log, ElementsAre("disconnected timed_out"));
  EXPECT_EQ(host.count(Counter::cm_timeouts), 1U);
  pass(timewait);
  host.expect_clean(now);
}

TEST_F(Passive, data_stands_for_a_lost_rtu) {  // 12.9.6
  reach_rep_sent();
  host.cm.communication_established(*host.qps.at(host.asked), now);
  EXPECT_THAT(host.log, ElementsAre("established"));
  receive(rtu());
  EXPECT_THAT(host.log, ElementsAre("established"));
  host.cm.communication_established(*host.qps.at(host.asked), now);
  EXPECT_THAT(host.log, ElementsAre("established"));
  pass(response_time * 20);
  expect_silence();
}

TEST_F(Passive, dreq_stands_for_a_lost_rtu) {
  reach_rep_sent();
  receive(dreq());
  static_cast<void>(sent<wire::CmDrep>());
  EXPECT_THAT(host.log, ElementsAre("disconnected remote"));
  receive(rtu());
  expect_silence();
}

TEST_F(Passive, mra_delays_the_rep_once) {
  reach_rep_sent();
  wire::CmMra mra;
  mra.local_comm_id = req.local_comm_id;
  mra.remote_comm_id = rep.local_comm_id;
  mra.answered = wire::CmAnswered::rep;
  mra.service_timeout = 20;
  receive(mra);
  pass(response_time * 2 - soon);
  expect_silence();
  receive(mra);
  pass(soon);
  EXPECT_EQ(sent<wire::CmRep>(), rep);
}

TEST_F(Passive, a_peers_rejection_ends_the_connection) {
  reach_rep_sent();
  receive(rej(wire::RejReason::consumer_reject));
  expect_silence();
  EXPECT_THAT(host.log, ElementsAre("disconnected rejected 28"));
  pass(timewait);
  host.expect_clean(now);
}

TEST_F(Passive, a_peer_that_gave_up_is_known_by_its_own_id) {  // 12.9.8.4: it has never seen ours
  hold_requests();
  receive(req);
  receive(rej(wire::RejReason::timeout));
  EXPECT_THAT(host.log, ElementsAre("disconnected rejected 4"));
  host.expect_clean(now);
}

TEST_F(Passive, the_users_rejection) {
  host.answer = [this](ConnectionId id, const ConnectRequest&, Instant at) {
    host.cm.reject(id, wire::RejReason::consumer_reject, std::as_bytes(std::span{"no", 2}), at);
  };
  receive(req);
  const auto rejected = sent<wire::CmRej>();
  EXPECT_EQ(rejected.transaction_id, req.transaction_id);
  EXPECT_EQ(rejected.remote_comm_id, req.local_comm_id);
  EXPECT_EQ(rejected.rejected, wire::CmAnswered::req);
  EXPECT_EQ(rejected.reason, wire::RejReason::consumer_reject);
  EXPECT_EQ(test::text_of(rejected.private_data, 2), "no");
  EXPECT_THAT(host.log, IsEmpty());
  host.expect_clean(now);
}

TEST_F(Passive, a_user_that_never_answers) {
  hold_requests();
  receive(req);
  pass(response_time * 16);
  EXPECT_EQ(sent<wire::CmRej>().reason, wire::RejReason::timeout);
  EXPECT_THAT(host.log, ElementsAre("disconnected timed_out"));
  EXPECT_FALSE(host.accept(host.asked, QpType::rc, now));
  host.endpoint.transport->destroy_qp(*host.qps.at(host.asked));
  host.expect_clean(now);
}

TEST_F(Passive, an_mra_gives_the_user_more_time) {
  hold_requests();
  receive(req);
  host.cm.delay_answer(host.asked, 20, now);
  static_cast<void>(sent<wire::CmMra>());
  pass(response_time * 17 - soon);
  expect_silence();
  pass(soon);
  EXPECT_EQ(sent<wire::CmRej>().reason, wire::RejReason::timeout);
  host.expect_clean(now);
}

TEST_F(Passive, accept_refuses_what_does_not_fit) {
  hold_requests();
  receive(req);
  Qp& uc = host.make_qp(QpType::uc);
  EXPECT_FALSE(host.cm.accept(host.asked, uc, {}, now)) << "the REQ asks for RC";
  const test::Bytes long_data(197);
  EXPECT_FALSE(host.cm.accept(host.asked, host.make_qp(), {.private_data = long_data}, now));
  EXPECT_FALSE(host.cm.accept(ConnectionId{12345}, host.make_qp(), {}, now));
  expect_silence();
}

TEST_F(Passive, disconnect_is_asked_again_until_answered) {
  reach_established();
  host.cm.disconnect(host.asked, now);
  const auto asked = sent<wire::CmDreq>();
  EXPECT_EQ(asked.remote_qpn, req.local_qpn);
  EXPECT_EQ(asked.local_comm_id, rep.local_comm_id);
  EXPECT_EQ(asked.remote_comm_id, req.local_comm_id);
  EXPECT_NE(asked.transaction_id, req.transaction_id) << "a transaction of our own";
  pass(response_time);
  EXPECT_EQ(sent<wire::CmDreq>(), asked);
  host.cm.disconnect(host.asked, now);
  expect_silence();
  receive(wire::CmDrep{.transaction_id = asked.transaction_id,
                       .local_comm_id = req.local_comm_id,
                       .remote_comm_id = rep.local_comm_id,
                       .private_data = {}});
  EXPECT_THAT(host.log, ElementsAre("established", "disconnected local"));
  pass(timewait);
  host.expect_clean(now);
}

TEST_F(Passive, disconnect_without_answer_ends_too) {
  req.max_cm_retries = 2;
  reach_established();
  host.cm.disconnect(host.asked, now);
  pass(response_time * 3);
  EXPECT_EQ(mads().size(), 3U);
  EXPECT_THAT(host.log, ElementsAre("established", "disconnected timed_out"));
  pass(timewait);
  host.expect_clean(now);
}

TEST_F(Passive, both_sides_disconnect_at_once) {
  reach_established();
  host.cm.disconnect(host.asked, now);
  static_cast<void>(sent<wire::CmDreq>());
  receive(dreq());
  static_cast<void>(sent<wire::CmDrep>());
  EXPECT_THAT(host.log, ElementsAre("established", "disconnected local"));
}

TEST_F(Passive, every_duplicate_dreq_is_answered) {
  reach_established();
  receive(dreq());
  const auto drep = sent<wire::CmDrep>();
  receive(dreq());
  EXPECT_EQ(sent<wire::CmDrep>(), drep) << "in timewait";
  pass(timewait);
  EXPECT_EQ(host.cm.connections(), 0U);
  receive(dreq());
  EXPECT_EQ(sent<wire::CmDrep>(), drep) << "of an unknown connection";
  EXPECT_THAT(host.log, ElementsAre("established", "disconnected remote"));
}

TEST_F(Passive, another_queue_pairs_dreq_is_not_believed) {
  reach_established();
  auto forged = dreq();
  forged.remote_qpn.value += 1;
  receive(forged);
  expect_silence();
  EXPECT_EQ(host.count(Drop::mad_unexpected), 1U);
  EXPECT_THAT(host.log, ElementsAre("established"));
}

TEST_F(Passive, another_hosts_messages_are_not_believed) {
  reach_established();
  receive_from(test::path_between(9, 3), rej(wire::RejReason::consumer_reject));
  receive_from(test::path_between(9, 3), rtu());
  EXPECT_EQ(host.count(Drop::mad_unexpected), 2U);
  EXPECT_THAT(host.log, ElementsAre("established"));
}

TEST_F(Passive, another_connections_messages_are_not_believed) {
  reach_rep_sent();
  auto other = rtu();
  other.local_comm_id += 1;
  receive(other);
  EXPECT_EQ(host.count(Drop::mad_unexpected), 1U);
  EXPECT_THAT(host.log, IsEmpty());
}

TEST_F(Passive, a_queue_pair_may_be_connected_again_before_the_drep) {
  reach_established();
  host.cm.disconnect(host.asked, now);
  static_cast<void>(sent<wire::CmDreq>());
  req.local_comm_id += 1;
  reach_rep_sent();
}

TEST_F(Passive, a_new_connection_of_a_connected_queue_pair_is_stale) {  // 12.9.8.3.1
  reach_established();
  auto again = req;
  again.local_comm_id += 1;
  receive(again);
  const auto out = mads();
  ASSERT_EQ(out.size(), 2U);
  const auto rejected = wire::decode_rej(out[0]);
  ASSERT_TRUE(rejected);
  EXPECT_EQ(rejected->reason, wire::RejReason::stale_connection);
  EXPECT_EQ(rejected->remote_comm_id, again.local_comm_id);
  const auto asked = wire::decode_dreq(out[1]);
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->remote_comm_id, req.local_comm_id);
  receive(wire::CmDrep{.transaction_id = asked->transaction_id,
                       .local_comm_id = req.local_comm_id,
                       .remote_comm_id = rep.local_comm_id,
                       .private_data = {}});
  EXPECT_THAT(host.log, ElementsAre("established", "disconnected remote"));
  again.local_comm_id += 1;
  receive(again);
  static_cast<void>(sent<wire::CmRep>());
}

TEST_F(Passive, a_communication_id_names_one_connection) {
  reach_established();
  auto other = req;
  other.local_qpn.value += 1;
  receive(other);
  const auto out = mads();
  ASSERT_EQ(out.size(), 2U);
  EXPECT_EQ(wire::decode_rej(out[0]).value().reason, wire::RejReason::duplicate_local_comm_id);
  EXPECT_TRUE(wire::decode_dreq(out[1]));
}

class SmallTable : public Passive {
 protected:
  SmallTable() : Passive({.connections_max = 1}) {}
};

TEST_F(SmallTable, has_no_resources_for_a_second) {
  reach_established();
  req.local_comm_id += 1;
  req.local_qpn.value += 1;
  receive(req);
  EXPECT_EQ(sent<wire::CmRej>().reason, wire::RejReason::no_resources);
  EXPECT_EQ(host.connect({.path = path}, now), ConnectionId::none);
  expect_silence();
}

struct RefusedReq {
  std::string_view what;
  void (*change)(wire::CmReq&);
  wire::RejReason reason;
  std::uint8_t info_size = 0;
  friend void PrintTo(const RefusedReq& r, std::ostream* os) { *os << r.what; }
};

class Refusals : public Passive, public testing::WithParamInterface<RefusedReq> {};

TEST_P(Refusals, have_the_reason_of_table_102) {
  GetParam().change(req);
  receive(req);
  const auto rejected = sent<wire::CmRej>();
  EXPECT_EQ(rejected.reason, GetParam().reason);
  EXPECT_EQ(rejected.info_size, GetParam().info_size);
  EXPECT_EQ(rejected.rejected, wire::CmAnswered::req);
  EXPECT_EQ(rejected.transaction_id, req.transaction_id);
  EXPECT_EQ(rejected.remote_comm_id, req.local_comm_id);
  EXPECT_EQ(host.count(Counter::cm_rejects_sent), 1U);
  host.expect_clean(now);
}

using enum wire::RejReason;
INSTANTIATE_TEST_SUITE_P(
    Cm, Refusals,
    testing::Values(
        RefusedReq{"service", [](wire::CmReq& r) { r.service_id += 1; }, invalid_service_id},
        RefusedReq{"reliable datagram", [](wire::CmReq& r) { r.transport_service_type = 2; }, invalid_transport_type},
        RefusedReq{"XRC", [](wire::CmReq& r) { r.transport_service_type = 3; }, invalid_transport_type},
        RefusedReq{"MTU 0", [](wire::CmReq& r) { r.path_mtu = 0; }, invalid_path_mtu, 1},
        RefusedReq{"MTU 6", [](wire::CmReq& r) { r.path_mtu = 6; }, invalid_path_mtu, 1},
        RefusedReq{"GID", [](wire::CmReq& r) { r.primary.remote_gid = IpAddress::v4(1); }, primary_remote_gid, 16},
        RefusedReq{"QP0", [](wire::CmReq& r) { r.local_qpn = Qpn{0}; }, unsupported_request},
        RefusedReq{"QP1", [](wire::CmReq& r) { r.local_qpn = Qpn{1}; }, unsupported_request},
        RefusedReq{"P_Key", [](wire::CmReq& r) { r.pkey = 0x8000; }, unsupported_request},
        RefusedReq{"IP CM version", [](wire::CmReq& r) { r.private_data[1] = std::byte{0x50}; }, consumer_reject}));

class Active : public CmDialogue {
 protected:
  void connect() {
    id = host.connect(param, now);
    req = sent<wire::CmReq>();
  }
  wire::CmRep default_rep() const {
    wire::CmRep r;
    r.transaction_id = req.transaction_id;
    r.local_comm_id = 0xcd03f3b9;
    r.remote_comm_id = req.local_comm_id;
    r.local_qpn = Qpn{0x99};
    r.starting_psn = Psn{0xd1383d};
    r.responder_resources = 7;
    r.initiator_depth = 9;
    r.rnr_retry_count = 5;
    test::put_private_data("welcome", r.private_data);
    return r;
  }
  void reach_established() {
    connect();
    rep = default_rep();
    receive(rep);
    rtu = sent<wire::CmRtu>();
  }
  wire::CmRej rej(wire::RejReason reason) const {
    wire::CmRej r;
    r.transaction_id = req.transaction_id;
    r.remote_comm_id = req.local_comm_id;
    r.rejected = wire::CmAnswered::req;
    r.reason = reason;
    return r;
  }
  wire::CmMra mra() const {
    wire::CmMra m;
    m.local_comm_id = 0xcd03f3b9;
    m.remote_comm_id = req.local_comm_id;
    m.answered = wire::CmAnswered::req;
    m.service_timeout = 20;
    return m;
  }

  ConnectParam param{.service_id = tcp_service_id(port),
                     .path = path,
                     .path_mtu = 4096,
                     .responder_resources = 8,
                     .initiator_depth = 10,
                     .local_ack_timeout = 19,
                     .source_port = 60486,
                     .private_data = std::as_bytes(std::span{"hello", 5})};
  ConnectionId id = ConnectionId::none;
  wire::CmReq req{};
  wire::CmRep rep{};
  wire::CmRtu rtu{};
};

TEST_F(Active, a_connection_from_req_to_nothing) {
  reach_established();
  EXPECT_EQ(rtu.transaction_id, req.transaction_id);
  EXPECT_EQ(rtu.local_comm_id, req.local_comm_id);
  EXPECT_EQ(rtu.remote_comm_id, rep.local_comm_id);
  EXPECT_EQ(test::text_of(host.established_data, 7), "welcome");
  EXPECT_EQ(host.endpoint.wheel.armed(), 0U);
  host.cm.disconnect(id, now);
  const auto asked = sent<wire::CmDreq>();
  EXPECT_EQ(asked.remote_qpn, rep.local_qpn);
  receive(wire::CmDrep{.transaction_id = asked.transaction_id,
                       .local_comm_id = rep.local_comm_id,
                       .remote_comm_id = req.local_comm_id,
                       .private_data = {}});
  EXPECT_THAT(host.log, ElementsAre("established", "disconnected local"));
  pass(timewait);
  host.expect_clean(now);
  EXPECT_EQ(host.count(Drop::mad_unexpected), 0U);
}

TEST_F(Active, the_queue_pair_gets_the_reps_values) {
  reach_established();
  const QpAttr& attr = host.qps.at(id)->attr();
  EXPECT_EQ(attr.dest_qpn, rep.local_qpn);
  EXPECT_EQ(attr.rq_psn, req.starting_psn);
  EXPECT_EQ(attr.sq_psn, rep.starting_psn);
  EXPECT_EQ(attr.path_mtu, 4096U);
  EXPECT_EQ(attr.timeout, 19);
  EXPECT_EQ(attr.rnr_retry, 5);
  EXPECT_EQ(attr.max_rd_atomic, 7) << "no more than the peer takes";
  EXPECT_EQ(attr.max_dest_rd_atomic, 8) << "no more than we offered";
  EXPECT_EQ(attr.path.udp_source_port, 63666) << "rxe-cm.pcap: ports 60486 and 7174";
}

TEST_F(Active, without_a_flow_label_the_queue_pairs_choose_the_source_port) {  // as Linux, and the same at either end
  param.service_id = 0x1234;
  reach_established();
  const std::uint64_t product = std::uint64_t{req.local_qpn.value} * rep.local_qpn.value;
  ASSERT_LT(product, 1U << 14U) << "so that Linux's hash is the product";
  EXPECT_EQ(host.qps.at(id)->attr().path.udp_source_port, 0xc000 + product);
}

TEST_F(Active, req_is_sent_again_until_the_rep) {
  connect();
  pass(response_time - soon);
  expect_silence();
  pass(soon);
  EXPECT_EQ(sent<wire::CmReq>(), req);
  receive(default_rep());
  static_cast<void>(sent<wire::CmRtu>());
  pass(response_time * 20);
  expect_silence();
}

TEST_F(Active, req_without_rep_is_given_up) {
  connect();
  for (unsigned i = 0; i < 15; ++i) {
    pass(response_time);
    EXPECT_EQ(sent<wire::CmReq>(), req);
  }
  pass(response_time);
  const auto rejected = sent<wire::CmRej>();
  EXPECT_EQ(rejected.reason, wire::RejReason::timeout);
  EXPECT_EQ(rejected.local_comm_id, req.local_comm_id);
  EXPECT_THAT(host.log, ElementsAre("disconnected timed_out"));
  host.expect_clean(now);
}

TEST_F(Active, duplicate_rep_gets_the_rtu_again) {
  reach_established();
  receive(rep);
  EXPECT_EQ(sent<wire::CmRtu>(), rtu);
  EXPECT_THAT(host.log, ElementsAre("established"));
}

TEST_F(Active, a_rep_that_comes_too_late_is_not_answered) {
  connect();
  host.cm.disconnect(id, now);
  EXPECT_EQ(sent<wire::CmRej>().reason, wire::RejReason::timeout);
  EXPECT_THAT(host.log, ElementsAre("disconnected local"));
  receive(default_rep());
  expect_silence();
  EXPECT_EQ(host.count(Drop::mad_unexpected), 1U);
  host.expect_clean(now);
}

TEST_F(Active, mra_delays_the_req_once) {
  connect();
  receive(mra());
  pass(response_time * 2 - soon);
  expect_silence();
  receive(mra());
  pass(soon);
  EXPECT_EQ(sent<wire::CmReq>(), req);
  receive(default_rep());
  EXPECT_THAT(host.log, ElementsAre("established"));
}

TEST_F(Active, a_rejection_has_its_reason) {
  connect();
  receive(rej(wire::RejReason::invalid_service_id));
  expect_silence();
  EXPECT_THAT(host.log, ElementsAre("disconnected rejected 8"));
  host.expect_clean(now);
}

TEST_F(Active, a_rejection_of_an_established_connection) {
  reach_established();
  auto late = rej(wire::RejReason::consumer_reject);
  late.local_comm_id = rep.local_comm_id;
  receive(late);
  EXPECT_THAT(host.log, ElementsAre("established", "disconnected rejected 28"));
  receive(late);
  EXPECT_EQ(host.count(Counter::cm_duplicates), 1U);
}

TEST_F(Active, a_rejection_may_name_the_peers_id_alone) {  // 12.9.8.4
  reach_established();
  auto late = rej(wire::RejReason::timeout);
  late.local_comm_id = rep.local_comm_id;
  late.remote_comm_id = 0;
  receive(late);
  EXPECT_THAT(host.log, ElementsAre("established", "disconnected rejected 4"));
}

TEST_F(Active, a_rejected_dreq_is_an_end) {
  reach_established();
  host.cm.disconnect(id, now);
  static_cast<void>(mads());
  auto late = rej(wire::RejReason::invalid_comm_id);
  late.local_comm_id = rep.local_comm_id;
  receive(late);
  EXPECT_THAT(host.log, ElementsAre("established", "disconnected local"));
}

TEST_F(Active, a_rep_with_a_queue_pair_that_is_connected_is_stale) {  // 12.9.8.3.1
  reach_established();
  const ConnectionId first = id;
  connect();
  auto second = default_rep();
  second.local_comm_id += 1;
  receive(second);
  const auto out = mads();
  ASSERT_EQ(out.size(), 2U);
  const auto rejected = wire::decode_rej(out[0]).value();
  EXPECT_EQ(rejected.reason, wire::RejReason::stale_connection);
  EXPECT_EQ(rejected.rejected, wire::CmAnswered::rep);
  EXPECT_EQ(wire::decode_dreq(out[1]).value().local_comm_id, static_cast<std::uint32_t>(first));
  EXPECT_THAT(host.log, ElementsAre("established", "disconnected rejected 10"));
}

TEST_F(Active, a_rep_without_a_queue_pair_is_malformed) {
  connect();
  auto bad = default_rep();
  bad.local_qpn = Qpn{1};
  receive(bad);
  expect_silence();
  EXPECT_EQ(host.count(Drop::mad_malformed), 1U);
}

TEST_F(Active, connect_refuses_what_does_not_fit) {
  const test::Bytes data(57);
  param.private_data = data;
  EXPECT_EQ(host.connect(param, now), ConnectionId::none) << "56 bytes behind the header of annex A11";
  param.service_id = 0x1234;
  EXPECT_NE(host.connect(param, now), ConnectionId::none);
  EXPECT_EQ(host.connect(param, now, QpType::ud), ConnectionId::none);
}

class Strangers : public CmDialogue {};

TEST_F(Strangers, unknown_connections_are_counted_and_not_answered) {
  receive(wire::CmRep{.local_comm_id = 1, .remote_comm_id = 2, .private_data = {}});
  receive(wire::CmRtu{.local_comm_id = 1, .remote_comm_id = 2, .private_data = {}});
  receive(wire::CmRej{.local_comm_id = 1, .remote_comm_id = 2, .additional_info = {}, .private_data = {}});
  receive(wire::CmRej{.local_comm_id = 1, .remote_comm_id = 0, .additional_info = {}, .private_data = {}});
  receive(wire::CmMra{.local_comm_id = 1, .remote_comm_id = 2, .private_data = {}});
  receive(wire::CmDrep{.local_comm_id = 1, .remote_comm_id = 2, .private_data = {}});
  receive(wire::CmSidrRep{.request_id = 1, .additional_info = {}, .private_data = {}});
  EXPECT_EQ(host.count(Drop::mad_unexpected), 7U);
  expect_silence();
  host.expect_clean(now);
}

TEST_F(Strangers, other_classes_and_attributes_are_counted_and_not_answered) {
  test::Bytes mad = test::encode_mad(default_req());
  const auto receive_bytes = [&](std::size_t at, std::uint8_t value) {
    test::Bytes changed = mad;
    changed[at] = std::byte{value};
    host.cm.on_mad(CmHost::ghost, changed, path, now);
  };
  receive_bytes(0, 2);      // base version
  receive_bytes(1, 0x03);   // subnet administration
  receive_bytes(2, 1);      // class version
  receive_bytes(3, 0x81);   // GetResp
  receive_bytes(17, 0x42);  // attribute
  host.cm.on_mad(CmHost::ghost, ConstBytes{mad}.first(200), path, now);
  EXPECT_EQ(host.count(Drop::mad_malformed), 6U);
  receive_bytes(17, 0x19);  // LAP
  EXPECT_EQ(host.count(Drop::mad_unexpected), 1U);
  expect_silence();
}

TEST_F(Strangers, a_listener_is_one_ghosts_and_may_leave) {
  EXPECT_TRUE(host.cm.listen(CmHost::ghost, tcp_service_id(port), host));
  EXPECT_FALSE(host.cm.listen(CmHost::ghost, tcp_service_id(port), host));
  EXPECT_TRUE(host.cm.listen(GhostId{1}, tcp_service_id(port), host));
  host.cm.unlisten(CmHost::ghost, tcp_service_id(port));
  receive(default_req());
  EXPECT_EQ(sent<wire::CmRej>().reason, wire::RejReason::invalid_service_id);
}

TEST_F(Strangers, sidr_names_the_queue_pair_of_a_service) {  // 12.11
  const wire::CmSidrReq ask{.transaction_id = 0x99,
                            .request_id = 0x42,
                            .pkey = 0xffff,
                            .service_id = udp_service_id(port),
                            .private_data = {}};
  receive(ask);
  EXPECT_EQ(sent<wire::CmSidrRep>().status, wire::SidrStatus::service_id_unsupported);
  host.cm.listen(CmHost::ghost, udp_service_id(port), host);
  receive(ask);
  EXPECT_EQ(sent<wire::CmSidrRep>().status, wire::SidrStatus::rejected_by_service);
  host.sidr = {.qpn = Qpn{0x55}, .qkey = 0x01234567};
  receive(ask);
  const auto answer = sent<wire::CmSidrRep>();
  EXPECT_EQ(answer.status, wire::SidrStatus::valid);
  EXPECT_EQ(answer.transaction_id, 0x99U);
  EXPECT_EQ(answer.request_id, 0x42U);
  EXPECT_EQ(answer.service_id, udp_service_id(port));
  EXPECT_EQ(answer.qpn, Qpn{0x55});
  EXPECT_EQ(answer.qkey, 0x01234567U);
  host.expect_clean(now);
}

}  // namespace
}  // namespace nbx::rdma
