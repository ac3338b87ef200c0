// What no key can say alone: references, duplicates, sizes that must fit each other.
#pragma once

#include "config/cluster.hpp"
#include "config/source.hpp"

namespace nbx::config {

/// `warnings`: what is legal, and hardly meant.
void check_cluster(const ClusterConfig& config, Diagnostics& out, Diagnostics& warnings);
/// `profile` in place of the one that a port of a sound cluster has: for changes while running.
void check_profile(const Profile& profile, const Port& port, const ClusterConfig& config, Diagnostics& out);

/// What ports, nodes and ghosts are called: no word has two meanings.
void check_names(const ClusterConfig& config, Diagnostics& out);
/// Nor do hosts have words that a sound topology has for others.
void check_names(const switching::Topology& topology, const ClusterConfig& config, Diagnostics& out);
/// Pinned routes of the emulated network.
void check_pins(const Network& network, const switching::Topology& topology, const ClusterConfig& config,
                Diagnostics& out);
/// Ghosts that a port's profile names, its queues and delay lines.
void check_stages(const Profile& profile, const Port& port, const ClusterConfig& config, Diagnostics& out);
/// Whether the delay lines of all ports, and what a queue pair may keep, fit the memory for frames.
void check_memory(const ClusterConfig& config, Diagnostics& out);

/// What one direction keeps under way at most, at its rate and with frames of the port's MTU.
struct DelayLine {
  BitRate rate;  // the direction's, or assumed_rate
  bool rate_assumed = true;
  Duration longest{};        // of the delays
  std::uint64_t frames = 0;  // in the queue and on the way
  std::uint64_t memory_bytes = 0;
};
/// Frames that the responders of a port's ghosts may keep out of order, all together: a quarter of the port's.
[[nodiscard]] std::uint64_t kept_frames(const ClusterConfig& config, const Port& port);

inline constexpr BitRate assumed_rate = BitRate::gbps(100);
[[nodiscard]] DelayLine delay_line(const Direction& direction, std::uint32_t mtu);

/// Room of a queue that the profile does not size.
inline constexpr std::uint64_t default_queue_bytes = 1U << 20U;

/// IP packet of a RoCE packet beside its payload, at most: IPv6 40, UDP 8, BTH 12, RETH 16, ImmDt 4, ICRC 4.
inline constexpr std::uint32_t path_mtu_headers = 40 + 8 + 12 + 16 + 4 + 4;
/// Largest path MTU whose packets fit an IP MTU.
[[nodiscard]] std::uint32_t largest_path_mtu(std::uint32_t mtu);

/// Of all ports, without FCS.
[[nodiscard]] std::uint32_t largest_frame(const ClusterConfig& config);

/// What hosts of the emulated network are called in the file.
[[nodiscard]] std::vector<std::string> host_names(const ClusterConfig& config);

/// Whether a match's word, a name or the start of names with `*`, stands for `name`.
[[nodiscard]] bool names_ghost(const std::string& word, const std::string& name);

}  // namespace nbx::config
