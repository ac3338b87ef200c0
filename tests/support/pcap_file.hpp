// The smallest reader of classic pcap files, micro- and nanoseconds, either byte order: tests must not depend on the
// reader that they test elsewhere.
#pragma once

#include <cstdint>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/hex.hpp"

namespace nbx::test {

struct PcapRecord {
  std::int64_t time_ns = 0;
  Bytes bytes;
};

inline std::vector<PcapRecord> read_pcap(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(in), {}};
  const auto octet = [&file](std::size_t at) { return std::uint32_t{static_cast<std::uint8_t>(file.at(at))}; };
  const auto little = [&octet](std::size_t at) {
    return octet(at) | (octet(at + 1) << 8U) | (octet(at + 2) << 16U) | (octet(at + 3) << 24U);
  };
  const auto big = [&little](std::size_t at) { return __builtin_bswap32(little(at)); };
  constexpr std::uint32_t microseconds = 0xa1b2c3d4;
  constexpr std::uint32_t nanoseconds = 0xa1b23c4d;
  if (file.size() < 24) {
    throw std::runtime_error("not a pcap file: " + path);
  }
  const bool is_little = little(0) == microseconds || little(0) == nanoseconds;
  const auto word = [&](std::size_t at) { return is_little ? little(at) : big(at); };
  if (word(0) != microseconds && word(0) != nanoseconds) {
    throw std::runtime_error("not a pcap file: " + path);
  }
  const std::int64_t unit_ns = word(0) == microseconds ? 1000 : 1;
  std::vector<PcapRecord> records;
  for (std::size_t at = 24; at < file.size();) {
    PcapRecord record;
    record.time_ns = std::int64_t{word(at)} * 1'000'000'000 + word(at + 4) * unit_ns;
    const std::size_t size = word(at + 8);
    at += 16;
    for (const char c : file.substr(at, size)) {
      record.bytes.push_back(static_cast<std::byte>(c));
    }
    at += size;
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace nbx::test
