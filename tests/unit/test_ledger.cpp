// Where time is booked: ways of frames worked out by hand, losses made good in each way, and that no instant counts
// twice whatever happens.
#include <gtest/gtest.h>

#include "base/rng.hpp"
#include "frame/ledger.hpp"

namespace nbx {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Qpn own{0x11};
constexpr Qpn peers{0x22};
constexpr std::uint8_t write_only = 0x0a;  // IBTA table 38
constexpr std::uint8_t acknowledge = 0x11;

struct Desk {
  Desk() {
    ledger.open({.ghost = GhostId{0}, .qpn = own, .peer = IpAddress::v4(0), .peer_qpn = peers}, account);
    ledger.open({.ghost = GhostId{1}, .qpn = own, .peer = IpAddress::v4(0), .peer_qpn = peers}, account);
  }

  struct Packet {
    Direction direction = Direction::to_node;
    std::uint32_t psn = 0;
    Drop dropped = Drop::none;
    Duration on_link{};
    Duration delay{};
    Duration queued{};
    std::uint8_t opcode = write_only;
    bool corrupted = false;
    bool reordered = false;
    bool duplicate = false;
    GhostId ghost{0};
  };
  void pass(const Packet& packet) {
    std::array<std::byte, 64> bytes{};
    Frame frame;
    frame.data = bytes.data();
    frame.size = bytes.size();
    frame.ghost = packet.ghost;
    frame.parsed.kind = wire::FrameKind::roce_v2;
    frame.parsed.l3_offset = 14;
    frame.parsed.l4_offset = 34;
    frame.parsed.opcode = packet.opcode;
    frame.parsed.psn = Psn{packet.psn};
    frame.parsed.dest_qpn = packet.direction == Direction::to_node ? peers : own;
    frame.treatment.dropped = packet.dropped;
    frame.treatment.on_link = packet.on_link;
    frame.treatment.delay = packet.delay;
    frame.treatment.corrupted = packet.corrupted;
    frame.treatment.reordered = packet.reordered;
    frame.treatment.duplicate = packet.duplicate;
    frame.treatment.rule.fill(2);
    frame.due = now + packet.queued + packet.on_link + packet.delay;
    ledger.record(frame, packet.direction, now);
  }
  Duration share(Cause cause) const { return account.shares(now)[cause]; }
  Firing only_firing(Effect effect) const {
    for (const Firing& firing : account.firings(now)) {
      if (firing.effect == effect) {
        return firing;
      }
    }
    return {};
  }

