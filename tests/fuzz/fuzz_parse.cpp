// Any bytes: the parser and the formatter neither crash nor read outside, and what the parser accepts, it describes
// within the frame. Accepted frames go on to everything that works on parsed frames: answers, CM, marking, repair.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "wire/build.hpp"
#include "wire/build_l3.hpp"
#include "wire/format.hpp"
#include "wire/ip.hpp"
#include "wire/mad.hpp"
#include "wire/parse.hpp"

namespace {

using namespace nbx;
using namespace nbx::wire;

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

template <class Message>
void require_stable(const std::optional<Message>& message, std::optional<Message> (*decode)(ConstBytes) noexcept) {
  if (message) {
    std::array<std::byte, mad_size> mad{};
    encode(*message, mad);
    require(decode(mad) == message);
  }
}

void use_mad(ConstBytes mad) {
  require_stable(decode_req(mad), decode_req);
  require_stable(decode_rep(mad), decode_rep);
  require_stable(decode_rtu(mad), decode_rtu);
  require_stable(decode_rej(mad), decode_rej);
  require_stable(decode_mra(mad), decode_mra);
  require_stable(decode_dreq(mad), decode_dreq);
  require_stable(decode_drep(mad), decode_drep);
  require_stable(decode_sidr_req(mad), decode_sidr_req);
  require_stable(decode_sidr_rep(mad), decode_sidr_rep);
  if (const auto req = decode_req(mad)) {
    static_cast<void>(decode_rdma_ip_cm(req->private_data));
  }
}

/// After marking and repair the ICRC is right, whatever it was before.
void use_roce(MutableBytes frame, const Parsed& p) {
  use_mad(payload(frame, p));
  mark_congestion(frame, p.l3_offset, p.ipv6);
  repair_icrc(frame, p.l3_offset, p.bth_offset, p.end_offset - icrc_size, p.ipv6);
  Parsed again;
  require(parse(frame, {.verify_ipv4_checksum = false, .verify_udp_checksum = false}, again) == Drop::none);
  require(again.psn == p.psn && again.payload_size == p.payload_size);
}

void use(MutableBytes frame, const Parsed& p) {
  require(p.end_offset <= frame.size());
  std::array<std::byte, l3_frame_max> out{};
  switch (p.kind) {
    case FrameKind::roce_v2:
      require(p.payload_offset + p.payload_size + p.pad + icrc_size == p.end_offset);
      use_roce(frame, p);
      break;
    case FrameKind::arp:
      static_cast<void>(build_arp_reply(out, frame, p, {source_mac(frame), IpAddress::v4(0x0a000001)}));
      break;
    case FrameKind::nd_solicit:
      static_cast<void>(build_nd_advert(
          out, frame, p, {source_mac(frame), overlay<NeighborMessage>(frame.subspan(p.l4_offset))->target}));
      break;
    case FrameKind::icmp_echo:
      static_cast<void>(build_echo_reply(frame, frame, p));
      break;
    case FrameKind::nd_advert:
    case FrameKind::pause:
    case FrameKind::pfc:
    case FrameKind::roce_v1:
    case FrameKind::ip_other:
    case FrameKind::ether_other:
      break;
    case FrameKind::unparsed:
      std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A heap block of exactly the frame's size, so that the sanitizer sees every read beyond it.
  const auto bytes = std::make_unique<std::byte[]>(size);
  std::copy_n(reinterpret_cast<const std::byte*>(data), size, bytes.get());
  const MutableBytes frame{bytes.get(), size};
  require(!format(frame).empty());
  // A fuzzer rarely hits a checksum; without the checks it gets behind them.
  Parsed p;
  const Drop verdict = parse(frame, {false, false, false}, p);
  require(!format(frame, p, verdict).empty());
  if (verdict == Drop::none) {
    use(frame, p);
  }
  return 0;
}
