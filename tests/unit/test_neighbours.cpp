// ARP, neighbour discovery and ping. The questions, and the answers they are held against, are those of two Linux hosts
// in rxe-pingpong.pcap: 10.77.0.1 and 10.77.0.2, 52:54:00:00:00:01 and :02.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ghost/neighbours.hpp"
#include "support/pcap_file.hpp"

namespace nbx::ghost {
namespace {

using namespace std::chrono_literals;
using test::Bytes;
using test::from_hex;
using test::to_hex;

constexpr Mac server_mac{{0x52, 0x54, 0x00, 0x00, 0x00, 0x01}};
constexpr Mac client_mac{{0x52, 0x54, 0x00, 0x00, 0x00, 0x02}};
constexpr IpAddress server_ip = IpAddress::v4(0x0a4d0001);
constexpr IpAddress client_ip = IpAddress::v4(0x0a4d0002);
const IpAddress server_ll = link_local_from_mac(server_mac);
const IpAddress client_ll = link_local_from_mac(client_mac);

const Bytes arp_request = from_hex(
    "ffffffffffff 525400000002 0806 0001 0800 06 04 0001"
    "525400000002 0a4d0002 000000000000 0a4d0001");
const Bytes arp_reply = from_hex(
    "525400000002 525400000001 0806 0001 0800 06 04 0002"
    "525400000001 0a4d0001 525400000002 0a4d0002");
const Bytes solicit_of_client = from_hex(  // the server asks for the client's link-local address
    "3333ff000002 525400000001 86dd 60000000 0020 3a ff fe80000000000000505400fffe000001"
    "ff0200000000000000000001ff000002 87008b9a 00000000 fe80000000000000505400fffe000002 0101525400000001");
const Bytes advert_of_client = from_hex(
    "525400000001 525400000002 86dd 60000000 0020 3a ff fe80000000000000505400fffe000002"
    "fe80000000000000505400fffe000001 8800d9c8 60000000 fe80000000000000505400fffe000002 0201525400000002");

/// One ghost in the place of one of the two hosts.
class NeighboursTest : public testing::Test {
 protected:
  explicit NeighboursTest(Mac mac = server_mac, IpAddress ip = server_ip, std::uint16_t vlan = 0)
      : directory_({Identity{.name = "g", .mac = mac, .addresses = {{ip, 24}}, .vlan_tci = vlan}}) {}
  ~NeighboursTest() override {
    pool_.free_all(out_);
    EXPECT_EQ(wheel_.armed(), 0U);
  }

  wire::Parsed parse(const Bytes& bytes) {
    wire::Parsed parsed;
    EXPECT_EQ(wire::parse(bytes, {}, parsed), Drop::none);
    return parsed;
  }
  bool receive(Bytes bytes, Instant now = {}) {
    Frame frame;
    frame.data = bytes.data();
    frame.size = static_cast<std::uint32_t>(bytes.size());
    frame.parsed = parse(bytes);
    return neighbours_.receive(frame, now);
  }
  /// The frame that was sent since the last call, if one was.
  std::optional<Bytes> sent() {
    Frame* frame = out_.pop_front();
    if (frame == nullptr) {
      return std::nullopt;
    }
    EXPECT_EQ(frame->ghost, GhostId{0});
    const Bytes bytes(frame->data, frame->data + frame->size);
    EXPECT_EQ(frame->parsed.kind, parse(bytes).kind);
    pool_.free(*frame);
    EXPECT_TRUE(out_.empty()) << "more than one frame";
    return bytes;
  }
  void run_until(Instant now) {
    while (wheel_.next_deadline() <= now) {
      wheel_.run(std::max(wheel_.next_deadline(), Instant{}));
    }
  }

