// Profiles: names become ids, and stages that nobody gave stay empty.
#include <algorithm>

#include "config/checks.hpp"
#include "plan/plan.hpp"

namespace nbx::plan {
namespace {

using GhostNames = std::vector<std::string>;

std::vector<GhostId> ids_of(const std::vector<config::Located<std::string>>& words, const GhostNames& names) {
  std::vector<GhostId> out;
  for (std::uint32_t id = 0; id < names.size(); ++id) {
    const bool named = std::any_of(words.begin(), words.end(),
                                   [&](const auto& word) { return config::names_ghost(*word, names[id]); });
    if (named) {
      out.push_back(GhostId{id});
    }
  }
  return out;
}

fabric::Match make_match(const config::Match& match, const GhostNames& names) {
  fabric::Match out;
  out.ghosts = ids_of(match.ghosts, names);
  out.dest_qpn = match.qpn;
  if (!match.classes.empty()) {
    out.classes = 0;
    for (const wire::OpcodeClass each : match.classes) {
      out.classes = static_cast<std::uint8_t>(out.classes | 1U << static_cast<unsigned>(each));
    }
  }
  if (match.psn) {
    out.psn_first = match.psn->first;
    out.psn_last = match.psn->last.value_or(match.psn->first);
  }
  out.nth = match.nth;
  std::sort(out.nth.begin(), out.nth.end());
  return out;
}

template <class Rule>
const Rule& rule_of(const config::Matched<Rule>& matched) {
  return matched.rule;
}
template <class Rule>
const Rule& rule_of(const config::Located<config::Matched<Rule>>& matched) {
  return matched->rule;
}
template <class Rule>
const std::optional<config::Match>& match_of(const config::Matched<Rule>& matched) {
  return matched.match;
}
template <class Rule>
const std::optional<config::Match>& match_of(const config::Located<config::Matched<Rule>>& matched) {
  return matched->match;
}

template <class Stage, class Rule>
void make_stage(const std::optional<Stage>& stage, const GhostNames& names, std::vector<Rule>& out) {
  if (!stage) {
    return;
  }
  for (const auto& each : *stage) {
    Rule& rule = out.emplace_back(rule_of(each));
    if (match_of(each)) {
      rule.match = make_match(*match_of(each), names);
    }
    if constexpr (requires { rule.select; }) {
      if (auto* listed = std::get_if<fabric::Listed>(&rule.select)) {
        std::sort(listed->frames.begin(), listed->frames.end());
      }
    }
  }
}

fabric::RateSpec with_queue(fabric::RateSpec rate) {
  if (!rate.rate.unlimited() && rate.queue_bytes == 0) {
    rate.queue_bytes = config::default_queue_bytes;
  }
  return rate;
}

fabric::DirectionSpec make_direction(const std::optional<config::Direction>& direction, const GhostNames& names,
                                     std::uint32_t mtu) {
  fabric::DirectionSpec out;
  if (!direction) {
    return out;
  }
  make_stage(direction->loss, names, out.loss);
  make_stage(direction->corrupt, names, out.corrupt);
  make_stage(direction->duplicate, names, out.duplicate);
  make_stage(direction->ecn, names, out.ecn);
  make_stage(direction->delay, names, out.delay);
  make_stage(direction->reorder, names, out.reorder);
  if (direction->rate) {
    out.rate = with_queue(**direction->rate);
  }
  out.delay_line_frames = direction->delay_line_frames
                              ? **direction->delay_line_frames
                              : std::max(out.delay_line_frames, config::delay_line(*direction, mtu).frames);
  return out;
}

events::Match make_event_match(const config::EventMatch& match, const GhostNames& names,
                               const std::vector<config::Event>& all) {
  const fabric::Match common = make_match(match, names);
  events::Match out;
  out.ghosts = common.ghosts;
  out.dest_qpn = common.dest_qpn;
  out.classes = common.classes;
  out.psn_first = common.psn_first;
  out.psn_last = common.psn_last;
  out.nth = common.nth;
  out.qp = match.qp.value_or(0);
  if (match.nccl) {
    const auto rank = [](const auto& given) { return given ? std::optional{**given} : std::nullopt; };
    const config::NcclMatch& nccl = **match.nccl;
    out.edge = events::EdgeMatch{rank(nccl.from), rank(nccl.to), nccl.channel, nccl.send_recv};
  }
  out.psn_offset = match.psn_offset;
  out.message = match.message.value_or(0);
  out.transmission = match.transmission.value_or(0);
  out.from = match.from;
  out.until = match.until;
  if (match.after) {
    const auto named = std::find_if(all.begin(), all.end(), [&](const auto& e) { return *e.name == **match.after; });
    out.after = static_cast<std::uint32_t>(named - all.begin());
  }
  return out;
}

std::vector<events::Spec> make_events(const std::vector<config::Event>& all, const GhostNames& names) {
  std::vector<events::Spec> out;
  for (const config::Event& event : all) {
    out.push_back({*event.name, event.direction, make_event_match(*event.match, names, all), event.action.action});
  }
  return out;
}

fabric::BufferChange make_buffer(const config::SwitchBuffer& buffer, const config::Network& network) {
  fabric::BufferChange out;
  out.size_bytes = buffer.size->value;
  const std::vector<std::string> switches = config::topology_of(network).switches;
  for (std::uint32_t s = 0; s < switches.size(); ++s) {
    const auto named = [&](const auto& word) { return *word == switches[s]; };
    if (buffer.switches.empty() || std::any_of(buffer.switches.begin(), buffer.switches.end(), named)) {
      out.switches.push_back(s);
    }
  }
  return out;
}

fabric::CableFailure make_cut(const config::DeadCables& cut, const config::ClusterConfig& config) {
  fabric::CableFailure out;
  const switching::Topology topology = config::topology_of(*config.network);
  for (const auto& word : cut.names) {
    const auto links = config::links_of(topology, *word, config::host_names(config));
    out.links.insert(out.links.end(), links.begin(), links.end());
  }
  return out;
}

fabric::NewIdentity make_identity(const config::BackAs& back) {
  fabric::NewIdentity out;
  if (back.mac) {
    out.mac = **back.mac;
  }
  for (const auto& address : back.addresses) {
    out.addresses.emplace_back(address->ip, address->prefix);
  }
  out.announced = back.announce;
  return out;
}

std::vector<fabric::Failure> make_failures(const std::vector<config::Failure>& all, const GhostNames& names,
                                           const config::ClusterConfig& config) {
  std::vector<fabric::Failure> out;
  for (const config::Failure& failure : all) {
    fabric::Failure& made = out.emplace_back();
    made.at = failure.at;
    made.lasts = failure.lasts;
    made.from_node = failure.way != config::Way::to_node;
    made.to_node = failure.way != config::Way::from_node;
    if (const auto* dead = std::get_if<config::DeadGhosts>(&failure.what)) {
      fabric::GhostFailure& of = made.what.emplace<fabric::GhostFailure>();
      of.ghosts = ids_of(dead->names, names);
      if (failure.back_as) {
        of.back_as = make_identity(**failure.back_as);
      }
    } else if (const auto* rate = std::get_if<config::Located<fabric::RateSpec>>(&failure.what)) {
      made.what = fabric::RateChange{with_queue(**rate)};
    } else if (const auto* cut = std::get_if<config::DeadCables>(&failure.what)) {
      made.what = make_cut(*cut, config);
    } else if (const auto* buffer = std::get_if<config::Located<config::SwitchBuffer>>(&failure.what)) {
      made.what = make_buffer(**buffer, *config.network);
    }
  }
  return out;
}

}  // namespace

fabric::ProfileSpec make_profile(const config::Profile& profile, const config::Port& port,
                                 const config::ClusterConfig& config) {
  GhostNames names;
  for (const config::Ghost* ghost : ghosts_of(config, port)) {
    names.push_back(*ghost->name);
  }
  fabric::ProfileSpec out;
  out.name = profile.name;
  if (out.name.empty()) {
    out.name = profile.from_node || profile.to_node ? "unnamed" : "ideal";
  }
  out.verify_icrc = profile.verify_icrc.value_or(out.verify_icrc);
  if (profile.events) {
    out.events = make_events(*profile.events, names);
  }
  if (profile.failures) {
    out.failures = make_failures(*profile.failures, names, config);
  }
  out.from_node = make_direction(profile.from_node, names, *port.mtu);
  out.to_node = make_direction(profile.to_node, names, *port.mtu);
  return out;
}

}  // namespace nbx::plan
