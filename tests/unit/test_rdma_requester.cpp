// The RC requester, one rule of IBTA volume 1 chapter 9 after the other: what it sends, and what it makes of answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/rdma_harness.hpp"

namespace nbx::test {
namespace {

using rdma::SendWr;
using rdma::WcStatus;
using rdma::WrOpcode;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using enum wire::Opcode;
using std::chrono::microseconds;

constexpr std::uint64_t base = Dialogue::base;
constexpr std::uint32_t key = Dialogue::key;
constexpr std::uint32_t mtu = 256;
constexpr std::uint32_t first = Dialogue::ghost_psn;  // 5000
constexpr std::uint64_t far_address = 0x7000'0000'0000;
constexpr std::uint32_t far_key = 0xfee;

SendWr request(WrOpcode opcode, std::uint32_t length, std::uint64_t wr_id = 0) {
  SendWr wr;
  wr.wr_id = wr_id;
  wr.opcode = opcode;
  wr.local = {base, length, key};
  wr.remote_addr = far_address;
  wr.rkey = far_key;
  return wr;
}
Packet ack(std::uint32_t psn, std::uint32_t msn = 0, std::uint8_t syndrome = 0x1f) {
  return {.opcode = rc_acknowledge, .psn = psn, .syndrome = syndrome, .msn = msn};
}
Packet read_response(wire::Opcode opcode, std::uint32_t psn, const Bytes& payload) {
  const bool with_aeth = wire::traits(opcode).has(wire::ext::aeth);
  return {
      .opcode = opcode, .psn = psn, .payload = payload, .syndrome = with_aeth ? std::uint8_t{0x1f} : std::uint8_t{0}};
}
std::vector<std::uint32_t> psns(const std::vector<Packet>& packets) {
  std::vector<std::uint32_t> result;
  for (const Packet& p : packets) {
    result.push_back(p.psn);
  }
  return result;
}
std::vector<WcStatus> statuses(const Dialogue& d) {
  std::vector<WcStatus> result;
  for (const auto& completion : d.user.completions) {
    result.push_back(completion.status);
  }
  return result;
}
Dialogue& with_data(Dialogue& d, std::size_t size) {
  d.set_memory(base, pattern(size));
  return d;
}
Bytes part(std::size_t total, std::size_t from, std::size_t size) {
  const Bytes whole = pattern(total);
  const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(from);
  return {begin, begin + static_cast<std::ptrdiff_t>(size)};
}
constexpr Duration timeout = std::chrono::nanoseconds{4096LL << 14U};  // of the default code

// ---- packets of each operation

TEST(requester, write_of_three_packets) {
  Dialogue d;
  with_data(d, 600);
  ASSERT_TRUE(d.post(request(WrOpcode::rdma_write, 600, 9)));
  EXPECT_THAT(
      d.replies(),
      ElementsAre(
          Packet{.opcode = rc_rdma_write_first,
                 .psn = first,
                 .payload = part(600, 0, mtu),
                 .address = far_address,
                 .rkey = far_key,
                 .length = 600},
          Packet{.opcode = rc_rdma_write_middle, .psn = first + 1, .payload = part(600, mtu, mtu)},
          Packet{.opcode = rc_rdma_write_last, .psn = first + 2, .payload = part(600, 512, 88), .ack_request = true}));
  d.receive(ack(first + 1));
  EXPECT_THAT(d.user.completions, IsEmpty());
  EXPECT_EQ(d.receive(ack(first + 2, 1)), Drop::none);
  ASSERT_EQ(d.user.completions.size(), 1U);
  EXPECT_EQ(d.user.completions[0].wr_id, 9U);
  EXPECT_EQ(d.user.completions[0].opcode, rdma::WcOpcode::rdma_write);
  EXPECT_EQ(d.user.completions[0].status, WcStatus::success);
}

TEST(requester, only_packets_with_immediate_invalidate_and_solicited) {
  Dialogue d;
  SendWr wr = request(WrOpcode::send_with_imm, 0);
  wr.imm_data = 0x01020304;
  wr.solicited = true;
  d.post(wr);
  wr.opcode = WrOpcode::send_with_inv;
  wr.solicited = false;
  d.post(wr);
  wr.opcode = WrOpcode::rdma_write_with_imm;
  d.post(wr);
  EXPECT_THAT(
      d.replies(),
      ElementsAre(
          Packet{.opcode = rc_send_only_with_immediate,
                 .psn = first,
                 .ack_request = true,
                 .solicited = true,
                 .imm = 0x01020304},
          Packet{.opcode = rc_send_only_with_invalidate, .psn = first + 1, .ack_request = true, .imm = 0x01020304},
          Packet{.opcode = rc_rdma_write_only_with_immediate,
                 .psn = first + 2,
                 .ack_request = true,
                 .address = far_address,
                 .rkey = far_key,
                 .imm = 0x01020304}));
}

TEST(requester, read_takes_the_psns_of_its_responses) {
  Dialogue d;
  d.post(request(WrOpcode::rdma_read, 2 * mtu + 1));
  d.post(request(WrOpcode::send, 0));
  EXPECT_THAT(d.replies(), ElementsAre(Packet{.opcode = rc_rdma_read_request,
                                              .psn = first,
                                              .ack_request = true,
                                              .address = far_address,
                                              .rkey = far_key,
                                              .length = 2 * mtu + 1},
                                       Packet{.opcode = rc_send_only, .psn = first + 3, .ack_request = true}));
  d.receive(read_response(rc_rdma_read_response_first, first, part(mtu * 2 + 1, 0, mtu)));
  d.receive(read_response(rc_rdma_read_response_middle, first + 1, part(mtu * 2 + 1, mtu, mtu)));
  EXPECT_THAT(d.user.completions, IsEmpty());
  d.receive(read_response(rc_rdma_read_response_last, first + 2, part(mtu * 2 + 1, 2 * mtu, 1)));
  EXPECT_THAT(statuses(d), ElementsAre(WcStatus::success));
  EXPECT_EQ(d.memory(base, 2 * mtu + 1), pattern(2 * mtu + 1));
  d.receive(ack(first + 3));
  EXPECT_THAT(statuses(d), ElementsAre(WcStatus::success, WcStatus::success));
}

TEST(requester, atomics_bring_the_original_value) {
  Dialogue d;
  SendWr wr = request(WrOpcode::atomic_cmp_and_swp, 8);
  wr.compare_add = 1;
  wr.swap = 2;
  d.post(wr);
  wr.opcode = WrOpcode::atomic_fetch_and_add;
  wr.local.addr = base + 8;
  d.post(wr);
  EXPECT_THAT(d.replies(), ElementsAre(Packet{.opcode = rc_compare_swap,
                                              .psn = first,
                                              .ack_request = true,
                                              .address = far_address,
                                              .rkey = far_key,
                                              .swap_or_add = 2,
                                              .compare = 1},
                                       Packet{.opcode = rc_fetch_add,
                                              .psn = first + 1,
                                              .ack_request = true,
                                              .address = far_address,
                                              .rkey = far_key,
                                              .swap_or_add = 1}));
  d.receive({.opcode = rc_atomic_acknowledge, .psn = first, .syndrome = 0x1f, .original = 0x1122334455667788});
  d.receive({.opcode = rc_atomic_acknowledge, .psn = first + 1, .syndrome = 0x1f, .original = 7});
  std::array<std::uint64_t, 2> values{};
  std::memcpy(values.data(), d.memory(base, 16).data(), 16);
  EXPECT_THAT(values, ElementsAre(0x1122334455667788U, 7U));
  EXPECT_THAT(statuses(d), ElementsAre(WcStatus::success, WcStatus::success));
}

TEST(requester, one_acknowledgement_completes_everything_before_it_in_order) {
  Dialogue d;
  SendWr quiet = request(WrOpcode::send, 0, 2);
  quiet.signaled = false;
  d.post(request(WrOpcode::send, 0, 1));
  d.post(quiet);
  d.post(request(WrOpcode::send, 0, 3));
  d.replies();
  d.receive(ack(first + 2, 3));
  ASSERT_EQ(d.user.completions.size(), 2U) << "the unsignaled one says nothing";
  EXPECT_EQ(d.user.completions[0].wr_id, 1U);
  EXPECT_EQ(d.user.completions[1].wr_id, 3U);
  EXPECT_EQ(d.qp->stats().message_tx, 3U);
}

TEST(requester, psn_wraps_at_24_bits) {
  rdma::QpAttr attr = Dialogue::default_attr();
  attr.sq_psn = Psn{0xffffff};
  Dialogue d{attr};
  d.post(request(WrOpcode::rdma_write, 2 * mtu));
  EXPECT_THAT(psns(d.replies()), ElementsAre(0xffffffU, 0U));
  d.receive(ack(0, 1));
  EXPECT_THAT(statuses(d), ElementsAre(WcStatus::success));
}

TEST(requester, read_of_two_gib_takes_half_of_all_psns) {
  Dialogue d;
  d.endpoint.transport->memory(Endpoint::ghost)
      .add({.addr = 0, .length = 1ULL << 31U, .key = 0x77, .access = rdma::access::local_write});
  SendWr wr = request(WrOpcode::rdma_read, 1U << 31U);
  wr.local = {0, 1U << 31U, 0x77};
  d.post(wr);
  d.post(request(WrOpcode::send, 0));
  EXPECT_THAT(psns(d.replies()), ElementsAre(first)) << "a second request would make old and new PSNs alike";
  EXPECT_EQ(d.receive(read_response(rc_rdma_read_response_first, first, pattern(mtu))), Drop::none);
  EXPECT_THAT(psns(d.replies()), ElementsAre(first + (1U << 23U)));
}

// ---- window, AckReq, READ limit, fence, credits

TEST(requester, window_stops_and_reopens) {
  rdma::QpAttr attr = Dialogue::default_attr();
  attr.max_outstanding_packets = 4;
  Dialogue d{attr};
  d.post(request(WrOpcode::rdma_write, 10 * mtu));
  std::vector<Packet> sent = d.replies();
  EXPECT_THAT(psns(sent), ElementsAre(5000U, 5001U, 5002U, 5003U));
  EXPECT_TRUE(sent[1].ack_request && sent[3].ack_request) << "twice per window";
  EXPECT_FALSE(sent[0].ack_request || sent[2].ack_request);
  d.receive(ack(5001));
  EXPECT_THAT(psns(d.replies()), ElementsAre(5004U, 5005U));
}

TEST(requester, reads_and_atomics_beyond_the_agreed_number_wait) {
  rdma::QpAttr attr = Dialogue::default_attr();
  attr.max_rd_atomic = 2;
  Dialogue d{attr};
  d.post(request(WrOpcode::rdma_read, 8));
  d.post(request(WrOpcode::atomic_fetch_and_add, 8));
  d.post(request(WrOpcode::rdma_read, 8));
  d.post(request(WrOpcode::send, 0));
  EXPECT_THAT(psns(d.replies()), ElementsAre(5000U, 5001U)) << "and what is behind them waits too";
  d.receive(read_response(rc_rdma_read_response_only, 5000, pattern(8)));
  EXPECT_THAT(psns(d.replies()), ElementsAre(5002U, 5003U));
}

TEST(requester, fence_waits_for_reads) {
  Dialogue d;
  d.post(request(WrOpcode::rdma_read, 8));
  SendWr fenced = request(WrOpcode::rdma_write, 8);
  fenced.fence = true;
  d.post(fenced);
  EXPECT_THAT(psns(d.replies()), ElementsAre(5000U));
  d.receive(read_response(rc_rdma_read_response_only, 5000, pattern(8)));
  EXPECT_THAT(psns(d.replies()), ElementsAre(5001U));
}

TEST(requester, credits_of_the_peer_limit_sends) {
  Dialogue d;
  d.post(request(WrOpcode::send, 0));
  d.replies();
  d.receive(ack(5000, 1, 0x01));  // MSN 1, one receive: request 2 may be sent
  for (int i = 0; i < 4; ++i) {
    d.post(request(WrOpcode::send, 2 * mtu));
  }
  EXPECT_THAT(psns(d.replies()), ElementsAre(5001U, 5002U)) << "request 2; request 3 is limited and waits";
  d.receive(ack(5002, 2, 0x00));
  std::vector<Packet> sent = d.replies();
  EXPECT_THAT(psns(sent), ElementsAre(5003U)) << "one packet, to learn of credits";
  EXPECT_TRUE(sent[0].ack_request);
  d.receive(ack(5003, 2, 0x02));
  EXPECT_THAT(psns(d.replies()), ElementsAre(5004U, 5005U, 5006U));
  d.receive(ack(5006, 4, 0x1f));  // no longer told
  EXPECT_THAT(psns(d.replies()), ElementsAre(5007U, 5008U));
}

TEST(requester, unsolicited_acknowledgement_brings_credits) {
  Dialogue d;
  d.post(request(WrOpcode::send, 0));
  d.replies();
  d.receive(ack(5000, 1, 0x00));
  d.post(request(WrOpcode::send, 0));
  d.post(request(WrOpcode::send, 0));
  EXPECT_THAT(psns(d.replies()), ElementsAre(5001U));
  EXPECT_EQ(d.receive(ack(5000, 1, 0x04)), Drop::none);
  EXPECT_THAT(psns(d.replies()), ElementsAre(5002U));
}

// ---- loss

TEST(requester, sequence_nak_goes_back_into_the_middle_of_a_message) {
  Dialogue d;
  with_data(d, 4 * mtu);
  d.post(request(WrOpcode::rdma_write, 4 * mtu));
  d.replies();
  d.receive(ack(5001, 0, 0x60));
  EXPECT_THAT(
      d.replies(),
      ElementsAre(
          Packet{.opcode = rc_rdma_write_middle, .psn = 5001, .payload = part(4 * mtu, mtu, mtu)},
          Packet{.opcode = rc_rdma_write_middle, .psn = 5002, .payload = part(4 * mtu, 2 * mtu, mtu)},
          Packet{
              .opcode = rc_rdma_write_last, .psn = 5003, .payload = part(4 * mtu, 3 * mtu, mtu), .ack_request = true}));
  EXPECT_EQ(d.count(Counter::packet_seq_err), 1U);
  EXPECT_EQ(d.qp->stats().data_frames_retransmitted, 3U);
}

TEST(requester, copy_of_a_nak_starts_no_second_retry) {
  rdma::QpAttr attr = Dialogue::default_attr();
  attr.retry_cnt = 1;
  Dialogue d{attr};
  d.post(request(WrOpcode::send, 0));
  d.post(request(WrOpcode::send, 0));
  d.replies();
  d.receive(ack(5000, 0, 0x60));
  d.receive(ack(5000, 0, 0x60));
  EXPECT_THAT(psns(d.replies()), ElementsAre(5000U, 5001U));
  EXPECT_THAT(d.user.errors, IsEmpty());
}

TEST(requester, lost_read_response_is_implied_and_the_rest_asked_for) {
  Dialogue d;
  d.post(request(WrOpcode::rdma_read, 4 * mtu));
  d.replies();
  d.receive(read_response(rc_rdma_read_response_first, 5000, part(4 * mtu, 0, mtu)));
  EXPECT_EQ(d.receive(read_response(rc_rdma_read_response_middle, 5002, part(4 * mtu, 2 * mtu, mtu))),
            Drop::response_out_of_order);
  EXPECT_EQ(d.receive(read_response(rc_rdma_read_response_last, 5003, part(4 * mtu, 3 * mtu, mtu))),
            Drop::response_out_of_order);
  EXPECT_THAT(d.replies(), ElementsAre(Packet{.opcode = rc_rdma_read_request,
                                              .psn = 5001,
                                              .ack_request = true,
                                              .address = far_address + mtu,
                                              .rkey = far_key,
                                              .length = 3 * mtu}))
      << "once";
  EXPECT_EQ(d.count(Counter::implied_nak_seq_err), 1U);
  d.receive(read_response(rc_rdma_read_response_first, 5001, part(4 * mtu, mtu, mtu)));
  d.receive(read_response(rc_rdma_read_response_middle, 5002, part(4 * mtu, 2 * mtu, mtu)));
  d.receive(read_response(rc_rdma_read_response_last, 5003, part(4 * mtu, 3 * mtu, mtu)));
  EXPECT_THAT(statuses(d), ElementsAre(WcStatus::success));
  EXPECT_EQ(d.memory(base, 4 * mtu), pattern(4 * mtu));
}

TEST(requester, acknowledgement_past_a_read_implies_a_lost_response) {
  Dialogue d;
  d.post(request(WrOpcode::send, 0));
  d.post(request(WrOpcode::rdma_read, 8));
  d.post(request(WrOpcode::send, 0));
  d.replies();
  EXPECT_EQ(d.receive(ack(5002, 3)), Drop::response_out_of_order);
  EXPECT_THAT(statuses(d), ElementsAre(WcStatus::success)) << "what is before the READ is acknowledged all the same";
  EXPECT_THAT(psns(d.replies()), ElementsAre(5001U, 5002U));
}

TEST(requester, timer_expires_after_its_time_and_not_before) {
  Dialogue d;
  d.post(request(WrOpcode::send, 0));
  d.replies();
  d.pass(timeout - Duration{1});
  EXPECT_THAT(d.replies(), IsEmpty());
  d.pass(Duration{1});
  EXPECT_THAT(psns(d.replies()), ElementsAre(5000U));
  EXPECT_EQ(d.count(Counter::local_ack_timeout_err), 1U);
}

TEST(requester, progress_restarts_the_timer) {
  Dialogue d;
  d.post(request(WrOpcode::send, 0));
  d.post(request(WrOpcode::send, 0));
  d.replies();
  d.pass(timeout - Duration{1});
  d.receive(ack(5000, 1));
  d.pass(timeout - Duration{1});
  EXPECT_THAT(d.replies(), IsEmpty());
  d.pass(Duration{1});
  EXPECT_THAT(psns(d.replies()), ElementsAre(5001U));
}

TEST(requester, retries_are_counted_and_end_in_error) {
  rdma::QpAttr attr = Dialogue::default_attr();
  attr.retry_cnt = 2;
  Dialogue d{attr};
  d.post(request(WrOpcode::send, 0));
  d.post(request(WrOpcode::send, 0));
  d.post_recv(1, 8);
  d.replies();
  for (int i = 0; i < 2; ++i) {
    d.pass(timeout);
    EXPECT_THAT(psns(d.replies()), ElementsAre(5000U, 5001U));
  }
  d.pass(timeout);
  EXPECT_THAT(d.replies(), IsEmpty());
  EXPECT_THAT(statuses(d), ElementsAre(WcStatus::retry_exc_err, WcStatus::wr_flush_err, WcStatus::wr_flush_err));
  EXPECT_THAT(d.user.errors, ElementsAre(WcStatus::retry_exc_err));
  EXPECT_EQ(d.qp->state(), rdma::QpState::error);
  EXPECT_FALSE(d.post(request(WrOpcode::send, 0)));
}

TEST(requester, progress_gives_the_retries_back) {
  rdma::QpAttr attr = Dialogue::default_attr();
  attr.retry_cnt = 1;
  Dialogue d{attr};
  d.post(request(WrOpcode::rdma_write, 3 * mtu));
  d.replies();
  for (std::uint32_t psn = 5000; psn < 5003; ++psn) {
    d.pass(timeout);
    d.replies();
    d.receive(ack(psn));
  }
  EXPECT_THAT(statuses(d), ElementsAre(WcStatus::success));
}

TEST(requester, timeout_code_zero_waits_for_ever) {
  rdma::QpAttr attr = Dialogue::default_attr();
  attr.timeout = 0;
  Dialogue d{attr};
  d.post(request(WrOpcode::send, 0));
  d.replies();
  EXPECT_EQ(d.endpoint.wheel.next_deadline(), Instant::never());
}

TEST(requester, late_acknowledgement_overtakes_the_retry) {
  Dialogue d;
  d.post(request(WrOpcode::rdma_write, 3 * mtu));
  d.replies();
  d.pass(timeout);  // sets back, and before anything is sent again:
  d.receive(ack(5001));
  EXPECT_THAT(psns(d.replies()), ElementsAre(5002U));
  d.receive(ack(5002, 1));
  EXPECT_THAT(statuses(d), ElementsAre(WcStatus::success));
}

TEST(requester, acknowledgement_ahead_of_the_retry_opens_the_whole_window) {
  rdma::QpAttr attr = Dialogue::default_attr();
  attr.max_outstanding_packets = 12;
  Dialogue d{attr, {.burst = 1}};
  d.post(request(WrOpcode::rdma_write, 40 * mtu));
  EXPECT_EQ(d.replies().size(), 12U);
  d.pass(timeout);
  EXPECT_TRUE(d.endpoint.transport->progress(d.now)) << "not everything again in one call";
  d.receive(ack(5010));
  std::vector<Packet> sent = d.replies();
  std::erase_if(sent, [](const Packet& p) { return p.psn < 5011; });
  ASSERT_EQ(sent.size(), 12U);
  EXPECT_EQ(sent.back().psn, 5022U);
}

TEST(requester, stale_acknowledgements_are_dropped) {
  Dialogue d;
  d.post(request(WrOpcode::send, 0));
  d.replies();
  EXPECT_EQ(d.receive(ack(5001)), Drop::response_stale) << "never sent";
  EXPECT_EQ(d.receive(ack(4998)), Drop::response_stale);
  EXPECT_EQ(d.receive(ack(4999, 0, 0x60)), Drop::response_stale) << "NAK of what was acknowledged";
  EXPECT_EQ(d.receive(ack(5000, 0, 0x40)), Drop::response_malformed) << "reserved syndrome";
  EXPECT_EQ(d.receive(ack(5000, 0, 0x65)), Drop::response_malformed) << "reserved NAK code";
  EXPECT_THAT(d.user.completions, IsEmpty());
}

TEST(requester, malformed_responses_are_dropped) {
  Dialogue d;
  d.post(request(WrOpcode::rdma_read, mtu + 8));
  d.post(request(WrOpcode::send, 0));
  d.replies();
  EXPECT_EQ(d.receive(read_response(rc_rdma_read_response_first, 5000, pattern(mtu - 4))), Drop::response_malformed);
  EXPECT_EQ(d.receive(read_response(rc_rdma_read_response_only, 5000, pattern(mtu))), Drop::response_malformed);
  EXPECT_EQ(d.receive({.opcode = rc_atomic_acknowledge, .psn = 5000, .syndrome = 0x1f}), Drop::response_malformed);
  d.receive(read_response(rc_rdma_read_response_first, 5000, pattern(mtu)));
  EXPECT_EQ(d.receive(read_response(rc_rdma_read_response_last, 5001, pattern(12))), Drop::response_malformed);
  EXPECT_THAT(d.user.completions, IsEmpty());
}

// ---- RNR and errors

TEST(requester, rnr_nak_waits_as_long_as_the_table_says) {
  Dialogue d;
  d.post(request(WrOpcode::send, 0));
  d.post(request(WrOpcode::send, 0));
  d.replies();
  d.receive(ack(5001, 1, 0x20 | 14));  // 1.28 ms
  EXPECT_THAT(statuses(d), ElementsAre(WcStatus::success));
  d.pass(microseconds{1279});
  EXPECT_THAT(d.replies(), IsEmpty());
  d.pass(microseconds{1});
  EXPECT_THAT(psns(d.replies()), ElementsAre(5001U));
}

TEST(requester, rnr_retries_are_counted_and_end_in_error) {
  rdma::QpAttr attr = Dialogue::default_attr();
  attr.rnr_retry = 1;
  Dialogue d{attr};
  d.post(request(WrOpcode::send, 0));
  d.replies();
  d.receive(ack(5000, 0, 0x21));
  d.receive(ack(5000, 0, 0x21));  // a copy while waiting is not another refusal
  d.pass(microseconds{10});
  EXPECT_THAT(psns(d.replies()), ElementsAre(5000U));
  d.receive(ack(5000, 0, 0x21));
  EXPECT_THAT(statuses(d), ElementsAre(WcStatus::rnr_retry_exc_err));
  EXPECT_EQ(d.count(Counter::rnr_nak_retry_err), 1U);
}

TEST(requester, rnr_retry_seven_has_no_limit) {
  Dialogue d;
  d.post(request(WrOpcode::send, 0));
  d.replies();
  for (int i = 0; i < 20; ++i) {
    d.receive(ack(5000, 0, 0x21));
    d.pass(microseconds{10});
    ASSERT_THAT(psns(d.replies()), ElementsAre(5000U));
  }
  d.receive(ack(5000, 1));
  EXPECT_THAT(statuses(d), ElementsAre(WcStatus::success));
}

TEST(requester, fatal_naks_fail_the_request_they_name) {
  const std::array<std::pair<std::uint8_t, WcStatus>, 3> rows = {
      {{0x61, WcStatus::rem_inv_req_err}, {0x62, WcStatus::rem_access_err}, {0x63, WcStatus::rem_op_err}}};
  for (const auto& [syndrome, status] : rows) {
    Dialogue d;
    for (std::uint64_t i = 0; i < 3; ++i) {
      d.post(request(WrOpcode::rdma_write, 8, i));
    }
    d.replies();
    d.receive(ack(5001, 1, syndrome));
    EXPECT_THAT(statuses(d), ElementsAre(WcStatus::success, status, WcStatus::wr_flush_err));
    EXPECT_THAT(d.user.errors, ElementsAre(status));
  }
}

TEST(requester, local_faults_complete_after_what_was_posted_before) {
  const auto broken = [](SendWr wr, auto change) {
    change(wr);
    return wr;
  };
  const SendWr write = request(WrOpcode::rdma_write, 8);
  const std::vector<std::pair<SendWr, WcStatus>> rows = {
      {broken(write, [](SendWr& wr) { wr.local.lkey = 1; }), WcStatus::loc_prot_err},
      {broken(write, [](SendWr& wr) { wr.local.addr = base + 0xffff; }), WcStatus::loc_prot_err},
      {broken(write, [](SendWr& wr) { wr.local.length = 0x8000'0001; }), WcStatus::loc_len_err},
      {request(WrOpcode::atomic_fetch_and_add, 4), WcStatus::loc_len_err}};
  for (const auto& [wr, status] : rows) {
    Dialogue d;
    d.post(request(WrOpcode::send, 0));
    d.post(wr);
    EXPECT_THAT(psns(d.replies()), ElementsAre(5000U));
    EXPECT_THAT(d.user.completions, IsEmpty());
    d.receive(ack(5000, 1));
    d.replies();
    EXPECT_THAT(statuses(d), ElementsAre(WcStatus::success, status));
    EXPECT_EQ(d.qp->state(), rdma::QpState::error);
  }
}

TEST(requester, queue_takes_what_it_was_made_for) {
  rdma::QpAttr attr = Dialogue::default_attr();
  attr.max_send_wr = 3;
  Dialogue d{attr};
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(d.post(request(WrOpcode::send, 0)));
  }
  EXPECT_FALSE(d.post(request(WrOpcode::send, 0)));
  d.replies();
  d.receive(ack(5000, 1));
  EXPECT_TRUE(d.post(request(WrOpcode::send, 0)));
}

TEST(requester, completion_handler_may_post_and_destroy) {
  Dialogue d;
  int left = 3;
  d.user.then = [&](rdma::Qp& qp, const rdma::Completion&, Instant now) {
    if (--left > 0) {
      d.endpoint.transport->post_send(qp, request(WrOpcode::send, 0), now);
    } else {
      d.endpoint.transport->destroy_qp(qp);
    }
  };
  d.post(request(WrOpcode::send, 0));
  for (std::uint32_t psn = 5000; psn < 5003; ++psn) {
    EXPECT_THAT(psns(d.replies()), ElementsAre(psn));
    d.receive(ack(psn));
  }
  EXPECT_THAT(d.replies(), IsEmpty());
  EXPECT_EQ(d.endpoint.transport->qp_count(), 0U);
  EXPECT_EQ(d.endpoint.wheel.armed(), 0U);
}

TEST(requester, empty_pool_delays_and_loses_nothing) {
  Dialogue d;
  with_data(d, 3 * mtu);
  FrameList held;
  while (Frame* frame = d.endpoint.pool->alloc(64)) {
    held.push_back(*frame);
  }
  d.post(request(WrOpcode::rdma_write, 3 * mtu));
  EXPECT_TRUE(d.endpoint.transport->progress(d.now));
  EXPECT_EQ(d.count(Drop::frame_pool_empty), 8U) << "one try per turn";
  d.endpoint.pool->free_all(held);
  EXPECT_THAT(psns(d.replies()), ElementsAre(5000U, 5001U, 5002U));
}

TEST(requester, long_messages_of_two_queue_pairs_share_the_turns) {
  Dialogue d;
  const rdma::QpAttr attr = Dialogue::default_attr();
  rdma::Qp* other = d.endpoint.transport->create_qp(Endpoint::ghost, attr, d.user);
  d.endpoint.transport->connect_qp(*other, attr);
  d.post(request(WrOpcode::rdma_write, 64 * mtu));
  d.endpoint.transport->post_send(*other, request(WrOpcode::send, 0), d.now);
  const std::vector<Packet> sent = d.replies();
  ASSERT_EQ(sent.size(), 65U);
  EXPECT_EQ(sent[32].opcode, rc_send_only) << "after one burst of the long one";
}

}  // namespace
}  // namespace nbx::test
