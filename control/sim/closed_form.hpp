// Messages between ranks that nobody watches, without packets: when one comes in and when it is acknowledged is
// computed from the path's rates and latencies and from how long the two ranks' cables are busy. The network between
// the cables is taken as one in which nobody waits, nothing is lost and nothing is marked.
#pragma once

#include <vector>

#include "pipeline/emulated_network.hpp"

namespace nbx::sim {

class ClosedForm {
 public:
  /// `line`: what a rank sends at, at most. `packet_headers`: Ethernet to ICRC, without extended headers.
  ClosedForm(const pipeline::NetworkPlan& network, BitRate line, std::uint32_t path_mtu, std::uint32_t packet_headers);

  /// From one rank to another, on an idle network: a tandem of links that pass on whole packets, so the message takes
  /// its time on the slowest one, and a packet's on each of the others (the max-plus form of a tandem queue).
  struct Path {
    BitRate slowest;
    std::vector<BitRate> others;
    Duration latency{};  // cables and switches
  };
  [[nodiscard]] Path path(std::uint32_t from, std::uint32_t to) const;

  struct Times {
    Instant arrived;
    Instant acknowledged;
  };
  /// A message that may go at `now`. Messages of a rank leave one after the other, and so do those that come to one
  /// come in.
  Times send(const Path& path, std::uint32_t from, std::uint32_t to, std::uint32_t bytes, Instant now);

 private:
  [[nodiscard]] static Duration through(const Path& path, std::uint64_t bytes, std::uint64_t packet);

  switching::Topology topology_;
  std::vector<std::vector<switching::Neighbour>> neighbours_;
  std::vector<std::vector<std::vector<switching::PortIndex>>> ways_;
  std::vector<switching::HostId> hosts_;  // by rank
  Duration switch_latency_;
  BitRate line_;
  std::uint32_t path_mtu_;
  std::uint32_t on_line_;                // of each packet, besides payload
  std::vector<Instant> sends_until_;     // by rank
  std::vector<Instant> receives_until_;  // by rank
};

}  // namespace nbx::sim
