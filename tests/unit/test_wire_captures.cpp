// What two Linux kernels sent to each other, read and written again.
#include <gtest/gtest.h>

#include <set>

#include "support/pcap_file.hpp"
#include "support/raw_roce.hpp"
#include "wire/build.hpp"
#include "wire/build_l3.hpp"
#include "wire/ethernet.hpp"
#include "wire/format.hpp"
#include "wire/icrc.hpp"
#include "wire/ip.hpp"
#include "wire/mad.hpp"
#include "wire/parse.hpp"

namespace nbx::wire {
namespace {

using test::Bytes;
using test::PcapRecord;
using test::read_pcap;
using test::to_hex;

std::vector<PcapRecord> capture(const char* name) {
  return read_pcap(std::string{NBX_CAPTURES} + "/" + name + ".pcap");
}

struct Expected {
  const char* name;
  std::size_t frames;
  std::size_t roce;  // as tshark counts them: udp.dstport == 4791
};

class Captures : public testing::TestWithParam<Expected> {};

TEST_P(Captures, EveryFrameIsAcceptedAndEveryIcrcIsRight) {
  std::size_t roce = 0;
  const auto records = capture(GetParam().name);
  for (const PcapRecord& record : records) {
    Parsed p;
    ASSERT_EQ(name(parse(record.bytes, {}, p)), name(Drop::none)) << format(record.bytes);
    if (p.kind == FrameKind::roce_v2) {
      ++roce;
      const std::size_t end = p.end_offset - icrc_size;
      const std::uint32_t ours = icrc(record.bytes, p.l3_offset, p.bth_offset, end, p.ipv6);
      EXPECT_EQ(ours, load_icrc(record.bytes, end));
      EXPECT_EQ(ours, test::zlib_icrc(record.bytes, p.l3_offset, end, p.ipv6));
    }
  }
  EXPECT_EQ(records.size(), GetParam().frames);
  EXPECT_EQ(roce, GetParam().roce);
}

/// The frame that our builder makes of the kernel's own fields.
Bytes rebuild(const Bytes& frame, const Parsed& p) {
  const auto& bth = *overlay<Bth>(ConstBytes{frame}.subspan(p.bth_offset));
  Path path;
  path.source_mac = source_mac(frame);
  path.destination_mac = destination_mac(frame);
  path.source_ip = source_ip(frame, p);
  path.destination_ip = destination_ip(frame, p);
  path.udp_source_port = p.udp_source_port;
  path.traffic_class = p.traffic_class;
  path.flow_label = p.ipv6 ? overlay<Ipv6Header>(ConstBytes{frame}.subspan(p.l3_offset))->flow_label() : 0;
  path.hop_limit = p.ipv6 ? overlay<Ipv6Header>(ConstBytes{frame}.subspan(p.l3_offset))->hop_limit
                          : overlay<Ipv4Header>(ConstBytes{frame}.subspan(p.l3_offset))->ttl;
  const Encapsulation encapsulation{path};
  const std::size_t behind_bth = p.bth_offset + sizeof(Bth);
  const std::size_t size = p.payload_offset + p.payload_size - behind_bth;
  Bytes out(encapsulation.frame_size(size));
  const BthFields fields{
      static_cast<Opcode>(p.opcode), p.dest_qpn, p.psn, p.pkey, p.solicited, p.ack_requested, bth.mig_req(), p.becn};
  const std::size_t at = encapsulation.begin(out, fields, size);
  std::copy_n(frame.begin() + static_cast<std::ptrdiff_t>(behind_bth), size,
              out.begin() + static_cast<std::ptrdiff_t>(at));
  encapsulation.seal(out, size);
  return out;
}

TEST_P(Captures, OurBuilderMakesTheKernelsFrames) {
  for (const PcapRecord& record : capture(GetParam().name)) {
    Parsed p;
    ASSERT_EQ(parse(record.bytes, {}, p), Drop::none);
    if (p.kind != FrameKind::roce_v2) {
      continue;
    }
    Bytes kernel = record.bytes;
    if (!p.ipv6) {  // the kernel numbers its IPv4 packets, which the ICRC covers; we do not
      test::put16(kernel, p.l3_offset + 4U, 0);
      test::put_ipv4_checksum(kernel, p.l3_offset);
      test::put_icrc(kernel, p.l3_offset, p.end_offset - icrc_size, false);
    }
    ASSERT_EQ(to_hex(rebuild(record.bytes, p)), to_hex(kernel)) << format(record.bytes);
  }
}

template <class Message>
void expect_same_bytes(const std::optional<Message>& message, ConstBytes mad) {
  ASSERT_TRUE(message.has_value());
  std::array<std::byte, mad_size> again{};
  encode(*message, again);
  EXPECT_EQ(to_hex(again), to_hex(mad.first(mad_size)));
}

void expect_mad_round_trip(ConstBytes mad, CmAttribute attribute) {
  switch (attribute) {
    case CmAttribute::req:
      return expect_same_bytes(decode_req(mad), mad);
    case CmAttribute::rep:
      return expect_same_bytes(decode_rep(mad), mad);
    case CmAttribute::rtu:
      return expect_same_bytes(decode_rtu(mad), mad);
    case CmAttribute::dreq:
      return expect_same_bytes(decode_dreq(mad), mad);
    case CmAttribute::drep:
      return expect_same_bytes(decode_drep(mad), mad);
    case CmAttribute::mra:
    case CmAttribute::rej:
    case CmAttribute::sidr_req:
    case CmAttribute::sidr_rep:
    case CmAttribute::lap:
    case CmAttribute::apr:
      FAIL() << "not in these captures: " << name(attribute);
  }
}

TEST_P(Captures, EveryCmMessageIsEncodedAsTheKernelDid) {
  std::set<CmAttribute> seen;
  for (const PcapRecord& record : capture(GetParam().name)) {
    Parsed p;
    ASSERT_EQ(parse(record.bytes, {}, p), Drop::none);
    if (p.op_class != OpcodeClass::cm) {
      continue;
    }
    const ConstBytes mad = payload(record.bytes, p);
    const auto header = decode_cm_header(mad);
    ASSERT_TRUE(header.has_value());
    seen.insert(header->attribute);
    expect_mad_round_trip(mad, header->attribute);
  }
  const std::size_t kinds = std::string_view{GetParam().name} == "rxe-pingpong" ? 0 : 5;
  EXPECT_EQ(seen.size(), kinds);
}

INSTANTIATE_TEST_SUITE_P(Rxe, Captures,
                         testing::Values(Expected{"rxe-ops", 46, 41}, Expected{"rxe-cm", 305, 301},
                                         Expected{"rxe-pingpong", 315, 256}, Expected{"rxe-perftest", 295, 139},
                                         Expected{"rxe-loss", 75, 58}),
                         [](const auto& row) { return std::string{row.param.name}.substr(4); });

template <class Message>
std::optional<Message> first_message(const char* file, std::optional<Message> (*decode)(ConstBytes) noexcept) {
  for (const PcapRecord& record : capture(file)) {
    Parsed p;
    if (parse(record.bytes, {}, p) == Drop::none && p.op_class == OpcodeClass::cm) {
      if (const auto message = decode(payload(record.bytes, p))) {
        return message;
      }
    }
  }
  return std::nullopt;
}

// Values as tshark prints them.
TEST(CaptureValues, ReqOfRdmaCm) {
  const auto req = first_message("rxe-ops", decode_req);
  ASSERT_TRUE(req.has_value());
  EXPECT_EQ(req->local_comm_id, 0xf24b0b9fU);
  EXPECT_EQ(req->local_ca_guid, 0x505400fffe000002ULL);
  EXPECT_EQ(req->local_qpn, Qpn{0x11});
  EXPECT_EQ(req->responder_resources, 4);
  EXPECT_EQ(req->initiator_depth, 4);
  EXPECT_EQ(req->remote_cm_response_timeout, 0x14);
  EXPECT_EQ(req->local_cm_response_timeout, 0x14);
  EXPECT_EQ(req->starting_psn, Psn{0xe3013a});
  EXPECT_EQ(req->retry_count, 7);
  EXPECT_EQ(req->rnr_retry_count, 7);
  EXPECT_EQ(req->pkey, 0xffff);
  EXPECT_EQ(req->path_mtu, 5);
  EXPECT_EQ(req->max_cm_retries, 15);
  EXPECT_EQ(req->primary.local_lid, 0xffff);
  EXPECT_EQ(req->primary.local_gid, *parse_ip("10.77.0.2"));
  EXPECT_EQ(req->primary.remote_gid, *parse_ip("10.77.0.1"));
  EXPECT_EQ(req->primary.hop_limit, 64);
  EXPECT_EQ(req->primary.local_ack_timeout, 0x13);
  const auto port = rdma_port_of(req->service_id);
  ASSERT_TRUE(port.has_value());
  EXPECT_EQ(*port, (RdmaPort{PortSpace::tcp, 0x1d2f}));
  EXPECT_EQ(service_id_of(PortSpace::tcp, 0x1d2f), req->service_id);
  const auto ip_cm = decode_rdma_ip_cm(req->private_data);
  ASSERT_TRUE(ip_cm.has_value());
  EXPECT_EQ(*ip_cm, (RdmaIpCm{0, 0, 0xdb18, *parse_ip("10.77.0.2"), *parse_ip("10.77.0.1")}));
  std::array<std::byte, RdmaIpCm::size> again{};
  encode(*ip_cm, again);
  EXPECT_EQ(to_hex(again), to_hex(ConstBytes{req->private_data}.first(RdmaIpCm::size)));
}

TEST(CaptureValues, RepOfRdmaCm) {
  const auto rep = first_message("rxe-ops", decode_rep);
  ASSERT_TRUE(rep.has_value());
  EXPECT_EQ(rep->local_comm_id, 0x44fc3befU);
  EXPECT_EQ(rep->remote_comm_id, 0xf24b0b9fU);
  EXPECT_EQ(rep->local_qpn, Qpn{0x11});
  EXPECT_EQ(rep->starting_psn, Psn{0x1ddb0f});
  EXPECT_EQ(rep->responder_resources, 4);
  EXPECT_EQ(rep->initiator_depth, 4);
  EXPECT_EQ(rep->target_ack_delay, 15);
  EXPECT_EQ(rep->rnr_retry_count, 7);
  EXPECT_FALSE(rep->srq);
  EXPECT_EQ(rep->local_ca_guid, 0x505400fffe000001ULL);
}

// The kernel derives the source port of a connection's packets from the flow label of its REQ.
TEST(CaptureValues, SourcePortFollowsTheFlowLabel) {
  const auto req = first_message("rxe-ops", decode_req);
  ASSERT_TRUE(req.has_value());
  std::set<std::uint16_t> ports;
  for (const PcapRecord& record : capture("rxe-ops")) {
    Parsed p;
    if (parse(record.bytes, {}, p) == Drop::none && p.kind == FrameKind::roce_v2 && p.op_class != OpcodeClass::cm) {
      ports.insert(p.udp_source_port);
    }
  }
  EXPECT_EQ(ports, std::set<std::uint16_t>{udp_source_port_of(req->primary.flow_label)});
}

TEST(CaptureValues, NakOfALostPacket) {
  unsigned naks = 0;
  for (const PcapRecord& record : capture("rxe-loss")) {
    Parsed p;
    ASSERT_EQ(parse(record.bytes, {}, p), Drop::none);
    if (p.op_class == OpcodeClass::nak) {
      ++naks;
      EXPECT_EQ(p.syndrome, syndrome::nak_psn_sequence_error);
    }
  }
  EXPECT_GT(naks, 0U);
}

/// The first frame that `wanted` accepts.
template <class Wanted>
Bytes find_frame(const char* file, const Wanted& wanted) {
  for (const PcapRecord& record : capture(file)) {
    Parsed p;
    if (parse(record.bytes, {}, p) == Drop::none && wanted(record.bytes, p)) {
      return record.bytes;
    }
  }
  return {};
}

Parsed parsed(const Bytes& frame) {
  Parsed p;
  EXPECT_EQ(parse(frame, {}, p), Drop::none);
  return p;
}

TEST(CaptureAnswers, ArpReplyIsTheKernels) {
  const auto arp = [](std::uint16_t operation) {
    return [operation](const Bytes& frame, const Parsed& p) {
      return p.kind == FrameKind::arp &&
             overlay<ArpPacket>(ConstBytes{frame}.subspan(p.l3_offset))->operation.value() == operation;
    };
  };
  const Bytes request = find_frame("rxe-pingpong", arp(ArpPacket::request));
  Bytes reply = find_frame("rxe-pingpong", arp(ArpPacket::reply));
  const LinkIdentity server{*parse_mac("52:54:00:00:00:01"), *parse_ip("10.77.0.1")};
  Bytes out(l3_frame_max);
  out.resize(build_arp_reply(out, request, parsed(request), server));
  reply.resize(ethernet_frame_min);  // the virtual device did not pad
  EXPECT_EQ(to_hex(out), to_hex(reply));

  const LinkIdentity client{*parse_mac("52:54:00:00:00:02"), *parse_ip("10.77.0.2")};
  Bytes asked(l3_frame_max);
  asked.resize(build_arp_request(asked, client, server.ip));
  Bytes kernel_request = request;
  kernel_request.resize(ethernet_frame_min);
  EXPECT_EQ(to_hex(asked), to_hex(kernel_request));
}

TEST(CaptureAnswers, NeighbourDiscoveryIsTheKernels) {
  const auto target = [](const char* ip, FrameKind kind) {
    return [=](const Bytes& frame, const Parsed& p) {
      return p.kind == kind &&
             overlay<NeighborMessage>(ConstBytes{frame}.subspan(p.l4_offset))->target == *parse_ip(ip);
    };
  };
  const Bytes solicit = find_frame("rxe-pingpong", target("fe80::5054:ff:fe00:2", FrameKind::nd_solicit));
  const Bytes advert = find_frame("rxe-pingpong", target("fe80::5054:ff:fe00:2", FrameKind::nd_advert));
  const LinkIdentity server{*parse_mac("52:54:00:00:00:01"), *parse_ip("fe80::5054:ff:fe00:1")};
  const LinkIdentity client{*parse_mac("52:54:00:00:00:02"), *parse_ip("fe80::5054:ff:fe00:2")};
  Bytes out(l3_frame_max);
  out.resize(build_nd_solicit(out, server, client.ip));
  EXPECT_EQ(to_hex(out), to_hex(solicit));
  Bytes answer(l3_frame_max);
  answer.resize(build_nd_advert(answer, solicit, parsed(solicit), client));
  EXPECT_EQ(to_hex(answer), to_hex(advert));
  EXPECT_EQ(neighbor_mac(solicit, parsed(solicit)), server.mac);
  EXPECT_EQ(neighbor_mac(advert, parsed(advert)), client.mac);
}

}  // namespace
}  // namespace nbx::wire
