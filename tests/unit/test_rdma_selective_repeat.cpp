// Selective repeat: what a responder keeps and tells, what a requester sends again, and both against a peer that goes
// back N.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
constexpr std::uint8_t ack = 0x1f;
constexpr Duration timeout = nanoseconds{4096LL << 14U};  // of the default code, 14

Nic selective(std::uint32_t out_of_order_packets = 256) {
  Nic nic;
  nic.recovery = rdma::Recovery::selective_repeat;
  nic.out_of_order_packets = out_of_order_packets;
  return nic;
}
Dialogue with(const Nic& nic, const rdma::TransportConfig& config = {}) {
  return Dialogue{Dialogue::default_attr(), config, nic};
}

/// What is said of a reply: its PSN, syndrome and MSN.
struct Said {
  std::uint32_t psn;
  std::uint8_t syndrome;
  std::uint32_t msn;
  bool selective_repeat = false;

  friend bool operator==(const Said&, const Said&) = default;
  friend std::ostream& operator<<(std::ostream& os, const Said& s) {
    return os << s.psn << " syndrome " << unsigned{s.syndrome} << " msn " << s.msn << (s.selective_repeat ? " SR" : "");
  }
};
std::vector<Said> replies(Dialogue& d) {
  std::vector<Said> out;
  for (const Packet& p : d.replies()) {
    out.push_back({p.psn, p.syndrome, p.msn, p.selective_repeat});
  }
  return out;
}
std::vector<std::uint32_t> sent(Dialogue& d) {
  std::vector<std::uint32_t> out;
  for (const Packet& p : d.replies()) {
    out.push_back(p.psn - first);
  }
  return out;
}
std::vector<std::uint64_t> completed(const Dialogue& d) {
  std::vector<std::uint64_t> out;
  for (const rdma::Completion& completion : d.user.completions) {
    EXPECT_EQ(completion.status, WcStatus::success);
    out.push_back(completion.wr_id);
  }
  return out;
}

// ---- the responder

/// SEND number i of a requester that repeats selectively, or goes back N. Its payload is i + 1 bytes.
Packet send_only(std::uint32_t i, bool selective_repeat = true) {
  Packet packet{.opcode = rc_send_only, .psn = expected + i, .payload = pattern(i + 1), .ack_request = true};
  packet.selective_repeat = selective_repeat;
  return packet;
}
/// With receives.
struct Ready : Dialogue {
  explicit Ready(const Nic& nic, const rdma::TransportConfig& config = {}) : Dialogue(default_attr(), config, nic) {
    for (std::uint64_t i = 0; i != 16; ++i) {
      post_recv(i, 256);
    }
  }
};

TEST(selective_repeat, responder_keeps_what_is_early_and_tells_of_each) {
  Ready d{selective()};
  EXPECT_EQ(d.receive(send_only(1)), Drop::none);
  EXPECT_EQ(d.receive(send_only(2)), Drop::none);
  EXPECT_THAT(replies(d), ElementsAre(Said{expected, nak_sequence_error, expected + 1, true},
                                      Said{expected, nak_sequence_error, expected + 2, true}));
  EXPECT_THAT(d.user.completions, IsEmpty());
  EXPECT_EQ(d.receive(send_only(0)), Drop::none);
  EXPECT_THAT(completed(d), ElementsAre(0, 1, 2));
  EXPECT_EQ(d.user.completions[2].byte_len, 3U);
  EXPECT_THAT(replies(d), ElementsAre(Said{expected + 2, ack, 3}));
  EXPECT_EQ(d.count(Counter::out_of_order_kept), 2U);
  EXPECT_EQ(d.count(Drop::out_of_seq_request), 0U);
}

TEST(selective_repeat, filled_hole_names_the_next) {
  Ready d{selective()};
  d.receive(send_only(1));
  d.receive(send_only(3));
  d.receive(send_only(5));
  replies(d);
  d.receive(send_only(0));
  EXPECT_THAT(completed(d), ElementsAre(0, 1));
  EXPECT_THAT(replies(d), ElementsAre(Said{expected + 2, nak_sequence_error, expected + 5, true}));
}

