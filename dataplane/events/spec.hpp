// An exact event as data: which packet, and what happens to it. Written by control, compiled by Table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"

namespace nbx::events {

/// Which edges between ranks. All that is given must hold.
struct EdgeMatch {
  std::optional<std::uint32_t> from{};
  std::optional<std::uint32_t> to{};
  std::optional<std::uint32_t> channel{};
  std::optional<bool> send_recv{};
};

/// All that is given must hold. Queue pairs are named as packets do, or by their number in the order of creation.
struct Match {
  std::vector<GhostId> ghosts{};    // empty: any, and transit
  std::optional<Qpn> dest_qpn{};    // as in the BTH
  std::uint32_t qp = 0;             // the ghost's n-th queue pair since the start, from 1; 0: any
  std::optional<EdgeMatch> edge{};  // of the queue pairs that are edges between ranks
  std::uint8_t classes = 0x3f;      // bits 1 << OpcodeClass
  std::optional<Psn> psn_first{};   // inclusive range on the 24-bit circle
  std::optional<Psn> psn_last{};
  std::optional<std::uint32_t> psn_offset{};  // from the first PSN of the connection, of a ghost's queue pair
  std::uint64_t message = 0;                  // request packets of the n-th message, from 1; 0: any
  std::uint32_t transmission = 0;             // the n-th time that this PSN comes by, from 1; 0: any
  Duration from{};                            // since the profile was loaded
  std::optional<Duration> until{};
  std::optional<std::uint32_t> after{};  // index of an event that must have fired, by an earlier packet
  std::vector<std::uint64_t> nth{};      // of the packets that all of the above accepts; empty: each
};

struct Drop {};
/// CE, on ECN-capable packets.
struct Mark {
  bool force = false;  // on others too
};
/// The bits of one byte are inverted. A packet without such a byte does not match.
struct Corrupt {
  std::uint32_t byte = 0;  // from the first of the BTH, before the ICRC; of other frames, behind the Ethernet header
  bool repair_icrc = false;
};
struct Delay {
  Duration time{};
};
struct Duplicate {};
/// Held until `distance` later frames have passed, at most `hold_max`.
struct Reorder {
  std::uint32_t distance = 1;
  Duration hold_max = std::chrono::milliseconds{1};
  friend bool operator==(const Reorder&, const Reorder&) = default;
};
enum class NakCode : std::uint8_t {
  psn_sequence_error,
  invalid_request,
  remote_access_error,
  remote_operational_error,
};
/// The ghost's responder answers the request with this instead of executing it.
struct Nak {
  NakCode code = NakCode::psn_sequence_error;
};
struct Rnr {};
/// The packet is lost, and so is what follows from and to the queue pair, or the ghost.
struct Silent {
  enum class Scope : std::uint8_t { qp, ghost } scope = Scope::qp;
  Duration time{};  // zero: for good
};
/// The ghost's queue pair goes to the error state; the packet is lost.
struct QpError {};

using Action = std::variant<Drop, Mark, Corrupt, Delay, Duplicate, Reorder, Nak, Rnr, Silent, QpError>;

struct Spec {
  std::string name{};
  Direction direction{};
  Match match{};
  Action action{};
};

/// PSNs that one event may range over: each is looked up on its own.
inline constexpr std::uint32_t range_max = 1024;

}  // namespace nbx::events
