// Stages of the whole path: a burst enters the shard as it does behind the port, and what the ghosts answer leaves it.
// The packets of the real node are made outside the measured time.
#include <array>
#include <cstring>
#include <stdexcept>

#include "bench/meter.hpp"
#include "bench/packets.hpp"
#include "pipeline/shard.hpp"
#include "wire/roce.hpp"

namespace nbx::bench {
namespace {

constexpr unsigned packets_of_message = 16;  // of 64 KiB when a packet has 4 KiB, as perftest sends them
constexpr unsigned messages_at_once = 16;
constexpr std::uint32_t region_key = 0x1234;
constexpr Duration spacing = std::chrono::nanoseconds{82};

pipeline::ShardPlan plan(bool verify_icrc) {
  pipeline::ShardPlan plan;
  plan.port_name = "bench";
  plan.profile.name = "ideal";
  plan.profile.verify_icrc = verify_icrc;
  pipeline::GhostPlan ghost;
  ghost.identity.name = "ghost";
  ghost.identity.mac = ghost_mac;
  ghost.identity.addresses = {{ghost_ip, 24}};
  plan.ghosts.push_back(ghost);
  plan.neighbours = {{node_ip, node_mac}};
  plan.ports = 2;
  return plan;
}

class Rig {
 public:
  explicit Rig(bool verify_icrc) : shard_(plan(verify_icrc), {.frames = &slab_, .counters = &counters_}) {
    shard_.start(now_);
  }

  [[nodiscard]] pipeline::Shard& shard() noexcept { return shard_; }
  [[nodiscard]] Instant now() const noexcept { return now_; }
  /// Time goes on by what so many packets take on their link.
  void pass(unsigned packets) noexcept { now_ = now_ + spacing * packets; }

  /// A frame with headers up to the BTH and room for the rest; where that begins.
  std::pair<Frame*, std::size_t> frame(const wire::Encapsulation& to_ghost, const wire::BthFields& bth,
                                       std::size_t rest) {
    Frame* frame = shard_.pool().alloc(to_ghost.frame_size(rest));
    if (frame == nullptr) {
      throw std::runtime_error("the bench has no frames left");
    }
    return {frame, to_ghost.begin(frame->bytes(), bth, rest)};
  }

  void turn(FrameList& burst) noexcept {
    shard_.receive(burst, now_);
    turn();
  }
  void turn() noexcept {
    while (shard_.progress(now_)) {
      drain();
    }
    drain();
  }
  void drain() noexcept {
    while (Frame* frame = shard_.to_port().pop_front()) {
      ++sent_;
      sum_ += std::to_integer<std::uint64_t>(frame->data[frame->size - 1]);
      shard_.release(*frame);
    }
  }
  [[nodiscard]] std::uint64_t sent() const noexcept { return sent_; }
  [[nodiscard]] std::uint64_t sum() const noexcept { return sum_; }

  /// Throws when a packet was dropped: then the figures would be those of something else.
  void expect_no_drop() const {
    for (std::size_t i = 1; i < drop_info.size(); ++i) {
      if (counters_.get(static_cast<Drop>(i)) != 0) {
        throw std::runtime_error("the shard dropped a packet of the bench: " + std::string(drop_info[i].name));
      }
    }
  }

 private:
  SlabSource slab_{4096, 4200};
  Counters counters_;
  Instant now_{};
  std::uint64_t sent_ = 0;
  std::uint64_t sum_ = 0;
  pipeline::Shard shard_;
};

/// RC queue pairs of the ghost, all to the one real node.
class Connections final : rdma::QpUser {
 public:
  Connections(pipeline::Shard& shard, unsigned n, unsigned path_mtu) {
    rdma::Transport& transport = shard.transport();
    transport.memory(GhostId{0})
        .add({.length = 1U << 30U,
              .key = region_key,
              .access = rdma::access::local_write | rdma::access::remote_write,
              .backing = rdma::Backing::sink});
    qps.reserve(n);
    for (unsigned i = 0; i < n; ++i) {
      rdma::QpAttr attr{.dest_qpn = Qpn{i + 1},
                        .path = ghost_to_node(),
                        .path_mtu = path_mtu,
                        .access = rdma::access::remote_write,
                        .max_dest_rd_atomic = 1,
                        .max_send_wr = messages_at_once,
                        .max_recv_wr = 1,
                        .max_outstanding_packets = packets_of_message * messages_at_once};
      rdma::Qp* qp = transport.create_qp(GhostId{0}, attr, *this);
      if (qp == nullptr) {
        throw std::runtime_error("the bench cannot make its queue pairs");
      }
      attr.qpn = qp->qpn();
      transport.connect_qp(*qp, attr);
      qps.push_back(qp);
    }
  }

