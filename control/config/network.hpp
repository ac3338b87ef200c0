// The emulated network of a cluster file: what lies between the cables of ports and the ghosts.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "config/scalar.hpp"
#include "config/source.hpp"
#include "switching/class_map.hpp"
#include "switching/network.hpp"
#include "switching/slow_receiver.hpp"

namespace nbx::config {

struct Rack {};
struct FatTree {
  std::uint32_t k = 4;
};
struct Dragonfly {
  std::uint32_t hosts_per_router = 1;
  std::uint32_t routers_per_group = 2;
  std::uint32_t global_links = 1;
};
/// Which host is whose: hosts_of(). Cables are the network's.
using Shape = std::variant<Rack, switching::LeafSpineSpec, FatTree, switching::RailSpec, Dragonfly>;

struct EcnThresholds {
  ByteCount kmin;
  ByteCount kmax;
  Probability pmax{1};
  std::uint8_t ewma_shift = 0;
};

/// How every switch treats one priority.
struct PriorityClass {
  Located<std::uint8_t> priority;
  std::vector<std::uint8_t> dscp;
  bool lossless = false;
  std::uint8_t alpha_shift = 0;
  ByteCount reserved;
  ByteCount queue_limit;
  std::optional<ByteCount> headroom;
  ByteCount xoff;
  ByteCount xon{4096};
  ByteCount quantum;
  std::optional<EcnThresholds> ecn;
};

struct Watchdog {
  Duration detection_time{};
  Duration restoration_time = std::chrono::milliseconds{200};
  switching::WatchdogAction action = switching::WatchdogAction::drop;
};

/// The switch at a real node's cable pauses it whatever the traffic.
struct Storm {
  Located<std::string> port;
  std::vector<std::uint8_t> priorities;
  std::uint16_t quanta = 0xffff;
  Duration period{};
  Duration start{};
  Duration duration{};
};

/// Ghosts that take what they receive from their NIC's buffer slowly, and pause their switch.
struct SlowReceiver {
  std::vector<Located<std::string>> ghosts;
  BitRate drain{};
  ByteCount buffer{1U << 20U};
  Located<ByteCount> xoff{ByteCount{256U << 10U}};
  ByteCount xon{4096};
  Duration lasts{};
};

/// Which priorities the real node has, to find out where it and the network differ.
struct NodePriority {
  std::uint8_t priority = 0;
  std::vector<std::uint8_t> dscp;
  bool lossless = false;
};
struct NodeClasses {
  Located<switching::Trust> trust{switching::Trust::dscp};
  std::vector<NodePriority> priorities;
};

/// Frames from one host to another leave switches by these cables.
struct Pin {
  Located<std::string> from;
  Located<std::string> to;
  std::optional<std::uint16_t> source_port;
  std::vector<Located<std::string>> path;
};

struct Network {
  Located<Shape> topology;
  std::uint32_t hosts = 0;  // the real nodes and the ghosts: set by load_cluster
  BitRate host_rate = BitRate::gbps(100);
  BitRate fabric_rate = BitRate::gbps(100);
  Duration propagation = std::chrono::nanoseconds{500};
  Duration latency = std::chrono::nanoseconds{600};
  ByteCount buffer{16U << 20U};
  switching::PathChoice path_choice = switching::PathChoice::ecmp;
  Duration flowlet_gap = std::chrono::microseconds{50};
  switching::Trust trust = switching::Trust::dscp;
  bool polarised = false;
  std::uint16_t pfc_quanta = 0xffff;
  std::vector<PriorityClass> priorities;
  std::optional<Watchdog> watchdog;
  std::optional<Located<Storm>> storm;
  std::vector<SlowReceiver> slow_receivers;
  std::optional<Located<NodeClasses>> node_classes;
  std::uint32_t frames = 65'536;
  std::optional<Duration> reroute_after;
  std::vector<Pin> pins;
};

inline constexpr std::uint32_t frame_headers = 14 + 2 * 4;  // on top of the MTU: Ethernet, two tags

[[nodiscard]] switching::Topology topology_of(const Network& network);
/// The links (see switching::LinkId) that a word names. What the ends of a cable are called, joined by a hyphen in
/// either order, is both of its directions; joined by `->`, what the first end sends. Parallel cables share it; `.0`,
/// `.1` behind it is one of them. A host is called as the topology calls it, `host0`, or as the file does: `names`, by
/// host.
[[nodiscard]] std::vector<switching::LinkId> links_of(const switching::Topology& topology, const std::string& word,
                                                      const std::vector<std::string>& names);
/// What to say when there is none of that name.
[[nodiscard]] std::string no_cable(const switching::Topology& topology, const std::string& word,
                                   const std::vector<std::string>& names);
[[nodiscard]] switching::ClassMap classes_of(const Network& network);
[[nodiscard]] switching::ClassMap classes_of(const NodeClasses& classes);
[[nodiscard]] switching::SlowReceiverSpec receiver_of(const SlowReceiver& receiver, const Network& network);
/// `max_frame`: the largest frame, without FCS.
[[nodiscard]] switching::NetworkSpec spec_of(const Network& network, std::uint32_t max_frame);

}  // namespace nbx::config
