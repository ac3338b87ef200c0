// Profiles against the port and the cluster: names, queues, and the arithmetic of delay lines.
#include <algorithm>
#include <map>

#include "config/checks.hpp"
#include "frame/buffer.hpp"

namespace nbx::config {
namespace {

constexpr std::uint32_t ethernet_header_bytes = 14;

std::uint32_t frame_bytes(std::uint32_t mtu) { return mtu + ethernet_header_bytes; }

Duration longest_jitter(const fabric::Jitter& jitter) {
  struct Longest {
    Duration operator()(std::monostate /*none*/) const { return {}; }
    Duration operator()(const fabric::Uniform& u) const { return u.spread; }
    Duration operator()(const fabric::Normal& n) const { return 6 * n.sigma; }
    Duration operator()(const fabric::Pareto& p) const { return p.cap.count() != 0 ? p.cap : 1000 * p.scale; }
    Duration operator()(const fabric::Table& t) const {
      return t.values.empty() ? Duration{} : *std::max_element(t.values.begin(), t.values.end());
    }
  };
  return std::visit(Longest{}, jitter);
}

Duration longest_delay(const fabric::DelayRule& rule) { return rule.constant + longest_jitter(rule.jitter); }

const Located<Matched<fabric::DelayRule>>* longest_rule(const Direction& direction) {
  if (!direction.delay || direction.delay->empty()) {
    return nullptr;
  }
  return &*std::max_element(direction.delay->begin(), direction.delay->end(), [](const auto& a, const auto& b) {
    return longest_delay(a->rule) < longest_delay(b->rule);
  });
}

std::string with_unit(std::uint64_t bytes) {
  constexpr std::uint64_t mega = 1'000'000;
  return bytes < 10 * mega ? std::to_string(bytes) + "B" : std::to_string((bytes + mega / 2) / mega) + "MB";
}

/// "100Gb/s (assumed: the direction has no rate) x 30ms = 375MB, that is 88486 frames of 4214 bytes"
std::string arithmetic(const DelayLine& line, std::uint32_t mtu) {
  const auto on_wire = static_cast<std::uint64_t>(static_cast<double>(line.rate.bits_per_second) / 8 *
                                                  static_cast<double>(line.longest.count()) * 1e-12);
  return Scalar<BitRate>::format(line.rate) + (line.rate_assumed ? " (assumed: the direction has no rate)" : "") +
         " x " + Scalar<Duration>::format(line.longest) + " = " + with_unit(on_wire) + ", that is " +
         std::to_string(line.frames) + " frames of " + std::to_string(frame_bytes(mtu)) + " bytes" +
         (line.rate_assumed ? "" : " with those in the queue");
}

/// Calls f for each direction that has stages.
template <class F>
void for_each_direction(const Profile& profile, const F& f) {
  for (const std::optional<Direction>* direction : {&profile.from_node, &profile.to_node}) {
    if (*direction) {
      f(**direction);
    }
  }
}

class ProfileChecker {
 public:
  ProfileChecker(const Port& port, const ClusterConfig& config, Diagnostics& out)
      : port_(port), config_(config), out_(out) {}

  void check(const Direction& direction) {
    check_matches(direction.loss);
    check_matches(direction.corrupt);
    check_matches(direction.duplicate);
    check_matches(direction.ecn);
    check_matches(direction.delay);
    check_matches(direction.reorder);
    check_queue(direction);
    check_delay_line(direction);
  }

  void check(const std::vector<Event>& events) {
    std::map<std::string, const Event*> known;
    for (const Event& event : events) {
      const auto [first, added] = known.try_emplace(*event.name, &event);
      if (!added) {
        out_.push_back({event.name.pos,
                        "there is an event '" + *event.name + "' already",
                        {{first->second->name.pos, "it is here"}}});
      }
    }
    for (const Event& event : events) {
      check_ghosts(*event.match);
      check_event(event);
      const std::optional<Located<std::string>>& after = event.match->after;
      if (after && (known.count(**after) == 0 || **after == *event.name)) {
        out_.push_back({after->pos, **after == *event.name ? "an event cannot come after itself"
                                                           : "there is no event '" + **after + "'"});
      }
    }
  }

  void check(const std::vector<Failure>& failures) {
    for (const Failure& failure : failures) {
      if (const auto* dead = std::get_if<DeadGhosts>(&failure.what)) {
        for (const Located<std::string>& word : dead->names) {
          check_name(word);
        }
      } else if (const auto* rate = std::get_if<Located<fabric::RateSpec>>(&failure.what)) {
        check_queue(*rate);
      } else if (const auto* cut = std::get_if<DeadCables>(&failure.what)) {
        for (const Located<std::string>& word : cut->names) {
          check_cable(word, failure.way != Way::both);
        }
      } else if (const auto* buffer = std::get_if<Located<SwitchBuffer>>(&failure.what)) {
        check_buffer(*buffer);
      }
      if (failure.back_as && failure.back_as->given()) {
        check_back_as(failure, *failure.back_as);
      }
    }
  }

