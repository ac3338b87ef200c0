// The keys of `traffic:`.
#pragma once

#include "config/document.hpp"
#include "config/keys.hpp"
#include "config/traffic.hpp"

namespace nbx::config {

template <>
struct Words<traffic::Pattern> {
  using enum traffic::Pattern;
  static constexpr auto table = words<traffic::Pattern>(
      {{"one_to_one", one_to_one}, {"incast", incast}, {"permutation", permutation}, {"all_to_all", all_to_all}});
};

template <class V>
void describe(V& v, traffic::UniformSize& x) {
  v.about({.name = "uniform size", .doc = "Every size from one to the other is as likely."});
  v.field("min", as<ByteCount>(x.min), "The smallest.", {.limits = {.min = 1}});
  v.field("max", as<ByteCount>(x.max), "The largest.", {.required = true, .limits = {.min = 1}});
}
/// The points of a published distribution, or those of a file: a line each with bytes and the per cent of flows that
/// are not larger, rising from 0 to 100.
template <>
struct Raw<traffic::CdfSize> {
  static std::string type() { return "name or path"; }
  static Json schema() { return {{"type", "string"}}; }
  static void read(const Value& value, traffic::CdfSize& target, Diagnostics& out);
};

template <class V>
void describe(V& v, traffic::Sizes& x) {
  v.about({.name = "flow sizes", .doc = "How many bytes a flow has, headers not counted."});
  v.choice(x, {},
           alternative<traffic::ConstantSize>("constant", "All have this size.",
                                              [](auto& s) { return as<ByteCount>(s.bytes); }, {.limits = {.min = 1}}),
           alternative<traffic::UniformSize>("uniform", "Between two sizes."),
           alternative<traffic::ExponentialSize>("exponential", "Exponential with this mean.",
                                                 [](auto& s) { return as<ByteCount>(s.mean); }, {.limits = {.min = 1}}),
           alternative<traffic::CdfSize>(
               "cdf",
               "A published distribution, `web_search` or `fb_hadoop`, or a file: a line each with "
               "bytes and the per cent of flows that are not larger, from 0 to 100."));
}
template <class V>
void describe(V& v, Traffic& x) {
  v.about({.name = "traffic",
           .doc = "Flows that ghosts send through the network to each other or towards the real node, at random times. "
                  "They fill queues and are then gone: no frame of them leaves the port."});
  v.field("name", x.name, "Its name in reports.", {.required = true});
  v.field(
      "pattern", x.pattern,
      "`incast`: all senders at the same time to one receiver, the next one each time; `one_to_one`: the first to "
      "the first, and so on; `permutation`: each sender to one other, `to` is not given; `all_to_all`: each flow to "
      "any receiver.",
      {.required = true});
  v.field("from", x.from, "Ghosts that send, by name or by the common name of several with a count.",
          {.one_or_many = true, .fallback = "all"});
  v.field("to", x.to, "Ghosts that receive, or `node`: the end of the real node's emulated cable.",
          {.one_or_many = true, .fallback = "all ghosts"});
  v.choice(x.rate, {},
           alternative<BitRate>("rate", "Of each sender in the mean; whole frames with preamble, FCS and gap count.",
                                {}, {.limits = {.min = 1}}),
           alternative<Load>(
               "load", "The same as a share of `host_rate`.", [](auto& l) -> auto& { return l.share; }));
  v.field("sizes", x.sizes, "Of flows.", {.required = true});
  v.field("packet", as<ByteCount>(x.packet_bytes), "Bytes of a flow in a packet.",
          {.limits = {.min = 64, .max = 9000}});
  v.field("dscp", x.dscp, "DSCP of its packets; `priorities` says what it means.", {.limits = {.max = 63}});
  v.field("ecn", x.ecn, "ECN field of its packets.");
  v.field("start", x.start, "When, after the start of the emulator.");
  v.field("lasts", x.lasts, "For how long flows begin.", {.fallback = "for good"});
  v.field("dcqcn", x.dcqcn, "Flows slow down when their packets are marked, and start at `host_rate`.",
          {.fallback = "they do not"});
  v.field("flows", x.flows_max, "Under way at once; beyond, flows do not begin (`refused`).",
          {.limits = {.min = 1, .max = 1U << 20U}});
}

}  // namespace nbx::config
