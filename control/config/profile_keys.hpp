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
void describe(V& v, Match& x) {
  v.about({.name = "match",
           .doc = "Which frames a rule is about: those that meet every key given. Within a stage the first rule that "
                  "matches a frame is the one that acts."});
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
  v.field("both", x.both, "Stages of both directions.");
  v.field("from_node", x.from_node, "Stages of frames that the real node sent; each replaces the one in `both`.");
  v.field("to_node", x.to_node, "Stages of frames that the real node receives; each replaces the one in `both`.");
}

}  // namespace nbx::config
