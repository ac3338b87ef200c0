// The transport around the RC roles: who gets a packet, UC, UD, QP1, congestion notification, tables and memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/rng.hpp"
#include "rdma/codes.hpp"
#include "rdma/emit.hpp"
#include "rdma/qp_table.hpp"
#include "support/rdma_harness.hpp"

namespace nbx::test {
namespace {

using rdma::QpType;
using rdma::SendWr;
using rdma::WcStatus;
using rdma::WrOpcode;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using enum wire::Opcode;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

constexpr std::uint64_t base = Dialogue::base;
constexpr std::uint32_t key = Dialogue::key;
constexpr std::uint32_t mtu = 256;

Packet write_only(std::uint32_t psn, wire::Opcode opcode = rc_rdma_write_only) {
  return {.opcode = opcode,
          .psn = psn,
          .payload = pattern(16),
          .ack_request = true,
          .address = base,
          .rkey = key,
          .length = 16};
}

// ---- admission

TEST(transport, unknown_queue_pair_and_foreign_transport) {
  Dialogue d;
  EXPECT_EQ(d.endpoint.receive(encode(write_only(1000), reversed(d.attributes.path), Qpn{0x9999}), d.now),
            Drop::qp_unknown);
  EXPECT_EQ(d.receive(write_only(1000, uc_rdma_write_only)), Drop::qp_transport_mismatch);
  EXPECT_EQ(d.receive({.opcode = ud_send_only}), Drop::qp_transport_mismatch);
  EXPECT_THAT(d.replies(), IsEmpty());
  EXPECT_EQ(d.count(Drop::qp_transport_mismatch), 2U);
}

TEST(transport, packets_of_a_connection_come_from_its_peer) {
  Dialogue d;
  wire::Path stranger = reversed(d.attributes.path);
  stranger.source_ip = IpAddress::v4(0x0a000042);
  EXPECT_EQ(d.receive_from(stranger, write_only(1000)), Drop::qp_peer_mismatch);
  EXPECT_THAT(d.replies(), IsEmpty());
}

TEST(transport, pkeys_match_by_the_rule_of_membership) {
  // 10.9.3: equal 15-bit keys, and not two limited members; key 0 is invalid.
  EXPECT_TRUE(rdma::pkeys_match(0xffff, 0xffff));
  EXPECT_TRUE(rdma::pkeys_match(0x7fff, 0xffff));
  EXPECT_TRUE(rdma::pkeys_match(0xffff, 0x7fff));
  EXPECT_FALSE(rdma::pkeys_match(0x7fff, 0x7fff));
  EXPECT_FALSE(rdma::pkeys_match(0x8001, 0x8002));
  EXPECT_FALSE(rdma::pkeys_match(0x8000, 0x8000));
  Dialogue d;
  Packet foreign = write_only(1000);
  foreign.pkey = 0x8123;
  EXPECT_EQ(d.receive(foreign), Drop::pkey_mismatch);
}

// ---- UC

TEST(uc, writes_and_sends_complete_without_answers) {
  Dialogue d{Dialogue::default_attr(QpType::uc)};
  d.post_recv(1, 100, base + 0x100);
  EXPECT_EQ(d.receive(write_only(1000, uc_rdma_write_only)), Drop::none);
  EXPECT_EQ(d.receive({.opcode = uc_send_only_with_immediate, .psn = 1001, .payload = pattern(4), .imm = 8}),
            Drop::none);
  EXPECT_THAT(d.replies(), IsEmpty());
  EXPECT_EQ(d.memory(base, 16), pattern(16));
  ASSERT_EQ(d.user.completions.size(), 1U);
  EXPECT_EQ(d.user.completions[0].imm_data, 8U);
}

TEST(uc, gap_breaks_the_message_and_the_next_first_starts_again) {
  Dialogue d{Dialogue::default_attr(QpType::uc)};
  d.post_recv(1, 3 * mtu);
  d.receive({.opcode = uc_send_first, .psn = 1000, .payload = pattern(mtu)});
  EXPECT_EQ(d.receive({.opcode = uc_send_middle, .psn = 1002, .payload = pattern(mtu)}), Drop::uc_message_broken);
  EXPECT_EQ(d.receive({.opcode = uc_send_last, .psn = 1003, .payload = pattern(4)}), Drop::uc_message_broken);
  EXPECT_THAT(d.user.completions, IsEmpty());
  EXPECT_EQ(d.receive({.opcode = uc_send_first, .psn = 1010, .payload = pattern(mtu)}), Drop::none);
  EXPECT_EQ(d.receive({.opcode = uc_send_last, .psn = 1011, .payload = pattern(4)}), Drop::none);
  ASSERT_EQ(d.user.completions.size(), 1U);
  EXPECT_EQ(d.user.completions[0].wr_id, 1U) << "the receive of the broken message is used again";
  EXPECT_EQ(d.user.completions[0].byte_len, mtu + 4);
}

TEST(uc, faults_are_silent_and_not_fatal) {
  Dialogue d{Dialogue::default_attr(QpType::uc)};
  Packet foreign = write_only(1000, uc_rdma_write_only);
  foreign.rkey = 1;
  EXPECT_EQ(d.receive(foreign), Drop::request_access_error);
  EXPECT_EQ(d.receive({.opcode = uc_send_first, .psn = 1001, .payload = pattern(mtu)}), Drop::receive_missing);
  EXPECT_EQ(d.receive({.opcode = uc_send_last, .psn = 1002, .payload = pattern(4)}), Drop::uc_message_broken);
  EXPECT_EQ(d.receive(write_only(1003, uc_rdma_write_only)), Drop::none);
  EXPECT_THAT(d.replies(), IsEmpty());
  EXPECT_EQ(d.qp->state(), rdma::QpState::rts);
}

TEST(uc, requests_complete_when_sent) {
  Dialogue d{Dialogue::default_attr(QpType::uc)};
  SendWr wr{
      .wr_id = 4, .opcode = WrOpcode::rdma_write, .local = {base, mtu + 4, key}, .remote_addr = 0x1000, .rkey = 2};
  d.post(wr);
  const std::vector<Packet> sent = d.replies();
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].opcode, uc_rdma_write_first);
  EXPECT_EQ(sent[1].opcode, uc_rdma_write_last);
  EXPECT_FALSE(sent[1].ack_request);
  ASSERT_EQ(d.user.completions.size(), 1U);
  EXPECT_EQ(d.endpoint.wheel.armed(), 0U);
  wr.opcode = WrOpcode::rdma_read;
  d.post(wr);
  d.replies();
  EXPECT_EQ(d.user.completions.back().status, WcStatus::loc_qp_op_err);
}