  std::vector<rdma::Qp*> qps;
  std::uint64_t completed = 0;

 private:
  void on_completion(rdma::Qp&, const rdma::Completion& completion, Instant) noexcept override {
    completed += completion.status == rdma::WcStatus::success ? 1 : 0;
  }
  void on_error(rdma::Qp&, rdma::WcStatus, Instant) noexcept override {}
};

/// The ghost takes in RDMA WRITEs of 16 packets each and acknowledges each message.
class Responder final : public Case {
 public:
  Responder(unsigned bytes, bool verify_icrc, unsigned qps = 1, unsigned burst = 32)
      : Case({.stage = "responder",
              .variant = verify_icrc ? "WRITE, ICRC checked" : "WRITE, ICRC trusted",
              .burst = burst,
              .bytes = bytes,
              .wire_bytes = wire_bytes(bytes),
              .qps = qps}),
        rig_(verify_icrc),
        connections_(rig_.shard(), qps, std::max(bytes, 256U)),
        sent_(qps),
        verify_(verify_icrc) {}

  std::uint64_t round(Stopwatch& watch) override {
    std::array<FrameList, 256> bursts;
    const unsigned n = frames / label().burst;
    for (unsigned i = 0; i < n; ++i) {
      for (unsigned k = 0; k < label().burst; ++k) {
        bursts[i].push_back(*next());
      }
    }
    watch.start();
    for (unsigned i = 0; i < n; ++i) {
      rig_.pass(label().burst);
      rig_.turn(bursts[i]);
    }
    watch.stop();
    return frames;
  }
  [[nodiscard]] std::uint64_t checksum() const override {
    rig_.expect_no_drop();
    return rig_.sum();
  }

 private:
  static constexpr unsigned frames = 256;

  Frame* next() {
    const auto which = static_cast<unsigned>(at_++ % sent_.size());
    const std::uint32_t number = sent_[which]++;
    const unsigned bytes = label().bytes;
    const bool whole = bytes < 256;  // a message of less than a path MTU is one packet
    const unsigned place = number % packets_of_message;
    using enum wire::Opcode;
    const wire::Opcode opcode = whole                             ? rc_rdma_write_only
                                : place == 0                      ? rc_rdma_write_first
                                : place == packets_of_message - 1 ? rc_rdma_write_last
                                                                  : rc_rdma_write_middle;
    const bool has_reth = whole || place == 0;
    const std::size_t rest = bytes + (has_reth ? sizeof(wire::Reth) : 0);
    const wire::Encapsulation to_ghost{node_to_ghost(which)};
    const auto [frame, behind_bth] = rig_.frame(to_ghost,
                                                {.opcode = opcode,
                                                 .dest_qpn = connections_.qps[which]->qpn(),
                                                 .psn = Psn{number & 0xff'ffffU},
                                                 .ack_request = whole || place == packets_of_message - 1},
                                                rest);
    if (has_reth) {
      wire::Reth reth{};
      reth.rkey = region_key;
      reth.dma_length = whole ? bytes : bytes * packets_of_message;
      std::memcpy(frame->data + behind_bth, &reth, sizeof reth);
    }
    if (verify_) {
      to_ghost.seal(frame->bytes(), rest);
    }
    return frame;
  }

  Rig rig_;
  Connections connections_;
  std::vector<std::uint32_t> sent_;  // packets, by queue pair
  std::uint64_t at_ = 0;
  bool verify_;
};

/// The ghost sends RDMA WRITEs of 16 packets and takes the acknowledgement of each.
class Requester final : public Case {
 public:
  Requester(unsigned bytes, unsigned qps)
      : Case({.stage = "requester", .variant = "WRITE", .bytes = bytes, .wire_bytes = wire_bytes(bytes), .qps = qps}),
        rig_(false),
        connections_(rig_.shard(), qps, bytes),
        messages_(qps) {}

  std::uint64_t round(Stopwatch& watch) override {
    const std::uint64_t before = rig_.sent();
    std::array<unsigned, messages_at_once> which{};
    for (unsigned& qp : which) {
      qp = static_cast<unsigned>(at_++ % messages_.size());
    }
    const rdma::SendWr write{.opcode = rdma::WrOpcode::rdma_write,
                             .local = {0, label().bytes * packets_of_message, region_key},
                             .rkey = region_key};
    unsigned refused = 0;
    watch.start();
    for (const unsigned qp : which) {
      refused += rig_.shard().transport().post_send(*connections_.qps[qp], write, rig_.now()) ? 0 : 1;
      rig_.pass(packets_of_message);
      rig_.turn();
    }
    watch.stop();
    if (refused != 0) {
      throw std::runtime_error("a queue pair of the bench took no request");
    }
    FrameList acks;
    for (const unsigned qp : which) {
      acks.push_back(*ack(qp));
    }
    watch.start();
    rig_.turn(acks);
    watch.stop();
    return rig_.sent() - before;
  }
  [[nodiscard]] std::uint64_t checksum() const override {
    rig_.expect_no_drop();
    if (connections_.completed != at_) {
      throw std::runtime_error("messages of the bench did not complete");
    }
    return rig_.sum();
  }

