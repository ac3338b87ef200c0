// What a profile says about one direction of a port, checked and in SI units: plain data, written by control, read by
// Impairment. The stages are applied in the order of the members of DirectionSpec, whatever the order in the file;
// within a stage the first rule whose match accepts the frame is the one that acts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.hpp"
#include "base/net.hpp"
#include "base/units.hpp"
#include "events/spec.hpp"
#include "wire/opcode.hpp"

namespace nbx::fabric {

using nbx::Direction;

/// A frame that is not RoCEv2 has no queue pair and no sequence number, so it is never accepted by a match on those.
struct Match {
  std::vector<GhostId> ghosts{};       // empty: any ghost, and transit traffic
  std::optional<Qpn> dest_qpn{};       // as in the BTH
  std::uint8_t classes = all_classes;  // bits 1 << OpcodeClass
  std::optional<Psn> psn_first{};      // inclusive range on the 24-bit circle; one end alone: that PSN
  std::optional<Psn> psn_last{};
  // The n-th frames, from 1, of those that the rest of the match accepts and that no earlier rule of the stage took;
  // empty: every one.
  std::vector<std::uint64_t> nth{};

  static constexpr std::uint8_t all_classes = 0x3f;
};

/// Loss models. Probabilities are in [0, 1].
struct Bernoulli {
  double probability = 0;
};
/// Two-state Markov chain (Gilbert 1960, Elliott 1963), stepped once per matching frame, with tc-netem's parameter
/// names: p: good to bad, r: bad to good, loss while good (1-k) and while bad (1-h). It starts good; a frame meets the
/// state that the one before it left.
struct GilbertElliott {
  double p = 0;
  double r = 1;
  double loss_in_bad = 1;
  double loss_in_good = 0;
};
struct EveryNth {
  std::uint64_t n = 1;
  std::uint64_t offset = 0;  // the first one is frame number offset + n
};
/// Frame numbers, from 1, ascending, among those that match.
struct Listed {
  std::vector<std::uint64_t> frames{};
};
using Selector = std::variant<Bernoulli, GilbertElliott, EveryNth, Listed>;

struct LossRule {
  Match match{};
  Selector select{};
};

/// Either leaves the ICRC as it was, hence wrong; corrupt.hpp says exactly which bits.
enum class CorruptTarget : std::uint8_t {
  payload,  // one random bit of the payload, or of the extension headers when there is none
  header,   // one random bit of the UDP source port or the BTH that the ICRC covers
};
struct CorruptRule {
  Match match{};
  Selector select{};
  CorruptTarget target = CorruptTarget::payload;
};

struct DuplicateRule {
  Match match{};
  Selector select{};
};

struct EcnRule {
  Match match{};
  Selector select{};  // CE is set on ECT frames; a frame that is not ECT is left alone unless `force`
  bool force = false;
};

/// One FIFO per direction with a rate, shared by every frame of the direction. The queue counts what the link counts:
/// every byte accepted and not yet sent, overhead included if that counts.
struct RateSpec {
  BitRate rate{};                 // 0: not limited
  std::uint64_t queue_bytes = 0;  // tail drop beyond; must hold at least one frame
  bool count_overhead = true;     // preamble, FCS and gap count (20 + 4 bytes)
};

struct Uniform {
  Duration spread{};  // +- spread
};
struct Normal {
  Duration sigma{};
};
/// Pareto of type I, shifted to mean zero is not attempted: adds scale * (U^(-1/shape) - 1), always >= 0.
struct Pareto {
  Duration scale{};
  double shape = 3;
  Duration cap{};  // longest addition; zero: 1000 * scale
};
/// Additions drawn with equal probability from a table (an empirical distribution).
struct Table {
  std::vector<Duration> values{};
};
using Jitter = std::variant<std::monostate, Uniform, Normal, Pareto, Table>;

/// A delay rule is a path through the network: order is kept on it, and frames on different paths may pass each other.
/// Frames that no rule delays leave when the link has sent them. The sum of constant and jitter is never below zero.
struct DelayRule {
  Match match{};
  Duration constant{};
  Jitter jitter{};
  bool may_reorder = false;  // false: a frame never leaves before one under the same rule that came earlier
};

/// A selected frame is held, when its delay is over, until `distance` later frames of the direction that are not held
/// themselves have passed it, or `hold_max` has gone by.
struct ReorderRule {
  Match match{};
  Selector select{};
  std::uint32_t distance = 1;
  Duration hold_max = std::chrono::milliseconds{1};
};

struct DirectionSpec {
  std::vector<LossRule> loss{};
  std::vector<CorruptRule> corrupt{};
  std::vector<DuplicateRule> duplicate{};
  std::vector<EcnRule> ecn{};
  RateSpec rate{};
  std::vector<DelayRule> delay{};
  std::vector<ReorderRule> reorder{};
  std::uint64_t delay_line_frames = 65536;  // frames that may wait at once; beyond: Drop::delay_line_full
};

/// Nothing passes in the directions of the failure.
struct LinkFailure {};
/// What a ghost has when it comes back.
struct NewIdentity {
  std::optional<Mac> mac{};                                     // none: the old one
  std::vector<std::pair<IpAddress, std::uint8_t>> addresses{};  // with prefix lengths; none: the old ones
  bool announced = true;                                        // by gratuitous ARP and unsolicited advertisements
};
/// These ghosts neither send nor receive.
struct GhostFailure {
  std::vector<GhostId> ghosts{};
  std::optional<NewIdentity> back_as{};  // of one ghost
};
/// Cables of the emulated network carry nothing, in one direction or both.
struct CableFailure {
  std::vector<std::uint32_t> links{};  // see switching::LinkId
};
/// Switches of the emulated network have buffers of another size.
struct BufferChange {
  std::vector<std::uint32_t> switches{};
  std::uint64_t size_bytes = 0;
};
/// The link has this rate and queue instead of the profile's.
struct RateChange {
  RateSpec rate{};
};

/// Something that happens at a time after the profile was loaded.
struct Failure {
  Duration at{};
  Duration lasts{};  // zero: for good
  bool from_node = true;
  bool to_node = true;
  std::variant<LinkFailure, GhostFailure, RateChange, CableFailure, BufferChange> what{};
};

struct ProfileSpec {
  std::string name{};
  DirectionSpec from_node{};
  DirectionSpec to_node{};
  std::vector<events::Spec> events{};
  std::vector<Failure> failures{};
  bool verify_icrc = true;
};

}  // namespace nbx::fabric
