// What perftest 4.5's programs say to each other before, between and after the RDMA traffic: items of fixed size, in
// turns, the client first. The same items travel over TCP and, with -R, as SENDs over a connection of their own; only
// the form of a destination differs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/bytes.hpp"
#include "base/net.hpp"

namespace nbx::ghost {

/// One queue pair of one side.
struct PerftestEnd {
  std::uint32_t out_reads = 1;
  std::uint32_t qpn = 0;
  std::uint32_t psn = 0;
  std::uint32_t rkey = 0;  // 0: a SEND test
  std::uint64_t addr = 0;
  IpAddress gid;
};

inline constexpr std::size_t perftest_text_size = 108;

[[nodiscard]] std::optional<PerftestEnd> decode_text(ConstBytes record);
[[nodiscard]] std::string encode_text(const PerftestEnd& end);
[[nodiscard]] std::optional<PerftestEnd> decode_struct(ConstBytes record);
[[nodiscard]] std::string encode_struct(const PerftestEnd& end);

/// Cuts a TCP stream into items. The first four have fixed sizes (version, two system values, MTU); after those an item
/// is a destination, the closing "done", or a value of eight bytes (a bandwidth report), told apart by its form.
class PerftestItems {
 public:
  void append(ConstBytes bytes) { buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size()); }
  /// The next complete item, or an empty string.
  [[nodiscard]] std::string next();

 private:
  static constexpr std::array<std::size_t, 4> preamble = {16, 4, 4, 2};

  [[nodiscard]] std::size_t size_of_next() const;

  std::string buffer_;
  std::size_t taken_ = 0;
};

}  // namespace nbx::ghost
