// Law: a filter that runs as machine code on the worker takes the packets that libpcap's own interpreter takes.
#include <gtest/gtest.h>
#include <pcap/pcap.h>

#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "port/eal.hpp"
#include "port/jit_filter.hpp"
#include "support/pcap_file.hpp"

namespace nbx::port {
namespace {

const std::vector<std::string> expressions{
    "arp",
    "ip",
    "ip6",
    "tcp",
    "udp port 4791",
    "udp port 4791 and host 10.0.0.1",
    "udp port 4791 and host 10.77.0.1",
    "not udp port 4791",
    "src net 10.77.0.0/24 and dst host 10.77.0.2",
    "ether broadcast or ether multicast",
    "vlan",
    "icmp6 or (ip6 and udp)",
    "less 100",
    "greater 1000 and udp",
    "udp[8] = 0x11",                                                          // BTH opcode: ACKNOWLEDGE of RC
    "udp[8] = 0x11 and udp[20] & 0x60 = 0x60",                                // a NAK's AETH
    "udp port 4791 and udp[13:2] = 0 and udp[15] < 32",                       // destination QP
    "ip[6:2] & 0x1fff = 0 and ip[8] > 1 and ip proto 17 and ip[1] & 3 != 3",  // of the IP header
    "udp[udp[4:2] - 4:4] > 0x80000000",                                       // an offset that is loaded: the ICRC
    "tcp port 22 or tcp portrange 18500-19000",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "ether proto 0x8915 or ether[12:2] = 0x88b5",
    "ip[2:2] * 3 - len < 4 + ip[0] / 4 and ether[6] >> 1 ^ 1 != 0",
};

/// Every frame of the captures, and damaged ones: cut anywhere, and with octets changed.
std::vector<test::Bytes> all_frames() {
  std::vector<test::Bytes> frames{{}};
  std::mt19937 random(1);
  for (const auto& entry : std::filesystem::directory_iterator(NBX_CAPTURES)) {
    if (entry.path().extension() != ".pcap") {
      continue;
    }
    for (test::PcapRecord& record : test::read_pcap(entry.path())) {
      test::Bytes cut = record.bytes;
      cut.resize(random() % std::min<std::size_t>(cut.size(), 80));
      test::Bytes changed = record.bytes;
      for (int i = 0; i < 4; ++i) {
        changed[random() % std::min<std::size_t>(changed.size(), 64)] = std::byte(random());
      }
      frames.push_back(std::move(record.bytes));
      frames.push_back(std::move(cut));
      frames.push_back(std::move(changed));
    }
  }
  return frames;
}

/// Expressions that nobody thought of.
std::string any_expression(std::mt19937& random) {
  const auto pick = [&random](auto... choices) {
    const std::string all[] = {choices...};
    return all[random() % sizeof...(choices)];
  };
  const std::string from = pick("ether", "ip", "ip6", "udp", "tcp", "icmp");
  const std::string load = from + "[" + std::to_string(random() % 40) + ":" + pick("1", "2", "4") + "]";
  const std::string number = std::to_string(random() >> random() % 32);
  const std::string term = "(" + load + pick(" & ", " | ", " ^ ", " + ", " - ", " * ", " / ", " >> ") +
                           std::to_string(random() % 31 + 1) + ")" + pick(" = ", " != ", " < ", " > ", " <= ", " >= ") +
                           pick(std::string{"0"}, std::string{"len"}, number);
  return pick("", "not ") + term + pick(" and ", " or ") +
         pick("udp port 4791", "net 10.77.0.0/24", "host 10.77.0.1", "greater 90", "ip6", "arp", "ip[0] & 15 > 4");
}

TEST(CaptureFilter, TakesWhatLibpcapTakes) {
  auto eal = Eal::start({.hugepages = HugepageUse::never, .memory_bytes = 1U << 20U, .pci_devices = {}, .log = {}});
  ASSERT_TRUE(eal.ok()) << eal.error().message;
  const std::vector<test::Bytes> frames = all_frames();
  ASSERT_GT(frames.size(), 10'000U);
  std::size_t somewhere_both = 0;
  std::vector<std::string> all = expressions;
  std::mt19937 random(2);
  for (int i = 0; i < 100; ++i) {
    all.push_back(any_expression(random));
  }
  for (const std::string& expression : all) {
    SCOPED_TRACE(expression);
    const auto program = capture::compile_filter(expression);
    if (!program && program.error().message == "expression rejects all packets") {
      continue;
    }
    ASSERT_TRUE(program.ok()) << program.error().message;
    auto filter = make_jit_filter(expression);
    ASSERT_TRUE(filter.ok()) << filter.error().message;
    std::size_t taken = 0;
    std::size_t different = 0;
    for (const test::Bytes& frame : frames) {
      const auto size = static_cast<std::uint32_t>(frame.size());
      const pcap_pkthdr header{.ts = {}, .caplen = size, .len = size};
      const bool expected =
          pcap_offline_filter(program->get(), &header, reinterpret_cast<const u_char*>(frame.data())) != 0;
      different += (*filter)->matches(frame) == expected ? 0 : 1;
      taken += expected ? 1 : 0;
    }
    EXPECT_EQ(different, 0U) << "of " << frames.size();
    somewhere_both += taken != 0 && taken != frames.size() ? 1 : 0;
  }
  EXPECT_GT(somewhere_both, 50U);  // so many of the expressions tell frames apart
}

TEST(CaptureFilter, ErrorsAreLibpcaps) {
  const auto program = capture::compile_filter("udp prot 4791");
  ASSERT_FALSE(program.ok());
  EXPECT_NE(program.error().message.find("syntax error"), std::string::npos) << program.error().message;
}

}  // namespace
}  // namespace nbx::port
