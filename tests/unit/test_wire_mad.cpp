// CM datagrams bit by bit: where the standard's tables put each field, and which bits they reserve.
#include <gtest/gtest.h>

#include <map>

#include "support/hex.hpp"
#include "wire/mad.hpp"

namespace nbx::wire {
namespace {

using test::Bytes;
using test::to_hex;

using Mad = std::array<std::byte, mad_size>;

/// A MAD of `attribute` whose message bytes are all `fill`.
Mad filled(CmAttribute attribute, std::uint8_t fill) {
  Mad mad;
  mad.fill(std::byte{fill});
  const Bytes header = test::from_hex("01 07 02 03 0000 0000 0123456789abcdef 0000 0000 00000000");
  std::copy(header.begin(), header.end(), mad.begin());
  mad[17] = static_cast<std::byte>(attribute);
  return mad;
}

// Reserved bits by byte of the message (tables 99 to 106, 12.11), as masks.
using Reserved = std::map<std::size_t, unsigned>;

Reserved reserved_bytes(std::initializer_list<std::pair<std::size_t, std::size_t>> ranges) {
  Reserved out;
  for (const auto& [first, last] : ranges) {
    for (std::size_t i = first; i <= last; ++i) {
      out[i] = 0xff;
    }
  }
  return out;
}

template <class Message>
void expect_all_bits_but_reserved(std::optional<Message> (*decode)(ConstBytes) noexcept, const Reserved& reserved) {
  const Mad ones = filled(Message::attribute, 0xff);
  const auto message = decode(ones);
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->transaction_id, 0x0123456789abcdefULL);
  Mad wanted = ones;
  for (const auto& [at, mask] : reserved) {
    wanted[sizeof(MadHeader) + at] &= static_cast<std::byte>(~mask);
  }
  Mad again{};
  encode(*message, again);
  EXPECT_EQ(to_hex(again), to_hex(wanted));
}

TEST(Cm, EveryBitThatIsNotReservedIsAField) {
  Reserved req = reserved_bytes({{4, 7}, {24, 27}});
  for (const std::size_t path : {52, 96}) {
    req[path + 38] = 0x0f;  // between flow label and packet rate
    req[path + 39] = 0xc0;
    req[path + 42] = 0x07;
    req[path + 43] = 0x07;
  }
  expect_all_bits_but_reserved(decode_req, req);
  Reserved rep = reserved_bytes({{15, 15}, {19, 19}, {23, 23}});
  rep[27] = 0x0f;
  expect_all_bits_but_reserved(decode_rep, rep);
  expect_all_bits_but_reserved(decode_rtu, {});
  expect_all_bits_but_reserved(decode_rej, {{8, 0x3f}, {9, 0x01}});
  expect_all_bits_but_reserved(decode_mra, {{8, 0x3f}, {9, 0x07}});
  expect_all_bits_but_reserved(decode_dreq, {{11, 0xff}});
  expect_all_bits_but_reserved(decode_drep, {});
  expect_all_bits_but_reserved(decode_sidr_req, reserved_bytes({{6, 7}}));
  expect_all_bits_but_reserved(decode_sidr_rep, reserved_bytes({{6, 7}, {11, 11}}));
}

/// Expects `head` at the start of the message and zeros behind it.
template <class Message>
void expect_message(const Message& message, std::string_view head) {
  Mad mad;
  mad.fill(std::byte{0xee});
  encode(message, mad);
  Bytes wanted = test::from_hex(head);
  wanted.resize(mad_size - sizeof(MadHeader));
  EXPECT_EQ(to_hex(ConstBytes{mad}.subspan(sizeof(MadHeader))), to_hex(wanted));
}

TEST(Cm, RejLiesWhereTable101Says) {
  CmRej rej{};
  rej.local_comm_id = 0x11223344;
  rej.remote_comm_id = 0x55667788;
  rej.rejected = CmAnswered::rep;
  rej.info_size = 0x05;
  rej.reason = RejReason::consumer_reject;
  expect_message(rej, "11223344 55667788 40 0a 001c");
  Mad mad{};
  encode(rej, mad);
  EXPECT_EQ(decode_rej(mad), rej);
}

TEST(Cm, MraLiesWhereTable100Says) {
  CmMra mra{};
  mra.local_comm_id = 1;
  mra.remote_comm_id = 2;
  mra.answered = CmAnswered::other;
  mra.service_timeout = 0x15;
  expect_message(mra, "00000001 00000002 80 a8");
}

TEST(Cm, DreqLiesWhereTable105Says) {
  CmDreq dreq{};
  dreq.local_comm_id = 1;
  dreq.remote_comm_id = 2;
  dreq.remote_qpn = {0xabcdef};
  expect_message(dreq, "00000001 00000002 abcdef 00");
}

TEST(Cm, SidrLiesWhere12_11Says) {
  CmSidrReq req{};
  req.request_id = 7;
  req.pkey = 0xffff;
  req.service_id = service_id_of(PortSpace::udp, 4660);
  req.private_data[0] = std::byte{0xaa};
  expect_message(req, "00000007 ffff 0000 0000000001111234 aa");
  CmSidrRep rep{};
  rep.request_id = 7;
  rep.status = SidrStatus::no_qp_available;
  rep.info_size = 9;
  rep.qpn = {0x123456};
  rep.service_id = req.service_id;
  rep.qkey = 0x01234567;
  rep.additional_info[0] = std::byte{0xbb};
  expect_message(rep, "00000007 03 09 0000 123456 00 0000000001111234 01234567 bb");
}

TEST(Cm, OnlyWholeCmDatagramsAreDecoded) {
  const Mad good = filled(CmAttribute::rtu, 0);
  EXPECT_TRUE(decode_rtu(good).has_value());
  EXPECT_FALSE(decode_req(good).has_value());
  EXPECT_FALSE(decode_rtu(ConstBytes{good}.first(mad_size - 1)).has_value());
  for (const std::size_t at : {0, 1, 2, 3, 16}) {  // base version, class, class version, method, attribute
    Mad bad = good;
    bad[at] ^= std::byte{0x40};
    EXPECT_FALSE(decode_cm_header(bad).has_value()) << at;
  }
  EXPECT_EQ(decode_cm_header(filled(CmAttribute::apr, 0))->attribute, CmAttribute::apr);
}

TEST(RdmaIpCm, Ipv6AndForeignVersions) {
  const RdmaIpCm header{0, 0, 4660, *parse_ip("fd00::1"), *parse_ip("fd00::9")};
  std::array<std::byte, RdmaIpCm::size> bytes{};
  encode(header, bytes);
  EXPECT_EQ(to_hex(bytes), "00601234fd000000000000000000000000000001fd000000000000000000000000000009");
  EXPECT_EQ(decode_rdma_ip_cm(bytes), header);
  bytes[1] = std::byte{0x50};
  EXPECT_FALSE(decode_rdma_ip_cm(bytes).has_value());
  EXPECT_FALSE(decode_rdma_ip_cm(ConstBytes{bytes}.first(35)).has_value());
}

TEST(RdmaIpCm, ServiceIdsOutsideThePortSpaces) {
  EXPECT_FALSE(rdma_port_of(0).has_value());
  EXPECT_FALSE(rdma_port_of(0x1000'0000'0106'0001ULL).has_value());
  EXPECT_EQ(rdma_port_of(0x0000'0000'0111'ffffULL), (RdmaPort{PortSpace::udp, 0xffff}));
}

}  // namespace
}  // namespace nbx::wire
