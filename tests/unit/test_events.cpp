// Exact events: which packets they take, what becomes of those, and what is kept of each firing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.hpp"
#include "events/key_filter.hpp"
#include "events/table.hpp"
#include "support/fabric_rig.hpp"
#include "wire/icrc.hpp"

namespace nbx::events {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using wire::Opcode;
using wire::OpcodeClass;

constexpr GhostId ghost0{0};
constexpr Connection first_qp{
    .ghost = ghost0, .number = 1, .qpn = Qpn{0x11}, .peer_qpn = Qpn{0x77}, .rq_psn = Psn{0xffffff}, .sq_psn = Psn{500}};

constexpr std::uint8_t class_bit(OpcodeClass c) { return static_cast<std::uint8_t>(1U << static_cast<unsigned>(c)); }

class Port : public Host {
 public:
  void on_qp_error(const Frame& /*frame*/, Direction /*direction*/, GhostId /*ghost*/,
                   Instant /*now*/) noexcept override {
    ++qp_errors;
  }
  void on_silent_ghost(GhostId ghost, Instant until) noexcept override { silent[index(ghost)] = until; }
  bool find_connection(Direction direction, GhostId ghost, Qpn dest_qpn, Connection& out) noexcept override {
    out = first_qp;
    return ghost == first_qp.ghost &&
           dest_qpn == (direction == Direction::from_node ? first_qp.qpn : first_qp.peer_qpn);
  }

  int qp_errors = 0;
  std::array<Instant, 4> silent{};
};

struct Packet {
  Qpn qpn = first_qp.qpn;
  std::uint32_t psn = 0;
  Opcode opcode = Opcode::rc_rdma_write_middle;
  OpcodeClass op_class = OpcodeClass::data;
  GhostId ghost = ghost0;
  Direction direction = Direction::from_node;
};

class Events : public testing::Test {
 protected:
  void load(std::vector<Spec> specs) { table = std::make_unique<Table>(specs, port, now); }
  Verdict see(const Packet& packet) {
    Frame frame;
    frame.size = 100;
    frame.parsed.kind = wire::FrameKind::roce_v2;
    frame.parsed.opcode = static_cast<std::uint8_t>(packet.opcode);
    frame.parsed.op_class = packet.op_class;
    frame.parsed.dest_qpn = packet.qpn;
    frame.parsed.psn = Psn{packet.psn};
    frame.parsed.bth_offset = 42;
    frame.parsed.end_offset = 100;
    return table->look_at(frame, packet.direction, packet.ghost, now);
  }
  bool dropped(const Packet& packet) { return see(packet).drop == nbx::Drop::event; }

