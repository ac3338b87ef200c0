// The parts of the NCCL service that compute: a run of ghosts in one step against the same ghosts one by one, delays
// against a tandem worked out hop by hop, and the memory that messages lie in.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "nccl-glue/service/arena.hpp"
#include "nccl-glue/service/delay.hpp"
#include "nccl-glue/service/edge.hpp"
#include "nccl-glue/service/payload.hpp"
#include "nccl-glue/service/ring_transfer.hpp"
#include "support/shard_rig.hpp"

namespace nbx::nccl {
namespace {

using std::chrono::microseconds;

/// Skews and hops as a table.
class TableDelay final : public DelayModel {
 public:
  TableDelay(std::vector<Duration> skews, Duration work, Duration hop)
      : skews_(std::move(skews)), work_(work), hop_(hop) {}
  [[nodiscard]] Duration skew(std::int32_t rank, std::int32_t, std::uint64_t) const override {
    return skews_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] Duration work(const MessageSize&, bool) const override { return work_; }
  [[nodiscard]] Duration hop(const MessageSize&, bool) const override { return hop_; }
  [[nodiscard]] Duration link() const { return hop_ - work_; }
  [[nodiscard]] bool uniform() const override { return false; }
  [[nodiscard]] std::vector<std::int32_t> exceptions(std::uint64_t) const override { return {}; }

 private:
  std::vector<Duration> skews_;
  Duration work_;
  Duration hop_;
};

TableDelay random_delay(std::size_t ranks, std::uint64_t seed) {
  Rng rng{seed};
  std::vector<Duration> skews(ranks);
  for (Duration& skew : skews) {
    skew = microseconds{rng.below(50)};
  }
  return {std::move(skews), microseconds{2}, microseconds{7}};
}

TEST(Delay, ARunIsReadyWhenItsHopsWorkedOutOneByOneAre) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    constexpr std::uint32_t length = 9;
    const TableDelay model = random_delay(length, seed);
    const Duration work = model.work({}, false);
    const Duration hop = model.hop({}, false);
    const Instant called{1'000'000};
    const auto rank_at = [](std::uint32_t distance) { return static_cast<std::int32_t>(distance); };
    RunReadiness run(model, length, 0, called, rank_at, length);
    const auto ready = [&](std::uint32_t d) { return called + model.skew(rank_at(d), length, 0); };
    const auto through = [&](std::uint32_t ghosts, Instant at) {  // each waits for the message and for itself
      for (std::uint32_t d = ghosts; d-- > 0;) {
        at = std::max(at, ready(d)) + work + (d > 0 ? model.link() : Duration::zero());
      }
      return at;
    };
    for (std::uint32_t distance = 0; distance < length; ++distance) {
      const Instant sent = ready(distance);
      EXPECT_EQ(run.own(distance, work, hop), distance == 0 ? sent : through(distance, sent + model.link()))
          << "seed " << seed << ", distance " << distance;
    }
    for (const int late_us : {0, 20, 500}) {
      const Instant arrival = called + microseconds{late_us};
      EXPECT_EQ(run.passed(arrival, work, hop), through(length, arrival)) << "seed " << seed;
    }
  }
}

TEST(Delay, StragglersAreLateAsOftenAsAsked) {
  DelayOptions options;
  options.skew = {.shape = SkewShape::constant, .mean = microseconds{3}};
  options.stragglers = {{.rank = 4, .delay = microseconds{100}, .every = 5, .first = 2}};
  const auto model = std::move(*make_delay_model(options, 4096, 1));
  for (std::uint64_t collective = 0; collective < 20; ++collective) {
    const bool late = collective >= 2 && (collective - 2) % 5 == 0;
    EXPECT_EQ(model->skew(4, 8, collective), microseconds{late ? 103 : 3}) << collective;
    EXPECT_EQ(model->skew(3, 8, collective), microseconds{3});
    EXPECT_EQ(model->exceptions(collective).size(), late ? 1U : 0U);
  }
}