 private:
  Frame* ack(unsigned which) {
    const std::uint32_t msn = ++messages_[which];
    const wire::Encapsulation to_ghost{node_to_ghost(which)};
    const auto [frame, behind_bth] = rig_.frame(to_ghost,
                                                {.opcode = wire::Opcode::rc_acknowledge,
                                                 .dest_qpn = connections_.qps[which]->qpn(),
                                                 .psn = Psn{(msn * packets_of_message - 1) & 0xff'ffffU}},
                                                sizeof(wire::Aeth));
    constexpr std::uint8_t ack_without_credits = 0x1f;  // 9.7.7.2: the invalid credit count
    wire::Aeth aeth{};
    aeth.syndrome = ack_without_credits;
    aeth.msn = msn & 0xff'ffffU;
    std::memcpy(frame->data + behind_bth, &aeth, sizeof aeth);
    return frame;
  }

  Rig rig_;
  Connections connections_;
  std::vector<std::uint32_t> messages_;  // acknowledged, by queue pair
  std::uint64_t at_ = 0;
};

/// Packets of one real node to another through the delay line of the port where they leave.
class Transit final : public Case {
 public:
  explicit Transit(unsigned bytes)
      : Case({.stage = "transit", .variant = "10 us", .bytes = bytes, .wire_bytes = wire_bytes(bytes)}), rig_(false) {
    fabric::ProfileSpec profile;
    profile.to_node.delay.push_back({fabric::Match{}, delay, {}, false});
    profile.to_node.delay_line_frames = 4096;
    rig_.shard().replace_profile(profile, rig_.now());
  }

  std::uint64_t round(Stopwatch& watch) override {
    constexpr unsigned frames = 256;
    wire::Path path = node_to_ghost();
    path.destination_mac = *parse_mac("52:54:00:00:00:02");
    path.destination_ip = *parse_ip("10.77.0.2");
    const wire::Encapsulation between{path};
    FrameList arrived;
    for (unsigned i = 0; i < frames; ++i) {
      Frame* frame = rig_.frame(between, {.opcode = wire::Opcode::rc_rdma_write_middle}, label().bytes).first;
      if (wire::parse(frame->bytes(), {.verify_icrc = false}, frame->parsed) != Drop::none) {
        throw std::runtime_error("the parser refused a packet of the bench");
      }
      arrived.push_back(*frame);
    }
    const std::uint64_t before = rig_.sent();
    watch.start();
    for (unsigned i = 0; i < frames; i += label().burst) {
      for (unsigned k = 0; k < label().burst; ++k) {
        rig_.shard().receive_from_peer(*arrived.pop_front(), PortId{1}, rig_.now());
      }
      rig_.pass(label().burst);
      rig_.turn();
    }
    watch.stop();
    rig_.pass(static_cast<unsigned>(delay / spacing) + 1);
    rig_.turn();
    if (rig_.sent() - before != frames) {
      throw std::runtime_error("packets of the bench did not leave");
    }
    return frames;
  }
  [[nodiscard]] std::uint64_t checksum() const override {
    rig_.expect_no_drop();
    return rig_.sum();
  }

 private:
  static constexpr Duration delay = std::chrono::microseconds{10};
  Rig rig_;
};

}  // namespace

Cases rdma_cases() {
  Cases cases;
  for (const bool verify : {false, true}) {
    for (const unsigned bytes : {64U, 1024U, 4096U}) {
      cases.push_back(std::make_unique<Responder>(bytes, verify));
    }
  }
  for (const unsigned burst : {8U, 1U}) {
    cases.push_back(std::make_unique<Responder>(4096U, false, 1, burst));
  }
  for (const unsigned qps : {1000U, 100'000U}) {
    cases.push_back(std::make_unique<Responder>(4096U, false, qps));
  }
  for (const unsigned qps : {1U, 1000U, 100'000U}) {
    cases.push_back(std::make_unique<Requester>(4096U, qps));
  }
  cases.push_back(std::make_unique<Requester>(1024U, 1U));
  for (const unsigned bytes : {1024U, 4096U}) {
    cases.push_back(std::make_unique<Transit>(bytes));
  }
  return cases;
}

}  // namespace nbx::bench
