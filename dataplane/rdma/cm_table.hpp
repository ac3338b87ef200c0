// The connections of one CM and how to find them: by the local communication id, by what the peer calls the
// connection, by the peer's queue pair and by the ghost's queue pair. Every lookup is one chain of a fixed hash table;
// records are reused, and memory grows only until the table has held its largest number of connections.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/list.hpp"
#include "base/rng.hpp"
#include "rdma/cm.hpp"
#include "timer/wheel.hpp"

namespace nbx::rdma {

/// IBTA 12.9.7 and 12.9.8, the states that outlive one call.
enum class CmState : std::uint8_t {
  idle,          // the record is free
  req_sent,      // active: waits for REP
  mra_req_rcvd,  // active: the peer asked for more time
  req_rcvd,      // passive: waits for the user's answer
  mra_req_sent,  // passive: as before, and the peer has been told to wait
  rep_sent,      // passive: waits for RTU
  mra_rep_rcvd,  // passive: the peer asked for more time
  established,
  dreq_sent,  // waits for DREP
  timewait,   // only answers what is still on its way
};

/// A communication id or a QPN of the peer `gid`, as `ghost` knows it; of the ghost itself when `gid` is unspecified.
struct PeerKey {
  GhostId ghost = no_ghost;
  IpAddress gid{};
  std::uint32_t number = 0;

  friend bool operator==(const PeerKey&, const PeerKey&) = default;
};

struct Connection;

/// Membership of a connection in one index.
struct PeerHook {
  explicit PeerHook(Connection& c) noexcept : owner(c) {}

  Connection& owner;
  PeerKey key{};
  PeerHook* next = nullptr;
  bool linked = false;
};

/// What is negotiated about one connection; "our" sides of it.
struct CmTerms {
  QpType type = QpType::rc;
  Qpn local_qpn{};
  Qpn remote_qpn{};
  Psn rq_psn{};  // of the peer's first request: the start PSN that our REQ or REP tells
  Psn sq_psn{};  // of our first request: the start PSN that the peer's tells (12.6.5, 12.6.8)
  std::uint32_t path_mtu = 1024;
  std::uint16_t pkey = wire::default_pkey;
  std::uint8_t responder_resources = 0;  // READs and atomics that we take at a time
  std::uint8_t initiator_depth = 0;      // that we have outstanding
  std::uint8_t local_ack_timeout = 0;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;  // of our requester
  bool end_to_end_credits = false;   // our queue pair tells how many receives are posted
  bool alternate_path = false;       // the REQ offers one
  wire::Path path{};                 // of the data
};

struct Connection final : TimerNode {
  ConnectionId id = ConnectionId::none;
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  CmState state = CmState::idle;
  bool active = false;
  DisconnectCause cause = DisconnectCause::local;  // of a DREQ of ours
  std::uint8_t max_retries = 0;
  std::uint8_t retries_left = 0;
  GhostId ghost = no_ghost;
  CmUser* user = nullptr;
  std::uint32_t remote_id = 0;
  std::uint64_t transaction_id = 0;
  Duration response_timeout{};
  wire::Path mad_path{};
  CmTerms terms{};
  std::array<std::byte, wire::mad_size> sent{};  // our last message: a timeout or a duplicate sends it again
  PeerHook by_remote_id{*this};
  PeerHook by_remote_qpn{*this};
  PeerHook by_local_qpn{*this};
};

/// An intrusive hash index with as many chains as there may be members.
class PeerIndex {
 public:
  explicit PeerIndex(std::size_t members_max) : chains_(std::bit_ceil(members_max + 1)) {}

  [[nodiscard]] Connection* find(const PeerKey& key) const noexcept {
    for (const PeerHook* hook = chains_[chain_of(key)]; hook != nullptr; hook = hook->next) {
      if (hook->key == key) {
        return &hook->owner;
      }
    }
    return nullptr;
  }

  void insert(PeerHook& hook, const PeerKey& key) noexcept {
    hook.key = key;
    hook.linked = true;
    PeerHook*& head = chains_[chain_of(key)];
    hook.next = head;
    head = &hook;
  }

  /// Nothing happens when `hook` is in no chain.
  void erase(PeerHook& hook) noexcept {
    if (!hook.linked) {
      return;
    }
    PeerHook** link = &chains_[chain_of(hook.key)];
    while (*link != &hook) {
      link = &(*link)->next;
    }
    *link = hook.next;
    hook.next = nullptr;
    hook.linked = false;
  }

 private:
  [[nodiscard]] std::size_t chain_of(const PeerKey& key) const noexcept {
    std::uint64_t h = hash_value(key.gid) ^ ((std::uint64_t{index(key.ghost)} << 32U) | key.number);
    h *= 0x9e37'79b9'7f4a'7c15ULL;
    return (h >> 32U) & (chains_.size() - 1);
  }

  std::vector<PeerHook*> chains_;
};

class ConnectionTable {
 public:
  ConnectionTable(std::size_t connections_max, Rng& rng)
      : by_remote_id(connections_max),
        by_remote_qpn(connections_max),
        by_local_qpn(connections_max),
        max_(connections_max),
        slot_bits_(static_cast<unsigned>(std::bit_width(connections_max - 1))),
        scramble_(static_cast<std::uint32_t>(rng.next())) {}

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// A record with a fresh id; nullptr when the table is full.
  Connection* acquire() {
    Connection* c = free_.pop_front();
    if (c == nullptr) {
      if (records_.size() == max_) {
        return nullptr;
      }
      c = &records_.emplace_back();
      c->slot = static_cast<std::uint32_t>(records_.size() - 1);
    }
    // Ids of a slot differ from one use to the next, and those of one run from another's: the peer may remember.
    do {
      c->id = ConnectionId{((c->generation++ << slot_bits_) | c->slot) ^ scramble_};
    } while (c->id == ConnectionId::none);
    ++size_;
    return c;
  }

  /// `c` must not be armed.
  void release(Connection& c) noexcept {
    by_remote_id.erase(c.by_remote_id);
    by_remote_qpn.erase(c.by_remote_qpn);
    by_local_qpn.erase(c.by_local_qpn);
    c.id = ConnectionId::none;
    c.state = CmState::idle;
    c.user = nullptr;
    c.remote_id = 0;
    --size_;
    free_.push_back(c);
  }

  [[nodiscard]] Connection* by_id(ConnectionId id) noexcept {
    const std::uint32_t slot = (static_cast<std::uint32_t>(id) ^ scramble_) & ((1U << slot_bits_) - 1);
    if (id == ConnectionId::none || slot >= records_.size() || records_[slot].id != id) {
      return nullptr;
    }
    return &records_[slot];
  }

  template <class F>
  void for_each(F&& f) {
    for (Connection& c : records_) {
      if (c.state != CmState::idle) {
        f(c);
      }
    }
  }

  PeerIndex by_remote_id;
  PeerIndex by_remote_qpn;
  PeerIndex by_local_qpn;

 private:
  std::size_t max_;
  unsigned slot_bits_;
  std::uint32_t scramble_;
  std::size_t size_ = 0;
  std::deque<Connection> records_;  // never moves a record
  List<Connection> free_;
};

}  // namespace nbx::rdma
