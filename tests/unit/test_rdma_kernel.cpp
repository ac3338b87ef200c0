// The kernel as oracle: captures of two Linux rxe peers. A ghost takes the place of one of them, once as responder and
// once as requester, gets what that one got, and has to say the same: opcode, PSN, AckReq, syndrome, MSN, payload.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "support/pcap_file.hpp"
#include "support/rdma_harness.hpp"

namespace nbx::test {
namespace {

using rdma::WrOpcode;
using wire::Operation;

struct Seen {
  Instant time;
  Bytes frame;
  Packet packet;
  bool from_ghost_side = false;  // sent by the host that the ghost replaces
  bool lost = false;             // behind the capture point
};

bool is_response(const Packet& p) {
  const Operation operation = wire::traits(p.opcode).operation;
  return operation == Operation::acknowledge || operation == Operation::atomic_acknowledge ||
         operation == Operation::rdma_read_response;
}

/// One RC queue pair of a capture, as the host with address `host` sees it. Both ends have the same number there.
struct Conversation {
  const char* file;
  const char* host;
  std::uint32_t qpn;
  std::uint32_t path_mtu = 4096;
  std::size_t answers_cut = 0;  // answers that the capture lacks at its end
  unsigned lost_every_nth = 0;  // RoCE frames

  friend std::ostream& operator<<(std::ostream& os, const Conversation& c) {
    return os << c.file << " " << c.host << " QPN " << c.qpn;
  }
};

class Kernel : public ::testing::TestWithParam<Conversation> {
 protected:
  void SetUp() override {
    const IpAddress host = *parse_ip(GetParam().host);
    unsigned roce_frames = 0;
    const std::vector<PcapRecord> records = read_pcap(std::string{NBX_CAPTURES} + "/" + GetParam().file);
    for (const PcapRecord& record : records) {
      wire::Parsed parsed;
      ASSERT_EQ(wire::parse(record.bytes, {}, parsed), Drop::none);
      if (parsed.kind != wire::FrameKind::roce_v2) {
        continue;
      }
      ++roce_frames;
      const IpAddress from = wire::source_ip(record.bytes, parsed);
      const IpAddress to = wire::destination_ip(record.bytes, parsed);
      if (parsed.dest_qpn != Qpn{GetParam().qpn} || wire::transport_of(parsed.opcode) != wire::Transport::rc ||
          (from != host && to != host)) {
        continue;
      }
      Seen seen{.time = Instant{(record.time_ns - records.front().time_ns) * 1000},
                .frame = record.bytes,
                .packet = decode(record.bytes, parsed)};
      seen.from_ghost_side = from == host;
      seen.lost = GetParam().lost_every_nth != 0 && roce_frames % GetParam().lost_every_nth == 0;
      if (seen.from_ghost_side) {
        path_.source_mac = wire::source_mac(record.bytes);
        path_.destination_mac = wire::destination_mac(record.bytes);
        path_.source_ip = from;
        path_.destination_ip = to;
      }
      seen_.push_back(seen);
    }
    ASSERT_FALSE(seen_.empty());
  }

  /// A queue pair at the PSNs of the conversation.
  rdma::Qp& connect() {
    const auto first_psn = [this](bool from_ghost_side) {
      const auto it = std::ranges::find_if(
          seen_, [&](const Seen& s) { return s.from_ghost_side == from_ghost_side && !is_response(s.packet); });
      return it == seen_.end() ? Psn{} : Psn{it->packet.psn};
    };
    rdma::QpAttr attr;
    attr.qpn = attr.dest_qpn = Qpn{GetParam().qpn};
    attr.path = path_;
    attr.path_mtu = GetParam().path_mtu;
    attr.access = Dialogue::all_access;
    attr.sq_psn = first_psn(true);
    attr.rq_psn = first_psn(false);
    rdma::Qp* qp = endpoint_.transport->create_qp(Endpoint::ghost, attr, user_);
    endpoint_.transport->connect_qp(*qp, attr);
    return *qp;
  }

  rdma::Region& add_region(std::uint64_t addr, std::uint64_t length, std::uint32_t key) {
    return *endpoint_.transport->memory(Endpoint::ghost)
                .add({addr, length, key, Dialogue::all_access, rdma::Backing::memory});
  }

  /// Makes `region` hold what the kernel found there when it executed `request`.
  void set_content(rdma::Region& region, const Packet& request) {
    const bool reads = request.opcode == wire::Opcode::rc_rdma_read_request;
    if (!wire::traits(request.opcode).payload && known_.insert(reads ? request.psn : request.address).second) {
      for (const Seen& s : seen_) {
        const std::uint64_t offset = std::uint64_t{(s.packet.psn - request.psn) & mask24} * GetParam().path_mtu;
        if (s.from_ghost_side && wire::traits(s.packet.opcode).operation == Operation::rdma_read_response && reads &&
            offset < request.length) {
          region.write(request.address + offset, s.packet.payload);
        } else if (s.from_ghost_side && s.packet.opcode == wire::Opcode::rc_atomic_acknowledge && offset == 0) {
          region.write(request.address, std::as_bytes(std::span{&s.packet.original, 1}));
        }
      }
    }
  }