// ---- UD

rdma::QpAttr ud_attr() {
  rdma::QpAttr attr = Dialogue::default_attr(QpType::ud);
  attr.qkey = 0x1111;
  return attr;
}

TEST(ud, datagram_fills_a_receive_and_names_its_sender) {
  Dialogue d{ud_attr()};
  d.post_recv(3, 64);
  EXPECT_EQ(d.receive({.opcode = ud_send_only_with_immediate,
                       .psn = 77,
                       .payload = pattern(20),
                       .imm = 6,
                       .qkey = 0x1111,
                       .source_qpn = 0x1234}),
            Drop::none);
  ASSERT_EQ(d.user.completions.size(), 1U);
  const rdma::Completion& completion = d.user.completions[0];
  EXPECT_EQ(completion.wr_id, 3U);
  EXPECT_EQ(completion.byte_len, 20U);
  EXPECT_EQ(completion.imm_data, 6U);
  EXPECT_EQ(completion.source_qpn, Qpn{0x1234});
  EXPECT_EQ(completion.source, d.attributes.path.destination_ip);
  EXPECT_EQ(d.memory(base, 20), pattern(20));
}

TEST(ud, wrong_qkey_no_receive_and_too_long_are_dropped) {
  Dialogue d{ud_attr()};
  Packet packet{.opcode = ud_send_only, .payload = pattern(20), .qkey = 0x1112};
  EXPECT_EQ(d.receive(packet), Drop::qkey_violation);
  packet.qkey = 0x1111;
  EXPECT_EQ(d.receive(packet), Drop::receive_missing);
  d.post_recv(1, 19);
  EXPECT_EQ(d.receive(packet), Drop::ud_length_error);
  packet.payload = pattern(19);
  EXPECT_EQ(d.receive(packet), Drop::none) << "the receive is still there";
  EXPECT_THAT(d.replies(), IsEmpty());
}