TEST(selective_repeat, what_was_filled_meanwhile_is_not_told) {
  Ready d{selective()};
  d.receive(send_only(1));
  d.receive(send_only(0));  // it was only late
  EXPECT_THAT(replies(d), ElementsAre(Said{expected + 1, ack, 2}));
}

// A NAK for each packet would restart the resending of everything, and one that names the next hole as well.
TEST(selective_repeat, requester_that_goes_back_n_hears_one_nak_for_a_gap) {
  Ready d{selective()};
  for (const std::uint32_t i : {1U, 2U, 4U}) {
    EXPECT_EQ(d.receive(send_only(i, false)), Drop::none);
  }
  EXPECT_THAT(replies(d), ElementsAre(Said{expected, nak_sequence_error, 0}));
  d.receive(send_only(0, false));
  EXPECT_THAT(completed(d), ElementsAre(0, 1, 2));
  EXPECT_THAT(replies(d), ElementsAre(Said{expected + 2, ack, 3}));
  EXPECT_EQ(d.receive(send_only(1, false)), Drop::duplicate_request);
  EXPECT_EQ(d.receive(send_only(2, false)), Drop::duplicate_request);
  EXPECT_THAT(replies(d), ElementsAre(Said{expected + 2, ack, 3}));
  d.receive(send_only(3, false));
  EXPECT_THAT(completed(d), ElementsAre(0, 1, 2, 3, 4));
}

TEST(selective_repeat, second_loss_of_the_same_packet_is_a_gap_again) {
  Ready d{selective()};
  d.receive(send_only(1, false));
  d.receive(send_only(3, false));
  d.receive(send_only(0, false));
  replies(d);
  EXPECT_EQ(d.receive(send_only(3, false)), Drop::duplicate_request);  // sent again, and 2 was lost again
  EXPECT_THAT(replies(d), ElementsAre(Said{expected + 2, nak_sequence_error, 2}));
}

TEST(selective_repeat, packets_kept_once_are_told_again_and_executed_once) {
  Ready d{selective()};
  d.receive(send_only(1));
  replies(d);
  EXPECT_EQ(d.receive(send_only(1)), Drop::duplicate_request);
  EXPECT_THAT(replies(d), ElementsAre(Said{expected, nak_sequence_error, expected + 1, true}));
  d.receive(send_only(0));
  EXPECT_THAT(completed(d), ElementsAre(0, 1));
}

// The standard NAK: a requester that hears it has to send everything again.
TEST(selective_repeat, responder_keeps_no_more_than_it_has_room_for) {
  for (const bool of_all : {false, true}) {
    Ready d{selective(of_all ? 256 : 2), {.kept_max = of_all ? 2U : 100U}};
    d.receive(send_only(1));
    d.receive(send_only(2));
    replies(d);
    EXPECT_EQ(d.receive(send_only(3)), Drop::out_of_order_full);
    EXPECT_EQ(d.receive(send_only(4)), Drop::out_of_order_full);
    EXPECT_THAT(replies(d), ElementsAre(Said{expected, nak_sequence_error, 0}));
    d.receive(send_only(0));
    EXPECT_THAT(completed(d), ElementsAre(0, 1, 2));
    EXPECT_EQ(d.receive(send_only(4)), Drop::none) << "there is room again";
  }
}

TEST(selective_repeat, message_is_put_together_from_what_was_kept) {
  Dialogue d = with(selective());
  const Bytes message = pattern(256 * 2 + 10);
  const auto part = [&](std::size_t i) {
    const ConstBytes bytes = ConstBytes{message}.subspan(i * 256, std::min<std::size_t>(256, message.size() - i * 256));
    return Bytes{bytes.begin(), bytes.end()};
  };
  d.receive({.opcode = rc_rdma_write_last, .psn = expected + 2, .payload = part(2), .selective_repeat = true});
  d.receive({.opcode = rc_rdma_write_middle, .psn = expected + 1, .payload = part(1), .selective_repeat = true});
  EXPECT_EQ(d.memory(Dialogue::base, message.size()), Bytes(message.size()));
  d.receive({.opcode = rc_rdma_write_first,
             .psn = expected,
             .payload = part(0),
             .selective_repeat = true,
             .address = Dialogue::base,
             .rkey = Dialogue::key,
             .length = static_cast<std::uint32_t>(message.size())});
  EXPECT_EQ(d.memory(Dialogue::base, message.size()), message);
  EXPECT_THAT(replies(d), ElementsAre(Said{expected + 2, ack, 1}));
}

