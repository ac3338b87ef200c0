// What a ghost's NIC may do otherwise: timers, latencies, acknowledgements, notifications, MigReq; each to the
// nanosecond.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "support/rdma_harness.hpp"

namespace nbx::test {
namespace {

using rdma::Nic;
using rdma::WcStatus;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using enum wire::Opcode;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

constexpr std::uint32_t first = Dialogue::ghost_psn;
constexpr std::uint32_t expected = Dialogue::first_psn;
constexpr std::uint8_t nak_sequence_error = 0x60;
constexpr Duration timeout = nanoseconds{4096LL << 14U};  // of the default code, 14

Dialogue with(const Nic& nic, rdma::QpAttr attr = Dialogue::default_attr()) { return Dialogue{attr, {}, nic}; }
rdma::SendWr write_of(std::uint32_t length) {
  rdma::SendWr wr;
  wr.opcode = rdma::WrOpcode::rdma_write;
  wr.local = {Dialogue::base, length, Dialogue::key};
  wr.remote_addr = 0x7000'0000'0000;
  wr.rkey = 0xfee;
  return wr;
}
Packet send_only(std::uint32_t psn, bool ack_request = false) {
  return {.opcode = rc_send_only, .psn = psn, .ack_request = ack_request};
}
std::vector<std::uint32_t> psns(const std::vector<Packet>& packets) {
  std::vector<std::uint32_t> result;
  for (const Packet& p : packets) {
    result.push_back(p.psn);
  }
  return result;
}

/// Posts one write to a peer that stays silent; when each packet leaves, and when the request fails.
struct Silence {
  std::vector<Duration> sent;
  Duration failed{};
};
Silence silence(Dialogue& d) {
  Silence out;
  const Instant begin = d.now;
  EXPECT_TRUE(d.post(write_of(1)));
  for (;;) {
    for (std::size_t i = d.replies().size(); i != 0; --i) {
      out.sent.push_back(d.now - begin);
    }
    if (d.endpoint.wheel.next_deadline() == Instant::never() || out.sent.size() > 1000) {
      out.failed = d.now - begin;
      return out;
    }
    d.pass(d.endpoint.wheel.next_deadline() - d.now);
  }
}
/// Whether something leaves `time` from now, and nothing a picosecond earlier.
std::vector<Packet> exactly_after(Dialogue& d, Duration time) {
  d.pass(time - Duration{1});
  EXPECT_THAT(d.replies(), IsEmpty());
  d.pass(Duration{1});
  return d.replies();
}

// linux-rdma/perftest issue 251: a ConnectX-5 sends again after 2, 4, 8 and 16 ms, whatever the timeout code.
Nic connectx5() {
  rdma::AdaptiveTimer timer;
  timer.init_low_bound = 9;
  timer.ranges[0] = {.low_bound = 9, .size = 3, .timeout_retry_num = 1};
  timer.range_num = 1;
  Nic nic;
  nic.adaptive = timer;
  return nic;
}

TEST(nic, adaptive_timeouts_double_and_the_budget_is_the_queue_pairs) {
  Dialogue d = with(connectx5());
  const Silence s = silence(d);
  ASSERT_GE(s.sent.size(), 7U);
  EXPECT_EQ(s.sent[1] - s.sent[0], microseconds{2048});
  EXPECT_EQ(s.sent[2] - s.sent[1], microseconds{4096});
  EXPECT_EQ(s.sent[3] - s.sent[2], microseconds{8192});
  EXPECT_EQ(s.sent[4] - s.sent[3], microseconds{16384});
  EXPECT_EQ(s.sent[5] - s.sent[4], microseconds{16384});
  // 7 x 67.108864 ms: more retries than retry_cnt, and the same end as the standard's 7 timeouts.
  EXPECT_EQ(s.failed, timeout * 7);
  EXPECT_THAT(d.user.errors, ElementsAre(WcStatus::retry_exc_err));
}

TEST(nic, adaptive_ranges_follow_each_other_with_their_retries) {
  rdma::AdaptiveTimer timer;
  timer.time_base = microseconds{8};
  timer.init_low_bound = 0;  // in no range
  timer.ranges[0] = {.low_bound = 2, .size = 0, .timeout_retry_num = 2};
  timer.ranges[1] = {.low_bound = 4, .size = 1, .timeout_retry_num = 3};
  timer.range_num = 2;
  timer.total_timeout = 10;
  Nic nic;
  nic.adaptive = timer;
  Dialogue d = with(nic);
  const Silence s = silence(d);
  std::vector<std::int64_t> gaps;  // in time bases
  for (std::size_t i = 1; i < 10; ++i) {
    gaps.push_back((s.sent[i] - s.sent[i - 1]) / timer.time_base);
  }
  EXPECT_THAT(gaps, ElementsAre(1, 4, 4, 16, 16, 16, 32, 32, 32));
  EXPECT_EQ(s.failed, microseconds{8 << 10});
}

TEST(nic, adaptive_timeout_is_never_longer_than_the_queue_pairs) {
  rdma::QpAttr attr = Dialogue::default_attr();
  attr.timeout = 8;  // 1.048576 ms
  attr.retry_cnt = 3;
  Dialogue d = with(connectx5(), attr);
  const Silence s = silence(d);
  EXPECT_THAT(s.sent, ElementsAre(Duration{}, nanoseconds{1'048'576}, nanoseconds{2 * 1'048'576}));
  EXPECT_EQ(s.failed, nanoseconds{3 * 1'048'576});
}

TEST(nic, first_adaptive_timeouts_of_queue_pairs_differ_within_their_range) {
  Nic nic = connectx5();
  nic.adaptive->init_low_bound = 5;
  nic.adaptive->init_range_size = 3;
  std::set<Duration> seen;
  for (std::uint32_t qpn = 0x20; qpn != 0x26; ++qpn) {
    rdma::QpAttr attr = Dialogue::default_attr();
    attr.qpn = Qpn{qpn};
    Dialogue d = with(nic, attr);
    d.post(write_of(1));
    d.replies();
    seen.insert(d.endpoint.wheel.next_deadline() - d.now);
  }
  EXPECT_THAT(seen, ElementsAre(microseconds{128}, microseconds{256}, microseconds{512}));
}

TEST(nic, progress_takes_the_adaptive_timeout_back_and_renews_the_budget) {
  Dialogue d = with(connectx5());
  d.post(write_of(256 * 2));
  d.replies();
  d.pass(microseconds{2048});
  d.pass(microseconds{4096});
  d.replies();
  d.receive({.opcode = rc_acknowledge, .psn = first, .syndrome = 0x1f});
  EXPECT_THAT(psns(exactly_after(d, microseconds{2048})), ElementsAre(first + 1));
  d.pass(timeout * 7 - microseconds{2048} - Duration{1});
  EXPECT_THAT(d.user.errors, IsEmpty());
  d.pass(Duration{1});
  EXPECT_THAT(d.user.errors, ElementsAre(WcStatus::retry_exc_err));
}

// 9.7.6.1.3: between T and 4 T.
TEST(nic, timeout_may_be_up_to_four_times_the_nominal_one) {
  Nic nic;
  nic.timeout_factor = 4;
  Dialogue d = with(nic);
  d.post(write_of(1));
  d.replies();
  EXPECT_THAT(psns(exactly_after(d, timeout * 4)), ElementsAre(first));
}

TEST(nic, nak_takes_its_time) {
  Nic nic;
  nic.nak_latency = nanoseconds{2500};
  Dialogue d = with(nic);
  for (std::uint64_t i = 0; i != 4; ++i) {
    d.post_recv(i, 16);
  }
  EXPECT_EQ(d.receive(send_only(expected + 1)), Drop::out_of_seq_request);
  EXPECT_THAT(d.replies(), IsEmpty());
  d.pass(nanoseconds{1000});
  EXPECT_EQ(d.receive(send_only(expected + 2)), Drop::out_of_seq_request);  // does not put it off
  const auto nak = exactly_after(d, nanoseconds{1500});
  ASSERT_EQ(nak.size(), 1U);
  EXPECT_EQ(nak[0].psn, expected);
  EXPECT_EQ(nak[0].syndrome, nak_sequence_error);
}

TEST(nic, replies_keep_their_order_behind_a_late_nak) {
  Nic nic;
  nic.nak_latency = nanoseconds{2500};
  Dialogue d = with(nic);
  d.post_recv(0, 16);
  d.post_recv(1, 16);
  d.receive(send_only(expected + 1));
  d.receive(send_only(expected, true));  // it was only late
  EXPECT_THAT(d.replies(), IsEmpty());
  const auto both = exactly_after(d, nanoseconds{2500});
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0].syndrome, nak_sequence_error);
  EXPECT_EQ(both[1].syndrome, 0x1f);
  EXPECT_EQ(both[1].psn, expected);
}