 private:
  /// The network's, if it has one that can be built; what is wrong with it is said elsewhere.
  std::optional<switching::Topology> topology(const SourcePos& pos) {
    if (!config_.network) {
      out_.push_back({pos, "there is no emulated network"});
      return std::nullopt;
    }
    const auto* tree = std::get_if<FatTree>(&*config_.network->topology);
    return tree != nullptr && tree->k % 2 != 0 ? std::nullopt : std::optional{topology_of(*config_.network)};
  }

  void check_cable(const Located<std::string>& word, bool way_given) {
    if (way_given && word.given()) {
      out_.push_back({word.pos,
                      "'direction' is of links and rates; one direction of a cable is called by its ends, as "
                      "leaf0->spine1"});
    }
    if (const auto built = word.given() ? topology(word.pos) : std::nullopt) {
      if (links_of(*built, *word, host_names(config_)).empty()) {
        out_.push_back({word.pos, no_cable(*built, *word, host_names(config_))});
      }
    }
  }

  void check_buffer(const Located<SwitchBuffer>& buffer) {
    const auto built = buffer.given() ? topology(buffer.pos) : std::nullopt;
    if (!built) {
      return;
    }
    for (const Located<std::string>& word : buffer->switches) {
      if (word.given() && std::find(built->switches.begin(), built->switches.end(), *word) == built->switches.end()) {
        out_.push_back({word.pos, "there is no switch '" + *word + "'" + did_you_mean(*word, built->switches)});
      }
    }
    switching::BufferSpec spec = spec_of(*config_.network, *port_.mtu + frame_headers).switches.buffer;
    spec.size_bytes = buffer->size->value;
    const auto ports = switching::neighbours(*built);
    for (std::size_t s = 0; s < ports.size(); ++s) {
      const auto is_named = [&](const auto& word) { return *word == built->switches[s]; };
      const bool meant =
          buffer->switches.empty() || std::any_of(buffer->switches.begin(), buffer->switches.end(), is_named);
      if (meant && !switching::SharedBuffer::fits(spec, static_cast<switching::PortIndex>(ports[s].size()))) {
        out_.push_back({buffer->size.pos, "the reserves and headroom of " + built->switches[s] + " take more"});
        return;
      }
    }
  }

  void check_back_as(const Failure& failure, const Located<BackAs>& back) {
    const auto* dead = std::get_if<DeadGhosts>(&failure.what);
    std::size_t ghosts = 0;
    const Ghost* who = nullptr;
    for (const Ghost& ghost : config_.ghosts) {
      const auto named = [&](const auto& word) { return names_ghost(*word, *ghost.name); };
      if (dead != nullptr && std::any_of(dead->names.begin(), dead->names.end(), named)) {
        ++ghosts;
        who = &ghost;
      }
    }
    if (dead == nullptr || ghosts != 1 || failure.lasts == Duration::zero()) {
      out_.push_back({back.pos, "'back_as' needs 'ghosts_down' of one ghost, and 'for'"});
      return;
    }
    for (const Ghost& other : config_.ghosts) {
      if (&other == who) {
        continue;
      }
      if (back->mac && **other.mac == **back->mac) {
        out_.push_back({back->mac->pos, "this is the MAC of ghost '" + *other.name + "'"});
      }
      for (const Located<Subnet>& address : back->addresses) {
        const auto same = [&](const auto& its) { return its->ip == address->ip; };
        if (std::any_of(other.addresses.begin(), other.addresses.end(), same)) {
          out_.push_back({address.pos, "this is an address of ghost '" + *other.name + "'"});
        }
      }
    }
  }