TEST(Delay, HopsFollowFormulaAndTable) {
  DelayOptions options;
  options.hop = {.latency = microseconds{2}, .rate = BitRate::gbps(8), .per_message = microseconds{1}};
  const auto make = [&] { return std::move(*make_delay_model(options, 1024, 1)); };
  const auto hop = [](const auto& model, std::uint64_t bytes, bool reduces) {
    return model->hop({.wire = bytes, .data = bytes}, reduces);
  };
  // 1 ns per byte. A packet has 58 bytes of headers and ICRC, a message 20 of RETH and immediate; IEEE 802.3: 24 bytes
  // of preamble, FCS and gap.
  EXPECT_EQ(hop(make(), 1000, false), microseconds{3} + std::chrono::nanoseconds{1000 + 58 + 24 + 20});
  EXPECT_EQ(hop(make(), 2049, false), microseconds{3} + std::chrono::nanoseconds{2049 + 3 * (58 + 24) + 20});
  options.hop.reduce_rate = BitRate::gbps(80);
  EXPECT_EQ(hop(make(), 10000, true) - hop(make(), 10000, false), microseconds{1});
  EXPECT_EQ(make()->work({.wire = 20000, .data = 10000}, true), microseconds{2});  // once more for each message
  options.table = {{1000, microseconds{10}}, {3000, microseconds{30}}};
  EXPECT_EQ(hop(make(), 1, false), microseconds{10});
  EXPECT_EQ(hop(make(), 2000, false), microseconds{20});
  EXPECT_EQ(hop(make(), 9999, false), microseconds{30});
}

TEST(Delay, RandomSkewsHaveTheMeanAskedForAndRepeat) {
  for (const SkewShape shape : {SkewShape::uniform, SkewShape::exponential}) {
    DelayOptions options;
    options.skew = {.shape = shape, .mean = microseconds{100}};
    const auto model = std::move(*make_delay_model(options, 4096, 7));
    const auto again = std::move(*make_delay_model(options, 4096, 7));
    double sum = 0;
    constexpr int draws = 20000;
    for (int i = 0; i < draws; ++i) {
      const Duration skew = model->skew(i % 100, 100, static_cast<std::uint64_t>(i / 100));
      EXPECT_EQ(skew, again->skew(i % 100, 100, static_cast<std::uint64_t>(i / 100)));
      sum += static_cast<double>(skew.count());
    }
    EXPECT_NEAR(sum / draws / 1e6, 100, 3);  // standard error below 0.71
  }
}

TEST(Delay, AMissingLibraryIsAnError) {
  DelayOptions options;
  options.library = "/nowhere/model.so";
  EXPECT_NE(make_delay_model(options, 4096, 1).error().message.find("/nowhere/model.so"), std::string::npos);
}

/// NCCL's LL primitives send every line of steps 0x7ffffff8 to 0x7fffffff, so that flags of 2^31 steps ago are gone.
TEST(Steps, LLSendsWholeStepsWhereItsFlagsWrap) {
  const Transfer::Steps ll{.whole = 65536};
  StepCounter counter{0x7ffffff6};
  for (std::uint64_t step = 0x7ffffff6; step <= 0x80000001; ++step) {
    ASSERT_EQ(counter.next(ll, step % 3 == 0), step);
    EXPECT_EQ(bytes_at(step, ll, 16), step >= 0x7ffffff8 && step <= 0x7fffffff ? 65536U : 16U) << step;
    EXPECT_EQ(bytes_at(step, {}, 16), 16U) << "only LL does";
  }
}

TEST(Steps, OperationsBeginAtAMultipleOfTheirChunk) {
  const Transfer::Steps ring{.per_message = 2, .align = 4};
  StepCounter counter{3};
  EXPECT_EQ(counter.next(ring, true), 4U);
  EXPECT_EQ(counter.next(ring, false), 6U);
  EXPECT_EQ(counter.next({}, true), 8U);
}

/// A shard for its transport.
struct Rig {
  Rig() : shard(test::one_ghost_plan()), arena(shard.shard().transport(), 1ULL << 30U) {}
  test::ShardRig shard;
  Arena arena;
};

