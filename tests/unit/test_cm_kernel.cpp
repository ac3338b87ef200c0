// The kernel as oracle: one side of every rdma_cm connection in the captures is played to a ghost in place of the other
// side, and the ghost's messages must be the kernel's, apart from what a CM may choose: its communication id, its
// starting PSN, its queue pair, and the transaction id of a DREQ.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/cm_harness.hpp"
#include "support/pcap_file.hpp"

namespace nbx::rdma {
namespace {

using test::Bytes;
using test::CmHost;

/// A CM message of a capture.
struct Recorded {
  wire::Path path;  // of the packet
  Bytes mad;
};

/// The PSN of the first request that `qpn` gets in `file` behind the CM message `rep`.
std::optional<Psn> first_psn_to(Qpn qpn, const Recorded& rep, const std::string& file) {
  bool connected = false;
  for (const auto& record : test::read_pcap(NBX_CAPTURES "/" + file)) {
    wire::Parsed parsed;
    if (wire::parse(record.bytes, {}, parsed) != Drop::none || parsed.kind != wire::FrameKind::roce_v2) {
      continue;
    }
    connected = connected || std::ranges::equal(wire::payload(record.bytes, parsed), rep.mad);
    const bool request = !parsed.op().has(wire::ext::aeth);
    if (connected && request && parsed.dest_qpn == qpn &&
        wire::destination_ip(record.bytes, parsed) == rep.path.source_ip) {
      return parsed.psn;
    }
  }
  return std::nullopt;
}

/// The CM messages of `file`, connection by connection, each from its REQ on.
std::vector<std::vector<Recorded>> connections_in(const std::string& file) {
  std::vector<std::vector<Recorded>> connections;
  for (const auto& record : test::read_pcap(NBX_CAPTURES "/" + file)) {
    wire::Parsed parsed;
    if (wire::parse(record.bytes, {}, parsed) != Drop::none || parsed.kind != wire::FrameKind::roce_v2 ||
        parsed.dest_qpn != gsi_qpn) {
      continue;
    }
    const ConstBytes mad = wire::payload(record.bytes, parsed);
    wire::Path path;
    path.source_mac = wire::source_mac(record.bytes);
    path.destination_mac = wire::destination_mac(record.bytes);
    path.source_ip = wire::source_ip(record.bytes, parsed);
    path.destination_ip = wire::destination_ip(record.bytes, parsed);
    path.udp_source_port = parsed.udp_source_port;
    if (wire::decode_cm_header(mad).value().attribute == wire::CmAttribute::req) {
      connections.emplace_back();
    }
    // A REQ says in its first word which connection it is about, every other message in its first or second.
    const auto client_id = [](ConstBytes any) { return test::to_hex(any.subspan(24, 4)); };
    const auto of_client = [&](const std::vector<Recorded>& c) {
      return c.empty() || client_id(c[0].mad) == client_id(mad) || client_id(c[0].mad) == client_id(mad.subspan(4));
    };
    std::ranges::find_if(connections, of_client)->push_back({path, {mad.begin(), mad.end()}});
  }
  return connections;
}

template <class Message>
Message decoded(const Recorded& recorded) {
  return test::decode_mad<Message>(recorded.mad).value();
}

/// What the two CMs of one connection call it.
struct Names {
  std::uint32_t kernel_id = 0;  // of the side that the ghost plays
  Qpn kernel_qpn{};
  std::uint32_t ghost_id = 0;
  Qpn ghost_qpn{};
};

class KernelCm : public testing::TestWithParam<const char*> {
 protected:
  struct Sent {
    wire::Path path;
    Bytes mad;
  };

  void receive(CmHost& host, const Recorded& recorded, const Bytes& mad) {
    host.cm.on_mad(CmHost::ghost, mad, test::reversed(recorded.path), now);
  }
  /// A recorded message to the ghost, with the ghost's names in place of the kernel's.
  template <class Message>
  void play(CmHost& host, const Recorded& recorded, const Names& names) {
    auto message = decoded<Message>(recorded);
    ASSERT_EQ(message.remote_comm_id, names.kernel_id);
    message.remote_comm_id = names.ghost_id;
    if constexpr (requires { message.remote_qpn; }) {
      ASSERT_EQ(message.remote_qpn, names.kernel_qpn);
      message.remote_qpn = names.ghost_qpn;
    }
    receive(host, recorded, test::encode_mad(message));
  }
  template <class Message>
  Message sent(CmHost& host, const wire::Path& path) {
    const auto frames = host.endpoint.sent(now);
    EXPECT_EQ(frames.size(), 1U);
    wire::Parsed parsed;
    EXPECT_EQ(wire::parse(frames.at(0), {}, parsed), Drop::none);
    EXPECT_EQ(wire::source_ip(frames[0], parsed), path.source_ip);
    EXPECT_EQ(wire::destination_mac(frames[0]), path.destination_mac);
    const auto message = test::decode_mad<Message>(wire::payload(frames[0], parsed));
    EXPECT_TRUE(message);
    return message.value_or(Message{});
  }
  /// Plays the end of a connection, whoever asks for it.
  void compare_end(CmHost& host, ConnectionId id, const Recorded& dreq, const Recorded& drep, const Names& names) {
    const wire::Path& side = names_side(dreq, names) ? dreq.path : drep.path;
    if (!names_side(dreq, names)) {
      play<wire::CmDreq>(host, dreq, names);
      auto expected = decoded<wire::CmDrep>(drep);
      expected.local_comm_id = names.ghost_id;
      EXPECT_EQ(sent<wire::CmDrep>(host, side), expected);
      return;
    }
    host.cm.disconnect(id, now);
    auto expected = decoded<wire::CmDreq>(dreq);
    const auto asked = sent<wire::CmDreq>(host, side);
    expected.local_comm_id = names.ghost_id;
    expected.transaction_id = asked.transaction_id;
    EXPECT_EQ(asked, expected);
    play<wire::CmDrep>(host, drep, names);
  }
  static bool names_side(const Recorded& dreq, const Names& names) {
    return decoded<wire::CmDreq>(dreq).local_comm_id == names.kernel_id;
  }

