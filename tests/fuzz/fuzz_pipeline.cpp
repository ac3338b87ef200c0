// Any sequence of frames and pauses through a whole shard: connected queue pairs of every type, memory, listeners and
// personalities, with a profile that does a little of everything. Nothing crashes, nothing is read outside, the ghosts
// come to rest, and no frame is lost track of.
#include <algorithm>
#include <cstdlib>

#include "support/shard_rig.hpp"
#include "wire/build.hpp"

namespace {

using namespace nbx;
using namespace std::chrono_literals;

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

// The server of tests/captures, so that what its client said there is an input here.
const Mac server_mac = *parse_mac("52:54:00:00:00:01");
const IpAddress server_ip = *parse_ip("10.77.0.1");

pipeline::StaticQp static_qp(rdma::QpType type, std::uint32_t qpn) {
  pipeline::StaticQp qp;
  qp.attr.type = type;
  qp.attr.qpn = Qpn{qpn};
  qp.attr.dest_qpn = Qpn{qpn};
  qp.attr.path_mtu = 256;
  qp.attr.access = rdma::access::remote_write | rdma::access::remote_read | rdma::access::remote_atomic;
  qp.attr.timeout = 5;
  qp.attr.retry_cnt = 2;
  qp.attr.qkey = 0x1111'1111;
  qp.attr.path = {.source_mac = server_mac,
                  .destination_mac = *parse_mac("52:54:00:00:00:02"),
                  .source_ip = server_ip,
                  .destination_ip = *parse_ip("10.77.0.2")};
  qp.receives = {.count = 4, .size = 600, .region = 0x100, .repost = true};
  return qp;
}

pipeline::ShardPlan plan() {
  pipeline::ShardPlan p = test::one_ghost_plan();
  pipeline::GhostPlan& ghost = p.ghosts[0];
  ghost.identity.mac = server_mac;
  ghost.identity.addresses = {{server_ip, 24}};
  const std::uint8_t all =
      rdma::access::local_write | rdma::access::remote_write | rdma::access::remote_read | rdma::access::remote_atomic;
  ghost.regions = {
      {{.addr = 0x1000, .length = 0x4000, .key = 0x100, .access = all, .backing = rdma::Backing::memory}, {}}};
  ghost.qps = {static_qp(rdma::QpType::rc, 0x11), static_qp(rdma::QpType::uc, 0x12), static_qp(rdma::QpType::ud, 0x13)};
  pipeline::StaticQp requester = static_qp(rdma::QpType::rc, 0x14);
  for (const rdma::WrOpcode op : {rdma::WrOpcode::send, rdma::WrOpcode::rdma_write, rdma::WrOpcode::rdma_read,
                                  rdma::WrOpcode::atomic_fetch_and_add, rdma::WrOpcode::send_with_imm}) {
    const std::uint32_t length = op == rdma::WrOpcode::atomic_fetch_and_add ? 8 : 700;
    requester.requests.push_back(
        {0s, {.opcode = op, .local = {0x1000, length, 0x100}, .remote_addr = 0x1000, .rkey = 1}});
  }
  ghost.qps.push_back(requester);
  ghost.personalities = {ghost::EchoOptions{}, ghost::SinkOptions{.region_bytes = 4096}, ghost::RpingOptions{},
                         ghost::RcopsOptions{}};
  p.profile.verify_icrc = false;
  p.profile.from_node.duplicate = {{.match = {}, .select = fabric::EveryNth{5}}};
  p.profile.to_node.delay = {{.constant = 10us, .jitter = fabric::Uniform{5us}}};
  p.profile.to_node.loss = {{.match = {}, .select = fabric::EveryNth{7}}};
  return p;
}

// A frame of the input is one byte of pause (in 20 us), two bytes of length and the bytes.
void feed(test::ShardRig& rig, ConstBytes input) {
  while (input.size() >= 3) {
    rig.run_for(20us * std::to_integer<int>(input[0]));
    const std::size_t size = std::to_integer<std::size_t>(input[1]) << 8U | std::to_integer<std::size_t>(input[2]);
    const std::size_t taken = std::min({size, input.size() - 3, std::size_t{9000}});
    rig.receive(input.subspan(3, taken));
    input = input.subspan(3 + taken);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const pipeline::ShardPlan shared = plan();
  test::ShardRig rig(shared);
  feed(rig, std::as_bytes(std::span{data, size}));
  rig.run_for(2s);
  require(rig.outstanding_after_end() == 0);
  return 0;
}