TEST(nic, rnr_nak_is_not_late) {
  Nic nic;
  nic.nak_latency = nanoseconds{2500};
  Dialogue d = with(nic);
  EXPECT_EQ(d.receive(send_only(expected, true)), Drop::receive_missing);
  EXPECT_EQ(d.replies().size(), 1U);
}

TEST(nic, destroyed_with_a_nak_under_way) {
  Nic nic;
  nic.nak_latency = nanoseconds{2500};
  Dialogue d = with(nic);
  d.receive(send_only(expected + 1));
  d.replies();
  d.endpoint.transport->destroy_qp(*d.qp);
  d.pass(nanoseconds{5000});
  EXPECT_THAT(d.endpoint.sent(d.now), IsEmpty());
}

TEST(nic, retransmission_after_a_nak_takes_its_time) {
  Nic nic;
  nic.retransmission_latency = nanoseconds{7300};
  Dialogue d = with(nic);
  d.post(write_of(256 * 3));
  EXPECT_EQ(d.replies().size(), 3U);
  d.receive({.opcode = rc_acknowledge, .psn = first + 1, .syndrome = nak_sequence_error});
  EXPECT_THAT(psns(exactly_after(d, nanoseconds{7300})), ElementsAre(first + 1, first + 2));
  // The timer runs from there.
  EXPECT_THAT(psns(exactly_after(d, timeout)), ElementsAre(first + 1, first + 2));
}

