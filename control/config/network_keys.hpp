// The keys of `network:`.
#pragma once

#include "config/keys.hpp"
#include "config/network.hpp"

namespace nbx::config {

template <>
struct Words<switching::PathChoice> {
  using enum switching::PathChoice;
  static constexpr auto table =
      words<switching::PathChoice>({{"ecmp", ecmp}, {"spray", spray}, {"adaptive", adaptive}, {"flowlet", flowlet}});
};
template <>
struct Words<switching::Trust> {
  using enum switching::Trust;
  static constexpr auto table = words<switching::Trust>({{"dscp", dscp}, {"pcp", pcp}});
};
template <>
struct Words<switching::WatchdogAction> {
  using enum switching::WatchdogAction;
  static constexpr auto table = words<switching::WatchdogAction>({{"drop", drop}, {"forward", forward}});
};

template <class V>
void describe(V& v, Rack& /*x*/) {
  v.about({.name = "rack", .doc = ""});
}
template <class V>
void describe(V& v, switching::LeafSpineSpec& x) {
  v.about({.name = "leaf-spine", .doc = "Every leaf has cables to every spine."});
  v.field("leaves", x.leaves, "Leaf switches.", {.limits = {.min = 1, .max = 1024}});
  v.field("spines", x.spines, "Spine switches.", {.limits = {.min = 1, .max = 256}});
  v.field("hosts_per_leaf", x.hosts_per_leaf, "Hosts at each leaf.", {.limits = {.min = 1, .max = 1024}});
  v.field("parallel", x.parallel, "Cables between a leaf and a spine.", {.limits = {.min = 1, .max = 64}});
}
template <class V>
void describe(V& v, FatTree& x) {
  v.about({.name = "fat tree", .doc = "k pods, k^3 / 4 hosts (Al-Fares et al., 2008).", .shorthand = "k"});
  v.field("k", x.k, "Ports of every switch, an even number.", {.limits = {.min = 2, .max = 32}});
}
template <class V>
void describe(V& v, switching::RailSpec& x) {
  v.about({.name = "rail-optimized", .doc = "Port r of every node of a group is at the group's leaf r."});
  v.field("nodes", x.nodes, "Nodes.", {.limits = {.min = 1, .max = 4096}});
  v.field("rails", x.rails, "Ports of a node; host n * rails + r is port r of node n.",
          {.limits = {.min = 1, .max = 64}});
  v.field("nodes_per_group", x.nodes_per_group, "Nodes that share their leaves.", {.limits = {.min = 1, .max = 1024}});
  v.field("spines", x.spines, "Spine switches.", {.limits = {.min = 1, .max = 256}});
}
template <class V>
void describe(V& v, Dragonfly& x) {
  v.about({.name = "dragonfly", .doc = "Groups of routers, one cable between any two groups (Kim et al., 2008)."});
  v.field("hosts_per_router", x.hosts_per_router, "Hosts at each router (p).", {.limits = {.min = 1, .max = 64}});
  v.field("routers_per_group", x.routers_per_group, "Routers of a group, all connected (a).",
          {.limits = {.min = 1, .max = 64}});
  v.field("global_links", x.global_links, "Cables from a router to other groups (h).",
          {.limits = {.min = 1, .max = 64}});
}
template <class V>
void describe(V& v, Shape& x) {
  v.about({.name = "topology",
           .doc = "Which switches there are. For each port its real node is a host, then its ghosts.",
           .bare_names = true});
  v.choice(x, {}, alternative<Rack>("rack", "One switch."),
           alternative<switching::LeafSpineSpec>("leaf_spine", "Two stages."),
           alternative<FatTree>("fat_tree", "Three stages of equal switches."),
           alternative<switching::RailSpec>("rail_optimized", "Two stages, a leaf for each rail."),
           alternative<Dragonfly>("dragonfly", "Groups without a second stage."));
}
/// A switch counts the bytes of a queue and of an ingress in 32 bits.
inline constexpr Limits queue_limits{.max = UINT32_MAX};

template <class V>
void describe(V& v, EcnThresholds& x) {
  v.about({.name = "ecn ramp",
           .doc = "Frames are marked with a chance that rises from 0 at `kmin` to `pmax` at `kmax`; "
                  "above, all are. What is not ECN-capable is dropped in their place, unless the "
                  "priority is lossless."});
  v.field("kmin", x.kmin, "Bytes in the queue.", {.required = true, .limits = queue_limits});
  v.field("kmax", x.kmax, "Bytes in the queue.", {.required = true, .limits = queue_limits});
  v.field("pmax", x.pmax, "At `kmax`.");
  v.field("ewma_shift", x.ewma_shift, "0: the queue as it is; n: an average that moves by 2^-n of the difference.",
          {.limits = {.max = 16}});
}
template <class V>
void describe(V& v, PriorityClass& x) {
  v.about({.name = "priority", .doc = "How every switch treats one priority."});
  v.field("priority", x.priority, "Which.", {.required = true, .limits = {.max = 7}});
  v.field("dscp", x.dscp, "The DSCPs that belong to it.",
          {.one_or_many = true, .limits = {.max = 63}, .fallback = "DSCP / 8"});
  v.field("lossless", x.lossless, "Whether its senders are paused (PFC) rather than its frames dropped.");
  v.field("alpha_shift", x.alpha_shift, "A queue may hold 2^-n of the free shared buffer.", {.limits = {.max = 7}});
  v.field("reserved", x.reserved, "Of the buffer, for each ingress port.", {.limits = queue_limits});
  v.field("queue_limit", x.queue_limit, "Lossy: longest queue; 0: the dynamic threshold alone.",
          {.limits = queue_limits});
  v.field("headroom", x.headroom, "Lossless: for each ingress port, for what comes after the pause.",
          {.limits = queue_limits, .fallback = "what the cable needs"});
  v.field("xoff", x.xoff, "Lossless: an ingress port with more pauses its sender; 0: the dynamic threshold.",
          {.limits = queue_limits});
  v.field("xon", x.xon, "Lossless: so far below, it may go on.", {.limits = queue_limits});
  v.field("quantum", x.quantum, "Bytes in a turn of deficit round robin; 0: strict.", {.limits = queue_limits});
  v.field("ecn", x.ecn, "Marking.", {.fallback = "none"});
}
template <class V>
void describe(V& v, Watchdog& x) {
  v.about(
      {.name = "pfc watchdog", .doc = "What becomes of a priority that stays paused.", .shorthand = "detection_time"});
  v.field("detection_time", x.detection_time, "Paused so long, with frames waiting.",
          {.required = true, .limits = {.min = 1}});
  v.field("restoration_time", x.restoration_time, "Without a pause for so long, all is as before.");
  v.field("action", x.action, "`drop` what waits and comes, or `forward` it in spite of the pause.");
}
template <class V>
void describe(V& v, Storm& x) {
  v.about({.name = "pfc storm", .doc = "The switch at a real node's cable pauses it whatever the traffic."});
  v.field("port", x.port, "Whose real node.", {.fallback = "the only one"});
  v.field("priorities", x.priorities, "Which are paused.",
          {.required = true, .one_or_many = true, .limits = {.max = 7}});
  v.field("quanta", x.quanta, "Of each pause; one is 512 bit times at `host_rate`.", {.limits = {.min = 1}});
  v.field("period", x.period, "From a pause to the next.", {.fallback = "half of the time that one lasts"});
  v.field("start", x.start, "After the start of the emulator.");
  v.field("duration", x.duration, "When it is over a resume is sent; for safety, a minute at most.",
          {.required = true, .limits = {.min = 1, .max = 60'000'000'000'000}});
}
template <class V>
void describe(V& v, SlowReceiver& x) {
  v.about({.name = "slow receiver",
           .doc = "Ghosts that take frames from their buffer at a rate of their own, one after the other, and pause "
                  "their switch before the buffer is full."});
  v.field("ghosts", x.ghosts, "Names; `*` at the end stands for any rest.", {.required = true, .one_or_many = true});
  v.field("drain", x.drain, "Of the frames' bytes, without what a line adds.",
          {.required = true, .limits = {.min = 1}});
  v.field("buffer", x.buffer, "What it holds; beyond, frames are lost.", {.limits = {.min = 1}});
  v.field("xoff", x.xoff, "With more of a lossless priority, it is paused.", {.limits = {.min = 1}});
  v.field("xon", x.xon, "So far below, it may go on.");
  v.field("lasts", x.lasts, "For how long, after the start of the emulator; then it takes all it holds at once.",
          {.limits = {.max = 3'600'000'000'000'000}, .fallback = "for good"});
}
template <class V>
void describe(V& v, NodePriority& x) {
  v.about({.name = "priority of the real node", .doc = "One priority of the real node's NIC."});
  v.field("priority", x.priority, "Which.", {.required = true, .limits = {.max = 7}});
  v.field("dscp", x.dscp, "The DSCPs that belong to it.",
          {.one_or_many = true, .limits = {.max = 63}, .fallback = "DSCP / 8"});
  v.field("lossless", x.lossless, "Whether it has PFC.");
}
template <class V>
void describe(V& v, NodeClasses& x) {
  v.about({.name = "classes of the real node",
           .doc = "How the real node's NIC is set, as `mlnx_qos` shows it: where the network differs is warned of, and "
                  "frames that are seen differently are counted."});
  v.field("trust", x.trust, "What it takes a frame's priority from.");
  v.field("priorities", x.priorities, "What is not lossy with the DSCPs of its number.");
}
template <class V>
void describe(V& v, Pin& x) {
  v.about({.name = "pin",
           .doc =
               "A way that is fixed, whatever `path_choice`. A switch of it takes another way only when the cable is "
               "dead. Of pins that match a frame the first one holds."});
  v.field("from", x.from,
          "Who sends: `node`, which is every real node; the name of one, else that of its port; a ghost or the common "
          "name of several with a count.",
          {.required = true});
  v.field("to", x.to, "Who receives.", {.required = true});
  v.field("source_port", x.source_port, "Of the flow with this UDP source port alone.", {.fallback = "all flows"});
  v.field("path", x.path,
          "Cables between switches, one behind the other, each called in the direction of the frames: "
          "`leaf0->spine1` fixes the next hop of `leaf0`.",
          {.required = true, .one_or_many = true});
}
template <class V>
void describe(V& v, Network& x) {
  v.about({.name = "network", .doc = "Switches and cables between ports and ghosts. See the page on the fabric."});
  v.field("topology", x.topology, "Which switches and cables.", {.required = true});
  v.field("host_rate", x.host_rate, "Of the cables to hosts.", {.limits = {.min = 1}});
  v.field("fabric_rate", x.fabric_rate, "Of the cables between switches.", {.limits = {.min = 1}});
  v.field("propagation", x.propagation, "Of every cable.");
  v.field("latency", x.latency, "Of a switch, from the last bit in to the decision.");
  v.field("buffer", x.buffer, "Of every switch, shared by its ports.", {.limits = {.min = 1}});
  v.field(
      "path_choice", x.path_choice,
      "Among equally short ways: by the flow's hash, by chance for each frame, the shortest queue for each frame, or "
      "the shortest queue after a gap in the flow.");
  v.field("flowlet_gap", x.flowlet_gap, "The gap of `path_choice: flowlet`.", {.limits = {.min = 1}});
  v.field("trust", x.trust, "What a frame's priority is taken from; `pcp` is that of its VLAN tag.");
  v.field("polarised", x.polarised, "Every switch hashes alike.");
  v.field("pfc_quanta", x.pfc_quanta, "Of the pauses that switches send; refreshed before they are over.",
          {.limits = {.min = 2}});
  v.field("priorities", x.priorities, "What is not a lossy, strict priority with default thresholds.");
  v.field("watchdog", x.watchdog, "Of every port.", {.fallback = "none"});
  v.field("reroute_after", x.reroute_after, "From the last change of a cable until all switches have routes around it.",
          {.fallback = "never; a switch only avoids its own dead cables"});
  v.field("pins", x.pins, "Ways that are fixed.");
  v.field("storm", x.storm, "A storm of pauses to a real node.", {.fallback = "none"});
  v.field("slow_receivers", x.slow_receivers, "Ghosts that receive more slowly than their cable.");
  v.field("node_classes", x.node_classes, "The real nodes' own priorities, to be compared.", {.fallback = "not known"});
  v.field("frames", x.frames, "Under way at once; beyond, frames are lost (`network_full`), and a simulation ends.",
          {.limits = {.min = 64, .max = 1U << 22U}});
}

}  // namespace nbx::config