  /// What one event may ask for together.
  void check_event(const Event& event) {
    const EventMatch& match = *event.match;
    const auto complain = [&](bool wrong, const std::string& message) {
      if (wrong && event.match.given()) {
        out_.push_back({event.match.pos, message});
      }
    };
    const bool one_connection = match.qp || match.qpn || match.nccl;
    complain(match.qp && match.qpn, "'qp' and 'qpn' exclude each other");
    complain(match.nccl && (match.qp || match.qpn), "'nccl' excludes 'qp' and 'qpn'");
    if (match.nccl && match.nccl->given()) {
      check_ranks(*match.nccl);
    }
    complain(match.psn && match.psn_offset, "'psn' and 'psn_offset' exclude each other");
    complain(match.transmission && !match.psn_offset && !(match.psn && one_connection),
             "'transmission' needs 'psn_offset', or 'psn' with 'qp', 'qpn' or 'nccl'");
    complain(match.message && !one_connection, "'message' needs 'qp', 'qpn' or 'nccl'");
    complain(match.message && (match.psn || match.psn_offset), "'message' excludes 'psn' and 'psn_offset'");
    complain(match.until && *match.until <= match.from, "'until' is not behind 'from'");
    if (match.psn) {
      const std::uint32_t range =
          ((match.psn->last.value_or(match.psn->first).value - match.psn->first.value) & mask24);
      complain(range >= events::range_max, "an event ranges over " + std::to_string(events::range_max) +
                                               " PSNs at most; a rule of a stage takes more");
    }
    const bool answered = std::holds_alternative<events::Nak>(event.action.action) ||
                          std::holds_alternative<events::Rnr>(event.action.action);
    complain(answered && event.direction != nbx::Direction::from_node,
             "ghosts answer requests of the real node: 'nak' and 'rnr' need direction from_node");
  }

  /// Whether packets between these ranks can come by.
  void check_ranks(const Located<NcclMatch>& match) {
    if (!config_.nccl) {
      out_.push_back({match.pos, "no ghost is a rank: the cluster file has no 'nccl'"});
      return;
    }
    const auto& ranks = config_.nccl->ranks;
    for (const auto* end : {&match->from, &match->to}) {
      if (*end && ranks && ranks->given() && ***end >= **ranks) {
        out_.push_back({(*end)->pos, "there are " + std::to_string(**ranks) + " ranks, from 0 on"});
      }
    }
    if (match->from && match->to && **match->from == **match->to) {
      out_.push_back({match.pos, "'from' and 'to' are the same rank"});
    }
  }

  static const std::optional<Match>& match_of(const auto& rule) {
    if constexpr (requires { rule.match; }) {
      return rule.match;
    } else {
      return rule->match;
    }
  }

  void check_matches(const auto& stage) {
    if (!stage) {
      return;
    }
    for (const auto& rule : *stage) {
      if (match_of(rule)) {
        check_ghosts(*match_of(rule));
      }
    }
  }

  void check_ghosts(const Match& match) {
    for (const Located<std::string>& word : match.ghosts) {
      check_name(word);
    }
  }

  void check_name(const Located<std::string>& word) {
    if (!port_.name.given()) {
      return;
    }
    std::vector<std::string> names;
    for (const Ghost& ghost : config_.ghosts) {
      if (*ghost.port == *port_.name) {
        names.push_back(*ghost.name);
      }
    }
    const bool known =
        std::any_of(names.begin(), names.end(), [&](const std::string& name) { return names_ghost(*word, name); });
    if (!known) {
      out_.push_back({word.pos, "there is no ghost '" + *word + "' behind port '" + *port_.name + "'" +
                                    did_you_mean(*word, names)});
    }
  }

  void check_queue(const Direction& direction) {
    if (direction.rate) {
      check_queue(*direction.rate);
    }
  }

  void check_queue(const Located<fabric::RateSpec>& rate) {
    const std::uint64_t queue = rate->queue_bytes;
    if (queue != 0 && queue < frame_bytes(*port_.mtu)) {
      out_.push_back({rate.pos, "a queue of " + Scalar<ByteCount>::format({queue}) +
                                    " does not hold one frame of the port, which may have " +
                                    std::to_string(frame_bytes(*port_.mtu)) + " bytes"});
    }
  }

  void check_delay_line(const Direction& direction) {
    const DelayLine line = delay_line(direction, *port_.mtu);
    if (direction.delay_line_frames && **direction.delay_line_frames < line.frames) {
      out_.push_back(
          {direction.delay_line_frames->pos, "the delay line is too short: " + arithmetic(line, *port_.mtu)});
    }
  }

