// The events of a profile in the form that is looked at per packet. A packet costs one look-up for each combination of
// (ghost, queue pair, PSN) by which any event is keyed, at most eight, however many events there are.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/ordinals.hpp"
#include "base/rank_edge.hpp"
#include "events/key_filter.hpp"
#include "events/spec.hpp"
#include "frame/frame.hpp"

namespace nbx::events {

/// What a ghost's queue pair is to packets: bound when it is connected.
struct Connection {
  GhostId ghost = no_ghost;
  std::uint32_t number = 0;  // in the order of creation at the ghost, from 1
  Qpn qpn{};
  Qpn peer_qpn{};
  Psn rq_psn{};  // first of the peer's requests
  Psn sq_psn{};  // first of its own
  std::optional<RankEdge> edge{};
};

/// What the events want with one packet. Several that fire add up.
struct Verdict {
  std::uint32_t event = 0;  // the last that fired, from 1; 0: none, and nothing else holds
  nbx::Drop drop = nbx::Drop::none;
  bool mark = false;
  bool force_mark = false;
  bool duplicate = false;
  bool corrupt = false;
  bool repair_icrc = false;
  std::uint32_t corrupt_byte = 0;  // from the start of the frame
  std::uint8_t answer = 0;         // an AETH syndrome that the ghost's responder answers with; 0: none
  std::uint32_t hold = 0;          // which of Table::holds(), from 1; 0: not held
  Duration delay{};
};

/// One packet that an event took.
struct Firing {
  std::uint32_t event = 0;  // index
  Instant at{};
  GhostId ghost = no_ghost;
  Qpn dest_qpn{};
  Psn psn{};
  std::uint8_t opcode = 0;
  bool roce = false;
  std::uint32_t transmission = 0;  // of the PSN, where the event counts it; else 0
};

/// Whoever can do what no change of a packet does.
class Host {
 public:
  /// The queue pair, in the packet's direction, is to go to the error state.
  virtual void on_qp_error(const Frame& frame, Direction direction, GhostId ghost, Instant now) noexcept = 0;
  /// The ghost neither sends nor receives before `until`.
  virtual void on_silent_ghost(GhostId ghost, Instant until) noexcept = 0;
  /// The connection that a packet belongs to; false when it is no ghost's.
  virtual bool find_connection(Direction direction, GhostId ghost, Qpn dest_qpn, Connection& out) noexcept = 0;

 protected:
  ~Host() = default;
};

class Table {
 public:
  /// Times count from `loaded`.
  Table(const std::vector<Spec>& specs, Host& host, Instant loaded);

  // Control.
  void bind(const Connection& connection);
  void unbind(GhostId ghost, Qpn qpn);
  [[nodiscard]] const std::vector<Spec>& specs() const noexcept { return specs_; }
  /// The different ways in which reordered packets are held.
  [[nodiscard]] const std::vector<Reorder>& holds() const noexcept { return holds_; }
  [[nodiscard]] std::uint64_t fired(std::size_t event) const noexcept { return states_[event].fired; }
  [[nodiscard]] std::uint64_t firings() const noexcept { return logged_; }
  /// The last of them, oldest first, at most log_max.
  [[nodiscard]] std::vector<Firing> log() const;

  /// Keys looked up, those of closed connections that are still kept included.
  [[nodiscard]] std::size_t keys() const noexcept { return instances_.size(); }

  // Data path.
  [[nodiscard]] Verdict look_at(const Frame& frame, Direction direction, GhostId ghost, Instant now) noexcept;

  static constexpr std::size_t log_max = 1024;

 private:
  enum Shape : unsigned { by_ghost = 1, by_qpn = 2, by_psn = 4, shapes = 8 };
  static constexpr std::uint32_t none = 0xffff'ffff;

  struct State {
    Ordinals nth;
    std::uint64_t fired = 0;
    std::uint64_t first_packet = 0;  // the packet, by number, at which it fired first
    std::uint32_t hold = 0;
  };
  enum class Kind : std::uint8_t { any, request, response };
  /// An event at one key.
  struct Instance {
    std::uint32_t event = 0;
    std::uint32_t next = none;  // of the same hash
    Direction direction{};
    std::uint8_t shape = 0;
    Kind kind = Kind::any;
    bool gone = false;
    GhostId ghost = no_ghost;
    Qpn qpn{};
    Psn psn{};
    std::uint32_t seen = 0;  // packets of the key
    // The messages of the flow, for events that name one.
    std::uint64_t messages = 0;
    Psn newest{}, first{}, end{};
  };
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t first = none;
  };
  struct Silence {
    std::uint64_t key = 0;
    Instant until{};
  };

  static std::uint64_t key_of(Direction direction, unsigned shape, GhostId ghost, Qpn qpn, Psn psn) noexcept;
  void add(Instance instance);
  void forget_gone();
  void add_psns(const Instance& like, const Match& match);
  void place(std::uint64_t hash, std::uint32_t instance);
  [[nodiscard]] std::uint32_t find(std::uint64_t hash) const noexcept;
  void bind_event(std::uint32_t event, const Connection& connection);

  [[nodiscard]] bool accepts(Instance& instance, const Frame& frame, GhostId ghost, Instant now) noexcept;
  [[nodiscard]] static bool in_message(Instance& instance, std::uint64_t message, const wire::Parsed& p) noexcept;
  void fire(const Instance& instance, const Frame& frame, GhostId ghost, Instant now, Verdict& verdict) noexcept;
  void silence(const Silent& action, const Frame& frame, Direction direction, GhostId ghost, Instant now) noexcept;
  [[nodiscard]] Silence& silence_at(std::uint64_t key) noexcept;
  void silence_flow(Direction direction, GhostId ghost, Qpn dest_qpn, Instant until) noexcept;
  [[nodiscard]] bool silent(Direction direction, GhostId ghost, Qpn dest_qpn, Instant now) noexcept;

  std::vector<Spec> specs_;
  std::vector<State> states_;
  std::vector<Reorder> holds_;
  Host& host_;
  Instant loaded_;
  std::array<std::vector<std::uint8_t>, 2> used_;  // by direction: the shapes of its instances
  std::vector<Instance> instances_;
  std::size_t gone_ = 0;  // of them
  std::vector<Slot> slots_;
  std::size_t slots_taken_ = 0;
  KeyFilter filter_;  // of the hashes that are in the slots
  // Events that wait for a connection, by ghost; no_ghost: of any.
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> bindable_;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> bound_;  // instances, by ghost and queue pair
  std::vector<Silence> silences_;                                        // empty: no event silences a queue pair
  std::size_t silences_used_ = 0;
  std::vector<Firing> log_;
  std::uint64_t logged_ = 0;
  std::uint64_t packets_ = 0;
};

}  // namespace nbx::events
