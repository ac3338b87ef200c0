// Transports under test, in virtual time: an endpoint with everything it needs, packets as values, and a link between
// two endpoints whose losses, copies and delays are the test's.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <ostream>
#include <vector>

#include "rdma/transport.hpp"
#include "support/hex.hpp"
#include "wire/build.hpp"

namespace nbx::test {

/// Everything that a packet says behind UDP. Headers that its opcode does not have stay zero.
struct Packet {
  wire::Opcode opcode{};
  std::uint32_t psn = 0;
  Bytes payload{};
  bool ack_request = false;
  bool solicited = false;
  bool selective_repeat = false;
  std::uint16_t pkey = wire::default_pkey;
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t length = 0;
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;
  std::uint8_t syndrome = 0;
  std::uint32_t msn = 0;
  std::uint64_t original = 0;
  std::uint32_t imm = 0;  // ImmDt or IETH
  std::uint32_t qkey = 0;
  std::uint32_t source_qpn = 0;

  friend bool operator==(const Packet&, const Packet&) = default;
  friend std::ostream& operator<<(std::ostream& os, const Packet& p) {
    os << wire::traits(p.opcode).name << " psn=" << p.psn << " payload=" << p.payload.size();
    os << (p.ack_request ? " AckReq" : "") << (p.solicited ? " SE" : "") << (p.selective_repeat ? " SR" : "")
       << std::hex;
    os << " va=0x" << p.address << " rkey=0x" << p.rkey << std::dec << " length=" << p.length << std::hex;
    os << " syndrome=0x" << unsigned{p.syndrome} << std::dec << " msn=" << p.msn << " original=" << p.original;
    return os << " imm=" << p.imm << " qkey=" << p.qkey << " source_qpn=" << p.source_qpn;
  }
};

inline Packet decode(ConstBytes frame, const wire::Parsed& parsed) {
  Packet p;
  p.opcode = static_cast<wire::Opcode>(parsed.opcode);
  p.psn = parsed.psn.value;
  p.ack_request = parsed.ack_requested;
  p.solicited = parsed.solicited;
  p.selective_repeat = parsed.selective_repeat;
  p.pkey = parsed.pkey;
  const ConstBytes payload = wire::payload(frame, parsed);
  p.payload.assign(payload.begin(), payload.end());
  const auto& op = parsed.op();
  namespace ext = wire::ext;
  if (op.has(ext::reth)) {
    const auto& h = wire::extension<wire::Reth>(frame, parsed, ext::reth);
    p.address = h.virtual_address.value();
    p.rkey = h.rkey.value();
    p.length = h.dma_length.value();
  }
  if (op.has(ext::atomiceth)) {
    const auto& h = wire::extension<wire::AtomicEth>(frame, parsed, ext::atomiceth);
    p.address = h.virtual_address.value();
    p.rkey = h.rkey.value();
    p.swap_or_add = h.swap_or_add.value();
    p.compare = h.compare.value();
  }
  if (op.has(ext::aeth)) {
    const auto& h = wire::extension<wire::Aeth>(frame, parsed, ext::aeth);
    p.syndrome = h.syndrome;
    p.msn = h.msn.value();
  }
  if (op.has(ext::atomicacketh)) {
    p.original = wire::extension<wire::AtomicAckEth>(frame, parsed, ext::atomicacketh).original.value();
  }
  if (op.has(ext::immdt)) {
    p.imm = wire::extension<wire::ImmDt>(frame, parsed, ext::immdt).data.value();
  }
  if (op.has(ext::ieth)) {
    p.imm = wire::extension<wire::Ieth>(frame, parsed, ext::ieth).rkey.value();
  }
  if (op.has(ext::deth)) {
    const auto& h = wire::extension<wire::Deth>(frame, parsed, ext::deth);
    p.qkey = h.qkey.value();
    p.source_qpn = h.source_qp.value();
  }
  return p;
}

inline Bytes encode(const Packet& p, const wire::Path& path, Qpn dest_qpn) {
  const auto& op = wire::traits(p.opcode);
  const wire::Encapsulation encapsulation{path};
  const std::size_t size = op.header_size + p.payload.size();
  Bytes frame(encapsulation.frame_size(size));
  std::size_t at = encapsulation.begin(frame,
                                       {.opcode = p.opcode,
                                        .dest_qpn = dest_qpn,
                                        .psn = Psn{p.psn},
                                        .pkey = p.pkey,
                                        .solicited = p.solicited,
                                        .ack_request = p.ack_request,
                                        .selective_repeat = p.selective_repeat},
                                       size);
  const auto header = [&](auto image) {
    std::memcpy(frame.data() + at, &image, sizeof(image));
    at += sizeof(image);
  };
  const auto be32 = [](std::uint32_t v) {
    Be32 b{};
    b = v;
    return b;
  };
  const auto be64 = [](std::uint64_t v) {
    Be64 b{};
    b = v;
    return b;
  };
  const auto be24 = [](std::uint32_t v) {
    Be24 b{};
    b = v;
    return b;
  };
  namespace ext = wire::ext;
  if (op.has(ext::deth)) {
    header(wire::Deth{be32(p.qkey), 0, be24(p.source_qpn)});
  }
  if (op.has(ext::reth)) {
    header(wire::Reth{be64(p.address), be32(p.rkey), be32(p.length)});
  }
  if (op.has(ext::atomiceth)) {
    header(wire::AtomicEth{be64(p.address), be32(p.rkey), be64(p.swap_or_add), be64(p.compare)});
  }
  if (op.has(ext::aeth)) {
    header(wire::Aeth{p.syndrome, be24(p.msn)});
  }
  if (op.has(ext::atomicacketh)) {
    header(wire::AtomicAckEth{be64(p.original)});
  }
  if (op.has(ext::immdt)) {
    header(wire::ImmDt{be32(p.imm)});
  }
  if (op.has(ext::ieth)) {
    header(wire::Ieth{be32(p.imm)});
  }
  if (op.has(ext::cnp_reserved)) {
    at += wire::cnp_reserved_size;
  }
  if (!p.payload.empty()) {
    std::memcpy(frame.data() + at, p.payload.data(), p.payload.size());
  }
  encapsulation.seal(frame, size);
  return frame;
}

/// Keeps what happened to a queue pair.
struct Recorder final : rdma::QpUser {
  std::vector<rdma::Completion> completions;
  std::vector<rdma::WcStatus> errors;
  std::function<void(rdma::Qp&, const rdma::Completion&, Instant)> then;