  Directory directory_;
  SlabSource source_{64, 9216};
  FramePool pool_{source_};
  Wheel wheel_;
  Counters counters_;
  FrameList out_;
  Neighbours neighbours_{directory_, pool_, wheel_, counters_, out_};
};

/// Ethernet's minimum is filled with zeros; a capture at the sender does not have them.
Bytes padded(Bytes frame) {
  frame.resize(std::max<std::size_t>(frame.size(), 60));
  return frame;
}

Bytes tagged(const Bytes& frame, std::string_view tag) {
  Bytes with(frame.begin(), frame.begin() + 12);
  const Bytes bytes = from_hex(tag);
  with.insert(with.end(), bytes.begin(), bytes.end());
  with.insert(with.end(), frame.begin() + 12, frame.end());
  return with;
}

TEST_F(NeighboursTest, arp_request_is_answered_as_linux_answers) {
  EXPECT_TRUE(receive(arp_request));
  EXPECT_EQ(to_hex(sent().value()), to_hex(padded(arp_reply)));
  EXPECT_EQ(counters_.get(Counter::arp_requests_answered), 1U);
  EXPECT_EQ(neighbours_.lookup(client_ip), client_mac);
}

TEST_F(NeighboursTest, answers_keep_the_tags_of_the_question) {
  EXPECT_TRUE(receive(tagged(arp_request, "88a80064 8100a005")));
  EXPECT_EQ(to_hex(sent().value()), to_hex(padded(tagged(arp_reply, "88a80064 8100a005"))));
}

TEST_F(NeighboursTest, arp_probe_is_answered_and_teaches_nothing) {  // RFC 5227 2.1.1
  Bytes probe = arp_request;
  std::fill_n(probe.begin() + 28, 4, std::byte{});
  EXPECT_TRUE(receive(probe));
  Bytes reply = arp_reply;
  std::fill_n(reply.begin() + 38, 4, std::byte{});
  EXPECT_EQ(to_hex(sent().value()), to_hex(padded(reply)));
  EXPECT_EQ(neighbours_.lookup(IpAddress::v4(0)), std::nullopt);
}

TEST_F(NeighboursTest, arp_for_others_is_not_answered) {
  Bytes other = arp_request;
  other.back() = std::byte{9};
  EXPECT_FALSE(receive(other));
  EXPECT_FALSE(sent());
  EXPECT_EQ(neighbours_.lookup(client_ip), std::nullopt);
}

TEST_F(NeighboursTest, arp_announcement_updates_whom_we_know_only) {  // RFC 826, RFC 5227 2.3
  Bytes announcement = arp_request;
  announcement.back() = std::byte{2};
  EXPECT_FALSE(receive(announcement));
  EXPECT_EQ(neighbours_.lookup(client_ip), std::nullopt);
  neighbours_.learn(client_ip, client_mac);
  announcement[27] = announcement[11] = std::byte{0x77};
  EXPECT_FALSE(receive(announcement));
  EXPECT_EQ(neighbours_.lookup(client_ip), (Mac{{0x52, 0x54, 0x00, 0x00, 0x00, 0x77}}));
  EXPECT_FALSE(sent());
}

TEST_F(NeighboursTest, a_claim_to_a_ghosts_own_address_is_not_believed) {
  Bytes claim = arp_request;
  claim[31] = std::byte{1};  // the sender's address is the target's
  EXPECT_TRUE(receive(claim));
  EXPECT_TRUE(sent()) << "the ghost defends its address";
  EXPECT_EQ(neighbours_.lookup(server_ip), server_mac) << "ghosts know each other";
}

class ClientGhost : public NeighboursTest {
 protected:
  ClientGhost() : NeighboursTest(client_mac, client_ip) {}
};

TEST_F(ClientGhost, solicitation_is_answered_as_linux_answers) {
  EXPECT_TRUE(receive(solicit_of_client));
  EXPECT_EQ(to_hex(sent().value()), to_hex(advert_of_client));
  EXPECT_EQ(counters_.get(Counter::nd_solicits_answered), 1U);
  EXPECT_EQ(neighbours_.lookup(server_ll), server_mac);
}

TEST_F(ClientGhost, unicast_solicitation_is_answered_too) {  // RFC 4861 7.2.4, reachability
  const Bytes unicast = from_hex(
      "525400000002 525400000001 86dd 60000000 0020 3a ff fe80000000000000505400fffe000001"
      "fe80000000000000505400fffe000002 87003bca 00000000 fe80000000000000505400fffe000002 0101525400000001");
  EXPECT_TRUE(receive(unicast));
  EXPECT_EQ(to_hex(sent().value()), to_hex(advert_of_client));
}

TEST_F(ClientGhost, duplicate_address_detection_is_answered_to_all_nodes) {  // RFC 4861 7.2.4, RFC 4862 5.4.3
  const Bytes probe = from_hex(
      "3333ff000002 525400000001 86dd 60000000 0018 3a ff 00000000000000000000000000000000"
      "ff0200000000000000000001ff000002 87002ccf 00000000 fe80000000000000505400fffe000002");
  EXPECT_TRUE(receive(probe));
  const Bytes advert = sent().value();
  EXPECT_EQ(to_hex(ConstBytes{advert}.first(6)), "333300000001");
  EXPECT_EQ(to_hex(ConstBytes{advert}.subspan(38, 16)), "ff020000000000000000000000000001");
  EXPECT_EQ(to_hex(ConstBytes{advert}.subspan(58, 4)), "20000000") << "override, not solicited";
}

TEST_F(NeighboursTest, solicitation_of_others_is_not_answered) {
  EXPECT_FALSE(receive(solicit_of_client));
  EXPECT_FALSE(sent());
}

TEST_F(NeighboursTest, ping_is_answered_as_linux_answers) {
  const auto records = test::read_pcap(NBX_CAPTURES "/rxe-pingpong.pcap");
  Bytes request = records.at(4).bytes;
  EXPECT_TRUE(receive(request));
  Bytes reply = sent().value();
  Bytes expected = records.at(5).bytes;
  for (Bytes* bytes : {&reply, &expected}) {  // identification, and the checksum over it
    std::fill_n(bytes->begin() + 18, 2, std::byte{});
    std::fill_n(bytes->begin() + 20, 2, std::byte{});  // Linux sets DF or not as it pleases
    std::fill_n(bytes->begin() + 24, 2, std::byte{});
  }
  EXPECT_EQ(to_hex(reply), to_hex(expected));
  EXPECT_EQ(counters_.get(Counter::icmp_echoes_answered), 1U);
}

TEST_F(NeighboursTest, ping_of_another_address_is_not_answered) {
  Bytes request = test::read_pcap(NBX_CAPTURES "/rxe-pingpong.pcap").at(5).bytes;  // a reply, to 10.77.0.2
  EXPECT_FALSE(receive(request));
  EXPECT_FALSE(sent());
}

struct Answer {
  std::optional<Mac> mac;
  Instant at;
  friend bool operator==(const Answer&, const Answer&) = default;
};

Neighbours::Resolved into(std::vector<Answer>& answers) {
  return [&answers](std::optional<Mac> mac, Instant at) { answers.push_back({mac, at}); };
}

TEST_F(ClientGhost, asks_as_linux_asks_and_hears_the_answer_once) {
  std::vector<Answer> answers;
  neighbours_.resolve(GhostId{0}, server_ip, into(answers), Instant{});
  EXPECT_EQ(to_hex(sent().value()), to_hex(padded(arp_request)));
  neighbours_.resolve(GhostId{0}, server_ip, into(answers), Instant{} + 1ms);
  EXPECT_FALSE(sent()) << "one question at a time";
  EXPECT_FALSE(receive(arp_reply, Instant{} + 2ms)) << "the kernel waits for answers as well";
  wheel_.run(Instant{} + 2ms);
  const Answer expected{server_mac, Instant{} + 2ms};
  EXPECT_THAT(answers, testing::ElementsAre(expected, expected));
  neighbours_.resolve(GhostId{0}, server_ip, into(answers), Instant{} + 3ms);
  EXPECT_EQ(answers.at(2), (Answer{server_mac, Instant{} + 3ms})) << "at once";
  EXPECT_FALSE(sent());
}

TEST_F(NeighboursTest, asks_for_ipv6_as_linux_asks) {
  std::vector<Answer> answers;
  neighbours_.resolve(GhostId{0}, client_ll, into(answers), Instant{});
  EXPECT_EQ(to_hex(sent().value()), to_hex(solicit_of_client));
  EXPECT_FALSE(receive(advert_of_client, Instant{} + 2ms));
  wheel_.run(Instant{} + 2ms);
  EXPECT_THAT(answers, testing::ElementsAre(Answer{client_mac, Instant{} + 2ms}));
}

TEST_F(ClientGhost, asks_three_times_and_gives_up) {  // RFC 4861 section 10
  std::vector<Answer> answers;
  neighbours_.resolve(GhostId{0}, server_ip, into(answers), Instant{});
  for (const auto second : {0s, 1s, 2s}) {
    run_until(Instant{} + second);
    EXPECT_EQ(to_hex(sent().value()), to_hex(padded(arp_request)));
    EXPECT_TRUE(answers.empty());
  }
  run_until(Instant{} + 3s);
  EXPECT_FALSE(sent());
  EXPECT_THAT(answers, testing::ElementsAre(Answer{std::nullopt, Instant{} + 3s}));
  EXPECT_FALSE(receive(arp_reply, Instant{} + 4s));
  EXPECT_EQ(answers.size(), 1U) << "too late";
}

TEST_F(ClientGhost, a_question_may_be_asked_again_from_its_answer) {
  std::vector<Answer> answers;
  neighbours_.resolve(
      GhostId{0}, server_ip,
      [&](std::optional<Mac>, Instant now) { neighbours_.resolve(GhostId{0}, server_ip, into(answers), now); },
      Instant{});
  EXPECT_TRUE(sent());
  for (const auto second : {1s, 2s}) {
    run_until(Instant{} + second);
    EXPECT_TRUE(sent());
  }
  run_until(Instant{} + 3s);
  EXPECT_TRUE(sent()) << "asked again";
  neighbours_.learn(server_ip, server_mac);
  wheel_.run(Instant{} + 3s);
  EXPECT_THAT(answers, testing::ElementsAre(Answer{server_mac, Instant{} + 3s}));
}

TEST_F(NeighboursTest, without_an_address_of_the_family_nothing_is_asked) {
  const Directory v6_only({Identity{.name = "g", .mac = server_mac, .addresses = {}}});
  Neighbours neighbours(v6_only, pool_, wheel_, counters_, out_);
  std::vector<Answer> answers;
  neighbours.resolve(GhostId{0}, client_ip, into(answers), Instant{} + 1s);
  EXPECT_THAT(answers, testing::ElementsAre(Answer{std::nullopt, Instant{} + 1s}));
  EXPECT_FALSE(sent());
}

class TaggedGhost : public NeighboursTest {
 protected:
  TaggedGhost() : NeighboursTest(client_mac, client_ip, 0xa005) {}
};

TEST_F(TaggedGhost, asks_on_its_own_vlan) {
  neighbours_.resolve(
      GhostId{0}, server_ip, [](std::optional<Mac>, Instant) {}, Instant{});
  EXPECT_EQ(to_hex(sent().value()), to_hex(padded(tagged(arp_request, "8100a005"))));
  neighbours_.learn(server_ip, server_mac);
  wheel_.run(Instant{});
}

TEST_F(NeighboursTest, an_empty_pool_is_a_counter) {
  std::vector<Frame*> taken;
  while (Frame* frame = pool_.alloc(64)) {
    taken.push_back(frame);
  }
  EXPECT_TRUE(receive(arp_request));
  EXPECT_EQ(counters_.get(Drop::frame_pool_empty), 1U);
  for (Frame* frame : taken) {
    pool_.free(*frame);
  }
  EXPECT_FALSE(sent());
}

// RFC 5227 section 3; RFC 4861 7.2.6, bytes by scapy.
TEST_F(NeighboursTest, announces_every_address) {
  neighbours_.announce(GhostId{0}, {});
  Frame* arp = out_.pop_front();
  ASSERT_NE(arp, nullptr);
  EXPECT_EQ(Bytes(arp->data, arp->data + arp->size),
            padded(from_hex("ffffffffffff 525400000001 0806 0001 0800 06 04 0001"
                            "525400000001 0a4d0001 000000000000 0a4d0001")));
  pool_.free(*arp);
  EXPECT_EQ(sent(), from_hex("333300000001 525400000001 86dd 60000000 0020 3a ff fe80000000000000505400fffe000001"
                             "ff020000000000000000000000000001 8800689e 20000000"
                             "fe80000000000000505400fffe000001 0201525400000001"));
}

}  // namespace
}  // namespace nbx::ghost