TEST(ud, sends_go_where_each_request_says) {
  Dialogue d{ud_attr()};
  d.set_memory(base, pattern(10));
  SendWr wr{.local = {base, 10, key}, .path = path_between(9, 5), .remote_qpn = Qpn{0x55}, .remote_qkey = 0x2222};
  d.post(wr);
  wr.path = path_between(9, 6);
  wr.remote_qkey = 0x8000'0000;  // "the queue pair's own"
  d.post(wr);
  const std::vector<Bytes> frames = d.endpoint.sent(d.now);
  ASSERT_EQ(frames.size(), 2U);
  std::vector<wire::Parsed> parsed(2);
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(wire::parse(frames[i], {}, parsed[i]), Drop::none);
    EXPECT_EQ(wire::destination_ip(frames[i], parsed[i]), IpAddress::v4(0x0a000005U + static_cast<std::uint32_t>(i)));
    EXPECT_EQ(parsed[i].dest_qpn, Qpn{0x55});
  }
  EXPECT_EQ(decode(frames[0], parsed[0]), (Packet{.opcode = ud_send_only,
                                                  .psn = 5000,
                                                  .payload = pattern(10),
                                                  .qkey = 0x2222,
                                                  .source_qpn = d.qp->qpn().value}));
  EXPECT_EQ(decode(frames[1], parsed[1]).qkey, 0x1111U);
  EXPECT_EQ(d.user.completions.size(), 2U);
}

TEST(ud, datagram_longer_than_the_mtu_fails) {
  Dialogue d{ud_attr()};
  d.post({.local = {base, mtu + 1, key}, .path = path_between(9, 5), .remote_qpn = Qpn{0x55}});
  EXPECT_THAT(d.replies(), IsEmpty());
  ASSERT_EQ(d.user.completions.size(), 1U);
  EXPECT_EQ(d.user.completions[0].status, WcStatus::loc_len_err);
}

// ---- QP1

struct MadRecorder final : rdma::MadHandler {
  std::vector<std::pair<Bytes, wire::Path>> mads;
  void on_mad(GhostId, ConstBytes mad, const wire::Path& reply_path, Instant) noexcept override {
    mads.emplace_back(Bytes(mad.begin(), mad.end()), reply_path);
  }
};

TEST(gsi, mads_reach_the_handler_with_the_way_back) {
  Dialogue d;
  MadRecorder handler;
  d.endpoint.transport->set_mad_handler(&handler);
  const wire::Path from = path_between(3, 9);
  Packet mad{.opcode = ud_send_only, .payload = pattern(256), .qkey = 0x80010000, .source_qpn = 1};
  const auto receive = [&](const Packet& packet) { return d.endpoint.receive(encode(packet, from, gsi_qpn), d.now); };
  EXPECT_EQ(receive(mad), Drop::none);
  ASSERT_EQ(handler.mads.size(), 1U);
  EXPECT_EQ(handler.mads[0].first, pattern(256));
  EXPECT_EQ(handler.mads[0].second, reversed(from));
  mad.qkey = 0x1111;
  EXPECT_EQ(receive(mad), Drop::qkey_violation);
  mad.qkey = 0x80010000;
  mad.payload.resize(252);
  EXPECT_EQ(receive(mad), Drop::mad_malformed);
  EXPECT_EQ(receive({.opcode = rc_send_only}), Drop::qp_transport_mismatch);
  EXPECT_EQ(handler.mads.size(), 1U);
}

TEST(gsi, mads_leave_from_queue_pair_one) {
  Dialogue d;
  EXPECT_TRUE(d.endpoint.transport->send_mad(Endpoint::ghost, path_between(9, 3), pattern(256), d.now));
  EXPECT_TRUE(d.endpoint.transport->send_mad(Endpoint::ghost, path_between(9, 3), pattern(256), d.now));
  const std::vector<Bytes> frames = d.endpoint.sent(d.now);
  ASSERT_EQ(frames.size(), 2U);
  wire::Parsed parsed;
  ASSERT_EQ(wire::parse(frames[1], {}, parsed), Drop::none);
  EXPECT_EQ(parsed.dest_qpn, gsi_qpn);
  EXPECT_EQ(decode(frames[1], parsed),
            (Packet{.opcode = ud_send_only, .psn = 1, .payload = pattern(256), .qkey = 0x80010000, .source_qpn = 1}));
}

// ---- congestion