TEST(Arena, GivesOutWhatCameBack) {
  Rig rig;
  const auto a = rig.arena.take(5000);
  const auto b = rig.arena.take(5000);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(rig.arena.bytes(*a).size(), 5000U);
  EXPECT_GE(std::max(a->offset, b->offset) - std::min(a->offset, b->offset), 5000U);
  rig.arena.give_back(*a);
  EXPECT_EQ(rig.arena.take(8000)->offset, a->offset);  // of the same class
  EXPECT_FALSE(rig.arena.take(Arena::buffer_max + 1));
}

TEST(Arena, AWholeStepHasTheDataAndEmptyLinesAllWithTheFlag) {
  Rig rig;
  constexpr std::uint64_t step = 0x7ffffff9;
  const ServiceOptions options;
  Payloads payloads(rig.arena, options, 2);
  const std::vector<std::byte> data(24, std::byte{7});
  const Outgoing whole = with_empty_lines(rig.arena, payloads.made(data, Protocol::ll, step), 160, step);
  const MutableBytes lines = rig.arena.bytes({.offset = whole.buffer.offset, .size = whole.size});
  ASSERT_EQ(lines.size(), 160U);
  EXPECT_TRUE(flagged(Protocol::ll, lines, step));
  std::vector<std::byte> back(80);
  decode(Protocol::ll, lines, back);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), back.begin()));
  EXPECT_TRUE(std::all_of(back.begin() + 24, back.end(), [](std::byte b) { return b == std::byte{0}; }));
  rig.arena.give_back(whole.buffer);
  EXPECT_EQ(rig.arena.in_use(), 0U);
}

TEST(Arena, IsTheSameMemoryAtEveryGhost) {
  Rig rig;
  const auto buffer = rig.arena.take(64);
  rig.arena.bytes(*buffer)[3] = std::byte{42};
  const NetBuffer at = rig.arena.at(GhostId{0}, *buffer);
  std::array<std::byte, 4> read{};
  rig.shard.shard().transport().memory(GhostId{0}).find(at.key)->read(at.addr, read);
  EXPECT_EQ(read[3], std::byte{42});
}

/// All-reduces on one channel, with rank 0 real and the others one run of ghosts.
struct AllReduces {
  AllReduces(std::uint32_t n, std::uint64_t bytes, std::uint32_t chunk, Duration work, Duration hop)
      : ranks(n),
        delay(std::vector<Duration>(n), work, hop),
        planned{.operation = {.collective = Collective::all_reduce, .count = bytes / 4, .type = DataType::i32},
                .decision = {}},
        plan(planned.operation, planned.decision, {.ranks = n, .nodes = n},
             {.offset = 0, .bytes = bytes, .chunk = chunk}),
        payloads(rig.arena, options, n) {}

  std::shared_ptr<RingTransfer> make(Instant called) {
    const RingPlace place{
        .last = ranks - 1, .length = ranks - 1, .ranks = ranks, .rank_at = [this](std::uint32_t distance) {
          return static_cast<std::int32_t>(ranks - 1 - distance);
        }};
    RunReadiness readiness(delay, static_cast<std::int32_t>(ranks), 0, called, place.rank_at, place.length);
    return std::make_shared<RingTransfer>(planned, plan, place, std::move(readiness), delay, payloads);
  }
  void receive(RingTransfer& transfer, std::uint64_t i, Instant at) {
    const Transfer::Offer offer = transfer.offer(0, i);
    transfer.received(0, i, {.buffer = *rig.arena.take(offer.room), .size = offer.size, .arrival = at});
  }

  std::uint32_t ranks;
  Rig rig;
  TableDelay delay;
  PlannedOperation planned;
  RingPlan plan;
  ServiceOptions options;
  Payloads payloads;
};

