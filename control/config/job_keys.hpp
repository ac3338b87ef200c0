// The keys of a job file.
#pragma once

#include "config/job.hpp"
#include "config/keys.hpp"

namespace nbx::config {

inline constexpr Limits message_limits{.min = 1, .max = 1ULL << 40U};

template <class V>
void describe(V& v, Group& x) {
  v.about({.name = "group",
           .doc = "Ranks that work together; every group of the cluster does the same at the same time.",
           .shorthand = "size"});
  v.field("size", x.size, "Ranks of a group; 0: as many as there are.", {.limits = {.max = 1U << 20U}});
  v.field("stride", x.stride, "From one rank of a group to the next.", {.limits = {.min = 1, .max = 1U << 20U}});
}
template <class V>
void describe(V& v, Compute& x) {
  v.about({.name = "compute", .doc = "Every rank computes.", .shorthand = "time"});
  v.field("time", x.time, "How long.", {.required = true, .limits = {.max = 3'600'000'000'000'000}});
}
template <class V>
void describe_ring(V& v, RingCollective& x) {
  v.field("bytes", x.bytes, "Of the whole vector, as nccl-tests reckon them.",
          {.required = true, .limits = message_limits});
  v.field("channels", x.channels, "Rings, or pairs of trees, that share the vector, each with connections of its own.",
          {.limits = {.min = 1, .max = 64}});
  v.field("slice", x.slice, "What a rank passes on at once (NCCL's Simple protocol: 512 KiB).",
          {.limits = {.min = 4, .max = 1U << 30U}});
  v.field("group", x.group, "Which ranks.", {.fallback = "all"});
}
template <class V>
void describe(V& v, Dimension& x) {
  v.about({.name = "dimension",
           .doc = "Ranks that differ in one coordinate only. Of the first dimension they are neighbours."});
  v.field("size", x.size, "Ranks; 0, in one dimension at most: what the others leave of the group.",
          {.limits = {.max = 1U << 20U}});
  v.field("rate", x.rate, "What each of its ranks can send in it, for the schedule.", {.limits = {.min = 1}});
}
template <class V>
void describe(V& v, AllReduce& x) {
  v.about({.name = "all reduce", .doc = "AllReduce.", .shorthand = "bytes"});
  v.field("algorithm", x.algorithm,
          "`tree`: NCCL's double binary tree, up and down: each half of the vector has a tree of its own, in which the "
          "ranks that are inside the other one are leaves. `servers`: each of these ranks gets its share of the vector "
          "from all others and, when all have come, sends them the sum.");
  v.field("servers", x.servers, "How many ranks, the first of the group, are parameter servers beside their work.",
          {.limits = {.min = 1, .max = 1U << 20U}});
  v.field("dimensions", x.dimensions,
          "Up to three: reduce and scatter in each, one after the other, then gather in each in the reverse order.",
          {.fallback = "none: one ring"});
  v.field(
      "schedule", x.schedule,
      "In which order each channel goes through the dimensions: `fixed`, as they stand; `balanced`, the one with the "
      "least work first, reckoned from all channels before it (Themis, Rashidi et al., ISCA 2022, section 4).");
  describe_ring(v, x);
}
template <class V>
void describe(V& v, AllGather& x) {
  v.about({.name = "all gather", .doc = "Ring AllGather.", .shorthand = "bytes"});
  v.field("of", x.of,
          "What `bytes` are of: the whole vector, or what each `rank` brings to it, as compressed gradients are.");
  describe_ring(v, x);
}
template <class V>
void describe(V& v, ReduceScatter& x) {
  v.about({.name = "reduce scatter", .doc = "Ring ReduceScatter.", .shorthand = "bytes"});
  describe_ring(v, x);
}
template <class V>
void describe(V& v, Broadcast& x) {
  v.about({.name = "broadcast", .doc = "From the first rank of the group, along the ring.", .shorthand = "bytes"});
  describe_ring(v, x);
}
template <class V>
void describe(V& v, AllToAll& x) {
  v.about({.name = "all to all", .doc = "Every rank sends to every other of its group.", .shorthand = "bytes"});
  v.field("bytes", x.bytes, "What each rank has, its own part included.", {.required = true, .limits = message_limits});
  v.field("group", x.group, "Which ranks.", {.fallback = "all"});
}
template <class V>
void describe(V& v, SendRecv& x) {
  v.about(
      {.name = "send recv", .doc = "Every rank but the last sends to the next of its group.", .shorthand = "bytes"});
  v.field("bytes", x.bytes, "Of each message.", {.required = true, .limits = message_limits});
  v.field("group", x.group, "Which ranks.", {.fallback = "all"});
}
template <class V>
void describe(V& v, OneFlow& x) {
  v.about({.name = "flow", .doc = "One message from a rank to another."});
  v.field("from", x.from, "Rank.", {.required = true});
  v.field("to", x.to, "Rank.", {.required = true});
  v.field("bytes", x.bytes, "Of the message.", {.required = true, .limits = message_limits});
}
template <class V>
void describe(V& v, Incast& x) {
  v.about({.name = "incast", .doc = "Every rank sends to the first of its group.", .shorthand = "bytes"});
  v.field("bytes", x.bytes, "Of each message.", {.required = true, .limits = message_limits});
  v.field("group", x.group, "Which ranks.", {.fallback = "all"});
}
template <class V>
void describe(V& v, JobOperation& x) {
  v.about({.name = "operation", .doc = "What all ranks do. One begins when a rank has ended the one before."});
  v.choice(x.what, {}, alternative<Compute>("compute", "Time without traffic."),
           alternative<AllReduce>("all_reduce", "AllReduce, by rings or trees."),
           alternative<AllGather>("all_gather", "Ring AllGather."),
           alternative<ReduceScatter>("reduce_scatter", "Ring ReduceScatter."),
           alternative<Broadcast>("broadcast", "Along the ring."),
           alternative<AllToAll>("all_to_all", "From each to each."),
           alternative<SendRecv>("send_recv", "From each to the next."),
           alternative<OneFlow>("flow", "From one to another."), alternative<Incast>("incast", "From all to one."));
  v.field("beside", x.beside, "Starts together with the operation before: overlap.");
  v.field(
      "after", x.after,
      "Names of operations before it in the step, for which it waits instead of the one before; `[]`: it starts with "
      "the step.",
      {.fallback = "the operation before, and those beside that"});
  v.field("staleness", x.staleness,
          "Steps that a rank may be ahead of it: it goes on once it has begun this one and ended that of so many steps "
          "before (stale-synchronous parallel).",
          {.limits = {.max = 1000}});
  v.field("name", x.name, "In the report.", {.fallback = "the operation"});
}
template <class V>
void describe(V& v, SlowRank& x) {
  v.about({.name = "straggler", .doc = "A rank that computes more slowly."});
  v.field("rank", x.rank, "Which.", {.required = true});
  v.field("factor", x.factor, "Its computing takes so many times as long.", {.required = true});
}
template <class V>
void describe(V& v, Job& x) {
  v.about({.name = "job",
           .doc =
               "What the ranks of a cluster do in `nbx sim`. Rank 0 is the real node, the ghosts follow in the order "
               "of the cluster file."});
  v.field("job", x.name, "For people.", {.required = true});
  v.field("description", x.description, "For people: where the sizes and times come from.");
  v.field("steps", x.steps, "How often.", {.limits = {.min = 1, .max = 1'000'000}});
  v.field("each_step", x.each_step, "The operations of a step, in order.", {.required = true});
  v.field("stragglers", x.stragglers, "Slow ranks.", {.fallback = "none"});
  v.field("closed_form", x.closed_form,
          "Ghosts that are not watched: what one of them sends to another takes the time that its path needs and no "
          "packet is made, as if nobody waited, lost or marked anything between their cables.",
          {.fallback = "none"});
}

}  // namespace nbx::config