TEST(congestion, marked_packets_are_answered_once_per_interval) {
  Dialogue d;
  const auto marked = [&d](std::uint32_t psn) {
    wire::Path path = reversed(d.attributes.path);
    path.traffic_class = 0x03;
    return d.receive_from(path, write_only(psn));
  };
  EXPECT_EQ(marked(1000), Drop::none);
  marked(1001);
  const std::vector<Bytes> frames = d.endpoint.sent(d.now);
  ASSERT_EQ(frames.size(), 2U);
  wire::Parsed cnp;
  ASSERT_EQ(wire::parse(frames[0], {}, cnp), Drop::none);
  EXPECT_EQ(cnp.opcode, 0x81);
  EXPECT_TRUE(cnp.becn);
  EXPECT_EQ(cnp.dest_qpn, Dialogue::peer_qpn);
  EXPECT_EQ(cnp.traffic_class, 48 << 2);
  EXPECT_EQ(d.count(Counter::np_ecn_marked_roce_packets), 2U);
  EXPECT_EQ(d.count(Counter::np_cnp_sent), 1U);
  d.pass(microseconds{50});
  marked(1002);
  EXPECT_EQ(d.endpoint.sent(d.now).size(), 2U) << "CNP and ACK";
  EXPECT_EQ(d.qp->stats().cnp_tx, 2U);
}

TEST(congestion, notifications_may_be_switched_off) {
  Dialogue d{Dialogue::default_attr(), {.send_cnp = false}};
  wire::Path path = reversed(d.attributes.path);
  path.traffic_class = 0x03;
  d.receive_from(path, write_only(1000));
  EXPECT_EQ(d.endpoint.sent(d.now).size(), 1U);
  EXPECT_EQ(d.count(Counter::np_ecn_marked_roce_packets), 1U);
}

TEST(congestion, received_notification_is_counted) {
  Dialogue d;
  EXPECT_EQ(d.receive({.opcode = cnp}), Drop::none);
  EXPECT_EQ(d.qp->stats().cnp_rx, 1U);
  EXPECT_EQ(d.count(Counter::rp_cnp_handled), 1U);
  EXPECT_THAT(d.endpoint.sent(d.now), IsEmpty());
}

TEST(congestion, interval_of_notifications_may_be_the_ports) {
  Dialogue d{Dialogue::default_attr(), {.cnp_scope = cc::CnpScope::port}};
  rdma::QpAttr second = Dialogue::default_attr();
  second.path = path_between(9, 2);
  rdma::Qp* other = d.endpoint.transport->create_qp(Endpoint::ghost, second, d.user);
  d.endpoint.transport->connect_qp(*other, second);
  const auto mark = [&d](const rdma::Qp& qp) {
    wire::Path path = reversed(qp.attr().path);
    path.traffic_class = 0x03;
    d.endpoint.receive(encode(write_only(1000), path, qp.qpn()), d.now);
  };
  mark(*d.qp);
  mark(*other);
  EXPECT_EQ(d.count(Counter::np_ecn_marked_roce_packets), 2U);
  EXPECT_EQ(d.count(Counter::np_cnp_sent), 1U);
  d.endpoint.sent(d.now);
}

/// Sends everything that is posted and tells when each packet started.
std::vector<std::pair<Instant, std::size_t>> departures(Dialogue& d) {
  std::vector<std::pair<Instant, std::size_t>> out;
  for (;;) {
    for (const Bytes& frame : d.endpoint.sent(d.now)) {
      out.emplace_back(d.now, frame.size());
    }
    if (d.endpoint.wheel.next_deadline() == Instant::never()) {
      return out;
    }
    d.pass(d.endpoint.wheel.next_deadline() - d.now);
  }
}

TEST(rate_limit, packets_start_as_far_apart_as_the_line_takes_for_them) {
  Dialogue d{Dialogue::default_attr(rdma::QpType::uc), {.rate_limit = rdma::RateLimit{.line = BitRate::gbps(1)}}};
  d.post({.opcode = rdma::WrOpcode::rdma_write, .local = {Dialogue::base, 10 * 256, Dialogue::key}, .rkey = 1});
  const auto sent = departures(d);
  ASSERT_EQ(sent.size(), 10U);
  Instant due{};
  for (const auto& [at, size] : sent) {
    EXPECT_EQ(at, due);
    due = due + nanoseconds{8 * (size + 8 + 4 + 12)};  // preamble, FCS and gap
  }
}