TEST(selective_repeat, kept_packet_without_a_receive_is_refused_and_comes_again) {
  Dialogue d = with(selective());
  d.post_recv(0, 256);
  d.receive(send_only(1));
  d.receive(send_only(2));
  replies(d);
  d.receive(send_only(0));
  EXPECT_THAT(replies(d), ElementsAre(Said{expected + 1, 0x20 | 12, 1}));
  d.post_recv(1, 256);
  d.post_recv(2, 256);
  d.receive(send_only(1));
  EXPECT_THAT(completed(d), ElementsAre(0, 1, 2));
}

// The harness counts the frames that come back.
TEST(selective_repeat, kept_packets_are_given_back_with_the_queue_pair) {
  Ready destroyed{selective()};
  destroyed.receive(send_only(1));
  destroyed.endpoint.transport->destroy_qp(*destroyed.qp);
  Ready failed{selective()};
  failed.receive(send_only(1));
  failed.receive({.opcode = rc_send_last, .psn = expected, .payload = pattern(1)});  // of no message
  EXPECT_THAT(failed.user.errors, ElementsAre(WcStatus::rem_inv_req_err));
  EXPECT_EQ(failed.endpoint.source.outstanding() - failed.endpoint.pool->at_hand(), 0U);
  Ready left{selective()};
  left.receive(send_only(1));
}

TEST(selective_repeat, early_read_is_answered_in_its_turn) {
  Ready d{selective()};
  d.receive({.opcode = rc_rdma_read_request,
             .psn = expected + 1,
             .selective_repeat = true,
             .address = Dialogue::base,
             .rkey = Dialogue::key,
             .length = 300});
  d.receive(send_only(3));  // behind the two packets of the response
  replies(d);
  d.receive(send_only(0));
  EXPECT_THAT(completed(d), ElementsAre(0, 1));
  std::vector<wire::Opcode> opcodes;
  for (const Packet& p : d.replies()) {
    opcodes.push_back(p.opcode);
  }
  EXPECT_THAT(opcodes, ElementsAre(rc_rdma_read_response_first, rc_rdma_read_response_last, rc_acknowledge));
}

// ---- the requester

rdma::SendWr write_of(std::uint32_t packets) {
  rdma::SendWr wr;
  wr.opcode = rdma::WrOpcode::rdma_write;
  wr.local = {Dialogue::base, packets * 256, Dialogue::key};
  wr.remote_addr = 0x7000'0000'0000;
  wr.rkey = 0xfee;
  return wr;
}
Packet acknowledges(std::uint32_t i) { return {.opcode = rc_acknowledge, .psn = first + i, .syndrome = ack}; }
/// The peer lacks packet i, and packet `arrived` has come.
Packet lacks(std::uint32_t i, std::uint32_t arrived) {
  return {.opcode = rc_acknowledge,
          .psn = first + i,
          .selective_repeat = true,
          .syndrome = nak_sequence_error,
          .msn = first + arrived};
}

TEST(selective_repeat, requester_says_that_it_does) {
  Dialogue d = with(selective());
  d.post(write_of(2));
  for (const Packet& p : d.replies()) {
    EXPECT_TRUE(p.selective_repeat);
  }
}