  std::vector<Packet> said(Instant now) {
    std::vector<Packet> packets;
    for (const Bytes& frame : endpoint_.sent(now)) {
      wire::Parsed parsed;
      EXPECT_EQ(wire::parse(frame, {}, parsed), Drop::none);
      packets.push_back(decode(frame, parsed));
    }
    return packets;
  }

  static void expect_same(const std::vector<Packet>& ghost, const std::vector<Packet>& kernel, std::size_t cut = 0) {
    ASSERT_FALSE(kernel.empty());
    for (std::size_t i = 0; i < std::min(ghost.size(), kernel.size()); ++i) {
      ASSERT_EQ(ghost[i], kernel[i]) << "packet " << i;
    }
    EXPECT_EQ(ghost.size(), kernel.size() + cut);
  }

  Recorder user_;
  Endpoint endpoint_;
  wire::Path path_;
  std::vector<Seen> seen_;
  std::set<std::uint64_t> known_;  // PSNs of READs and addresses of atomics that came before
};

using KernelResponder = Kernel;

// Memory as the peer names it: every key with the range that is used of it. The programs write to it between requests,
// so what a READ finds is taken from the kernel's answer; atomics find it so once, and then what they left.
TEST_P(KernelResponder, answers_as_the_kernel_does) {
  struct Range {
    std::uint64_t from = ~0ULL;
    std::uint64_t to = 0;
  };
  std::map<std::uint32_t, Range> keys;
  for (const Seen& s : seen_) {
    if (!s.from_ghost_side && s.packet.rkey != 0) {
      const bool atomic = !wire::traits(s.packet.opcode).has(wire::ext::reth);
      Range& range = keys[s.packet.rkey];
      range.from = std::min(range.from, s.packet.address);
      range.to = std::max(range.to, s.packet.address + (atomic ? 8 : s.packet.length));
    }
  }
  std::map<std::uint32_t, rdma::Region*> regions;
  for (const auto& [key, range] : keys) {
    regions[key] = &add_region(range.from, range.to - range.from, key);
  }
  rdma::Qp& qp = connect();
  constexpr std::uint32_t receive_size = 1 << 17;
  add_region(0, receive_size, 1);

  std::vector<Packet> ghost;
  std::vector<Packet> kernel;
  for (const Seen& s : seen_) {
    if (s.from_ghost_side) {
      if (is_response(s.packet)) {
        kernel.push_back(s.packet);
      }
      continue;
    }
    if (is_response(s.packet) || s.lost) {
      continue;
    }
    while (endpoint_.transport->post_recv(qp, {.local = {0, receive_size, 1}})) {
    }
    if (const auto region = regions.find(s.packet.rkey); region != regions.end()) {
      set_content(*region->second, s.packet);
    }
    endpoint_.receive(s.frame, s.time);
    for (const Packet& p : said(s.time)) {
      ghost.push_back(p);
    }
  }
  expect_same(ghost, kernel, GetParam().answers_cut);
  EXPECT_TRUE(user_.errors.empty());
}

using KernelRequester = Kernel;

/// The work request behind the packets of one message; its bytes go to `local` at `at`.
rdma::SendWr request_of(const std::vector<Packet>& message, rdma::Region& local, std::uint64_t at) {
  static const std::map<Operation, WrOpcode> opcodes = {{Operation::send, WrOpcode::send},
                                                        {Operation::rdma_write, WrOpcode::rdma_write},
                                                        {Operation::rdma_read_request, WrOpcode::rdma_read},
                                                        {Operation::compare_swap, WrOpcode::atomic_cmp_and_swp},
                                                        {Operation::fetch_add, WrOpcode::atomic_fetch_and_add}};
  const Packet& first = message.front();
  const Packet& last = message.back();
  rdma::SendWr wr;
  wr.opcode = opcodes.at(wire::traits(first.opcode).operation);
  if (wire::traits(last.opcode).has(wire::ext::immdt)) {
    wr.opcode = wr.opcode == WrOpcode::send ? WrOpcode::send_with_imm : WrOpcode::rdma_write_with_imm;
  }
  const bool swaps = wr.opcode == WrOpcode::atomic_cmp_and_swp;
  const bool atomic = swaps || wr.opcode == WrOpcode::atomic_fetch_and_add;
  std::uint32_t size = 0;
  for (const Packet& p : message) {
    local.write(at + size, p.payload);
    size += static_cast<std::uint32_t>(p.payload.size());
  }
  wr.local = {at, size, local.spec().key};
  if (wr.opcode == WrOpcode::rdma_read || atomic) {
    wr.local.length = atomic ? 8 : first.length;
  }
  wr.remote_addr = first.address;
  wr.rkey = first.rkey;
  wr.imm_data = last.imm;
  wr.solicited = last.solicited;
  wr.swap = swaps ? first.swap_or_add : 0;
  wr.compare_add = swaps ? first.compare : first.swap_or_add;
  return wr;
}

TEST_P(KernelRequester, asks_as_the_kernel_does) {
  constexpr std::uint64_t slot = 1 << 16;
  rdma::Region& local = add_region(0, 256 * slot, 1);
  rdma::Qp& qp = connect();
  std::vector<Packet> kernel;
  std::vector<Packet> message;
  std::size_t messages = 0;
  for (const Seen& s : seen_) {
    if (s.from_ghost_side && !is_response(s.packet)) {
      kernel.push_back(s.packet);
      message.push_back(s.packet);
      if (wire::traits(s.packet.opcode).ends()) {
        ASSERT_TRUE(endpoint_.transport->post_send(qp, request_of(message, local, messages * slot), {}));
        message.clear();
        ++messages;
      }
    }
  }
  const std::vector<Packet> ghost = said({});
  kernel.resize(kernel.size() - message.size());  // of a message whose end the capture lacks
  expect_same(ghost, kernel);
  for (const Seen& s : seen_) {
    if (!s.from_ghost_side && is_response(s.packet)) {
      EXPECT_EQ(endpoint_.receive(s.frame, {}), Drop::none);
    }
  }
  EXPECT_EQ(user_.completions.size() + GetParam().answers_cut, messages);
  EXPECT_TRUE(
      std::ranges::all_of(user_.completions, [](const auto& c) { return c.status == rdma::WcStatus::success; }));
}

constexpr const char* server = "10.77.0.1";
constexpr const char* client = "10.77.0.2";

INSTANTIATE_TEST_SUITE_P(
    captures, KernelResponder,
    ::testing::Values(Conversation{.file = "rxe-ops.pcap", .host = server, .qpn = 0x11},
                      Conversation{.file = "rxe-ops.pcap", .host = client, .qpn = 0x11},
                      Conversation{.file = "rxe-loss.pcap", .host = server, .qpn = 0x11, .lost_every_nth = 7},
                      Conversation{.file = "rxe-loss.pcap", .host = client, .qpn = 0x11, .lost_every_nth = 7},
                      Conversation{.file = "rxe-cm.pcap", .host = server, .qpn = 0x11},
                      Conversation{.file = "rxe-cm.pcap", .host = client, .qpn = 0x11},
                      Conversation{.file = "rxe-cm.pcap", .host = server, .qpn = 0x12},
                      Conversation{.file = "rxe-perftest.pcap", .host = server, .qpn = 0x11},
                      Conversation{.file = "rxe-perftest.pcap", .host = server, .qpn = 0x12},
                      Conversation{.file = "rxe-perftest.pcap", .host = server, .qpn = 0x13},
                      Conversation{.file = "rxe-perftest.pcap", .host = server, .qpn = 0x14},
                      Conversation{.file = "rxe-perftest.pcap", .host = server, .qpn = 0x15},
                      Conversation{.file = "rxe-perftest.pcap", .host = server, .qpn = 0x16},
                      Conversation{
                          .file = "rxe-pingpong.pcap", .host = server, .qpn = 0x11, .path_mtu = 1024, .answers_cut = 3},
                      Conversation{.file = "rxe-pingpong.pcap",
                                   .host = "fe80::5054:ff:fe00:1",
                                   .qpn = 0x14,
                                   .path_mtu = 1024,
                                   .answers_cut = 2}));

INSTANTIATE_TEST_SUITE_P(
    captures, KernelRequester,
    ::testing::Values(Conversation{.file = "rxe-ops.pcap", .host = server, .qpn = 0x11},
                      Conversation{.file = "rxe-ops.pcap", .host = client, .qpn = 0x11},
                      Conversation{.file = "rxe-cm.pcap", .host = server, .qpn = 0x11},
                      Conversation{.file = "rxe-cm.pcap", .host = client, .qpn = 0x11},
                      Conversation{.file = "rxe-cm.pcap", .host = client, .qpn = 0x12},
                      Conversation{.file = "rxe-perftest.pcap", .host = client, .qpn = 0x11},
                      Conversation{.file = "rxe-perftest.pcap", .host = client, .qpn = 0x12},
                      Conversation{.file = "rxe-perftest.pcap", .host = client, .qpn = 0x13},
                      Conversation{.file = "rxe-perftest.pcap", .host = client, .qpn = 0x14},
                      Conversation{.file = "rxe-perftest.pcap", .host = client, .qpn = 0x15},
                      Conversation{.file = "rxe-perftest.pcap", .host = client, .qpn = 0x16},
                      Conversation{
                          .file = "rxe-pingpong.pcap", .host = client, .qpn = 0x11, .path_mtu = 1024, .answers_cut = 3},
                      Conversation{.file = "rxe-pingpong.pcap",
                                   .host = "fe80::5054:ff:fe00:2",
                                   .qpn = 0x14,
                                   .path_mtu = 1024,
                                   .answers_cut = 2}));

}  // namespace
}  // namespace nbx::test