TEST(rate_limit, read_responses_are_paced_too) {
  Dialogue d{Dialogue::default_attr(), {.rate_limit = rdma::RateLimit{.line = BitRate::gbps(1)}}};
  d.receive({.opcode = rc_rdma_read_request,
             .psn = 1000,
             .ack_request = true,
             .address = Dialogue::base,
             .rkey = Dialogue::key,
             .length = 3 * 256});
  const auto sent = departures(d);
  ASSERT_EQ(sent.size(), 3U);
  EXPECT_EQ(sent[1].first - sent[0].first, nanoseconds{8 * (sent[0].second + 24)});
  EXPECT_EQ(sent[2].first - sent[1].first, nanoseconds{8 * (sent[1].second + 24)});
}

TEST(rate_limit, a_notification_slows_the_queue_pair_as_dcqcn_says) {  // Zhu et al. 2015, equations (1) to (3)
  const rdma::RateLimit limit{.line = BitRate::gbps(1), .dcqcn = *cc::dcqcn_preset("paper")};
  Dialogue d{Dialogue::default_attr(rdma::QpType::uc), {.rate_limit = limit}};
  EXPECT_EQ(d.qp->stats().rate, BitRate::gbps(1));
  d.receive({.opcode = cnp});
  EXPECT_EQ(d.qp->stats().rate, BitRate::mbps(500)) << "alpha is 1: half";
  d.post({.opcode = rdma::WrOpcode::rdma_write, .local = {Dialogue::base, 2 * 256, Dialogue::key}, .rkey = 1});
  const auto sent = departures(d);
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[1].first - sent[0].first, nanoseconds{16 * (sent[0].second + 24)});
  d.now = Instant{} + microseconds{55};
  d.post({.opcode = rdma::WrOpcode::rdma_write, .local = {Dialogue::base, 1, Dialogue::key}, .rkey = 1});
  departures(d);
  EXPECT_EQ(d.qp->stats().rate, BitRate::mbps(750)) << "halfway back at the first turn of the timer";
}

TEST(rate_limit, a_trace_tells_every_step_and_counts_what_had_no_room) {
  const rdma::RateLimit limit{.line = BitRate::gbps(1), .dcqcn = *cc::dcqcn_preset("paper")};
  Dialogue d{Dialogue::default_attr(rdma::QpType::uc), {.rate_limit = limit}};
  rdma::RateTrace trace{3, false};
  ASSERT_TRUE(d.endpoint.transport->trace_rate(*d.qp, &trace));
  d.receive({.opcode = cnp});  // a cut, then alpha
  d.now = Instant{} + microseconds{55};
  d.post({.opcode = rdma::WrOpcode::rdma_write, .local = {Dialogue::base, 1, Dialogue::key}, .rkey = 1});
  departures(d);  // alpha, then the timer: one too many
  const auto steps = trace.take();
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(steps[0].qpn, d.qp->qpn());
  EXPECT_EQ(steps[0].step.cause, cc::Cause::cut);
  EXPECT_EQ(steps[0].step.current, BitRate::mbps(500));
  EXPECT_EQ(steps[1].step.cause, cc::Cause::alpha_update);
  EXPECT_EQ(steps[1].step.alpha, cc::alpha_one) << "255/256 + 1/256";
  EXPECT_EQ(steps[2].step.time, Instant{} + microseconds{55});
  EXPECT_EQ(trace.dropped(), 1U);
  EXPECT_TRUE(d.endpoint.transport->trace_rate(*d.qp, nullptr));
  d.now = Instant{} + microseconds{110};
  d.receive({.opcode = cnp});
  EXPECT_TRUE(trace.take().empty()) << "none any more";
}

TEST(rate_limit, a_trace_of_rates_leaves_out_what_moved_alpha_alone) {
  const rdma::RateLimit limit{.line = BitRate::gbps(1), .dcqcn = *cc::dcqcn_preset("paper")};
  Dialogue d{Dialogue::default_attr(rdma::QpType::uc), {.rate_limit = limit}};
  rdma::RateTrace trace{100, true};
  ASSERT_TRUE(d.endpoint.transport->trace_rate(*d.qp, &trace));
  d.receive({.opcode = cnp});
  const auto steps = trace.take();
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].step.cause, cc::Cause::cut);
}