TEST(selective_repeat, requester_sends_again_what_is_missing_and_nothing_else) {
  Dialogue d = with(selective());
  d.post(write_of(8));
  d.post(write_of(2));
  EXPECT_THAT(sent(d), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  d.receive(lacks(1, 3));
  EXPECT_THAT(sent(d), ElementsAre(1, 2));
  d.receive(lacks(1, 4));
  d.receive(lacks(1, 9));
  EXPECT_THAT(sent(d), ElementsAre(5, 6, 7, 8)) << "of both requests";
  d.receive(lacks(5, 9));
  EXPECT_THAT(sent(d), IsEmpty()) << "once";
  d.receive(acknowledges(9));
  EXPECT_EQ(d.user.completions.size(), 2U);
  EXPECT_EQ(d.count(Counter::retransmitted_packets), 6U);
  EXPECT_EQ(d.count(Counter::selective_repeat_fallbacks), 0U);
}

TEST(selective_repeat, new_packets_go_on_behind_what_is_sent_again) {
  rdma::QpAttr attr = Dialogue::default_attr();
  attr.max_outstanding_packets = 4;
  Dialogue d{attr, {}, selective()};
  d.post(write_of(8));
  EXPECT_THAT(sent(d), ElementsAre(0, 1, 2, 3));
  d.receive(lacks(1, 2));
  EXPECT_THAT(sent(d), ElementsAre(1, 4));
}

TEST(selective_repeat, what_is_lost_again_is_found_by_the_timer_which_passes_what_arrived) {
  Dialogue d = with(selective());
  d.post(write_of(6));
  sent(d);
  d.receive(lacks(1, 2));
  d.receive(lacks(1, 4));
  EXPECT_THAT(sent(d), ElementsAre(1, 3));
  d.pass(timeout);
  EXPECT_THAT(sent(d), ElementsAre(1, 3, 5));
}

TEST(selective_repeat, requester_goes_back_n_when_the_peer_keeps_nothing) {
  Dialogue d = with(selective());
  d.post(write_of(5));
  sent(d);
  d.receive({.opcode = rc_acknowledge, .psn = first + 1, .syndrome = nak_sequence_error, .msn = first + 4});
  EXPECT_THAT(sent(d), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(d.count(Counter::selective_repeat_fallbacks), 1U);
}

TEST(selective_repeat, what_arrived_may_still_be_refused) {
  Dialogue d = with(selective());
  d.post(write_of(4));
  sent(d);
  d.receive(lacks(0, 1));
  EXPECT_THAT(sent(d), ElementsAre(0));
  d.receive({.opcode = rc_acknowledge, .psn = first + 1, .syndrome = 0x20 | 1});  // RNR, 10 us
  d.pass(microseconds{10});
  EXPECT_THAT(sent(d), ElementsAre(1, 2, 3));
}

TEST(selective_repeat, requester_that_goes_back_n_does_not_know_the_difference) {
  Dialogue d = with({});
  d.post(write_of(3));
  EXPECT_FALSE(d.replies().front().selective_repeat);
  d.receive(lacks(1, 2));
  EXPECT_THAT(sent(d), ElementsAre(1, 2));
}

// ---- what goes with it in IRN

// ---- READs

rdma::SendWr read_of(std::uint32_t packets) {
  rdma::SendWr wr = write_of(packets);
  wr.opcode = rdma::WrOpcode::rdma_read;
  return wr;
}
/// The response of packet i of a READ at `first`.
Packet response(std::uint32_t i, wire::Opcode opcode) {
  return {.opcode = opcode, .psn = first + i, .payload = pattern(256, i), .syndrome = ack};
}
/// Of requests: PSN, address, length.
struct Asked {
  std::uint32_t psn;
  std::uint64_t address;
  std::uint32_t length;
  friend bool operator==(const Asked&, const Asked&) = default;
};
std::vector<Asked> asked(Dialogue& d) {
  std::vector<Asked> out;
  for (const Packet& p : d.replies()) {
    out.push_back({p.psn - first, p.address, p.length});
  }
  return out;
}

TEST(selective_repeat, requester_asks_for_missing_parts_of_reads_alone) {
  Dialogue d = with(selective());
  d.post(read_of(6));
  rdma::SendWr behind = read_of(2);
  behind.local.addr += 6 * 256;
  d.post(behind);
  d.post(write_of(1));
  const std::uint64_t there = read_of(1).remote_addr;
  EXPECT_THAT(asked(d), ElementsAre(Asked{0, there, 6 * 256}, Asked{6, there, 2 * 256}, Asked{8, there, 256}));
  d.receive(response(0, rc_rdma_read_response_first));
  EXPECT_EQ(d.receive(response(3, rc_rdma_read_response_middle)), Drop::none);
  EXPECT_THAT(asked(d), ElementsAre(Asked{1, there + 256, 2 * 256}));
  d.receive(response(4, rc_rdma_read_response_middle));
  EXPECT_EQ(d.receive(response(4, rc_rdma_read_response_middle)), Drop::response_stale);
  d.receive(response(7, rc_rdma_read_response_last));
  EXPECT_THAT(asked(d), ElementsAre(Asked{5, there + 5 * 256, 256}, Asked{6, there, 256}));
  d.receive(acknowledges(8));
  EXPECT_THAT(asked(d), IsEmpty());
  d.receive(response(5, rc_rdma_read_response_only));
  d.receive(response(6, rc_rdma_read_response_only));
  EXPECT_THAT(d.user.completions, IsEmpty());
  d.receive(response(1, rc_rdma_read_response_first));
  d.receive(response(2, rc_rdma_read_response_last));
  EXPECT_EQ(d.user.completions.size(), 3U) << "the WRITE was acknowledged meanwhile";
  for (std::uint32_t i = 0; i != 8; ++i) {
    EXPECT_EQ(d.memory(Dialogue::base + std::uint64_t{i} * 256, 256), pattern(256, i));
  }
}

// As IBTA 9.7.5.1 has it, from a peer that answers nothing but the rest.
TEST(selective_repeat, timer_asks_for_all_the_rest_of_a_read) {
  Dialogue d = with(selective());
  d.post(read_of(4));
  d.replies();
  d.receive(response(2, rc_rdma_read_response_middle));
  EXPECT_EQ(d.replies().size(), 1U);
  d.pass(timeout);
  const std::uint64_t there = read_of(1).remote_addr;
  EXPECT_THAT(asked(d), ElementsAre(Asked{0, there, 4 * 256}));
}

TEST(selective_repeat, responder_answers_parts_besides_what_is_due) {
  Dialogue d = with(selective());
  const auto ask = [&d](std::uint32_t packet, std::uint32_t packets) {
    d.receive({.opcode = rc_rdma_read_request,
               .psn = expected + packet,
               .address = Dialogue::base + std::uint64_t{packet} * 256,
               .rkey = Dialogue::key,
               .length = packets * 256});
  };
  const auto psns = [&d] {
    std::vector<std::uint32_t> out;
    for (const Packet& p : d.replies()) {
      out.push_back(p.psn - expected);
    }
    return out;
  };
  ask(0, 40);
  EXPECT_EQ(psns().size(), 40U);
  ask(3, 2);
  ask(10, 1);
  ask(20, 1);
  EXPECT_THAT(psns(), ElementsAre(10, 20, 3, 4));
}

TEST(selective_repeat, no_more_is_in_flight_than_the_bdp_cap) {
  Nic nic = selective();
  nic.bdp_cap = 3;
  Dialogue d = with(nic);
  d.post(write_of(8));
  EXPECT_THAT(sent(d), ElementsAre(0, 1, 2));
  d.receive(acknowledges(0));
  EXPECT_THAT(sent(d), ElementsAre(3));
}

TEST(selective_repeat, few_packets_in_flight_have_the_shorter_timeout) {
  Nic nic;
  nic.rto = rdma::RtoTimer{.low = microseconds{100}, .high = microseconds{320}, .low_packets = 3};
  for (const std::uint32_t packets : {3U, 4U}) {
    Dialogue d = with(nic);
    d.post(write_of(packets));
    sent(d);
    const Duration rto = packets == 3 ? nic.rto->low : nic.rto->high;
    d.pass(rto - Duration{1});
    EXPECT_THAT(sent(d), IsEmpty());
    d.pass(Duration{1});
    EXPECT_EQ(sent(d).size(), packets);
    d.pass(timeout * 7 - rto - Duration{1});
    EXPECT_THAT(d.user.errors, IsEmpty());
    d.pass(Duration{1});
    EXPECT_THAT(d.user.errors, ElementsAre(WcStatus::retry_exc_err)) << "timeout times retry_cnt without progress";
  }
}

}  // namespace
}  // namespace nbx::test