  void on_completion(rdma::Qp& qp, const rdma::Completion& completion, Instant now) noexcept override {
    completions.push_back(completion);
    if (then) {
      then(qp, completion, now);
    }
  }
  void on_error(rdma::Qp&, rdma::WcStatus cause, Instant) noexcept override { errors.push_back(cause); }
};

/// A transport with its pool, wheel, counters and output; ghost 0 exists. Leaks no frame, or the test fails.
struct Endpoint {
  static constexpr GhostId ghost{0};

  explicit Endpoint(const rdma::TransportConfig& config = {}, std::size_t frames = 512, const rdma::Nic& nic = {})
      : source(frames, 4400),
        pool(std::make_unique<FramePool>(source)),
        transport(std::make_unique<rdma::Transport>(config, *pool, wheel, counters, out)) {
    transport->add_ghost(ghost, nic);
  }
  ~Endpoint() {
    transport.reset();
    pool->free_all(out);
    pool.reset();
    EXPECT_EQ(source.outstanding(), 0U);
  }
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// Hands over a frame as the pipeline would.
  Drop receive(ConstBytes bytes, Instant now) {
    Frame* frame = pool->alloc(bytes.size());
    if (frame == nullptr) {
      throw std::runtime_error("no frame");
    }
    std::memcpy(frame->data, bytes.data(), bytes.size());
    frame->arrival = now;
    EXPECT_EQ(wire::parse(frame->bytes(), {}, frame->parsed), Drop::none);
    return transport->receive(*frame, ghost, now);
  }
  /// Lets the transport send everything it has to say.
  std::vector<Bytes> sent(Instant now) {
    while (transport->progress(now)) {
    }
    std::vector<Bytes> frames;
    while (Frame* frame = out.pop_front()) {
      EXPECT_EQ(frame->ghost, ghost);
      wire::Parsed parsed;
      EXPECT_EQ(wire::parse(frame->bytes(), {}, parsed), Drop::none) << "checksums and ICRC of what a ghost sends";
      frames.emplace_back(frame->bytes().begin(), frame->bytes().end());
      pool->free(*frame);
    }
    return frames;
  }

