// What background traffic is to be: plain data, written by control.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "cc/params.hpp"
#include "switching/packet.hpp"
#include "traffic/sizes.hpp"

namespace nbx::traffic {

enum class Pattern : std::uint8_t {
  one_to_one,   // the i-th sender to the i-th receiver
  incast,       // all senders at the same time, to one receiver, the next one each time
  permutation,  // each sender to one other of them, each of which hears of one
  all_to_all,   // each flow to any receiver but the sender
};

struct Spec {
  std::string name;
  Pattern pattern = Pattern::one_to_one;
  std::vector<switching::HostId> from;
  std::vector<switching::HostId> to;  // not of a permutation
  BitRate rate{};                     // of each sender in the mean, of whole frames with preamble, FCS and gap
  Sizes sizes;                        // of flows, headers not counted
  std::uint32_t packet_bytes = 1024;  // of them in a packet
  std::uint8_t priority = 0;
  switching::Ecn ecn = switching::Ecn::ect0;
  Duration start{};
  Duration lasts{};                        // zero: for ever
  std::optional<cc::DcqcnParams> dcqcn{};  // none: flows send as fast as their port
  std::uint32_t flows_max = 1024;          // under way at once
};

inline constexpr std::uint32_t header_bytes = 14 + 20 + 8 + 12 + 4;  // Ethernet, IPv4, UDP, BTH, ICRC

/// What all frames of a flow of `bytes` occupy of a line.
[[nodiscard]] constexpr std::uint64_t line_bytes(std::uint64_t bytes, std::uint32_t packet_bytes) noexcept {
  const std::uint64_t packets = (bytes + packet_bytes - 1) / packet_bytes;
  return bytes + packets * (header_bytes + ethernet_overhead_bytes);
}
/// Its mean over all flows, to a part in ten thousand.
[[nodiscard]] double mean_line_bytes(const Sizes& sizes, std::uint32_t packet_bytes);

}  // namespace nbx::traffic
