// Two connection managers over a link that loses, doubles and reorders. Whatever happens, both ends agree that an
// established connection was one, every connection ends exactly once, and nothing is left.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "support/cm_harness.hpp"

namespace nbx::rdma {
namespace {

using namespace std::chrono_literals;
using test::CmHost;

constexpr std::uint64_t service = 0x4321;
constexpr std::uint8_t response_timeout = 12;  // 17 ms: timeouts, copies and late messages are to meet

/// A host that counts what becomes of each of its connections.
struct Party {
  explicit Party(std::uint64_t seed) : host({.response_timeout = response_timeout}, seed) {
    host.cm.listen(CmHost::ghost, service, host);
  }

  [[nodiscard]] std::size_t logged(std::string_view what) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(host.log, [what](const std::string& line) { return line.starts_with(what); }));
  }

  CmHost host;
};

class TwoParties {
 public:
  TwoParties(std::uint64_t seed, double loss, double copies, double lateness)
      : rng_(Rng{seed}.fork("link")),
        a(seed * 2 + 1),
        b(seed * 2 + 2),
        link(a.host.endpoint, b.host.endpoint, [this, loss, copies, lateness](unsigned, const test::Packet&) {
          test::Fate fate;
          fate.lost = Chance{loss}.draw(rng_);
          fate.twice = Chance{copies}.draw(rng_);
          if (Chance{lateness}.draw(rng_)) {  // up to two response times: behind a retransmission
            fate.late = Duration{static_cast<std::int64_t>(rng_.below(2 * (4'096'000ULL << response_timeout)))};
          }
          return fate;
        }) {}

  void expect_nothing_left() {
    for (Party* party : {&a, &b}) {
      party->host.expect_clean(link.now);
      EXPECT_TRUE(party->host.qps.empty());
    }
  }

 private:
  Rng rng_;

 public:
  Party a;
  Party b;
  test::Link link;
};

ConnectParam param(std::uint8_t from, std::uint8_t to) {
  return {.service_id = service, .path = test::path_between(from, to), .local_ack_timeout = 14, .private_data = {}};
}

class CmLink : public testing::TestWithParam<std::uint64_t> {};