  void compare_passive(const std::vector<Recorded>& messages);
  void compare_active(const std::vector<Recorded>& messages);

  Instant now{};
};

void KernelCm::compare_passive(const std::vector<Recorded>& messages) {
  const auto req = decoded<wire::CmReq>(messages.at(0));
  auto expected = decoded<wire::CmRep>(messages.at(1));
  CmHost host;
  host.accept_param = {.responder_resources = expected.responder_resources,
                       .initiator_depth = expected.initiator_depth,
                       .rnr_retry_count = expected.rnr_retry_count,
                       .starting_psn = {},
                       .private_data = expected.private_data};
  host.qp_attr.end_to_end_credits = expected.end_to_end_flow_control;
  host.cm.listen(CmHost::ghost, req.service_id, host);
  receive(host, messages[0], messages[0].mad);
  const auto rep = sent<wire::CmRep>(host, messages[1].path);
  Names names{expected.local_comm_id, expected.local_qpn, rep.local_comm_id, rep.local_qpn};
  expected.local_comm_id = rep.local_comm_id;
  expected.local_qpn = rep.local_qpn;
  expected.starting_psn = rep.starting_psn;
  EXPECT_EQ(rep, expected);
  EXPECT_EQ(host.qps.at(host.asked)->attr().rq_psn, rep.starting_psn);
  EXPECT_EQ(host.qps.at(host.asked)->attr().sq_psn, req.starting_psn);
  play<wire::CmRtu>(host, messages.at(2), names);
  EXPECT_TRUE(host.endpoint.sent(now).empty());
  ASSERT_EQ(host.log, std::vector<std::string>{"established"});
  if (messages.size() > 4) {
    compare_end(host, host.asked, messages[3], messages[4], names);
    EXPECT_EQ(host.log.size(), 2U);
  }
  EXPECT_EQ(host.count(Drop::mad_unexpected) + host.count(Drop::mad_malformed), 0U);
}

void KernelCm::compare_active(const std::vector<Recorded>& messages) {
  auto expected = decoded<wire::CmReq>(messages.at(0));
  const auto header = wire::decode_rdma_ip_cm(expected.private_data).value();
  CmHost host;
  const ConnectParam param{.service_id = expected.service_id,
                           .path = messages[0].path,
                           .path_mtu = 128U << expected.path_mtu,
                           .responder_resources = expected.responder_resources,
                           .initiator_depth = expected.initiator_depth,
                           .local_ack_timeout = expected.primary.local_ack_timeout,
                           .retry_count = expected.retry_count,
                           .rnr_retry_count = expected.rnr_retry_count,
                           .source_port = header.source_port,
                           .private_data = ConstBytes{expected.private_data}.subspan(wire::RdmaIpCm::size)};
  host.qp_attr.end_to_end_credits = expected.end_to_end_flow_control;
  const ConnectionId id = host.connect(param, now);
  const auto req = sent<wire::CmReq>(host, messages[0].path);
  Names names{expected.local_comm_id, expected.local_qpn, req.local_comm_id, req.local_qpn};
  expected.transaction_id = req.transaction_id;
  expected.local_comm_id = req.local_comm_id;
  expected.local_qpn = req.local_qpn;
  expected.starting_psn = req.starting_psn;
  EXPECT_EQ(req, expected);
  play<wire::CmRep>(host, messages.at(1), names);
  const auto rep = decoded<wire::CmRep>(messages[1]);
  EXPECT_EQ(host.qps.at(id)->attr().sq_psn, first_psn_to(rep.local_qpn, messages[1], GetParam()));
  EXPECT_EQ(host.qps.at(id)->attr().rq_psn, req.starting_psn);
  auto rtu_expected = decoded<wire::CmRtu>(messages.at(2));
  rtu_expected.transaction_id = req.transaction_id;
  rtu_expected.local_comm_id = req.local_comm_id;
  EXPECT_EQ(sent<wire::CmRtu>(host, messages[2].path), rtu_expected);
  ASSERT_EQ(host.log, std::vector<std::string>{"established"});
  if (messages.size() > 4) {
    compare_end(host, id, messages[3], messages[4], names);
    EXPECT_EQ(host.log.size(), 2U);
  }
}

TEST_P(KernelCm, a_ghost_in_place_of_the_server) {
  const auto connections = connections_in(GetParam());
  ASSERT_FALSE(connections.empty());
  for (const auto& messages : connections) {
    compare_passive(messages);
  }
}

TEST_P(KernelCm, a_ghost_in_place_of_the_client) {
  const auto connections = connections_in(GetParam());
  ASSERT_FALSE(connections.empty());
  for (const auto& messages : connections) {
    compare_active(messages);
  }
}

INSTANTIATE_TEST_SUITE_P(Captures, KernelCm, testing::Values("rxe-cm.pcap", "rxe-ops.pcap", "rxe-perftest.pcap"));

}  // namespace
}  // namespace nbx::rdma