TEST(rate_limit, what_has_no_reaction_point_has_no_trace) {
  Dialogue d{Dialogue::default_attr(rdma::QpType::uc), {.rate_limit = rdma::RateLimit{.line = BitRate::gbps(1)}}};
  rdma::RateTrace trace{100, false};
  EXPECT_FALSE(d.endpoint.transport->trace_rate(*d.qp, &trace));
}

// ---- queue pairs and tables

TEST(transport, queue_pair_numbers_are_chosen_in_order_and_not_used_again_at_once) {
  Endpoint e;
  Recorder user;
  const rdma::QpAttr attr = Dialogue::default_attr();
  rdma::Qp* first = e.transport->create_qp(Endpoint::ghost, attr, user);
  EXPECT_EQ(first->qpn(), Qpn{0x11});
  e.transport->destroy_qp(*first);
  EXPECT_EQ(e.transport->find_qp(Endpoint::ghost, Qpn{0x11}), nullptr) << "gone at once";
  EXPECT_EQ(e.transport->create_qp(Endpoint::ghost, attr, user)->qpn(), Qpn{0x12});
  rdma::QpAttr fixed = attr;
  fixed.qpn = Qpn{0x13};
  ASSERT_NE(e.transport->create_qp(Endpoint::ghost, fixed, user), nullptr);
  EXPECT_EQ(e.transport->create_qp(Endpoint::ghost, fixed, user), nullptr) << "taken";
  EXPECT_EQ(e.transport->create_qp(Endpoint::ghost, attr, user)->qpn(), Qpn{0x14});
  fixed.qpn = gsi_qpn;
  EXPECT_EQ(e.transport->create_qp(Endpoint::ghost, fixed, user), nullptr);
}

TEST(transport, every_queue_pair_is_visited_in_order_of_creation) {
  Endpoint e;
  Recorder user;
  for (int i = 0; i < 4; ++i) {
    e.transport->create_qp(Endpoint::ghost, Dialogue::default_attr(), user);
  }
  e.transport->destroy_qp(*e.transport->find_qp(Endpoint::ghost, Qpn{0x11}));
  e.transport->destroy_qp(*e.transport->find_qp(Endpoint::ghost, Qpn{0x13}));
  std::vector<std::uint32_t> seen;
  e.transport->for_each_qp([&seen](rdma::Qp& qp) { seen.push_back(qp.qpn().value); });
  EXPECT_THAT(seen, ElementsAre(0x12U, 0x14U));
  EXPECT_EQ(e.transport->qp_count(), 2U);
}

TEST(transport, set_error_flushes_and_sends_nothing_more) {
  Dialogue d;
  d.post_recv(1, 8);
  d.receive(write_only(1000));
  d.endpoint.transport->set_error(*d.qp, WcStatus::fatal_err, d.now);
  EXPECT_THAT(d.replies(), IsEmpty());
  ASSERT_EQ(d.user.completions.size(), 1U);
  EXPECT_EQ(d.user.completions[0].status, WcStatus::wr_flush_err);
  EXPECT_THAT(d.user.errors, ElementsAre(WcStatus::fatal_err));
}

TEST(qp_table, agrees_with_a_set_of_keys) {
  rdma::QpTable table;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<rdma::QueuePair>> model;
  Recorder user;
  rdma::QpAttr attr;
  attr.max_send_wr = attr.max_recv_wr = 0;
  const rdma::Nic nic;
  Rng rng{5};
  for (int step = 0; step < 20000; ++step) {
    const auto ghost = static_cast<std::uint32_t>(rng.below(50));
    const auto qpn = static_cast<std::uint32_t>(0x11 + rng.below(20));
    auto& entry = model[{ghost, qpn}];
    ASSERT_EQ(table.find(GhostId{ghost}, Qpn{qpn}), entry.get());
    if (entry == nullptr) {
      entry = std::make_unique<rdma::QueuePair>(GhostId{ghost}, 1, attr, nic, user);
      table.insert(GhostId{ghost}, Qpn{qpn}, *entry);
    } else {
      table.remove(GhostId{ghost}, Qpn{qpn});
      entry.reset();
    }
  }
  for (const auto& [id, qp] : model) {
    EXPECT_EQ(table.find(GhostId{id.first}, Qpn{id.second}), qp.get());
  }
}

// ---- codes