// Soft-RoCE: RXE_MAX_PKT_PER_ACK is 64.
TEST(nic, acknowledgements_are_requested_every_so_many_packets) {
  Nic nic;
  nic.ack_request_every = 64;
  rdma::QpAttr attr = Dialogue::default_attr();
  attr.max_outstanding_packets = 512;
  Dialogue d = with(nic, attr);
  d.post(write_of(256 * 150));
  std::vector<std::uint32_t> requested;
  for (const Packet& p : d.replies()) {
    if (p.ack_request) {
      requested.push_back(p.psn - first);
    }
  }
  EXPECT_THAT(requested, ElementsAre(63, 127, 149));
}

TEST(nic, acknowledgements_may_come_unasked) {
  Nic nic;
  nic.ack_every = 2;
  Dialogue d = with(nic);
  for (std::uint64_t i = 0; i != 8; ++i) {
    d.post_recv(i, 16);
  }
  std::vector<std::uint32_t> acknowledged;
  for (std::uint32_t i = 0; i != 6; ++i) {
    d.receive(send_only(expected + i, i == 2));  // asked for, too; the count begins anew
    for (const Packet& p : d.replies()) {
      acknowledged.push_back(p.psn - expected);
    }
  }
  EXPECT_THAT(acknowledged, ElementsAre(1, 2, 4));
}

TEST(nic, mig_req_is_its_own) {
  for (const bool migrated : {true, false}) {
    Nic nic;
    nic.mig_req = migrated;
    Dialogue d = with(nic);
    d.post_recv(0, 16);
    d.post(write_of(1));
    d.receive(send_only(expected, true));
    const std::vector<Bytes> frames = d.endpoint.sent(d.now);
    ASSERT_EQ(frames.size(), 2U);
    for (const Bytes& frame : frames) {
      constexpr std::size_t bth = 14 + 20 + 8;
      EXPECT_EQ((frame[bth + 1] & std::byte{0x40}) != std::byte{0}, migrated);
    }
  }
}

TEST(nic, gap_may_be_answered_with_a_notification_too) {
  Nic nic;
  nic.cnp_on_nak = true;
  nic.cnp_interval = microseconds{4};
  Dialogue d = with(nic);
  const auto opcodes = [&d] {
    std::vector<wire::Opcode> all;
    for (const Packet& p : d.replies()) {
      all.push_back(p.opcode);
    }
    return all;
  };
  for (std::uint64_t i = 0; i != 4; ++i) {
    d.post_recv(i, 16);
  }
  d.receive(send_only(expected + 1));
  d.receive(send_only(expected + 2));
  EXPECT_THAT(opcodes(), ::testing::UnorderedElementsAre(rc_acknowledge, cnp));
  EXPECT_EQ(d.count(Counter::np_ecn_marked_roce_packets), 0U);
  d.receive(send_only(expected));
  d.receive(send_only(expected + 3));
  EXPECT_THAT(opcodes(), ElementsAre(rc_acknowledge)) << "within the NIC's interval";
}

TEST(nic, scope_of_notifications_is_its_own_port) {
  Nic nic;
  nic.cnp_scope = cc::CnpScope::port;
  Dialogue d = with(nic);
  d.endpoint.transport->add_ghost(GhostId{1}, nic);
  rdma::QpAttr elsewhere = Dialogue::default_attr();
  elsewhere.path = path_between(8, 1);
  rdma::Qp* other = d.endpoint.transport->create_qp(GhostId{1}, elsewhere, d.user);
  d.endpoint.transport->connect_qp(*other, elsewhere);
  rdma::Qp* same = d.endpoint.transport->create_qp(Endpoint::ghost, Dialogue::default_attr(), d.user);
  d.endpoint.transport->connect_qp(*same, Dialogue::default_attr());
  const auto mark = [&d](const rdma::Qp& qp) {
    wire::Path path = reversed(qp.attr().path);
    path.traffic_class = 0x03;
    const Bytes bytes = encode(send_only(expected), path, qp.qpn());
    Frame* frame = d.endpoint.pool->alloc(bytes.size());
    std::memcpy(frame->data, bytes.data(), bytes.size());
    EXPECT_EQ(wire::parse(frame->bytes(), {}, frame->parsed), Drop::none);
    d.endpoint.transport->receive(*frame, qp.ghost(), d.now);
  };
  d.pass(microseconds{100});
  mark(*d.qp);
  mark(*same);
  EXPECT_EQ(d.count(Counter::np_cnp_sent), 1U);
  mark(*other);
  EXPECT_EQ(d.count(Counter::np_cnp_sent), 2U);
}

}  // namespace
}  // namespace nbx::test
