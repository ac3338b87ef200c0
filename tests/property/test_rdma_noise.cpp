// Whatever well-formed packets arrive, in whatever order, a queue pair answers or does not, keeps its counts, leaks no
// frame and touches no memory outside its regions (the sanitizers look on).
#include <gtest/gtest.h>

#include "base/rng.hpp"
#include "support/rdma_harness.hpp"

namespace nbx::test {
namespace {

using rdma::QpType;

class Noise {
 public:
  Noise(std::uint64_t seed, QpType type, const rdma::Nic& nic = {})
      : rng_(seed), dialogue_(attr(type), {.kept_max = 20}, nic), type_(type), selective_(nic.selective()) {
    post_receives();
  }

  void run() {
    std::uint64_t dropped = 0;
    for (int step = 0; step < 400; ++step) {
      if (dialogue_.qp->state() == rdma::QpState::error) {
        start_again();
      }
      if (rng_.below(8) == 0) {
        dialogue_.post(request());
      }
      dropped += dialogue_.receive(packet()) == Drop::none ? 0 : 1;
      if (rng_.below(3) == 0) {
        dialogue_.replies();
      }
      if (rng_.below(20) == 0) {
        dialogue_.pass(std::chrono::milliseconds{rng_.below(100)});
      }
    }
    std::uint64_t counted = 0;
    for (std::size_t i = 1; i < drop_info.size(); ++i) {
      counted += dialogue_.count(static_cast<Drop>(i));
    }
    EXPECT_EQ(counted, dropped);
    EXPECT_EQ(dialogue_.count(Counter::rx_roce_packets), 400U);
  }

 private:
  static rdma::QpAttr attr(QpType type) {
    rdma::QpAttr attr = Dialogue::default_attr(type);
    attr.max_dest_rd_atomic = 3;
    attr.max_rd_atomic = 2;
    attr.qkey = 1;
    return attr;
  }

  void post_receives() {
    for (int i = 0; i < 64; ++i) {
      dialogue_.post_recv(0, static_cast<std::uint32_t>(rng_.below(1500)), Dialogue::base + rng_.below(1000));
    }
  }
  void start_again() {
    rdma::Transport& transport = *dialogue_.endpoint.transport;
    transport.destroy_qp(*dialogue_.qp);
    dialogue_.qp = transport.create_qp(Endpoint::ghost, dialogue_.attributes, dialogue_.user);
    transport.connect_qp(*dialogue_.qp, dialogue_.attributes);
    post_receives();
    expected_ = Dialogue::first_psn;
    acknowledged_ = Dialogue::ghost_psn;
  }

  std::uint32_t near(std::uint32_t psn) { return (psn + static_cast<std::uint32_t>(rng_.below(8)) - 4) & mask24; }

  rdma::SendWr request() {
    constexpr std::array opcodes = {rdma::WrOpcode::send, rdma::WrOpcode::rdma_write, rdma::WrOpcode::rdma_read,
                                    rdma::WrOpcode::atomic_cmp_and_swp, rdma::WrOpcode::send_with_inv};
    rdma::SendWr wr;
    wr.opcode = opcodes[rng_.below(opcodes.size())];
    const bool atomic = wr.opcode == rdma::WrOpcode::atomic_cmp_and_swp;
    wr.local = {Dialogue::base, static_cast<std::uint32_t>(atomic ? 8 : rng_.below(1000)), Dialogue::key};
    wr.path = dialogue_.attributes.path;
    wr.remote_qpn = Dialogue::peer_qpn;
    return wr;
  }

  /// Right more often than not, so that runs get somewhere before something ends them.
  Packet packet() {
    Packet p;
    do {
      p.opcode = static_cast<wire::Opcode>((static_cast<unsigned>(wire_transport()) << 5U) | rng_.below(0x18));
    } while (!wire::traits(p.opcode).known());
    const auto operation = wire::traits(p.opcode).operation;
    const bool response = operation == wire::Operation::acknowledge ||
                          operation == wire::Operation::atomic_acknowledge ||
                          operation == wire::Operation::rdma_read_response;
    if (response) {
      acknowledged_ += static_cast<std::uint32_t>(rng_.below(2));
      p.psn = near(acknowledged_);
    } else {
      expected_ += static_cast<std::uint32_t>(rng_.below(2));
      p.psn = near(expected_);
    }
    if (wire::traits(p.opcode).payload) {
      p.payload = pattern(wire::traits(p.opcode).ends() ? rng_.below(270) : Dialogue::default_attr().path_mtu);
    }
    p.ack_request = rng_.below(2) == 0;
    p.address = Dialogue::base + (rng_.below(10) == 0 ? rng_.below(1U << 20U) : 8 * rng_.below(100));
    p.rkey = rng_.below(20) == 0 ? 1 : Dialogue::key;
    p.length = static_cast<std::uint32_t>(operation == wire::Operation::rdma_read_request ? rng_.below(2000)
                                          : rng_.below(3) == 0                            ? 3 * 256 + 10
                                                                                          : p.payload.size());
    constexpr std::array<std::uint8_t, 8> syndromes = {0x1f, 0x1f, 0x05, 0x00, 0x21, 0x60, 0x60, 0x1f};
    p.syndrome = rng_.below(50) == 0 ? static_cast<std::uint8_t>(rng_.next()) : syndromes[rng_.below(8)];
    p.imm = Dialogue::key + 1;
    p.qkey = 1;
    if (selective_) {
      p.selective_repeat = rng_.below(2) == 0;
      p.msn = near(acknowledged_ + 4);
    }
    return p;
  }

  [[nodiscard]] wire::Transport wire_transport() const {
    switch (type_) {
      case QpType::rc:
        return wire::Transport::rc;
      case QpType::uc:
        return wire::Transport::uc;
      case QpType::ud:
        return wire::Transport::ud;
    }
    return wire::Transport::rc;
  }

  Rng rng_;
  Dialogue dialogue_;
  QpType type_;
  bool selective_;
  std::uint32_t expected_ = Dialogue::first_psn;
  std::uint32_t acknowledged_ = Dialogue::ghost_psn;
};

TEST(noise, rc) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Noise{seed, QpType::rc}.run();
  }
}
TEST(noise, rc_with_selective_repeat) {
  rdma::Nic nic;
  nic.recovery = rdma::Recovery::selective_repeat;
  nic.out_of_order_packets = 5;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Noise{seed, QpType::rc, nic}.run();
  }
}
TEST(noise, uc) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    Noise{seed, QpType::uc}.run();
  }
}
TEST(noise, ud) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    Noise{seed, QpType::ud}.run();
  }
}

}  // namespace
}  // namespace nbx::test
