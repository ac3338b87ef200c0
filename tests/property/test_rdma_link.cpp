// Whatever a link does short of cutting it, every request completes once, in order, with the right bytes: two endpoints
// with random requests over random loss, copies and reordering, by seed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <deque>
#include <tuple>

#include "base/rng.hpp"
#include "support/rdma_harness.hpp"

namespace nbx::test {
namespace {

using rdma::WrOpcode;

constexpr std::uint64_t local_base = 0x1000'0000;
constexpr std::uint64_t remote_base = 0x2000'0000;
constexpr std::uint64_t receive_base = 0x3000'0000;
constexpr std::uint64_t counter_address = 0x4000'0000;
constexpr std::uint32_t local_key = 0x1001;
constexpr std::uint32_t remote_key = 0x2002;
constexpr std::uint32_t receive_key = 0x3003;
constexpr std::uint32_t counter_key = 0x4004;
constexpr std::uint32_t slot = 1U << 16U;  // of memory per request

struct Scenario {
  double loss = 0;
  double copies = 0;
  double reorder = 0;
  unsigned requests = 60;
  bool credits = false;
  rdma::Nic requester{};
  rdma::Nic responder{};
  std::size_t kept_max = 2048;
  bool reads = false;  // nothing else, and only responses are lost
};

constexpr rdma::Nic selective(std::uint32_t out_of_order_packets = 256) {
  rdma::Nic nic;
  nic.recovery = rdma::Recovery::selective_repeat;
  nic.out_of_order_packets = out_of_order_packets;
  return nic;
}

/// A requester at one endpoint, a responder at the other, and what they should agree on in the end.
class Exchange {
 public:
  Exchange(std::uint64_t seed, const Scenario& scenario)
      : rng_(seed),
        scenario_(scenario),
        a_{{}, 2048, scenario.requester},
        b_{{.kept_max = scenario.kept_max}, 2048, scenario.responder} {
    attr_.path_mtu = 256U << rng_.below(5);
    attr_.path = path_between(1, 2);
    attr_.access = Dialogue::all_access;
    attr_.sq_psn = Psn{static_cast<std::uint32_t>(0x0100'0000 - rng_.below(200)) & mask24};  // most runs wrap
    attr_.rq_psn = Psn{7};
    attr_.qpn = Qpn{0x101};
    attr_.dest_qpn = Qpn{0x202};
    attr_.timeout = 8;         // 1 ms
    attr_.min_rnr_timer = 10;  // 0.32 ms
    attr_.max_rd_atomic = attr_.max_dest_rd_atomic = static_cast<std::uint8_t>(1 + rng_.below(8));
    attr_.max_outstanding_packets = static_cast<std::uint32_t>(1 + rng_.below(64));
    rdma::QpAttr back = attr_;
    back.path = reversed(attr_.path);
    back.qpn = attr_.dest_qpn;
    back.dest_qpn = attr_.qpn;
    back.sq_psn = attr_.rq_psn;
    back.rq_psn = attr_.sq_psn;
    back.end_to_end_credits = scenario.credits;

    const auto add = [](Endpoint& e, std::uint64_t addr, std::uint64_t length, std::uint32_t key) {
      return e.transport->memory(Endpoint::ghost).add({addr, length, key, Dialogue::all_access, rdma::Backing::memory});
    };
    local_ = add(a_, local_base, std::uint64_t{scenario.requests} * slot, local_key);
    remote_ = add(b_, remote_base, std::uint64_t{scenario.requests} * slot, remote_key);
    received_ = add(b_, receive_base, std::uint64_t{scenario.requests} * slot, receive_key);
    counter_ = add(b_, counter_address, 8, counter_key);
    requester_ = a_.transport->create_qp(Endpoint::ghost, attr_, requester_user_);
    responder_ = b_.transport->create_qp(Endpoint::ghost, back, responder_user_);
    a_.transport->connect_qp(*requester_, attr_);
    b_.transport->connect_qp(*responder_, back);
    responder_user_.then = [this](rdma::Qp& qp, const rdma::Completion&, Instant) {
      if (rng_.below(2) != 0) {  // sometimes late, so that the responder is not ready
        post_receive(qp);
      }
    };
  }

  /// Packets of responses beyond those that the READs take.
  [[nodiscard]] std::uint64_t sent_again() const {
    std::uint64_t needed = 0;
    for (const rdma::SendWr& wr : requests_) {
      needed += wr.local.length == 0 ? 1 : (wr.local.length + attr_.path_mtu - 1) / attr_.path_mtu;
    }
    return responder_->stats().data_frames_tx - needed;
  }

  void run() {
    for (unsigned i = 0; i < scenario_.requests; ++i) {
      requests_.push_back(make_request(i));
      ASSERT_TRUE(a_.transport->post_send(*requester_, requests_.back(), {}));
    }
    Link link{a_, b_, [this](unsigned, const Packet& packet) {
                return scenario_.reads && packet.opcode == wire::Opcode::rc_rdma_read_request ? Fate{} : judge();
              }};
    for (unsigned step = 1; step <= 4000 && requester_user_.completions.size() < requests_.size(); ++step) {
      post_receive(*responder_);
      link.run(Instant{} + std::chrono::milliseconds{step});
      link.now = Instant{} + std::chrono::milliseconds{step};
    }
    verify();
  }

 private:
  Fate judge() {
    Fate fate;
    fate.lost = rng_.unit() < scenario_.loss;
    fate.twice = rng_.unit() < scenario_.copies;
    if (rng_.unit() < scenario_.reorder) {
      fate.late = std::chrono::nanoseconds{rng_.below(2000)};
    }
    return fate;
  }

  void post_receive(rdma::Qp& qp) {
    if (receives_posted_ < scenario_.requests) {
      b_.transport->post_recv(qp, {receives_posted_, {receive_base + receives_posted_ * slot, slot, receive_key}});
      ++receives_posted_;
    }
  }

  rdma::SendWr make_request(unsigned i) {
    constexpr std::array opcodes = {WrOpcode::send,      WrOpcode::send_with_imm,       WrOpcode::rdma_write,
                                    WrOpcode::rdma_read, WrOpcode::rdma_write_with_imm, WrOpcode::atomic_fetch_and_add};
    rdma::SendWr wr;
    wr.wr_id = i;
    wr.opcode = scenario_.reads ? WrOpcode::rdma_read : opcodes[rng_.below(opcodes.size())];
    wr.fence = rng_.below(5) == 0;
    wr.imm_data = 0xf00d0000U + i;
    const bool atomic = wr.opcode == WrOpcode::atomic_fetch_and_add;
    const std::uint64_t size = rng_.below(8) == 0 ? 0 : rng_.below((scenario_.reads ? 16ULL : 6ULL) * attr_.path_mtu);
    wr.local = {local_base + i * slot, static_cast<std::uint32_t>(atomic ? 8 : size), local_key};
    wr.remote_addr = atomic ? counter_address : remote_base + i * slot;
    wr.rkey = atomic ? counter_key : remote_key;
    wr.compare_add = 1 + i;
    (wr.opcode == WrOpcode::rdma_read ? remote_ : local_)
        ->write((wr.opcode == WrOpcode::rdma_read ? remote_base : local_base) + i * slot, pattern(size, i));
    return wr;
  }

  static Bytes bytes_of(const rdma::Region& region, std::uint64_t at, std::size_t size) {
    Bytes bytes(size);
    region.read(at, bytes);
    return bytes;
  }

  void verify() {
    ASSERT_THAT(requester_user_.errors, ::testing::IsEmpty());
    ASSERT_THAT(responder_user_.errors, ::testing::IsEmpty());
    ASSERT_EQ(requester_user_.completions.size(), requests_.size());
    std::uint64_t sum = 0;
    std::size_t receive = 0;
    for (unsigned i = 0; i < requests_.size(); ++i) {
      const rdma::SendWr& wr = requests_[i];
      SCOPED_TRACE("request " + std::to_string(i) + " opcode " + std::to_string(static_cast<int>(wr.opcode)));
      ASSERT_EQ(requester_user_.completions[i].wr_id, i) << "requests complete in order";
      ASSERT_EQ(requester_user_.completions[i].status, rdma::WcStatus::success);
      const Bytes expected = pattern(wr.local.length, i);
      switch (wr.opcode) {
        case WrOpcode::rdma_write:
          ASSERT_EQ(bytes_of(*remote_, wr.remote_addr, wr.local.length), expected);
          break;
        case WrOpcode::rdma_read:
          ASSERT_EQ(bytes_of(*local_, wr.local.addr, wr.local.length), expected);
          break;
        case WrOpcode::atomic_fetch_and_add: {
          std::uint64_t original = 0;
          local_->read(wr.local.addr, std::as_writable_bytes(std::span{&original, 1}));
          ASSERT_EQ(original, sum) << "atomics are executed once";
          sum += wr.compare_add;
          break;
        }
        default: {
          ASSERT_LT(receive, responder_user_.completions.size());
          const rdma::Completion& completion = responder_user_.completions[receive];
          ASSERT_EQ(completion.wr_id, receive);
          ASSERT_EQ(completion.byte_len, wr.local.length);
          ASSERT_EQ(completion.has_imm, wr.opcode != WrOpcode::send);
          ASSERT_EQ(completion.imm_data, completion.has_imm ? wr.imm_data : 0);
          const bool write = wr.opcode == WrOpcode::rdma_write_with_imm;
          ASSERT_EQ(write ? bytes_of(*remote_, wr.remote_addr, wr.local.length)
                          : bytes_of(*received_, receive_base + receive * slot, wr.local.length),
                    expected);
          ++receive;
        }
      }
    }
    ASSERT_EQ(responder_user_.completions.size(), receive);
    std::uint64_t total = 0;
    counter_->read(counter_address, std::as_writable_bytes(std::span{&total, 1}));
    ASSERT_EQ(total, sum);
  }

  Rng rng_;
  Scenario scenario_;
  Recorder requester_user_;
  Recorder responder_user_;
  Endpoint a_;
  Endpoint b_;
  rdma::QpAttr attr_;
  rdma::Qp* requester_ = nullptr;
  rdma::Qp* responder_ = nullptr;
  rdma::Region* local_ = nullptr;
  rdma::Region* remote_ = nullptr;
  rdma::Region* received_ = nullptr;
  rdma::Region* counter_ = nullptr;
  std::deque<rdma::SendWr> requests_;
  std::uint64_t receives_posted_ = 0;
};

class RdmaLink : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(RdmaLink, clean) { Exchange{GetParam(), {}}.run(); }
TEST_P(RdmaLink, one_percent_loss) { Exchange{GetParam(), {.loss = 0.01}}.run(); }
TEST_P(RdmaLink, ten_percent_loss) { Exchange{GetParam(), {.loss = 0.1}}.run(); }
TEST_P(RdmaLink, copies) { Exchange{GetParam(), {.copies = 0.3}}.run(); }
TEST_P(RdmaLink, reordering) { Exchange{GetParam(), {.reorder = 0.1}}.run(); }
TEST_P(RdmaLink, everything_at_once) { Exchange{GetParam(), {.loss = 0.03, .copies = 0.05, .reorder = 0.05}}.run(); }
TEST_P(RdmaLink, everything_at_once_with_credits) {
  Exchange{GetParam(), {.loss = 0.03, .copies = 0.05, .reorder = 0.05, .credits = true}}.run();
}

constexpr Scenario with(const rdma::Nic& requester, const rdma::Nic& responder, std::size_t kept_max = 2048) {
  return {.loss = 0.03,
          .copies = 0.05,
          .reorder = 0.05,
          .requester = requester,
          .responder = responder,
          .kept_max = kept_max};
}
TEST_P(RdmaLink, selective_repeat) { Exchange{GetParam(), with(selective(), selective())}.run(); }
TEST_P(RdmaLink, selective_repeat_with_little_room) { Exchange{GetParam(), with(selective(), selective(3))}.run(); }
TEST_P(RdmaLink, selective_repeat_with_room_for_two_in_all) {
  Exchange{GetParam(), with(selective(), selective(), 2)}.run();
}
TEST_P(RdmaLink, requester_goes_back_n_and_responder_keeps) { Exchange{GetParam(), with({}, selective())}.run(); }
TEST_P(RdmaLink, responder_keeps_nothing) { Exchange{GetParam(), with(selective(), {})}.run(); }
TEST_P(RdmaLink, selective_repeat_at_ten_percent_loss) {
  Exchange{GetParam(), {.loss = 0.1, .requester = selective(), .responder = selective()}}.run();
}

/// Of all that is sent again, hardly more than what was lost.
TEST(RdmaReads, selective_repeat_asks_for_what_is_missing) {
  std::uint64_t back_n = 0;
  std::uint64_t again = 0;
  std::uint64_t from_back_n = 0;  // of a responder that knows nothing of it
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    for (const auto& [requester, responder, sum] :
         {std::tuple{rdma::Nic{}, rdma::Nic{}, &back_n}, std::tuple{selective(), selective(), &again},
          std::tuple{selective(), rdma::Nic{}, &from_back_n}}) {
      Exchange exchange{seed, {.loss = 0.02, .requester = requester, .responder = responder, .reads = true}};
      exchange.run();
      *sum += exchange.sent_again();
    }
  }
  std::printf("response packets sent again: go-back-N %lu, selective repeat %lu, of a responder without it %lu\n",
              static_cast<unsigned long>(back_n), static_cast<unsigned long>(again),
              static_cast<unsigned long>(from_back_n));
  EXPECT_LT(again * 3, back_n);
  EXPECT_LT(from_back_n, back_n);
}

INSTANTIATE_TEST_SUITE_P(seeds, RdmaLink, ::testing::Range(std::uint64_t{1}, std::uint64_t{21}));

}  // namespace
}  // namespace nbx::test