  Port port;
  Instant now{};
  std::unique_ptr<Table> table;
};

TEST_F(Events, the_nth_transmission_of_a_psn) {
  load({{.name = "first", .match = {.dest_qpn = Qpn{0x11}, .psn_first = Psn{7}, .transmission = 1}},
        {.name = "second", .match = {.dest_qpn = Qpn{0x11}, .psn_first = Psn{7}, .transmission = 2}}});
  EXPECT_FALSE(dropped({.psn = 6}));
  EXPECT_TRUE(dropped({.psn = 7}));
  EXPECT_FALSE(dropped({.qpn = Qpn{0x12}, .psn = 7}));
  EXPECT_FALSE(dropped({.psn = 7, .direction = Direction::to_node}));
  EXPECT_TRUE(dropped({.psn = 7}));
  EXPECT_FALSE(dropped({.psn = 7}));
  const std::vector<Firing> log = table->log();
  ASSERT_EQ(log.size(), 2U);
  EXPECT_EQ(log[0].event, 0U);
  EXPECT_EQ(log[0].transmission, 1U);
  EXPECT_EQ(log[1].event, 1U);
  EXPECT_EQ(log[1].transmission, 2U);
  EXPECT_EQ(log[1].psn, Psn{7});
  EXPECT_EQ(log[1].dest_qpn, Qpn{0x11});
  EXPECT_EQ(table->fired(0), 1U);
}

TEST_F(Events, ranges_go_around_the_circle_and_count_each_psn) {
  load({{.match = {.dest_qpn = Qpn{0x11}, .psn_first = Psn{0xffffff}, .psn_last = Psn{1}, .transmission = 2}}});
  for (const std::uint32_t psn : {0xffffffU, 0U, 1U}) {
    EXPECT_FALSE(dropped({.psn = psn})) << psn;
  }
  for (const std::uint32_t psn : {0xffffffU, 0U, 1U}) {
    EXPECT_TRUE(dropped({.psn = psn})) << psn;
  }
  EXPECT_FALSE(dropped({.psn = 2}));
}

TEST_F(Events, psns_are_counted_from_the_first_of_the_connection) {
  const std::uint8_t ack = class_bit(OpcodeClass::ack);
  load({{.match = {.qp = 1, .psn_offset = 2}},
        {.direction = Direction::to_node, .match = {.qp = 1, .psn_offset = 0}},
        {.direction = Direction::to_node, .match = {.qp = 1, .classes = ack, .psn_offset = 3}},
        {.match = {.qp = 2, .psn_offset = 0}}});
  EXPECT_FALSE(dropped({.psn = 1})) << "nothing before the connection";
  table->bind(first_qp);
  EXPECT_FALSE(dropped({.psn = 0xffffff}));
  EXPECT_FALSE(dropped({.psn = 0}));
  EXPECT_TRUE(dropped({.psn = 1}));
  EXPECT_TRUE(dropped({.qpn = Qpn{0x77}, .psn = 500, .direction = Direction::to_node}));
  const Packet ack_of_2{.qpn = Qpn{0x77},
                        .psn = 2,
                        .opcode = Opcode::rc_acknowledge,
                        .op_class = OpcodeClass::ack,
                        .direction = Direction::to_node};
  EXPECT_TRUE(dropped(ack_of_2));
  table->unbind(ghost0, first_qp.qpn);
  EXPECT_FALSE(dropped({.psn = 1}));
  EXPECT_FALSE(dropped(ack_of_2));
}

TEST_F(Events, edges_between_ranks) {
  load({{.match = {.edge = EdgeMatch{.from = 0, .to = 1, .channel = 2, .send_recv = false}, .nth = {2}}},
        {.direction = Direction::to_node, .match = {.edge = EdgeMatch{.to = 1}}},
        {.match = {.edge = EdgeMatch{.send_recv = true}}}});
  const auto bind = [&](std::uint32_t qpn, std::optional<RankEdge> edge) {
    Connection connection = first_qp;
    connection.qpn = Qpn{qpn};
    connection.peer_qpn = Qpn{qpn + 0x100};
    connection.edge = edge;
    table->bind(connection);
  };
  bind(0x11, RankEdge{.from = 0, .to = 1, .channel = 2});
  bind(0x12, RankEdge{.from = 0, .to = 1, .channel = 3});
  bind(0x13, RankEdge{.from = 1, .to = 0, .channel = 2});
  bind(0x14, RankEdge{.from = 0, .to = 1, .channel = 2, .send_recv = true});
  bind(0x15, std::nullopt);
  for (const std::uint32_t qpn : {0x12U, 0x13U, 0x15U, 0x11U}) {
    EXPECT_FALSE(dropped({.qpn = Qpn{qpn}})) << qpn;
  }
  EXPECT_TRUE(dropped({.qpn = Qpn{0x11}})) << "the second of the edge";
  EXPECT_TRUE(dropped({.qpn = Qpn{0x14}}));
  const auto acknowledged = [&](std::uint32_t qpn) {
    return !dropped({.qpn = Qpn{qpn}, .direction = Direction::to_node});
  };
  EXPECT_FALSE(acknowledged(0x111));
  EXPECT_FALSE(acknowledged(0x112));
  EXPECT_TRUE(acknowledged(0x113));
  table->unbind(ghost0, Qpn{0x12});
  EXPECT_TRUE(acknowledged(0x112));
}

TEST_F(Events, the_packets_of_a_message_and_no_others) {
  load({{.match = {.dest_qpn = Qpn{0x11}, .message = 2}}});
  EXPECT_FALSE(dropped({.psn = 0, .opcode = Opcode::rc_rdma_write_first}));
  EXPECT_FALSE(dropped({.psn = 1, .opcode = Opcode::rc_rdma_write_last}));
  EXPECT_TRUE(dropped({.psn = 2, .opcode = Opcode::rc_rdma_write_first}));
  EXPECT_TRUE(dropped({.psn = 3, .opcode = Opcode::rc_rdma_write_last}));
  EXPECT_FALSE(dropped({.psn = 0, .opcode = Opcode::rc_rdma_write_first})) << "sent again: still the first message";
  EXPECT_TRUE(dropped({.psn = 2, .opcode = Opcode::rc_rdma_write_first}));
  EXPECT_FALSE(dropped({.psn = 4, .opcode = Opcode::rc_send_only}));
  EXPECT_FALSE(dropped({.psn = 1, .opcode = Opcode::rc_acknowledge, .op_class = OpcodeClass::ack}));
}

TEST_F(Events, time_after_and_nth) {
  now = Instant{} + 5s;
  load({{.match = {.classes = class_bit(OpcodeClass::data), .from = 1s, .until = 2s, .nth = {2}}},
        {.match = {.after = 0, .nth = {1}}}});
  EXPECT_FALSE(dropped({.psn = 1}));
  now = now + 1s;
  EXPECT_FALSE(dropped({.psn = 2}));
  EXPECT_TRUE(dropped({.psn = 3})) << "the second within the time";
  EXPECT_EQ(table->fired(1), 0U) << "not by the packet that it comes after";
  EXPECT_TRUE(dropped({.psn = 4}));
  EXPECT_EQ(table->fired(1), 1U);
  now = now + 1s;
  EXPECT_FALSE(dropped({.psn = 5}));
}

TEST_F(Events, several_add_up) {
  load({{.match = {.dest_qpn = Qpn{0x11}}, .action = Delay{1ms}},
        {.match = {.ghosts = {ghost0}}, .action = Delay{2ms}},
        {.match = {.ghosts = {GhostId{1}}}, .action = Delay{4ms}},
        {.match = {}, .action = Mark{}}});
  const Verdict verdict = see({});
  EXPECT_EQ(verdict.delay, Duration{3ms});
  EXPECT_TRUE(verdict.mark);
  EXPECT_EQ(verdict.drop, nbx::Drop::none);
}

TEST_F(Events, a_silent_queue_pair_is_silent_both_ways_and_then_speaks) {
  load({{.match = {.dest_qpn = Qpn{0x11}, .nth = {1}}, .action = Silent{.time = 1s}}});
  EXPECT_TRUE(dropped({}));
  const auto is_silent = [&](const Packet& packet) { return see(packet).drop == nbx::Drop::silent; };
  EXPECT_TRUE(is_silent({}));
  EXPECT_TRUE(is_silent({.qpn = Qpn{0x77}, .direction = Direction::to_node}));
  EXPECT_FALSE(is_silent({.qpn = Qpn{0x12}}));
  now = now + 1s;
  EXPECT_FALSE(is_silent({}));
  EXPECT_FALSE(is_silent({.qpn = Qpn{0x77}, .direction = Direction::to_node}));
}

TEST_F(Events, what_the_port_does) {
  load({{.match = {.psn_first = Psn{1}}, .action = QpError{}},
        {.match = {.psn_first = Psn{2}}, .action = Silent{.scope = Silent::Scope::ghost}},
        {.match = {.psn_first = Psn{3}}, .action = Nak{NakCode::remote_access_error}},
        {.match = {.psn_first = Psn{4}}, .action = Rnr{}}});
  EXPECT_TRUE(dropped({.psn = 1}));
  EXPECT_EQ(port.qp_errors, 1);
  EXPECT_TRUE(dropped({.psn = 2}));
  EXPECT_EQ(port.silent[0], Instant::never());
  EXPECT_EQ(see({.psn = 3}).answer, 0x62) << "AETH: NAK, remote access error (IBTA table 46)";
  EXPECT_EQ(see({.psn = 4}).answer & 0x60, 0x20) << "AETH: RNR NAK";
  EXPECT_EQ(see({.psn = 4, .opcode = Opcode::rc_acknowledge, .op_class = OpcodeClass::ack}).event, 0U);
}

TEST_F(Events, the_log_keeps_the_last) {
  load({{.match = {}, .action = Duplicate{}}});
  for (std::uint32_t psn = 0; psn < Table::log_max + 10; ++psn) {
    EXPECT_TRUE(see({.psn = psn}).duplicate);
  }
  const std::vector<Firing> log = table->log();
  EXPECT_EQ(table->firings(), Table::log_max + 10);
  ASSERT_EQ(log.size(), Table::log_max);
  EXPECT_EQ(log.front().psn, Psn{10});
  EXPECT_EQ(log.back().psn, Psn{Table::log_max + 9});
}

TEST_F(Events, many_are_found_each) {
  std::vector<Spec> specs;
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    specs.push_back({.match = {.dest_qpn = Qpn{0x11 + i % 100}, .psn_first = Psn{i}}});
  }
  load(specs);
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    EXPECT_EQ(see({.qpn = Qpn{0x11 + i % 100}, .psn = i}).event, i + 1);
    EXPECT_EQ(see({.qpn = Qpn{0x11 + (i + 1) % 100}, .psn = i}).event, 0U);
  }
}