  Ledger ledger;
  Account account;
  Instant now{1'000'000'000};
};

TEST(Account, AStreamCostsItsTimeOnTheLinkAndItsDelayOnce) {
  Desk desk;
  for (int i = 0; i < 10; ++i) {
    desk.pass({.on_link = microseconds{12}, .delay = milliseconds{1}, .queued = i * microseconds{12}});
  }
  desk.now = desk.now + milliseconds{5};
  EXPECT_EQ(desk.share(Cause::serialisation), microseconds{120});
  EXPECT_EQ(desk.share(Cause::propagation), milliseconds{1});
  EXPECT_EQ(desk.share(Cause::queueing), Duration{});
  EXPECT_EQ(desk.only_firing(Effect::delay).frames, 10U);
  EXPECT_EQ(desk.only_firing(Effect::delay).cost, milliseconds{1});
  EXPECT_EQ(desk.only_firing(Effect::delay).rule, 2);
}

TEST(Account, ABacklogOfOthersIsQueueing) {
  Desk desk;
  desk.pass({.on_link = microseconds{12}, .queued = microseconds{300}});
  desk.now = desk.now + milliseconds{1};
  EXPECT_EQ(desk.share(Cause::queueing), microseconds{300});
  EXPECT_EQ(desk.share(Cause::serialisation), microseconds{12});
}

TEST(Account, OnlyWhatHasPassedCounts) {
  Desk desk;
  desk.pass({.delay = milliseconds{5}});
  desk.now = desk.now + milliseconds{2};
  EXPECT_EQ(desk.share(Cause::propagation), milliseconds{2});
}

TEST(Account, ALossCostsUntilThePacketIsSentAgain) {
  Desk desk;
  desk.pass({.psn = 5, .dropped = Drop::loss});
  desk.pass({.psn = 6, .delay = milliseconds{1}});  // does not help: the receiver waits for 5
  desk.now = desk.now + milliseconds{67};
  EXPECT_EQ(desk.share(Cause::recovery), milliseconds{67}) << "so far";
  desk.pass({.psn = 5, .delay = milliseconds{1}});
  desk.now = desk.now + milliseconds{10};
  EXPECT_EQ(desk.share(Cause::recovery), milliseconds{67});
  EXPECT_EQ(desk.share(Cause::propagation), milliseconds{1});
  const Firing loss = desk.only_firing(Effect::loss);
  EXPECT_EQ(loss.frames, 1U);
  EXPECT_EQ(loss.rule, 2);
  EXPECT_EQ(loss.psn, Psn{5});
  EXPECT_EQ(loss.dest_qpn, peers);
  EXPECT_EQ(loss.cost, milliseconds{67});
}

TEST(Account, WhatWasOnItsWayBehindALossIsTakenBack) {
  Desk desk;
  desk.pass({.psn = 4, .delay = milliseconds{5}});
  desk.now = desk.now + milliseconds{1};
  desk.pass({.psn = 5, .dropped = Drop::loss, .delay = milliseconds{5}});
  desk.now = desk.now + milliseconds{11};
  desk.pass({.psn = 5, .delay = milliseconds{5}});
  desk.now = desk.now + milliseconds{5};
  EXPECT_EQ(desk.share(Cause::recovery), milliseconds{11}) << "5 arrives that much later";
  EXPECT_EQ(desk.share(Cause::propagation), milliseconds{6});
  EXPECT_EQ(desk.account.shares(desk.now).sum(), milliseconds{17});
}

TEST(Account, WhatOthersHaveOnTheirWayGoesOn) {
  Desk desk;
  desk.pass({.psn = 5, .dropped = Drop::loss});
  desk.pass({.psn = 5, .delay = milliseconds{4}, .ghost = GhostId{1}});
  desk.now = desk.now + milliseconds{10};
  desk.pass({.psn = 5});
  EXPECT_EQ(desk.share(Cause::propagation), milliseconds{4});
  EXPECT_EQ(desk.share(Cause::recovery), milliseconds{6});
  EXPECT_EQ(desk.only_firing(Effect::loss).cost, milliseconds{10});
}

TEST(Account, AnAcknowledgementShowsThatAPacketCame) {
  Desk desk;
  desk.pass({.psn = 5, .reordered = true});
  desk.now = desk.now + milliseconds{3};
  desk.pass({.direction = Direction::from_node, .psn = 4, .opcode = acknowledge});  // of the one before
  desk.now = desk.now + milliseconds{3};
  desk.pass({.direction = Direction::from_node, .psn = 6, .opcode = acknowledge});
  desk.now = desk.now + milliseconds{3};
  EXPECT_EQ(desk.share(Cause::recovery), milliseconds{6});
  EXPECT_EQ(desk.only_firing(Effect::reorder).cost, milliseconds{6});
}

TEST(Account, ALostAcknowledgementIsMadeGoodByALaterOne) {
  Desk desk;
  desk.pass({.psn = 5, .dropped = Drop::loss, .opcode = acknowledge});
  desk.pass({.psn = 5, .delay = milliseconds{1}});  // a request: PSNs of another direction
  desk.now = desk.now + milliseconds{2};
  desk.pass({.psn = 7, .opcode = acknowledge});
  EXPECT_EQ(desk.share(Cause::recovery), milliseconds{2});
}

TEST(Account, CopiesHarmNothing) {
  Desk desk;
  desk.pass({.psn = 5, .dropped = Drop::queue_full, .duplicate = true});
  desk.now = desk.now + milliseconds{2};
  EXPECT_EQ(desk.share(Cause::recovery), Duration{});
  EXPECT_EQ(desk.only_firing(Effect::no_room).frames, 1U);
}

TEST(Account, ALateGhostHidesWhatIsRepairedMeanwhile) {
  Desk desk;
  desk.account.hold(desk.now + milliseconds{400}, desk.now + milliseconds{403}, desk.now);
  desk.pass({.direction = Direction::from_node, .psn = 5, .corrupted = true});
  desk.now = desk.now + milliseconds{70};
  desk.pass({.direction = Direction::from_node, .psn = 5});
  EXPECT_EQ(desk.share(Cause::late_ghost), milliseconds{70});
  desk.now = desk.now + milliseconds{500};
  EXPECT_EQ(desk.share(Cause::late_ghost), milliseconds{400});
  EXPECT_EQ(desk.share(Cause::between_ghosts), milliseconds{3});
  EXPECT_EQ(desk.share(Cause::recovery), Duration{});
  EXPECT_EQ(desk.only_firing(Effect::corrupt).cost, milliseconds{70});
}

TEST(Account, FiringsAreTakenOnceAndRepairsGoOn) {
  Desk desk;
  desk.pass({.psn = 5, .dropped = Drop::link_down});
  desk.now = desk.now + milliseconds{10};
  EXPECT_EQ(desk.account.take_firings(desk.now).at(0).cost, milliseconds{10});
  desk.now = desk.now + milliseconds{10};
  desk.pass({.psn = 5});
  const auto rest = desk.account.take_firings(desk.now);
  ASSERT_EQ(rest.size(), 1U);
  EXPECT_EQ(rest[0].frames, 0U);
  EXPECT_EQ(rest[0].cost, milliseconds{10});
  EXPECT_TRUE(desk.account.take_firings(desk.now).empty());
}

TEST(Account, NoInstantCountsTwice) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Desk desk;
    Rng rng{seed};
    const Instant start = desk.now;
    Duration before{};
    for (int i = 0; i < 300; ++i) {
      desk.now = desk.now + microseconds{rng.below(50)};
      const Duration sum = desk.account.shares(desk.now).sum();
      ASSERT_LE(sum, desk.now - start) << "seed " << seed << ", event " << i;
      ASSERT_GE(sum, before) << "seed " << seed << ", event " << i;
      before = sum;
      if (rng.below(10) == 0) {
        const Instant late = desk.now + microseconds{rng.below(200)};
        desk.account.hold(late, late + microseconds{rng.below(30)}, desk.now);
        continue;
      }
      desk.pass({.direction = rng.below(2) == 0 ? Direction::to_node : Direction::from_node,
                 .psn = static_cast<std::uint32_t>(rng.below(20)),
                 .dropped = rng.below(8) == 0 ? Drop::loss : Drop::none,
                 .on_link = microseconds{rng.below(12)},
                 .delay = microseconds{rng.below(100)},
                 .queued = microseconds{rng.below(40)},
                 .opcode = rng.below(3) == 0 ? acknowledge : write_only,
                 .corrupted = rng.below(20) == 0,
                 .ghost = GhostId{static_cast<std::uint32_t>(rng.below(2))}});
    }
  }
}

TEST(Ledger, OtherConnectionsAreNotBooked) {
  Desk desk;
  desk.ledger.close({.ghost = GhostId{0}, .qpn = own, .peer = IpAddress::v4(0), .peer_qpn = peers});
  Account other;
  desk.ledger.open({.ghost = GhostId{0}, .qpn = own, .peer = IpAddress::v4(7), .peer_qpn = peers}, other);
  desk.pass({.delay = milliseconds{1}});
  desk.pass({.direction = Direction::from_node, .delay = milliseconds{1}});
  desk.now = desk.now + milliseconds{2};
  EXPECT_EQ(desk.account.shares(desk.now).sum(), Duration{});
  EXPECT_EQ(other.shares(desk.now).sum(), Duration{});
}

}  // namespace
}  // namespace nbx