TEST_P(CmLink, ends_agree_and_nothing_is_left) {
  const std::uint64_t seed = GetParam();
  Rng rng{seed};
  TwoParties world(seed, 0.05 * static_cast<double>(rng.below(6)), 0.1, 0.2);
  auto [a, b, link] = std::tie(world.a, world.b, world.link);
  std::size_t opened = 0;
  const auto end_some = [&](Party& party) {
    party.host.then_established = [&party, &rng](ConnectionId id, Instant now) {
      if (rng.below(2) == 0) {
        party.host.cm.disconnect(id, now);
      }
    };
  };
  end_some(a);
  end_some(b);
  for (unsigned round = 0; round < 20; ++round) {
    opened += a.host.connect(param(1, 2), link.now) != ConnectionId::none ? 1 : 0;
    opened += b.host.connect(param(2, 1), link.now) != ConnectionId::none ? 1 : 0;
    const Instant next = link.now + Duration{static_cast<std::int64_t>(rng.below(50'000'000'000))};
    link.run(next);
    link.now = next;
  }
  link.run(link.now + 600s);
  EXPECT_EQ(a.host.qps.size(), b.host.qps.size()) << "a connection of one end only";
  for (const auto& [id, qp] : std::map(a.host.qps)) {  // what nobody has ended yet
    EXPECT_EQ(qp->state(), QpState::rts);
    a.host.cm.disconnect(id, link.now);
  }
  link.run(link.now + 600s);
  EXPECT_EQ(opened, 40U);
  EXPECT_GE(a.logged("disconnected") + b.logged("disconnected"), opened) << "an active end hears of every connection";
  world.expect_nothing_left();
}

INSTANTIATE_TEST_SUITE_P(Seeds, CmLink, testing::Range<std::uint64_t>(1, 61));

/// A peer that says anything: real messages with words exchanged for others it has seen, or for noise.
TEST_P(CmLink, any_message_at_any_time_is_survived) {
  Rng rng{GetParam()};
  Party party(GetParam());
  Instant now{};
  const wire::Path back = test::path_between(2, 1);
  std::vector<test::Bytes> seen;
  const auto collect = [&] {
    for (const test::Bytes& frame : party.host.endpoint.sent(now)) {
      wire::Parsed parsed;
      ASSERT_EQ(wire::parse(frame, {}, parsed), Drop::none);
      const ConstBytes mad = wire::payload(frame, parsed);
      seen.emplace_back(mad.begin(), mad.end());
    }
  };
  party.host.connect(param(2, 1), now);
  collect();
  for (unsigned i = 0; i < 2000; ++i) {
    test::Bytes mad = seen[rng.below(seen.size())];
    mad[17] = static_cast<std::byte>(0x10 + rng.below(11));  // the attribute
    if (rng.below(2) == 0) {                                 // our ids, where the peer's message has them
      std::swap_ranges(mad.begin() + 24, mad.begin() + 28, mad.begin() + 28);
    }
    for (std::uint64_t changes = rng.below(4); changes != 0; --changes) {
      const std::size_t at = 24 + 4 * rng.below(58);
      const test::Bytes& other = seen[rng.below(seen.size())];
      std::copy_n(other.begin() + 24 + 4 * static_cast<std::ptrdiff_t>(rng.below(58)), 4,
                  mad.begin() + static_cast<std::ptrdiff_t>(at));
    }
    party.host.cm.on_mad(CmHost::ghost, mad, back, now);
    if (rng.below(4) == 0) {
      now = now + Duration{static_cast<std::int64_t>(rng.below(40'000'000'000))};
      party.host.endpoint.wheel.run(now);
    }
    if (rng.below(50) == 0) {
      party.host.connect(param(2, 1), now);
    }
    collect();
    seen.resize(std::min<std::size_t>(seen.size(), 64));
  }
  for (const auto& [id, qp] : std::map(party.host.qps)) {
    party.host.cm.disconnect(id, now);
  }
  while (party.host.endpoint.wheel.armed() != 0) {
    now = std::max(now, party.host.endpoint.wheel.next_deadline());
    party.host.endpoint.wheel.run(now);
    static_cast<void>(party.host.endpoint.sent(now));
  }
  party.host.expect_clean(now);
}

TEST(CmChurn, ten_thousand_connections_leave_nothing) {
  TwoParties world(7, 0.0, 0.0, 0.0);
  auto& a = world.a;
  auto& b = world.b;
  auto& link = world.link;
  a.host.then_established = [&a](ConnectionId id, Instant now) { a.host.cm.disconnect(id, now); };
  std::set<std::uint32_t> ids;
  for (unsigned i = 0; i < 10'000; ++i) {
    ids.insert(static_cast<std::uint32_t>(a.host.connect(param(1, 2), link.now)));
    link.run(link.now + 50ms);
  }
  EXPECT_EQ(ids.size(), 10'000U) << "no id is used twice";
  EXPECT_EQ(a.logged("established"), 10'000U);
  EXPECT_EQ(b.logged("established"), 10'000U);
  EXPECT_EQ(a.logged("disconnected local"), 10'000U);
  EXPECT_EQ(b.logged("disconnected remote"), 10'000U);
  link.run(link.now + 10s);
  world.expect_nothing_left();
  EXPECT_EQ(b.host.count(Counter::cm_duplicates) + b.host.count(Drop::mad_unexpected), 0U);
}

TEST(CmChurn, a_thousand_connections_at_once) {
  TwoParties world(9, 0.1, 0.1, 0.0);
  auto [a, b, link] = std::tie(world.a, world.b, world.link);
  for (unsigned i = 0; i < 1000; ++i) {
    ASSERT_NE(a.host.connect(param(1, 2), link.now), ConnectionId::none);
    link.run(link.now + 10us);
  }
  link.run(link.now + 600s);
  EXPECT_EQ(a.logged("established"), 1000U);
  EXPECT_EQ(b.logged("established"), 1000U);
  for (const auto& [id, qp] : std::map(a.host.qps)) {
    a.host.cm.disconnect(id, link.now);
    link.run(link.now + 10us);
  }
  link.run(link.now + 600s);
  EXPECT_EQ(b.logged("disconnected remote"), 1000U);
  world.expect_nothing_left();
}

}  // namespace
}  // namespace nbx::rdma