  SlabSource source;
  Wheel wheel;
  Counters counters;
  FrameList out;
  std::unique_ptr<FramePool> pool;
  std::unique_ptr<rdma::Transport> transport;
};

inline wire::Path path_between(std::uint8_t from, std::uint8_t to) {
  wire::Path path;
  path.source_mac = Mac{{2, 0, 0, 0, 0, from}};
  path.destination_mac = Mac{{2, 0, 0, 0, 0, to}};
  path.source_ip = IpAddress::v4(0x0a000000U | from);
  path.destination_ip = IpAddress::v4(0x0a000000U | to);
  return path;
}
inline wire::Path reversed(const wire::Path& path) {
  wire::Path back = path;
  std::swap(back.source_mac, back.destination_mac);
  std::swap(back.source_ip, back.destination_ip);
  return back;
}

/// Bytes that tell every position and every message apart.
inline Bytes pattern(std::size_t size, std::uint64_t seed = 0) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>((i * 31 + seed * 17 + (i >> 8U) * 7) & 0xffU);
  }
  return bytes;
}

/// One queue pair of a ghost and the test as its peer. Packets are named by what they say; time stands still unless
/// the test moves it.
class Dialogue {
 public:
  static constexpr Qpn peer_qpn{0x77};
  static constexpr std::uint32_t first_psn = 1000;  // of the peer's requests
  static constexpr std::uint32_t ghost_psn = 5000;  // of the ghost's requests
  static constexpr std::uint64_t base = 0x10000;
  static constexpr std::uint32_t key = 0xabc00;
  static constexpr std::uint8_t all_access =
      rdma::access::local_write | rdma::access::remote_write | rdma::access::remote_read | rdma::access::remote_atomic;

  static rdma::QpAttr default_attr(rdma::QpType type = rdma::QpType::rc) {
    rdma::QpAttr attr;
    attr.type = type;
    attr.dest_qpn = peer_qpn;
    attr.path = path_between(9, 1);
    attr.sq_psn = Psn{ghost_psn};
    attr.rq_psn = Psn{first_psn};
    attr.path_mtu = 256;
    attr.access = all_access;
    return attr;
  }

  explicit Dialogue(const rdma::QpAttr& attr = default_attr(), const rdma::TransportConfig& config = {},
                    const rdma::Nic& nic = {})
      : endpoint(config, 512, nic), attributes(attr) {
    region =
        endpoint.transport->memory(Endpoint::ghost)
            .add({.addr = base, .length = 1 << 16, .key = key, .access = all_access, .backing = rdma::Backing::memory});
    qp = endpoint.transport->create_qp(Endpoint::ghost, attr, user);
    endpoint.transport->connect_qp(*qp, attr);
  }

