// A profile as its file says it. A stage that is not given comes from `both`, then from the profile that this one
// extends, and is otherwise absent.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/scalar.hpp"
#include "config/source.hpp"
#include "fabric/spec.hpp"

namespace nbx::config {

struct PsnRange {
  Psn first;
  std::optional<Psn> last;  // inclusive; absent: `first` alone
};

struct Match {
  std::vector<Located<std::string>> ghosts;
  std::optional<Qpn> qpn;
  std::vector<wire::OpcodeClass> classes;
  std::optional<PsnRange> psn;
  std::vector<std::uint64_t> nth;
};

/// A rule of the fabric whose match still has names.
template <class Rule>
struct Matched {
  std::optional<Match> match;
  Rule rule;
};

struct Direction {
  std::optional<std::vector<Matched<fabric::LossRule>>> loss;
  std::optional<std::vector<Matched<fabric::CorruptRule>>> corrupt;
  std::optional<std::vector<Matched<fabric::DuplicateRule>>> duplicate;
  std::optional<std::vector<Matched<fabric::EcnRule>>> ecn;
  std::optional<Located<fabric::RateSpec>> rate;
  std::optional<std::vector<Located<Matched<fabric::DelayRule>>>> delay;
  std::optional<std::vector<Matched<fabric::ReorderRule>>> reorder;
  std::optional<Located<std::uint64_t>> delay_line_frames;
};

/// NCCL's connections between ranks: all that is given must hold.
struct NcclMatch {
  std::optional<Located<std::uint32_t>> from;
  std::optional<Located<std::uint32_t>> to;
  std::optional<std::uint32_t> channel;
  std::optional<bool> send_recv;
};

/// Which packet an event is about: what a rule may ask, and what takes memory of the connection.
struct EventMatch : Match {
  std::optional<std::uint32_t> qp;
  std::optional<Located<NcclMatch>> nccl;
  std::optional<std::uint32_t> psn_offset;
  std::optional<std::uint64_t> message;
  std::optional<std::uint32_t> transmission;
  Duration from{};
  std::optional<Duration> until;
  std::optional<Located<std::string>> after;
};

/// What an event does: one of events::Action under its key.
struct EventAction {
  events::Action action;
};

struct Event {
  Located<std::string> name;
  nbx::Direction direction{};
  Located<EventMatch> match;
  EventAction action;
};

enum class Way : std::uint8_t { both, from_node, to_node };

struct DeadGhosts {
  std::vector<Located<std::string>> names;
};
/// What a ghost has when it comes back.
struct BackAs {
  std::optional<Located<Mac>> mac;
  std::vector<Located<Subnet>> addresses;
  bool announce = true;
};
struct DeadCables {
  std::vector<Located<std::string>> names;
};
struct SwitchBuffer {
  std::vector<Located<std::string>> switches;  // none: all
  Located<ByteCount> size;
};
struct Failure {
  Duration at{};
  Duration lasts{};
  Way way = Way::both;
  std::variant<fabric::LinkFailure, DeadGhosts, Located<fabric::RateSpec>, DeadCables, Located<SwitchBuffer>> what;
  std::optional<Located<BackAs>> back_as;
};

struct Profile {
  std::string name;
  std::string description;
  std::optional<Located<std::string>> extends;
  std::optional<bool> verify_icrc;
  std::optional<std::vector<Event>> events;
  std::optional<std::vector<Failure>> failures;
  std::optional<Direction> both;
  std::optional<Direction> from_node;
  std::optional<Direction> to_node;
};

}  // namespace nbx::config