/// NCCL's kernels take turns: send, receive and send on, ..., receive. What comes last in a loop is a receive, and the
/// next loop's first send, of this collective or of the next one, comes behind it.
TEST(Loops, AGhostBeginsOneWhenItHasEndedTheOneBefore) {
  AllReduces of(2, 4 * 16384, 16384, {}, {});  // two loops, two positions, two slices
  const Instant called{1'000'000};
  ASSERT_EQ(of.plan.sends(1), 8U);
  const auto first = of.make(called);
  const auto second = of.make(called);
  second->follow(first);
  EXPECT_EQ(first->ready(0, 0), called);
  for (std::uint64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(first->ready(0, 4) == Instant::never(), i < 4) << "the second loop, when " << i << " have come";
    EXPECT_EQ(second->ready(0, 0), Instant::never());
    of.receive(*first, i, called + microseconds{10 * (i + 1)});
  }
  EXPECT_EQ(first->ready(0, 4), called + microseconds{40});
  EXPECT_EQ(second->ready(0, 0), called + microseconds{80});
}

/// The last of three ghosts sends its own part first, and it ended the collective before with the message that has two
/// more ghosts to pass: long ago, or a while after its call.
TEST(Loops, AGhostThatHasLongEndedTheOneBeforeWaitsForNobodysCall) {
  constexpr Duration work = microseconds{2};
  constexpr Duration hop = microseconds{7};
  AllReduces of(4, 4 * 2 * 16384, 32768, work, hop);  // one loop, six positions, two slices
  const Instant called{1'000'000'000};
  const auto ready_when_one_before_ended = [&](Instant arrival) {
    const auto first = of.make(called - microseconds{500});
    for (std::uint64_t i = 0; i < first->messages_in(0); ++i) {
      of.receive(*first, i, arrival);
    }
    const auto second = of.make(called);
    second->follow(first);
    return second->ready(0, 0);
  };
  EXPECT_EQ(ready_when_one_before_ended(called - microseconds{100}), called);
  EXPECT_EQ(ready_when_one_before_ended(called + microseconds{30}), called + microseconds{30} + 2 * hop + work);
}

struct RunCase {
  Collective collective;
  Protocol protocol;
  RedOp op;
  Contribution contribution;
};

class RunOfGhosts : public testing::TestWithParam<RunCase> {
 protected:
  struct Sent {
    Instant at;
    std::vector<std::byte> bytes;
    bool operator==(const Sent&) const = default;
  };

  static constexpr std::uint32_t ranks = 6;
  static constexpr std::uint64_t bytes = 100'000;

  RunOfGhosts() : delay(random_delay(ranks, 3)) {
    planned.operation = {
        .collective = GetParam().collective, .count = bytes / 4, .type = DataType::i32, .op = GetParam().op};
    planned.decision.protocol = GetParam().protocol;
    options.contribution = GetParam().contribution;
    options.filling = Filling::pattern;
  }

  /// The ghosts at ring indices last - length + 1 .. last as one transfer: what it sends for `incoming`.
  std::vector<Sent> play(std::uint32_t last, std::uint32_t length, const std::vector<Sent>& incoming) {
    const CommShape shape{.ranks = ranks, .nodes = ranks, .channels = 1};
    const RingPlan plan(planned.operation, planned.decision, shape, {.offset = 0, .bytes = bytes, .chunk = 16384});
    Payloads payloads(rig.arena, options, ranks);
    RingPlace place{.last = last, .length = length, .ranks = ranks, .rank_at = [last](std::uint32_t distance) {
                      return static_cast<std::int32_t>((last + ranks - distance) % ranks);
                    }};
    RunReadiness readiness(delay, ranks, 0, Instant{1'000'000}, place.rank_at, length);
    RingTransfer transfer(planned, plan, place, readiness, delay, payloads);
    EXPECT_EQ(incoming.size(), transfer.messages_in(0));
    for (std::uint64_t i = 0; i < incoming.size(); ++i) {
      EXPECT_EQ(incoming[i].bytes.size(), transfer.offer(0, i).size) << "message " << i;
      const auto buffer = rig.arena.take(transfer.offer(0, i).room);
      std::copy(incoming[i].bytes.begin(), incoming[i].bytes.end(), rig.arena.bytes(*buffer).begin());
      transfer.received(0, i, {.buffer = *buffer, .size = incoming[i].bytes.size(), .arrival = incoming[i].at});
    }
    std::vector<Sent> sent;
    for (std::uint64_t i = 0; i < transfer.messages_out(0); ++i) {
      const Instant at = transfer.ready(0, i);
      const Outgoing out = transfer.take(0, i, i);
      const MutableBytes content = rig.arena.bytes({.offset = out.buffer.offset, .size = out.size});
      sent.push_back({at, {content.begin(), content.end()}});
      if (!out.shared) {
        rig.arena.give_back(out.buffer);
      }
    }
    return sent;
  }

  /// What the real rank at ring index `rank` might send.
  std::vector<Sent> from_real(std::uint32_t rank) {
    const CommShape shape{.ranks = ranks, .nodes = ranks, .channels = 1};
    const RingPlan plan(planned.operation, planned.decision, shape, {.offset = 0, .bytes = bytes, .chunk = 16384});
    std::vector<Sent> out;
    for (std::uint64_t i = 0; i < plan.sends(rank); ++i) {
      const RingMessage message = plan.sent(rank, i);
      std::vector<std::byte> data(message.bytes);
      fill_pattern(data, DataType::i32, rank, message.offset / 4 + i);
      std::vector<std::byte> lines(plan.wire_bytes(message.bytes));
      if (planned.decision.protocol == Protocol::simple) {
        lines = data;
      } else {
        encode(planned.decision.protocol, data, i, lines);
      }
      out.push_back({Instant{1'000'000} + microseconds{3 * i}, lines});
    }
    return out;
  }

  Rig rig;
  TableDelay delay;
  PlannedOperation planned;
  ServiceOptions options;
};

TEST_P(RunOfGhosts, InOneStepDoesWhatItsGhostsDoOneByOne) {
  for (std::uint32_t length = 1; length < ranks; ++length) {
    const std::uint32_t before = 2;  // the real rank's ring index
    const std::vector<Sent> incoming = from_real(before);
    std::vector<Sent> one_by_one = incoming;
    for (std::uint32_t k = 1; k <= length; ++k) {
      if (k > 1) {
        for (Sent& message : one_by_one) {
          message.at = message.at + delay.link();
        }
      }
      one_by_one = play((before + k) % ranks, 1, one_by_one);
    }
    const std::vector<Sent> in_one = play((before + length) % ranks, length, incoming);
    ASSERT_EQ(in_one.size(), one_by_one.size());
    for (std::size_t i = 0; i < in_one.size(); ++i) {
      EXPECT_EQ(in_one[i].at, one_by_one[i].at) << length << " ghosts, message " << i;
      EXPECT_EQ(in_one[i].bytes, one_by_one[i].bytes) << length << " ghosts, message " << i;
    }
    EXPECT_EQ(rig.arena.in_use(), 0U);
  }
}

constexpr RunCase run_cases[] = {
    {Collective::all_reduce, Protocol::simple, RedOp::sum, Contribution::identity},
    {Collective::all_reduce, Protocol::ll, RedOp::max, Contribution::identity},
    {Collective::all_reduce, Protocol::ll128, RedOp::avg, Contribution::identity},
    {Collective::all_reduce, Protocol::simple, RedOp::sum, Contribution::pattern},
    {Collective::all_reduce, Protocol::ll128, RedOp::prod, Contribution::pattern},
    {Collective::all_gather, Protocol::simple, RedOp::sum, Contribution::identity},
    {Collective::all_gather, Protocol::ll, RedOp::sum, Contribution::identity},
    {Collective::reduce_scatter, Protocol::simple, RedOp::min, Contribution::identity},
    {Collective::reduce_scatter, Protocol::ll128, RedOp::sum, Contribution::pattern},
    {Collective::broadcast, Protocol::simple, RedOp::sum, Contribution::identity},
    {Collective::reduce, Protocol::ll, RedOp::sum, Contribution::pattern},
};
INSTANTIATE_TEST_SUITE_P(Ring, RunOfGhosts, testing::ValuesIn(run_cases));

}  // namespace
}  // namespace nbx::nccl