TEST(codes, rnr_timer_is_table_45) {
  EXPECT_EQ(rdma::rnr_timer(0), microseconds{655360});
  EXPECT_EQ(rdma::rnr_timer(1), microseconds{10});
  EXPECT_EQ(rdma::rnr_timer(12), microseconds{640});
  EXPECT_EQ(rdma::rnr_timer(25), microseconds{61440});
  EXPECT_EQ(rdma::rnr_timer(31), microseconds{491520});
}

TEST(codes, ack_timeout_doubles_from_4096_ns) {
  EXPECT_EQ(rdma::ack_timeout(1), std::chrono::nanoseconds{8192});
  EXPECT_EQ(rdma::ack_timeout(14), std::chrono::nanoseconds{67'108'864});
  EXPECT_EQ(rdma::ack_timeout(31), std::chrono::nanoseconds{8'796'093'022'208});
}

TEST(codes, credits_never_promise_more_than_there_is) {
  for (std::uint32_t receives = 0; receives < 40000; ++receives) {
    const std::uint8_t code = rdma::credit_code(receives);
    ASSERT_LE(rdma::credit_counts[code], receives);
    ASSERT_LT(code, 31);
    ASSERT_TRUE(code == 30 || rdma::credit_counts[code + 1U] > receives);
  }
  EXPECT_EQ(rdma::credit_counts[21], 1536U);
}

// ---- memory

TEST(memory, keys_are_chosen_and_stale_ones_are_seen) {
  rdma::MemoryTable table;
  rdma::Region* region = table.add({.addr = 0, .length = 8});
  const std::uint32_t first = region->spec().key;
  EXPECT_NE(first, 0U);
  table.remove(first);
  EXPECT_EQ(table.find(first), nullptr);
  const std::uint32_t second = table.add({.addr = 0, .length = 8})->spec().key;
  EXPECT_NE(second, first);
  EXPECT_EQ(second >> 8U, first >> 8U) << "the slot is used again";
  EXPECT_EQ(table.add({.key = second}), nullptr) << "taken";
  ASSERT_NE(table.add({.addr = 0, .length = 8, .key = 0xfeedbeef}), nullptr);
  EXPECT_EQ(table.find(0xfeedbeef)->spec().key, 0xfeedbeefU);
  EXPECT_EQ(table.size(), 2U);
  table.remove(0xfeedbeef);
  EXPECT_EQ(table.find(0xfeedbeef), nullptr);
}

TEST(memory, chosen_key_avoids_a_fixed_one) {
  rdma::MemoryTable table;
  std::set<std::uint32_t> keys;
  for (std::uint32_t key_value = 0x100; key_value < 0x110; ++key_value) {
    ASSERT_NE(table.add({.key = key_value}), nullptr);
    keys.insert(key_value);
  }
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(keys.insert(table.add({})->spec().key).second);
  }
}

TEST(memory, bounds_do_not_overflow) {
  const rdma::Region region{{.addr = 0x1000, .length = 0x100}};
  EXPECT_TRUE(region.contains(0x1000, 0x100));
  EXPECT_TRUE(region.contains(0x10ff, 1));
  EXPECT_TRUE(region.contains(0x5, 0));
  EXPECT_FALSE(region.contains(0xfff, 1));
  EXPECT_FALSE(region.contains(0x1100, 1));
  EXPECT_FALSE(region.contains(0x10ff, 2));
  EXPECT_FALSE(region.contains(0x1010, ~0ULL));
  EXPECT_FALSE(region.contains(~0ULL, 2));
}

TEST(memory, backings_hold_what_they_say) {
  const auto after_write = [](rdma::Backing backing) {
    rdma::Region region{{.addr = 0x12345, .length = 64, .backing = backing}};
    region.write(0x12350, pattern(8, 9));
    Bytes out(8);
    region.read(0x12350, out);
    return out;
  };
  EXPECT_EQ(after_write(rdma::Backing::sink), Bytes(8));
  EXPECT_EQ(after_write(rdma::Backing::memory), pattern(8, 9));
  Bytes expected(8);
  for (std::size_t i = 0; i < 8; ++i) {
    const std::uint64_t address = 0x12350 + i;
    expected[i] = static_cast<std::byte>((address ^ (address >> 8U) ^ (address >> 16U)) & 0xffU);
  }
  EXPECT_EQ(after_write(rdma::Backing::pattern), expected);
}

}  // namespace
}  // namespace nbx::test