  const Port& port_;
  const ClusterConfig& config_;
  Diagnostics& out_;
};

void check_kept(const Ghost& ghost, const Port& port, const ClusterConfig& config, Diagnostics& out) {
  const std::uint32_t packets = ghost.behaviour.out_of_order_packets;
  const std::uint64_t room = kept_frames(config, port);
  if (!ghost.behaviour.selective() || packets <= room) {
    return;
  }
  Diagnostic said{ghost.nic->pos,
                  "a queue pair of this NIC may keep " + std::to_string(packets) + " packets, with frames of " +
                      std::to_string(frame_bytes(*port.mtu)) + " bytes " +
                      with_unit(packets * buffer::bytes(*port.mtu)) +
                      " of memory; a quarter of the port's, for all queue pairs together, holds " +
                      std::to_string(room) + "; lower its out_of_order_packets, or raise memory.size",
                  {}};
  if (config.memory.size.given()) {
    said.notes.push_back({config.memory.size.pos, "memory.size is here"});
  }
  out.push_back(std::move(said));
}

}  // namespace

DelayLine delay_line(const Direction& direction, std::uint32_t mtu) {
  DelayLine line{.rate = assumed_rate};
  std::uint64_t queue = 0;
  if (direction.rate && !(*direction.rate)->rate.unlimited()) {
    line.rate = (*direction.rate)->rate;
    line.rate_assumed = false;
    queue = (*direction.rate)->queue_bytes != 0 ? (*direction.rate)->queue_bytes : default_queue_bytes;
  }
  if (const auto* rule = longest_rule(direction)) {
    line.longest = longest_delay((*rule)->rule);
  }
  const std::uint64_t bytes = frame_bytes(mtu);
  const Duration frame_time = serialize_time_ceil(bytes + ethernet_overhead_bytes, line.rate);
  line.frames = static_cast<std::uint64_t>(line.longest / frame_time) + queue / bytes + 1;
  line.memory_bytes = line.frames * buffer::bytes(mtu);
  return line;
}

std::uint64_t kept_frames(const ClusterConfig& config, const Port& port) {
  return config.memory.size->value / config.ports.size() / buffer::bytes(*port.mtu) / 4;
}

std::vector<std::string> host_names(const ClusterConfig& config) {
  std::vector<std::string> names;
  for (NetworkHost& host : hosts_of(config)) {
    names.push_back(std::move(host.name));
  }
  return names;
}

bool names_ghost(const std::string& word, const std::string& name) {
  return word.ends_with('*') ? name.starts_with(word.substr(0, word.size() - 1)) : name == word;
}

void check_profile(const Profile& profile, const Port& port, const ClusterConfig& config, Diagnostics& out) {
  check_stages(profile, port, config, out);
  ClusterConfig changed = config;
  for (Port& each : changed.ports) {
    if (*each.name == *port.name) {
      each.profile = profile;
    }
  }
  check_memory(changed, out);
}

void check_stages(const Profile& profile, const Port& port, const ClusterConfig& config, Diagnostics& out) {
  if (profile.events) {
    ProfileChecker(port, config, out).check(*profile.events);
  }
  if (profile.failures) {
    ProfileChecker(port, config, out).check(*profile.failures);
  }
  for_each_direction(profile, [&](const Direction& direction) { ProfileChecker(port, config, out).check(direction); });
}

void check_memory(const ClusterConfig& config, Diagnostics& out) {
  for (const Ghost& ghost : config.ghosts) {
    for (const Port& port : config.ports) {
      if (*port.name == *ghost.port) {
        check_kept(ghost, port, config, out);
      }
    }
  }
  const std::uint64_t size = config.memory.size->value;
  const std::uint64_t share = size / std::max<std::size_t>(config.ports.size(), 1);
  for (const Port& port : config.ports) {
    std::uint64_t needed = 0;
    std::vector<Note> lines;
    for_each_direction(port.profile, [&](const Direction& direction) {
      const auto* rule = longest_rule(direction);
      if (rule == nullptr && !direction.rate) {
        return;
      }
      const DelayLine line = delay_line(direction, *port.mtu);
      needed += line.memory_bytes;
      lines.push_back({rule != nullptr ? rule->pos : direction.rate->pos,
                       "port '" + *port.name + "': " + arithmetic(line, *port.mtu) + ", in buffers of " +
                           std::to_string(buffer::bytes(*port.mtu)) + " bytes " + with_unit(line.memory_bytes)});
    });
    needed += buffer::idle * buffer::bytes(*port.mtu);
    if (lines.empty() || needed <= share) {
      continue;
    }
    const SourcePos worst = lines.back().pos;
    if (config.memory.size.given()) {
      lines.push_back({config.memory.size.pos, "memory.size is here"});
    }
    lines.push_back({port.name.pos, "port '" + *port.name + "': " + std::to_string(buffer::idle) +
                                        " buffers in the rings of the device and in caches, " +
                                        with_unit(buffer::idle * buffer::bytes(*port.mtu))});
    out.push_back(
        {worst,
         "the delay lines do not fit: they need " + with_unit(needed) + " and memory.size is " +
             Scalar<ByteCount>::format(*config.memory.size) +
             (config.ports.size() > 1 ? ", an equal part for each of " + std::to_string(config.ports.size()) + " ports"
                                      : "") +
             "; lower the delay, give the direction a rate, or raise memory.size",
         std::move(lines)});
  }
}

}  // namespace nbx::config
