// Every key of a profile file: see keys.hpp.
#pragma once

#include "config/keys.hpp"
#include "config/profile.hpp"

namespace nbx::config {

template <>
struct Words<wire::OpcodeClass> {
  using enum wire::OpcodeClass;
  static constexpr auto table = words<wire::OpcodeClass>(
      {{"data", data}, {"ack", ack}, {"nak", nak}, {"cnp", cnp}, {"cm", cm}, {"other", other}});
};
template <>
struct Words<fabric::CorruptTarget> {
  static constexpr auto table = words<fabric::CorruptTarget>(
      {{"payload", fabric::CorruptTarget::payload}, {"header", fabric::CorruptTarget::header}});
};

template <>
struct Words<nbx::Direction> {
  static constexpr auto table =
      words<nbx::Direction>({{"from_node", nbx::Direction::from_node}, {"to_node", nbx::Direction::to_node}});
};
template <>
struct Words<Way> {
  static constexpr auto table =
      words<Way>({{"both", Way::both}, {"from_node", Way::from_node}, {"to_node", Way::to_node}});
};
template <>
struct Words<events::NakCode> {
  using enum events::NakCode;
  static constexpr auto table = words<events::NakCode>({{"psn_sequence_error", psn_sequence_error},
                                                        {"invalid_request", invalid_request},
                                                        {"remote_access_error", remote_access_error},
                                                        {"remote_operational_error", remote_operational_error}});
};
template <>
struct Words<events::Silent::Scope> {
  static constexpr auto table =
      words<events::Silent::Scope>({{"qp", events::Silent::Scope::qp}, {"ghost", events::Silent::Scope::ghost}});
};

/// An hour, in picoseconds: keeps sums of delays far from overflow.
inline constexpr Limits delay_limits{.max = 3'600'000'000'000'000};

template <class V>
void describe(V& v, PsnRange& x) {
  v.about({.name = "psn range", .doc = "PSNs on the 24-bit circle, both ends included.", .shorthand = "first"});
  v.field("first", x.first, "First PSN; alone: the only one.", {.required = true});
  v.field("last", x.last, "Last PSN; may be smaller than `first`, around the end of the circle.",
          {.fallback = "`first`"});
}

template <class V>
void describe_match(V& v, Match& x);

template <class V>
void describe(V& v, Match& x) {
  v.about({.name = "match",
           .doc = "Which frames a rule is about: those that meet every key given. Within a stage the first rule that "
                  "matches a frame is the one that acts."});
  describe_match(v, x);
}

/// What rules and events have in common.
template <class V>
void describe_match(V& v, Match& x) {
  v.field("ghost", x.ghosts, "Names of ghosts that send or receive the frame.",
          {.one_or_many = true, .fallback = "any, and transit"});
  v.field("qpn", x.qpn, "Destination queue pair number, as in the BTH.", {.fallback = "any"});
  v.field("class", x.classes,
          "What the frame is: `data` is requests and READ responses, `ack` positive acknowledgements, `nak` negative "
          "ones with RNR, `cnp` congestion notifications, `cm` management datagrams, `other` all that is not RoCEv2.",
          {.one_or_many = true, .fallback = "any"});
  v.field("psn", x.psn, "PSN, or range of PSNs.", {.fallback = "any"});
  v.field("nth", x.nth, "The n-th frames, counted from 1, among those that the other keys accept.",
          {.one_or_many = true, .limits = {.min = 1}, .fallback = "every one"});
}

template <class V>
void describe(V& v, fabric::GilbertElliott& x) {
  v.about({.name = "gilbert-elliott",
           .doc = "Two-state Markov chain, stepped once per matching frame, with the parameters of tc-netem. The mean "
                  "length of a burst is 1/r frames."});
  v.field("p", as<Probability>(x.p), "From good to bad.", {.required = true});
  v.field("r", as<Probability>(x.r), "From bad to good.", {.required = true});
  v.field("in_bad", as<Probability>(x.loss_in_bad), "A frame is selected while the state is bad (netem: 1-h).");
  v.field("in_good", as<Probability>(x.loss_in_good), "A frame is selected while the state is good (netem: 1-k).");
}
template <class V>
void describe(V& v, fabric::EveryNth& x) {
  v.about({.name = "every n-th", .doc = "A regular pattern.", .shorthand = "n"});
  v.field("n", x.n, "Period in matching frames.", {.required = true, .limits = {.min = 1}});
  v.field("offset", x.offset, "Frames let pass before the first period.");
}

/// The frames that a rule selects among those that match.
template <class V>
void describe_selector(V& v, fabric::Selector& x) {
  v.choice(x, {},
           alternative<fabric::Bernoulli>("probability", "Each matching frame is selected independently.",
                                          [](auto& s) { return as<Probability>(s.probability); }),
           alternative<fabric::GilbertElliott>("gilbert_elliott", "Selection in bursts."),
           alternative<fabric::EveryNth>("every_nth", "Every n-th matching frame."),
           alternative<fabric::Listed>("frames", "The numbers, from 1, of the matching frames to select.",
                                       [](auto& s) -> auto& { return s.frames; },
                                       {.one_or_many = true, .limits = {.min = 1}}));
}

template <class V>
void describe_rule(V& v, fabric::LossRule& x) {
  v.about({.name = "loss rule", .doc = "Selected frames vanish, counted as `loss`.", .shorthand = "probability"});
  describe_selector(v, x.select);
}
template <class V>
void describe_rule(V& v, fabric::CorruptRule& x) {
  v.about({.name = "corrupt rule",
           .doc = "One bit of each selected frame is flipped and the ICRC left as it was.",
           .shorthand = "probability"});
  describe_selector(v, x.select);
  v.field("target", x.target,
          "Where the bit is: `payload` (the extension headers when there is none), or `header`: the UDP source port or "
          "the BTH, where the ICRC covers them.");
}
template <class V>
void describe_rule(V& v, fabric::DuplicateRule& x) {
  v.about({.name = "duplicate rule", .doc = "Selected frames go out twice.", .shorthand = "probability"});
  describe_selector(v, x.select);
}
template <class V>
void describe_rule(V& v, fabric::EcnRule& x) {
  v.about({.name = "ecn rule", .doc = "CE is set on selected frames.", .shorthand = "probability"});
  describe_selector(v, x.select);
  v.field("force", x.force, "Also mark frames that are not ECN-capable, which no switch would do.");
}
template <class V>
void describe_rule(V& v, fabric::ReorderRule& x) {
  v.about({.name = "reorder rule",
           .doc = "A selected frame is held until later frames of the direction have passed it.",
           .shorthand = "probability"});
  describe_selector(v, x.select);
  v.field("distance", x.distance, "Frames that pass before the held one follows.", {.limits = {.min = 1}});
  v.field("hold_max", x.hold_max, "Longest hold, for when no frames follow.", {.limits = {.min = 1}});
}

template <class V>
void describe(V& v, fabric::Pareto& x) {
  v.about({.name = "pareto", .doc = "Adds scale * (U^(-1/shape) - 1), never less than 0, U uniform in (0, 1]."});
  v.field("scale", x.scale, "Scale.", {.required = true, .limits = {.min = 1, .max = delay_limits.max}});
  v.field("shape", as<Factor>(x.shape), "Shape; the mean is finite above 1: scale / (shape - 1).");
  v.field("cap", x.cap, "Longest addition.", {.limits = delay_limits, .fallback = "1000 times the scale"});
}

template <class V>
void describe_rule(V& v, fabric::DelayRule& x) {
  v.about({.name = "delay rule", .doc = "Matching frames are held for a time.", .shorthand = "constant"});
  v.field("constant", x.constant, "Held this long in any case.", {.limits = delay_limits});
  v.choice(
      x.jitter, {.required = false, .fallback = "no jitter"},
      alternative<fabric::Uniform>("uniform", "Jitter between minus and plus this.",
                                   [](auto& j) -> auto& { return j.spread; }, {.limits = delay_limits}),
      alternative<fabric::Normal>("normal", "Normal jitter with this standard deviation; the sum is never below 0.",
                                  [](auto& j) -> auto& { return j.sigma; }, {.limits = delay_limits}),
      alternative<fabric::Pareto>("pareto", "Long-tailed jitter."),
      alternative<fabric::Table>("table", "Jitter drawn from this list, each value as likely as any other.",
                                 [](auto& j) -> auto& { return j.values; }, {.limits = delay_limits}));
  v.field("may_reorder", x.may_reorder,
          "Whether jitter may let a frame overtake an earlier one. If not, a frame leaves at the earliest when the one "
          "before it under the same rule does.");
}

template <class V, class Rule>
void describe(V& v, Matched<Rule>& x) {
  describe_rule(v, x.rule);
  v.field("match", x.match, "The frames that the rule is about.", {.fallback = "all"});
}

template <class V>
void describe(V& v, fabric::RateSpec& x) {
  v.about(
      {.name = "rate", .doc = "One queue for every frame of the direction, drained at a rate.", .shorthand = "limit"});
  v.field("limit", x.rate, "The rate.", {.required = true});
  v.field("queue", as<ByteCount>(x.queue_bytes),
          "Room of the queue; a frame that does not fit is dropped (`queue_full`).", {.fallback = "1 MiB"});
  v.field("count_overhead", x.count_overhead,
          "Whether preamble, FCS and gap (24 bytes per frame) take their time on the link.");
}

template <class V>
void describe(V& v, Direction& x) {
  v.about({.name = "direction",
           .doc = "What happens to the frames of one direction, in this order whatever the order in the file. Each "
                  "stage but `rate` is a rule or a list of rules; an empty list ends what was inherited."});
  v.field("loss", x.loss, "1. Frames lost.", {.one_or_many = true, .fallback = "none"});
  v.field("corrupt", x.corrupt, "2. Frames damaged.", {.one_or_many = true, .fallback = "none"});
  v.field("duplicate", x.duplicate, "3. Frames doubled.", {.one_or_many = true, .fallback = "none"});
  v.field("ecn", x.ecn, "4. Frames marked.", {.one_or_many = true, .fallback = "none"});
  v.field("rate", x.rate, "5. Queue and rate limit.", {.fallback = "unlimited"});
  v.field("delay", x.delay, "6. Propagation delay and jitter.", {.one_or_many = true, .fallback = "none"});
  v.field("reorder", x.reorder, "7. Frames held back.", {.one_or_many = true, .fallback = "none"});
  v.field("delay_line_frames", x.delay_line_frames,
          "Frames that may wait in the stages at once; more are dropped (`delay_line_full`).",
          {.limits = {.min = 1, .max = 1U << 24U}, .fallback = "what rate and delay ask for, at least 65536"});
}

template <class V>
void describe(V& v, NcclMatch& x) {
  v.about({.name = "nccl match",
           .doc = "Queue pairs of NCCL's connections between a real rank and a ghost, by ranks of their communicator. "
                  "Data goes from `from` to `to`; acknowledgements and clear-to-sends go back."});
  v.field("from", x.from, "Rank that sends data.", {.fallback = "any"});
  v.field("to", x.to, "Rank that receives it.", {.fallback = "any"});
  v.field("channel", x.channel, "NCCL's channel; of `send_recv`, the how-manieth connection of the pair, from 0.",
          {.limits = {.max = 63}, .fallback = "any"});
  v.field("send_recv", x.send_recv, "Whether it is a connection of ncclSend and ncclRecv, not of collectives.",
          {.fallback = "either"});
}

template <class V>
void describe(V& v, EventMatch& x) {
  v.about({.name = "event match",
           .doc = "Which packets an event is about: those that meet every key given. Unlike in rules, every event that "
                  "matches acts."});
  describe_match(v, x);
  v.field("qp", x.qp,
          "The ghost's n-th queue pair in the order of creation, from 1; in both directions, whatever its number.",
          {.limits = {.min = 1}, .fallback = "any"});
  v.field("nccl", x.nccl, "Queue pairs of NCCL's connections, in both directions.", {.fallback = "any"});
  v.field("psn_offset", x.psn_offset,
          "PSN, counted from the first one of the connection. Requests are meant, or, with `class` `ack` or `nak` "
          "alone, the answers to requests. Of ghosts' queue pairs.",
          {.limits = {.max = mask24}, .fallback = "any"});
  v.field("message", x.message,
          "Packets of the n-th message of requests, from 1, since the profile was loaded or the connection was made.",
          {.limits = {.min = 1}, .fallback = "any"});
  v.field("transmission", x.transmission, "The n-th time, from 1, that this PSN comes by.",
          {.limits = {.min = 1}, .fallback = "any"});
  v.field("from", x.from, "Not before this time since the profile was loaded.", {.limits = delay_limits});
  v.field("until", x.until, "Before this time since the profile was loaded.",
          {.limits = delay_limits, .fallback = "no end"});
  v.field("after", x.after, "Only when the event of this name has fired, by an earlier packet.",
          {.fallback = "at once"});
}

template <class V>
void describe(V& v, events::Drop& /*x*/) {
  v.about({.name = "drop", .doc = "The packet is lost, counted as `event`."});
}
template <class V>
void describe(V& v, events::Mark& x) {
  v.about({.name = "mark", .doc = "CE is set."});
  v.field("force", x.force, "Also when the packet is not ECN-capable.");
}
template <class V>
void describe(V& v, events::Corrupt& x) {
  v.about({.name = "event corruption", .doc = "All bits of one byte are inverted.", .shorthand = "byte"});
  v.field("byte", x.byte,
          "Which, from 0: the first of the BTH; of frames that are not RoCEv2, the first behind the Ethernet header. "
          "Packets without such a byte in front of the ICRC do not match.",
          {.required = true, .limits = {.max = 16384}});
  v.field("repair_icrc", x.repair_icrc, "Whether the ICRC is made to fit, so that nobody notices on the way.");
}
template <class V>
void describe(V& v, events::Delay& x) {
  v.about(
      {.name = "event delay", .doc = "The packet comes later; what follows is not held back.", .shorthand = "time"});
  v.field("time", x.time, "By how much, beside what the profile's delay adds.",
          {.required = true, .limits = delay_limits});
}
template <class V>
void describe(V& v, events::Duplicate& /*x*/) {
  v.about({.name = "event duplicate", .doc = "The packet goes out twice."});
}
template <class V>
void describe(V& v, events::Reorder& x) {
  v.about({.name = "event reordering",
           .doc = "The packet is held until later frames of the direction have passed it.",
           .shorthand = "distance"});
  v.field("distance", x.distance, "Frames that pass before the held one follows.", {.limits = {.min = 1}});
  v.field("hold_max", x.hold_max, "Longest hold, for when no frames follow.", {.limits = {.min = 1}});
}
template <class V>
void describe(V& v, events::Nak& x) {
  v.about(
      {.name = "nak", .doc = "The ghost does not execute the request and answers with a NAK.", .shorthand = "code"});
  v.field("code", x.code, "Which. All but `psn_sequence_error` end the connection.");
}
template <class V>
void describe(V& v, events::Rnr& /*x*/) {
  v.about({.name = "rnr", .doc = "The ghost does not execute the request and answers receiver not ready."});
}
template <class V>
void describe(V& v, events::Silent& x) {
  v.about({.name = "silent",
           .doc = "The packet is lost, and all that follows from and to its queue pair, or its ghost (`silent`)."});
  v.field("scope", x.scope, "Who falls silent: the packet's queue pair, or its ghost.");
  v.field("for", x.time, "For how long.", {.limits = delay_limits, .fallback = "for good"});
}
template <class V>
void describe(V& v, events::QpError& /*x*/) {
  v.about({.name = "queue pair error", .doc = "The packet is lost; the ghost's queue pair goes to the error state."});
}

template <class V>
void describe(V& v, EventAction& x) {
  v.about({.name = "event action", .doc = "What happens to the packet.", .bare_names = true});
  v.choice(x.action, {}, alternative<events::Drop>("drop", "It is lost."),
           alternative<events::Mark>("ecn", "It is marked CE."),
           alternative<events::Corrupt>("corrupt", "A byte changes."),
           alternative<events::Delay>("delay", "It comes later."),
           alternative<events::Duplicate>("duplicate", "It comes twice."),
           alternative<events::Reorder>("reorder", "Later ones pass it."),
           alternative<events::Nak>("nak", "The ghost answers it with a NAK."),
           alternative<events::Rnr>("rnr", "The ghost answers it with an RNR NAK."),
           alternative<events::Silent>("silent", "Its queue pair or ghost stops answering."),
           alternative<events::QpError>("qp_error", "The ghost's queue pair goes to the error state."));
}

template <class V>
void describe(V& v, Event& x) {
  v.about({.name = "event",
           .doc =
               "An exact event: this packet, that happening. Events are asked before all stages, and every firing is "
               "kept with its packet (`nbx events`)."});
  v.field("name", x.name, "What the event is called in logs and by `after`.", {.required = true});
  v.field("direction", x.direction, "Of the packet.", {.required = true});
  v.field("match", x.match, "Which packet.", {.required = true});
  v.field("do", x.action, "What happens.", {.required = true});
}

template <class V>
void describe(V& v, fabric::LinkFailure& /*x*/) {
  v.about({.name = "link failure", .doc = "Frames are lost, counted as `link_down`."});
}

template <class V>
void describe(V& v, BackAs& x) {
  v.about({.name = "back as",
           .doc = "What a ghost has when it comes back. Queue pairs that live on keep the addresses "
                  "that they were connected with."});
  v.field("mac", x.mac, "Its MAC address.", {.fallback = "the old one"});
  v.field("addresses", x.addresses, "Its addresses with prefix lengths.",
          {.one_or_many = true, .fallback = "the old ones"});
  v.field("announce", x.announce, "By gratuitous ARP and unsolicited neighbour advertisements.");
}
template <class V>
void describe(V& v, SwitchBuffer& x) {
  v.about({.name = "switch buffer", .doc = "Buffers of switches have another size.", .shorthand = "size"});
  v.field("switches", x.switches, "Their names, as `leaf0`.", {.one_or_many = true, .fallback = "all of them"});
  v.field("size", x.size, "Of each, shared by its ports.", {.required = true, .limits = {.min = 1}});
}

template <class V>
void describe(V& v, Failure& x) {
  v.about({.name = "failure", .doc = "Something that happens at a time."});
  v.field("at", x.at, "When, since the profile was loaded.", {.required = true, .limits = delay_limits});
  v.field("for", x.lasts, "For how long; then the profile holds again.",
          {.limits = delay_limits, .fallback = "for good"});
  v.field("direction", x.way, "Of a link or a rate: one direction alone makes a half-open link.");
  v.choice(x.what, {}, alternative<fabric::LinkFailure>("link_down", "The link of the port is down: `{}`."),
           alternative<DeadGhosts>("ghosts_down", "Names of ghosts that neither send nor receive (`silent`).",
                                   [](auto& g) -> auto& { return g.names; }, {.one_or_many = true}),
           alternative<Located<fabric::RateSpec>>("rate", "The link has another rate and queue."),
           alternative<DeadCables>("cable_down",
                                   "Cables of the emulated network that carry nothing (`network_link_down`), by their "
                                   "ends: `leaf0-spine1`; `leaf0->spine1` is half-open, what `spine1` sends arrives.",
                                   [](auto& c) -> auto& { return c.names; }, {.one_or_many = true}),
           alternative<Located<SwitchBuffer>>("switch_buffer", "Switches of the emulated network have other buffers."));
  v.field("back_as", x.back_as,
          "With `ghosts_down` and `for`, of one ghost: it comes back with another MAC or address.",
          {.fallback = "as it was"});
}

template <class V>
void describe(V& v, Profile& x) {
  v.about({.name = "profile",
           .doc = "How the network behind one port behaves. Directions are seen from the port: `from_node` is what the "
                  "real node sent, `to_node` what it is going to receive.",
           .shorthand = "extends"});
  v.field("name", x.name, "For people.", {.fallback = "the file's name"});
  v.field("description", x.description, "For people.");
  v.field("extends", x.extends,
          "Another profile, by the name of a shipped one or by a path relative to this file; whatever is not given "
          "here is as given there.");
  v.field("verify_icrc", x.verify_icrc, "Whether frames for ghosts are dropped when their ICRC is wrong.",
          {.fallback = "true"});
  v.field("events", x.events, "Exact events.", {.fallback = "none"});
  v.field("failures", x.failures, "What fails, and when.", {.fallback = "none"});
  v.field("both", x.both, "Stages of both directions.");
  v.field("from_node", x.from_node, "Stages of frames that the real node sent; each replaces the one in `both`.");
  v.field("to_node", x.to_node, "Stages of frames that the real node receives; each replaces the one in `both`.");
}

}  // namespace nbx::config