TEST(KeyFilter, has_each_key_and_at_most_one_in_a_thousand_others) {
  Rng rng{1};
  for (const std::size_t keys : {16U, 8'192U, 10'000U, 16'384U}) {
    KeyFilter filter{keys};
    std::vector<std::uint64_t> hashes(keys);
    for (std::uint64_t& hash : hashes) {
      hash = rng.next();
      filter.add(hash);
    }
    EXPECT_TRUE(std::all_of(hashes.begin(), hashes.end(), [&](std::uint64_t hash) { return filter.may_have(hash); }));
    constexpr int others = 1'000'000;
    int taken = 0;
    for (int i = 0; i < others; ++i) {
      taken += filter.may_have(rng.next()) ? 1 : 0;
    }
    EXPECT_LE(taken, others / 1000) << keys;
  }
}

TEST_F(Events, an_ordinal_that_is_listed_twice_counts_once) {
  load({{.match = {.nth = {5, 2, 2}}}});
  std::vector<int> fired;
  for (int i = 1; i <= 6; ++i) {
    if (see({}).event != 0) {
      fired.push_back(i);
    }
  }
  EXPECT_THAT(fired, ElementsAre(2, 5));
}

TEST_F(Events, closed_connections_are_forgotten) {
  load({{.match = {.psn_offset = 3}}});
  Connection lasting = first_qp;
  lasting.qpn = Qpn{0x99};
  table->bind(lasting);
  for (std::uint32_t i = 1; i <= 50'000; ++i) {
    Connection passing = first_qp;
    passing.number = i;
    table->bind(passing);
    table->unbind(passing.ghost, passing.qpn);
  }
  EXPECT_LT(table->keys(), 5'000U);
  EXPECT_EQ(see({.qpn = first_qp.qpn, .psn = 2}).event, 0U) << "0xffffff and 3 more";
  EXPECT_EQ(see({.qpn = lasting.qpn, .psn = 2}).event, 1U);
  table->unbind(lasting.ghost, lasting.qpn);
  EXPECT_EQ(see({.qpn = lasting.qpn, .psn = 2}).event, 0U);
}

// ---- at work in a direction of a port

class AtWork : public testing::Test {
 protected:
  void load(std::vector<Spec> specs) {
    table = std::make_unique<Table>(specs, port, rig.now);
    rig.impairment->use(table.get(), Direction::from_node);
  }
  void submit(std::uint32_t number) {
    Frame& frame = rig.make(number);
    frame.parsed.psn = Psn{number};
    frame.parsed.end_offset = 100;
    rig.submit(frame);
  }
  struct Bytes : fabric::Rig {
    using Rig::Rig;
    void inspect(const Frame& frame) noexcept override { last.assign(frame.data, frame.data + frame.size); }
    std::vector<std::byte> last;
  };

  Port port;
  Bytes rig{fabric::DirectionSpec{}};
  std::unique_ptr<Table> table;
};

TEST_F(AtWork, drop_duplicate_delay_and_reorder) {
  load({{.match = {.psn_first = Psn{1}}, .action = Drop{}},
        {.match = {.psn_first = Psn{2}}, .action = Duplicate{}},
        {.match = {.psn_first = Psn{3}}, .action = Delay{1ms}},
        {.match = {.psn_first = Psn{4}}, .action = Reorder{.distance = 2}}});
  for (std::uint32_t i = 1; i <= 7; ++i) {
    submit(i);
  }
  rig.run_for(2ms);
  EXPECT_THAT(rig.order(), ElementsAre(2, 2, 5, 6, 4, 7, 3));
  ASSERT_EQ(rig.dropped.size(), 1U);
  EXPECT_EQ(rig.dropped[0].treatment.dropped, nbx::Drop::event);
  EXPECT_EQ(rig.dropped[0].treatment.event, 1U);
  EXPECT_EQ(rig.released.back().at, Instant{} + 1ms);
  EXPECT_EQ(rig.counters.get(Counter::events_fired), 4U);
}

TEST_F(AtWork, a_byte_is_inverted_with_and_without_a_right_icrc) {
  load({{.match = {.psn_first = Psn{1}}, .action = Corrupt{.byte = 20}},
        {.match = {.psn_first = Psn{2}}, .action = Corrupt{.byte = 20, .repair_icrc = true}},
        {.match = {.psn_first = Psn{3}}, .action = Corrupt{.byte = 54}}});
  const auto icrc_fits = [&] { return wire::load_icrc(rig.last, 96) == wire::icrc(rig.last, 14, 42, 96, false); };
  submit(1);
  EXPECT_EQ(rig.last[62], std::byte{0xff});
  EXPECT_FALSE(icrc_fits());
  submit(2);
  EXPECT_EQ(rig.last[62], std::byte{0xff});
  EXPECT_TRUE(icrc_fits());
  submit(3);
  EXPECT_EQ(table->fired(2), 0U) << "that byte is the ICRC's";
}

}  // namespace
}  // namespace nbx::events
