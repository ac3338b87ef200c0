// Ghosts by address, by MAC, by name and by multicast group.
#include <gtest/gtest.h>

#include "ghost/ghost.hpp"

namespace nbx::ghost {
namespace {

Identity ghost(std::string name, std::uint32_t n) {
  const auto octet = [n](unsigned shift) { return static_cast<std::uint8_t>(n >> shift); };
  Identity identity;
  identity.name = std::move(name);
  identity.mac = {{0x02, 0x00, 0x00, octet(16), octet(8), octet(0)}};
  identity.addresses = {{IpAddress::v4(0x0a000000U + n), 8}};
  return identity;
}

TEST(Directory, nobody_is_found_in_an_empty_one) {
  const Directory directory({});
  EXPECT_EQ(directory.size(), 0U);
  EXPECT_EQ(directory.by_ip(IpAddress::v4(0x0a000001)), no_ghost);
  EXPECT_EQ(directory.by_mac({}), no_ghost);
  EXPECT_EQ(directory.by_name("a"), no_ghost);
}

TEST(Directory, finds_ten_thousand_ghosts_and_no_other) {
  constexpr std::uint32_t ghosts = 10'000;
  std::vector<Identity> identities;
  for (std::uint32_t i = 0; i < ghosts; ++i) {
    identities.push_back(ghost("g" + std::to_string(i), i));
  }
  const Directory directory(identities);
  ASSERT_EQ(directory.size(), ghosts);
  for (std::uint32_t i = 0; i < ghosts; ++i) {
    const GhostId id{i};
    ASSERT_EQ(directory.by_ip(identities[i].addresses[0].ip), id);
    ASSERT_EQ(directory.by_mac(identities[i].mac), id);
    ASSERT_EQ(directory.by_ip(link_local_from_mac(identities[i].mac)), id);
  }
  EXPECT_EQ(directory.by_name("g9999"), GhostId{9999});
  EXPECT_EQ(directory.by_name("g10000"), no_ghost);
  EXPECT_EQ(directory.by_ip(IpAddress::v4(0x0a000000U + ghosts)), no_ghost);
  EXPECT_EQ(directory.by_mac({{0x02, 0x00, 0x00, 0xff, 0xff, 0xff}}), no_ghost);
}

TEST(Directory, adds_the_link_local_address_of_the_mac) {  // RFC 4291 appendix A, as rxe-pingpong.pcap shows it
  Identity server = ghost("server", 1);
  server.mac = {{0x52, 0x54, 0x00, 0x00, 0x00, 0x01}};
  const Directory directory({server});
  EXPECT_EQ(directory.by_ip(parse_ip("fe80::5054:ff:fe00:1").value()), GhostId{0});
  ASSERT_EQ(directory[GhostId{0}].addresses.size(), 2U);
  EXPECT_EQ(directory[GhostId{0}].addresses[1].prefix, 64);
}

TEST(Directory, keeps_a_link_local_address_that_was_given) {
  Identity server = ghost("server", 1);
  server.addresses.push_back({parse_ip("fe80::1").value(), 64});
  const Directory directory({server});
  EXPECT_EQ(directory.by_ip(parse_ip("fe80::1").value()), GhostId{0});
  EXPECT_EQ(directory.by_ip(link_local_from_mac(server.mac)), no_ghost);
}

TEST(Directory, knows_the_solicited_node_groups_of_ipv6_addresses_only) {  // RFC 4291 2.7.1
  Identity server = ghost("server", 0x00aabbcc);
  server.addresses.push_back({parse_ip("2001:db8::12:3456").value(), 64});
  const Directory directory({server});
  EXPECT_EQ(directory.by_solicited_node(parse_ip("ff02::1:ff12:3456").value()), GhostId{0});
  EXPECT_EQ(directory.by_solicited_node(parse_ip("ff02::1:ffaa:bbcc").value()), GhostId{0});  // link-local
  EXPECT_EQ(directory.by_solicited_node(parse_ip("ff02::1:ff12:3457").value()), no_ghost);
  EXPECT_EQ(directory.by_ip(parse_ip("ff02::1:ff12:3456").value()), no_ghost);
}

TEST(Directory, a_ghost_may_change) {
  Directory directory({ghost("a", 1), ghost("b", 2)});
  const Identity& a = directory[GhostId{0}];
  const Mac before = a.mac;
  const Mac after{{0x02, 0, 0, 9, 9, 9}};
  directory.change(GhostId{0}, after, {});
  EXPECT_EQ(directory.by_mac(before), no_ghost);
  EXPECT_EQ(directory.by_mac(after), GhostId{0});
  EXPECT_EQ(directory.by_ip(IpAddress::v4(0x0a000001)), GhostId{0}) << "its address is the old one";
  EXPECT_EQ(directory.by_ip(link_local_from_mac(before)), no_ghost);
  EXPECT_EQ(directory.by_ip(link_local_from_mac(after)), GhostId{0});
  directory.change(GhostId{0}, after, {{IpAddress::v4(0x0a000009), 24}});
  EXPECT_EQ(directory.by_ip(IpAddress::v4(0x0a000001)), no_ghost);
  EXPECT_EQ(directory.by_ip(IpAddress::v4(0x0a000009)), GhostId{0});
  EXPECT_EQ(directory.by_ip(IpAddress::v4(0x0a000002)), GhostId{1});
  EXPECT_EQ(a.mac, after) << "who it is, is at the same place";
}

}  // namespace
}  // namespace nbx::ghost
