// The RC responder, one rule of IBTA volume 1 chapter 9 after the other: packets in, the exact answers out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "support/rdma_harness.hpp"

namespace nbx::test {
namespace {

using rdma::WcOpcode;
using rdma::WcStatus;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using enum wire::Opcode;

constexpr std::uint64_t base = Dialogue::base;
constexpr std::uint32_t key = Dialogue::key;
constexpr std::uint32_t mtu = 256;
constexpr std::uint8_t ack_code = 0x1f;  // ACK, no credit count
constexpr std::uint8_t nak_sequence = 0x60;
constexpr std::uint8_t nak_invalid = 0x61;
constexpr std::uint8_t nak_access = 0x62;
constexpr std::uint8_t nak_operational = 0x63;

Packet ack(std::uint32_t psn, std::uint32_t msn, std::uint8_t syndrome = ack_code) {
  return {.opcode = rc_acknowledge, .psn = psn, .syndrome = syndrome, .msn = msn};
}
Packet send_only(std::uint32_t psn, const Bytes& payload = pattern(32)) {
  return {.opcode = rc_send_only, .psn = psn, .payload = payload, .ack_request = true};
}
Packet write_only(std::uint32_t psn, const Bytes& payload = pattern(32), std::uint64_t address = base) {
  return {.opcode = rc_rdma_write_only,
          .psn = psn,
          .payload = payload,
          .ack_request = true,
          .address = address,
          .rkey = key,
          .length = static_cast<std::uint32_t>(payload.size())};
}
Packet read_request(std::uint32_t psn, std::uint32_t length, std::uint64_t address = base) {
  return {.opcode = rc_rdma_read_request,
          .psn = psn,
          .ack_request = true,
          .address = address,
          .rkey = key,
          .length = length};
}
Packet response(wire::Opcode opcode, std::uint32_t psn, const Bytes& payload, std::uint32_t msn) {
  const bool with_aeth = wire::traits(opcode).has(wire::ext::aeth);
  return {.opcode = opcode,
          .psn = psn,
          .payload = payload,
          .syndrome = with_aeth ? ack_code : std::uint8_t{0},
          .msn = with_aeth ? msn : 0};
}
Bytes part(const Bytes& bytes, std::size_t from, std::size_t size) {
  const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(from);
  return {first, first + static_cast<std::ptrdiff_t>(size)};
}

// ---- good flow

TEST(responder, write_only_is_stored_and_acknowledged) {
  Dialogue d;
  EXPECT_EQ(d.receive(write_only(1000)), Drop::none);
  EXPECT_THAT(d.replies(), ElementsAre(ack(1000, 1)));
  EXPECT_EQ(d.memory(base, 32), pattern(32));
  EXPECT_THAT(d.user.completions, IsEmpty());
}

TEST(responder, write_of_three_packets) {
  Dialogue d;
  const Bytes data = pattern(2 * mtu + 5);
  d.receive({.opcode = rc_rdma_write_first,
             .psn = 1000,
             .payload = part(data, 0, mtu),
             .address = base + 3,
             .rkey = key,
             .length = 2 * mtu + 5});
  d.receive({.opcode = rc_rdma_write_middle, .psn = 1001, .payload = part(data, mtu, mtu)});
  EXPECT_THAT(d.replies(), IsEmpty()) << "no AckReq, no answer";
  d.receive({.opcode = rc_rdma_write_last_with_immediate,
             .psn = 1002,
             .payload = part(data, 2 * mtu, 5),
             .ack_request = true,
             .imm = 0xdeadbeef});
  EXPECT_THAT(d.replies(), ElementsAre(ack(1002, 0, 0x20 | d.attributes.min_rnr_timer)))
      << "an immediate takes a receive, at the last packet only";
  ASSERT_TRUE(d.post_recv(42, 0));
  d.receive({.opcode = rc_rdma_write_last_with_immediate,
             .psn = 1002,
             .payload = part(data, 2 * mtu, 5),
             .ack_request = true,
             .imm = 0xdeadbeef});
  EXPECT_THAT(d.replies(), ElementsAre(ack(1002, 1)));
  EXPECT_EQ(d.memory(base + 3, data.size()), data);
  ASSERT_EQ(d.user.completions.size(), 1U);
  EXPECT_EQ(d.user.completions[0].wr_id, 42U);
  EXPECT_EQ(d.user.completions[0].opcode, WcOpcode::recv_rdma_with_imm);
  EXPECT_EQ(d.user.completions[0].byte_len, data.size());
  EXPECT_TRUE(d.user.completions[0].has_imm);
  EXPECT_EQ(d.user.completions[0].imm_data, 0xdeadbeefU);
}

TEST(responder, send_of_two_packets_fills_the_receive) {
  Dialogue d;
  d.post_recv(7, 1000, base + 0x100);
  const Bytes data = pattern(mtu + 1);
  d.receive({.opcode = rc_send_first, .psn = 1000, .payload = part(data, 0, mtu), .ack_request = true});
  EXPECT_THAT(d.replies(), ElementsAre(ack(1000, 0))) << "AckReq in the middle: the message is not complete yet";
  d.receive({.opcode = rc_send_last_with_immediate,
             .psn = 1001,
             .payload = part(data, mtu, 1),
             .ack_request = true,
             .imm = 5});
  EXPECT_THAT(d.replies(), ElementsAre(ack(1001, 1)));
  ASSERT_EQ(d.user.completions.size(), 1U);
  EXPECT_EQ(d.user.completions[0].opcode, WcOpcode::recv);
  EXPECT_EQ(d.user.completions[0].status, WcStatus::success);
  EXPECT_EQ(d.user.completions[0].byte_len, mtu + 1);
  EXPECT_EQ(d.user.completions[0].imm_data, 5U);
  EXPECT_EQ(d.memory(base + 0x100, data.size()), data);
}

TEST(responder, send_with_invalidate_ends_the_key) {
  Dialogue d;
  rdma::MemoryTable& memory = d.endpoint.transport->memory(Endpoint::ghost);
  memory.add({.addr = 0, .length = 16, .key = 0x55500, .access = rdma::access::remote_write});
  d.post_recv(1, 100);
  d.receive({.opcode = rc_send_only_with_invalidate, .psn = 1000, .ack_request = true, .imm = 0x55500});
  EXPECT_THAT(d.replies(), ElementsAre(ack(1000, 1)));
  ASSERT_EQ(d.user.completions.size(), 1U);
  EXPECT_TRUE(d.user.completions[0].invalidated);
  EXPECT_EQ(d.user.completions[0].imm_data, 0x55500U);
  EXPECT_EQ(memory.find(0x55500), nullptr);
  EXPECT_EQ(memory.size(), 2U) << "the owner still has it";
}

TEST(responder, send_with_invalidate_of_unknown_key_is_an_access_error) {
  Dialogue d;
  d.post_recv(1, 100);
  EXPECT_EQ(d.receive({.opcode = rc_send_only_with_invalidate, .psn = 1000, .ack_request = true, .imm = 0x99}),
            Drop::request_access_error);
  EXPECT_THAT(d.replies(), ElementsAre(ack(1000, 0, nak_access)));
}

TEST(responder, read_is_answered_in_packets_of_the_mtu) {
  Dialogue d;
  const Bytes data = pattern(2 * mtu + 10);
  d.set_memory(base + 100, data);
  d.receive(read_request(1000, 2 * mtu + 10, base + 100));
  EXPECT_THAT(d.replies(), ElementsAre(response(rc_rdma_read_response_first, 1000, part(data, 0, mtu), 1),
                                       response(rc_rdma_read_response_middle, 1001, part(data, mtu, mtu), 1),
                                       response(rc_rdma_read_response_last, 1002, part(data, 2 * mtu, 10), 1)));
  d.receive(write_only(1003));
  EXPECT_THAT(d.replies(), ElementsAre(ack(1003, 2))) << "the READ took three PSNs";
}

TEST(responder, read_of_one_packet_and_of_nothing) {
  Dialogue d;
  d.set_memory(base, pattern(mtu));
  d.receive(read_request(1000, mtu));
  d.receive(read_request(1001, 0));
  EXPECT_THAT(d.replies(), ElementsAre(response(rc_rdma_read_response_only, 1000, pattern(mtu), 1),
                                       response(rc_rdma_read_response_only, 1001, {}, 2)));
}

TEST(responder, compare_swap_swaps_only_what_it_expects) {
  Dialogue d;
  const std::uint64_t before = 0x1122334455667788ULL;
  Bytes cell(8);
  std::memcpy(cell.data(), &before, 8);
  d.set_memory(base + 8, cell);
  Packet swap{.opcode = rc_compare_swap,
              .psn = 1000,
              .ack_request = true,
              .address = base + 8,
              .rkey = key,
              .swap_or_add = 99,
              .compare = before};
  d.receive(swap);
  swap.psn = 1001;  // compares again with what is no longer there
  swap.swap_or_add = 1234;
  d.receive(swap);
  EXPECT_THAT(
      d.replies(),
      ElementsAre(
          Packet{.opcode = rc_atomic_acknowledge, .psn = 1000, .syndrome = ack_code, .msn = 1, .original = before},
          Packet{.opcode = rc_atomic_acknowledge, .psn = 1001, .syndrome = ack_code, .msn = 2, .original = 99}));
  std::uint64_t after = 0;
  std::memcpy(&after, d.memory(base + 8, 8).data(), 8);
  EXPECT_EQ(after, 99U);
}

TEST(responder, fetch_add_wraps_at_64_bits) {
  Dialogue d;
  d.set_memory(base, Bytes(8, std::byte{0xff}));
  d.receive({.opcode = rc_fetch_add, .psn = 1000, .ack_request = true, .address = base, .rkey = key, .swap_or_add = 3});
  EXPECT_THAT(d.replies(),
              ElementsAre(Packet{
                  .opcode = rc_atomic_acknowledge, .psn = 1000, .syndrome = ack_code, .msn = 1, .original = ~0ULL}));
  std::uint64_t after = 0;
  std::memcpy(&after, d.memory(base, 8).data(), 8);
  EXPECT_EQ(after, 2U);
}

TEST(responder, acknowledgements_coalesce_to_the_latest) {
  Dialogue d;
  d.receive(write_only(1000));
  d.receive(write_only(1001));
  d.receive(write_only(1002));
  EXPECT_THAT(d.replies(), ElementsAre(ack(1002, 3)));
}

TEST(responder, answers_keep_the_order_of_requests) {
  Dialogue d;
  d.set_memory(base, pattern(10));
  d.receive(write_only(1000, pattern(4), base + 0x1000));
  d.receive(read_request(1001, 10));
  d.receive(write_only(1002, pattern(4), base + 0x1000));
  d.receive(write_only(1004));  // 1003 is missing
  EXPECT_THAT(d.replies(),
              ElementsAre(response(rc_rdma_read_response_only, 1001, pattern(10), 2), ack(1003, 3, nak_sequence)))
      << "the response acknowledges 1000, the NAK acknowledges 1002";
}

TEST(responder, response_acknowledges_what_is_before_it) {
  Dialogue d;
  d.receive(write_only(1000, pattern(4), base + 0x1000));
  d.receive(read_request(1001, 4));
  EXPECT_THAT(d.replies(), ElementsAre(response(rc_rdma_read_response_only, 1001, Bytes(4), 2)));
}

TEST(responder, psn_wraps_at_24_bits) {
  rdma::QpAttr attr = Dialogue::default_attr();
  attr.rq_psn = Psn{0xfffffe};
  Dialogue d{attr};
  d.set_memory(base, pattern(3 * mtu));
  d.receive(read_request(0xfffffe, 3 * mtu));
  EXPECT_THAT(d.replies(),
              ElementsAre(response(rc_rdma_read_response_first, 0xfffffe, part(pattern(3 * mtu), 0, mtu), 1),
                          response(rc_rdma_read_response_middle, 0xffffff, part(pattern(3 * mtu), mtu, mtu), 1),
                          response(rc_rdma_read_response_last, 0, part(pattern(3 * mtu), 2 * mtu, mtu), 1)));
  EXPECT_EQ(d.receive(write_only(1)), Drop::none);
  EXPECT_EQ(d.receive(write_only(0xffffff)), Drop::duplicate_request);
}

TEST(responder, zero_length_write_needs_no_key) {
  Dialogue d;
  Packet write = write_only(1000, {});
  write.rkey = 0x123456;
  EXPECT_EQ(d.receive(write), Drop::none);
  EXPECT_THAT(d.replies(), ElementsAre(ack(1000, 1)));
}

TEST(responder, credits_are_the_receives_posted) {
  rdma::QpAttr attr = Dialogue::default_attr();
  attr.end_to_end_credits = true;
  Dialogue d{attr};
  for (int i = 0; i < 8; ++i) {
    d.post_recv(0, 100);
  }
  d.receive(send_only(1000));
  EXPECT_THAT(d.replies(), ElementsAre(ack(1000, 1, 5))) << "seven are left: code 5 stands for six, code 6 for eight";
}

// ---- loss and duplicates

TEST(responder, one_nak_per_gap) {
  Dialogue d;
  EXPECT_EQ(d.receive(write_only(1001)), Drop::out_of_seq_request);
  EXPECT_EQ(d.receive(write_only(1002)), Drop::out_of_seq_request);
  EXPECT_THAT(d.replies(), ElementsAre(ack(1000, 0, nak_sequence)));
  d.receive(write_only(1003));
  EXPECT_THAT(d.replies(), IsEmpty());
  d.receive(write_only(1000));
  EXPECT_THAT(d.replies(), ElementsAre(ack(1000, 1)));
  d.receive(write_only(1002));
  EXPECT_THAT(d.replies(), ElementsAre(ack(1001, 1, nak_sequence))) << "a new gap";
  EXPECT_EQ(d.qp->stats().frame_sequence_error, 4U);
  EXPECT_EQ(d.memory(base + 32, 8), Bytes(8)) << "nothing else was written";
}

TEST(responder, nak_is_sent_although_the_gap_closed_meanwhile) {
  Dialogue d;
  d.receive(write_only(1001));
  d.receive(write_only(1000));
  EXPECT_THAT(d.replies(), ElementsAre(ack(1000, 1, nak_sequence), ack(1000, 1)))
      << "1001 was dropped: without the NAK the requester would have to wait for its timer";
}

TEST(responder, duplicate_write_is_acknowledged_and_not_executed) {
  Dialogue d;
  d.receive(write_only(1000, pattern(8, 1)));
  d.receive(write_only(1001, pattern(8, 2)));
  d.replies();
  EXPECT_EQ(d.receive(write_only(1000, pattern(8, 1))), Drop::duplicate_request);
  EXPECT_THAT(d.replies(), ElementsAre(ack(1001, 2))) << "the latest PSN, the current MSN";
  EXPECT_EQ(d.memory(base, 8), pattern(8, 2));
}

TEST(responder, duplicate_send_takes_no_second_receive) {
  Dialogue d;
  d.post_recv(1, 100);
  d.post_recv(2, 100);
  d.receive(send_only(1000));
  d.receive(send_only(1000));
  EXPECT_EQ(d.user.completions.size(), 1U);
}

TEST(responder, duplicate_read_is_executed_again) {
  Dialogue d;
  d.set_memory(base, pattern(300, 1));
  d.receive(read_request(1000, 300));
  d.replies();
  d.set_memory(base, pattern(300, 2));
  EXPECT_EQ(d.receive(read_request(1000, 300)), Drop::duplicate_request);
  EXPECT_THAT(d.replies(),
              ElementsAre(response(rc_rdma_read_response_first, 1000, part(pattern(300, 2), 0, mtu), 1),
                          response(rc_rdma_read_response_last, 1001, part(pattern(300, 2), mtu, 300 - mtu), 1)));
  EXPECT_EQ(d.count(Counter::duplicate_replays), 1U);
}

TEST(responder, rest_of_a_read_may_be_asked_for_again) {
  Dialogue d;
  const Bytes data = pattern(4 * mtu);
  d.set_memory(base, data);
  d.receive(read_request(1000, 4 * mtu));
  d.replies();
  d.receive(read_request(1002, 2 * mtu, base + 2 * mtu));
  EXPECT_THAT(d.replies(), ElementsAre(response(rc_rdma_read_response_first, 1002, part(data, 2 * mtu, mtu), 1),
                                       response(rc_rdma_read_response_last, 1003, part(data, 3 * mtu, mtu), 1)));
}

TEST(responder, duplicate_read_outside_the_first_is_dropped) {
  Dialogue d;
  d.receive(read_request(1000, 2 * mtu));
  d.replies();
  EXPECT_EQ(d.receive(read_request(1001, 2 * mtu, base + mtu)), Drop::duplicate_request) << "longer than the rest";
  EXPECT_EQ(d.receive(read_request(1001, mtu, base + 2 * mtu)), Drop::duplicate_request) << "elsewhere";
  Packet other_key = read_request(1000, 2 * mtu);
  other_key.rkey = key + 1;
  EXPECT_EQ(d.receive(other_key), Drop::duplicate_request);
  EXPECT_THAT(d.replies(), IsEmpty());
}

TEST(responder, duplicate_atomic_gets_the_stored_answer) {
  Dialogue d;
  Packet add{.opcode = rc_fetch_add, .psn = 1000, .ack_request = true, .address = base, .rkey = key, .swap_or_add = 5};
  d.receive(add);
  d.receive({.opcode = rc_fetch_add, .psn = 1001, .ack_request = true, .address = base, .rkey = key, .swap_or_add = 1});
  d.replies();
  d.receive(add);
  EXPECT_THAT(
      d.replies(),
      ElementsAre(Packet{.opcode = rc_atomic_acknowledge, .psn = 1000, .syndrome = ack_code, .msn = 2, .original = 0}));
  EXPECT_EQ(d.memory(base, 1)[0], std::byte{6}) << "added once each";
}

TEST(responder, atomic_beyond_the_replay_store_is_dropped_in_silence) {
  rdma::QpAttr attr = Dialogue::default_attr();
  attr.max_dest_rd_atomic = 2;
  Dialogue d{attr};
  for (std::uint32_t psn = 1000; psn < 1003; ++psn) {
    d.receive(
        {.opcode = rc_fetch_add, .psn = psn, .ack_request = true, .address = base, .rkey = key, .swap_or_add = 1});
    d.replies();
  }
  d.receive({.opcode = rc_fetch_add, .psn = 1000, .ack_request = true, .address = base, .rkey = key, .swap_or_add = 1});
  EXPECT_THAT(d.replies(), IsEmpty());
  EXPECT_EQ(d.memory(base, 1)[0], std::byte{3});
}

TEST(responder, acknowledgement_of_a_duplicate_claims_no_read_behind_it) {
  Dialogue d;
  d.receive(write_only(1000));
  d.receive(read_request(1001, 10));
  d.receive(write_only(1002));
  d.replies();
  d.receive(write_only(1000));
  EXPECT_THAT(d.replies(), ElementsAre(ack(1000, 3))) << "the response to the READ may have been lost";
}

// ---- refusals

TEST(responder, send_without_receive_is_rnr_nakked_and_may_come_again) {
  Dialogue d;
  EXPECT_EQ(d.receive(send_only(1000)), Drop::receive_missing);
  EXPECT_EQ(d.receive(send_only(1001)), Drop::out_of_seq_request);
  EXPECT_THAT(d.replies(), ElementsAre(ack(1000, 0, 0x20 | d.attributes.min_rnr_timer)))
      << "no sequence error for what followed the refused request";
  d.post_recv(1, 100);
  EXPECT_EQ(d.receive(send_only(1000)), Drop::none);
  EXPECT_THAT(d.replies(), ElementsAre(ack(1000, 1)));
  EXPECT_EQ(d.qp->state(), rdma::QpState::rts);
}

struct Refusal {
  const char* name;
  Packet packet;
  std::uint8_t syndrome;
  Drop drop;
};

class Refused : public ::testing::TestWithParam<Refusal> {};

Refusal changed(const char* name, Packet packet, const std::function<void(Packet&)>& change, std::uint8_t syndrome,
                Drop drop) {
  change(packet);
  return {name, packet, syndrome, drop};
}

TEST_P(Refused, with_a_nak_and_the_error_state) {
  Dialogue d;
  d.post_recv(1, 100);
  EXPECT_EQ(d.receive(GetParam().packet), GetParam().drop);
  EXPECT_THAT(d.replies(), ElementsAre(ack(1000, 0, GetParam().syndrome)));
  EXPECT_EQ(d.qp->state(), rdma::QpState::error);
  EXPECT_EQ(d.user.errors.size(), 1U);
  EXPECT_EQ(d.count(GetParam().drop), 1U);
  ASSERT_EQ(d.user.completions.size(), 1U);
  EXPECT_EQ(d.user.completions[0].status, WcStatus::wr_flush_err);
  EXPECT_EQ(d.memory(base, 64), Bytes(64)) << "nothing was written";
  EXPECT_EQ(d.receive(write_only(1000)), Drop::qp_state);
}

INSTANTIATE_TEST_SUITE_P(
    responder, Refused,
    ::testing::Values(
        Refusal{"middle_without_first",
                {.opcode = rc_send_middle, .psn = 1000, .payload = pattern(mtu)},
                nak_invalid,
                Drop::request_invalid},
        Refusal{"last_without_first",
                {.opcode = rc_rdma_write_last, .psn = 1000, .payload = pattern(1)},
                nak_invalid,
                Drop::request_invalid},
        Refusal{"first_shorter_than_mtu",
                {.opcode = rc_send_first, .psn = 1000, .payload = pattern(mtu - 4)},
                nak_invalid,
                Drop::request_invalid},
        Refusal{"only_longer_than_mtu",
                {.opcode = rc_send_only, .psn = 1000, .payload = pattern(mtu + 4)},
                nak_invalid,
                Drop::request_invalid},
        Refusal{"send_longer_than_receive",
                {.opcode = rc_send_only, .psn = 1000, .payload = pattern(101)},
                nak_invalid,
                Drop::request_invalid},
        changed(
            "write_shorter_than_reth", write_only(1000), [](Packet& p) { p.length = 33; }, nak_invalid,
            Drop::request_invalid),
        changed(
            "write_longer_than_reth", write_only(1000), [](Packet& p) { p.length = 31; }, nak_invalid,
            Drop::request_invalid),
        Refusal{"write_first_of_a_message_of_one_packet",
                {.opcode = rc_rdma_write_first,
                 .psn = 1000,
                 .payload = pattern(mtu),
                 .address = base,
                 .rkey = key,
                 .length = mtu},
                nak_invalid,
                Drop::request_invalid},
        Refusal{"read_longer_than_two_gib", read_request(1000, 0x8000'0001), nak_invalid, Drop::request_invalid},
        Refusal{"atomic_not_aligned",
                {.opcode = rc_fetch_add, .psn = 1000, .address = base + 4, .rkey = key, .swap_or_add = 1},
                nak_invalid,
                Drop::request_invalid},
        changed(
            "unknown_key", write_only(1000), [](Packet& p) { p.rkey = key + 1; }, nak_access,
            Drop::request_access_error),
        Refusal{"below_the_region", write_only(1000, pattern(32), base - 1), nak_access, Drop::request_access_error},
        Refusal{"beyond_the_region", write_only(1000, pattern(32), base + 0x10000 - 31), nak_access,
                Drop::request_access_error},
        Refusal{"address_overflow", write_only(1000, pattern(32), ~0ULL - 8), nak_access, Drop::request_access_error},
        Refusal{"read_beyond_the_region", read_request(1000, 0x10001), nak_access, Drop::request_access_error},
        Refusal{"atomic_beyond_the_region",
                {.opcode = rc_compare_swap, .psn = 1000, .address = base + 0x10000, .rkey = key},
                nak_access,
                Drop::request_access_error}),
    [](const auto& row) { return std::string{row.param.name}; });

TEST(responder, last_packet_of_a_write_may_not_be_empty_or_too_long) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{8}, std::size_t{mtu + 4}}) {
    Dialogue d;
    d.receive({.opcode = rc_rdma_write_first,
               .psn = 1000,
               .payload = pattern(mtu),
               .address = base,
               .rkey = key,
               .length = mtu + 4});
    EXPECT_EQ(d.receive({.opcode = rc_rdma_write_last, .psn = 1001, .payload = pattern(size)}), Drop::request_invalid)
        << size;
    EXPECT_THAT(d.replies(), ElementsAre(ack(1001, 0, nak_invalid)));
  }
}

TEST(responder, new_message_inside_another_is_invalid) {
  Dialogue d;
  d.receive({.opcode = rc_rdma_write_first,
             .psn = 1000,
             .payload = pattern(mtu),
             .address = base,
             .rkey = key,
             .length = 2 * mtu});
  EXPECT_EQ(d.receive(write_only(1001)), Drop::request_invalid);
  EXPECT_THAT(d.replies(), ElementsAre(ack(1001, 0, nak_invalid)));
}

TEST(responder, receive_of_a_message_under_way_completes_with_the_cause) {
  Dialogue d;
  d.post_recv(1, mtu);
  d.post_recv(2, mtu);
  d.receive({.opcode = rc_send_first, .psn = 1000, .payload = pattern(mtu)});
  d.receive({.opcode = rc_send_last, .psn = 1001, .payload = pattern(1)});
  ASSERT_EQ(d.user.completions.size(), 2U);
  EXPECT_EQ(d.user.completions[0].status, WcStatus::rem_inv_req_err);
  EXPECT_EQ(d.user.completions[1].status, WcStatus::wr_flush_err);
}

TEST(responder, queue_pair_without_the_access_refuses_the_operation) {
  for (const Packet& packet : {write_only(1000), read_request(1000, 8),
                               Packet{.opcode = rc_fetch_add, .psn = 1000, .address = base, .rkey = key}}) {
    rdma::QpAttr attr = Dialogue::default_attr();
    attr.access = 0;
    Dialogue d{attr};
    EXPECT_EQ(d.receive(packet), Drop::request_invalid);
    EXPECT_THAT(d.replies(), ElementsAre(ack(1000, 0, nak_invalid)));
  }
}

TEST(responder, region_without_the_access_is_an_access_error) {
  for (Packet packet :
       {write_only(1000), read_request(1000, 8), Packet{.opcode = rc_fetch_add, .psn = 1000, .address = base}}) {
    Dialogue d;
    d.endpoint.transport->memory(Endpoint::ghost)
        .add({.addr = base, .length = 64, .key = 0x777, .access = rdma::access::local_write});
    packet.rkey = 0x777;
    EXPECT_EQ(d.receive(packet), Drop::request_access_error);
    EXPECT_THAT(d.replies(), ElementsAre(ack(1000, 0, nak_access)));
  }
}

TEST(responder, receive_into_no_memory_is_our_own_error) {
  Dialogue d;
  d.endpoint.transport->post_recv(*d.qp, {.wr_id = 1, .local = {base, 64, 0x4321}});
  EXPECT_EQ(d.receive(send_only(1000)), Drop::request_operation_error);
  EXPECT_THAT(d.replies(), ElementsAre(ack(1000, 0, nak_operational)));
}

TEST(responder, more_reads_than_agreed_are_invalid) {
  rdma::QpAttr attr = Dialogue::default_attr();
  attr.max_dest_rd_atomic = 2;
  Dialogue d{attr};
  EXPECT_EQ(d.receive(read_request(1000, 8)), Drop::none);
  EXPECT_EQ(d.receive(read_request(1001, 8)), Drop::none);
  EXPECT_EQ(d.receive(read_request(1002, 8)), Drop::request_invalid);
  EXPECT_THAT(d.replies(),
              ElementsAre(response(rc_rdma_read_response_only, 1000, Bytes(8), 1),
                          response(rc_rdma_read_response_only, 1001, Bytes(8), 2), ack(1002, 2, nak_invalid)));
}

TEST(responder, copy_of_an_old_read_does_not_take_the_place_of_a_new_one) {
  rdma::QpAttr attr = Dialogue::default_attr();
  attr.max_dest_rd_atomic = 1;
  Dialogue d{attr};
  d.receive(read_request(1000, 8));
  d.replies();
  EXPECT_EQ(d.receive(read_request(1000, 8)), Drop::duplicate_request);
  EXPECT_EQ(d.receive(read_request(1001, 8)), Drop::none) << "sent, so the requester has had its answer";
  EXPECT_THAT(d.replies(), ElementsAre(response(rc_rdma_read_response_only, 1001, Bytes(8), 2)));
}

TEST(responder, read_of_two_gib_takes_half_of_all_psns) {
  Dialogue d;
  d.endpoint.transport->memory(Endpoint::ghost)
      .add({.addr = 0, .length = 1ULL << 31U, .key = 0x77, .access = rdma::access::remote_read});
  Packet read = read_request(1000, 1U << 31U, 0);
  read.rkey = 0x77;
  EXPECT_EQ(d.receive(read), Drop::none);
  EXPECT_EQ(d.receive(read), Drop::duplicate_request);
  EXPECT_EQ(d.receive(write_only(1000 + (1U << 23U))), Drop::none);
}

TEST(responder, no_read_at_all_when_none_was_agreed) {
  rdma::QpAttr attr = Dialogue::default_attr();
  attr.max_dest_rd_atomic = 0;
  Dialogue d{attr};
  EXPECT_EQ(d.receive(read_request(1000, 8)), Drop::request_invalid);
  EXPECT_THAT(d.replies(), ElementsAre(ack(1000, 0, nak_invalid)));
}

TEST(responder, region_that_goes_away_under_a_read_is_an_access_error) {
  Dialogue d;
  d.receive(read_request(1000, 2 * mtu));
  d.endpoint.transport->memory(Endpoint::ghost).remove(key);
  EXPECT_THAT(d.replies(), ElementsAre(ack(1000, 1, nak_access)));
  EXPECT_EQ(d.qp->state(), rdma::QpState::error);
}

// ---- progress, observer, resources

TEST(responder, long_reads_of_two_queue_pairs_share_the_turns) {
  Dialogue d;
  rdma::QpAttr attr = Dialogue::default_attr();
  rdma::Qp* other = d.endpoint.transport->create_qp(Endpoint::ghost, attr, d.user);
  d.endpoint.transport->connect_qp(*other, attr);
  d.receive(read_request(1000, 64 * mtu));
  d.endpoint.receive(encode(read_request(1000, 8), reversed(attr.path), other->qpn()), d.now);
  const std::vector<Packet> replies = d.replies();
  ASSERT_EQ(replies.size(), 65U);
  EXPECT_EQ(replies[32].opcode, rc_rdma_read_response_only) << "after one burst of the long one";
}

TEST(responder, deliveries_carry_the_crc_of_the_payload) {
  struct Observer final : rdma::DeliveryObserver {
    std::vector<rdma::Delivery> seen;
    void on_delivery(const rdma::Delivery& delivery, Instant) noexcept override { seen.push_back(delivery); }
  } observer;
  Dialogue d;
  d.endpoint.transport->set_observer(&observer);
  const Bytes data = pattern(mtu + 9);
  d.receive({.opcode = rc_rdma_write_first,
             .psn = 1000,
             .payload = part(data, 0, mtu),
             .address = base,
             .rkey = key,
             .length = mtu + 9});
  d.receive({.opcode = rc_rdma_write_last, .psn = 1001, .payload = part(data, mtu, 9)});
  d.receive(read_request(1002, mtu + 9));
  const auto crc = static_cast<std::uint32_t>(
      ::crc32(0, reinterpret_cast<const Bytef*>(data.data()), static_cast<uInt>(data.size())));
  ASSERT_EQ(observer.seen.size(), 2U);
  EXPECT_EQ(observer.seen[0].opcode, rdma::WrOpcode::rdma_write);
  EXPECT_EQ(observer.seen[0].length, mtu + 9);
  EXPECT_EQ(observer.seen[0].payload_crc32, crc);
  EXPECT_EQ(observer.seen[1].opcode, rdma::WrOpcode::rdma_read);
  EXPECT_EQ(observer.seen[1].payload_crc32, crc);
}

TEST(responder, queue_pair_ready_to_receive_answers_before_it_may_send) {
  Dialogue d;
  rdma::QpAttr attr = Dialogue::default_attr();
  rdma::Qp* qp = d.endpoint.transport->create_qp(Endpoint::ghost, attr, d.user);
  EXPECT_EQ(d.endpoint.receive(encode(write_only(1000), reversed(attr.path), qp->qpn()), d.now), Drop::qp_state);
  d.endpoint.transport->connect_qp(*qp, attr, false);
  EXPECT_FALSE(d.endpoint.transport->post_send(*qp, {}, d.now));
  EXPECT_EQ(d.endpoint.receive(encode(write_only(1000), reversed(attr.path), qp->qpn()), d.now), Drop::none);
  EXPECT_THAT(d.replies(), ElementsAre(ack(1000, 1)));
  d.endpoint.transport->ready_to_send(*qp);
  EXPECT_TRUE(d.endpoint.transport->post_send(*qp, {}, d.now));
}

TEST(responder, user_may_destroy_the_queue_pair_in_its_completion) {
  Dialogue d;
  d.user.then = [&d](rdma::Qp& qp, const rdma::Completion&, Instant) { d.endpoint.transport->destroy_qp(qp); };
  d.post_recv(1, 100);
  d.receive(send_only(1000));
  EXPECT_THAT(d.replies(), IsEmpty());
  EXPECT_EQ(d.endpoint.transport->qp_count(), 0U);
}

}  // namespace
}  // namespace nbx::test