  Drop receive(const Packet& packet) { return receive_from(reversed(attributes.path), packet); }
  Drop receive_from(const wire::Path& path, const Packet& packet) {
    return endpoint.receive(encode(packet, path, qp->qpn()), now);
  }
  /// What the ghost says now.
  std::vector<Packet> replies() {
    std::vector<Packet> packets;
    for (const Bytes& frame : endpoint.sent(now)) {
      wire::Parsed parsed;
      EXPECT_EQ(wire::parse(frame, {}, parsed), Drop::none);
      EXPECT_EQ(parsed.dest_qpn, attributes.dest_qpn);
      EXPECT_EQ(wire::destination_ip(frame, parsed), attributes.path.destination_ip);
      packets.push_back(decode(frame, parsed));
    }
    return packets;
  }
  void pass(Duration time) {
    now = now + time;
    endpoint.wheel.run(now);
  }
  bool post(const rdma::SendWr& wr) { return endpoint.transport->post_send(*qp, wr, now); }
  bool post_recv(std::uint64_t wr_id, std::uint32_t length, std::uint64_t address = base) {
    return endpoint.transport->post_recv(*qp, {.wr_id = wr_id, .local = {address, length, key}});
  }
  [[nodiscard]] Bytes memory(std::uint64_t address, std::size_t size) const {
    Bytes bytes(size);
    region->read(address, bytes);
    return bytes;
  }
  void set_memory(std::uint64_t address, const Bytes& bytes) { region->write(address, bytes); }
  [[nodiscard]] std::uint64_t count(Counter c) const { return endpoint.counters.get(c); }
  [[nodiscard]] std::uint64_t count(Drop d) const { return endpoint.counters.get(d); }

  Recorder user;
  Endpoint endpoint;
  rdma::QpAttr attributes;
  rdma::Region* region = nullptr;
  rdma::Qp* qp = nullptr;
  Instant now{};
};

/// What becomes of one frame on a link.
struct Fate {
  bool lost = false;
  bool twice = false;
  Duration late{};  // on top of the link's delay
};

/// Two endpoints and the wire between them, in virtual time.
class Link {
 public:
  /// `fate` is asked for every frame: direction 0 is from the first endpoint to the second.
  using Judge = std::function<Fate(unsigned direction, const Packet& packet)>;

  Link(Endpoint& a, Endpoint& b, Judge judge) : ends_{&a, &b}, judge_(std::move(judge)) {}

  /// Runs until nothing is on the wire and no timer is armed, or until `limit`.
  void run(Instant limit) {
    for (;;) {
      for (unsigned side = 0; side < 2; ++side) {
        transmit(side);
      }
      Instant next = std::min(ends_[0]->wheel.next_deadline(), ends_[1]->wheel.next_deadline());
      if (!wire_.empty()) {
        next = std::min(next, wire_.begin()->first);
      }
      if (next == Instant::never() || limit < next) {
        return;
      }
      now = next;
      ends_[0]->wheel.run(now);
      ends_[1]->wheel.run(now);
      while (!wire_.empty() && wire_.begin()->first <= now) {
        auto node = wire_.extract(wire_.begin());
        ends_[node.mapped().first]->receive(node.mapped().second, now);
      }
    }
  }

  Instant now{};

 private:
  void transmit(unsigned side) {
    for (const Bytes& frame : ends_[side]->sent(now)) {
      wire::Parsed parsed;
      EXPECT_EQ(wire::parse(frame, {}, parsed), Drop::none);
      const Fate fate = judge_(side, decode(frame, parsed));
      // A frame each 100 ns, so that frames which leave together do not arrive together.
      free_at_[side] = std::max(free_at_[side], now) + std::chrono::nanoseconds{100};
      const Instant arrival = free_at_[side] + std::chrono::microseconds{1} + fate.late;
      if (!fate.lost) {
        wire_.emplace(arrival, std::pair{1 - side, frame});
        if (fate.twice) {
          wire_.emplace(arrival + std::chrono::nanoseconds{50}, std::pair{1 - side, frame});
        }
      }
    }
  }

  std::array<Endpoint*, 2> ends_;
  std::array<Instant, 2> free_at_{};
  Judge judge_;
  std::multimap<Instant, std::pair<unsigned, Bytes>> wire_;
};

}  // namespace nbx::test
