// One ghost with everything that nccl::Net asks of its surroundings, in virtual time: a transport, neighbours that may
// be known, and TCP that the test speaks or that a Cable carries to another such host.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ghost/personality.hpp"
#include "nccl-glue/net/net.hpp"
#include "support/rdma_harness.hpp"

namespace nbx::test {

class TestStreams final : public ghost::Streams {
 public:
  struct Stream {
    ghost::StreamUser* user = nullptr;
    Bytes sent;  // by the ghost, not taken yet
    bool closed = false;
  };
  struct Call {
    ghost::StreamId id{};
    IpAddress peer;
    std::uint16_t port = 0;
  };

  void listen(GhostId, std::uint16_t port, ghost::StreamUser& user) override { listeners[port] = &user; }
  ghost::StreamId connect(GhostId, const IpAddress& peer, std::uint16_t port, ghost::StreamUser& user) override {
    const ghost::StreamId id = add(user);
    calls.push_back({id, peer, port});
    return id;
  }
  void send(ghost::StreamId id, ConstBytes bytes) override { append(open.at(id).sent, bytes); }
  void close(ghost::StreamId id) override { open.at(id).closed = true; }

  ghost::StreamId add(ghost::StreamUser& user) {
    const auto id = static_cast<ghost::StreamId>(++last_);
    open[id].user = &user;
    return id;
  }
  /// A peer connects to the listening port.
  ghost::StreamId accept(std::uint16_t port, const IpAddress& peer, Instant now) {
    const ghost::StreamId id = add(*listeners.at(port));
    open.at(id).user->on_open(id, Endpoint::ghost, port, peer, now);
    return id;
  }
  void deliver(ghost::StreamId id, ConstBytes bytes, Instant now) {
    if (!open.at(id).closed) {
      open.at(id).user->on_bytes(id, bytes, now);
    }
  }
  void end(ghost::StreamId id, Instant now) {
    if (!std::exchange(open.at(id).closed, true)) {
      open.at(id).user->on_close(id, now);
    }
  }
  Bytes take(ghost::StreamId id) { return std::exchange(open.at(id).sent, {}); }

  std::map<std::uint16_t, ghost::StreamUser*> listeners;
  std::map<ghost::StreamId, Stream> open;
  std::vector<Call> calls;

 private:
  std::uint32_t last_ = 0;
};

/// Keeps what a Net says of its connections.
struct NetLog final : nccl::NetUser {
  void on_ready(nccl::NetId id, Instant now) noexcept override {
    ++ready;
    if (then_ready) {
      then_ready(id, now);
    }
  }
  void on_received(nccl::NetId id, std::uint64_t size, Instant now) noexcept override {
    received.push_back(size);
    if (then_received) {
      then_received(id, size, now);
    }
  }
  void on_clear_to_send(nccl::NetId id, std::uint64_t size, std::uint32_t tag, Instant now) noexcept override {
    clear.emplace_back(size, tag);
    if (then_clear) {
      then_clear(id, now);
    }
  }
  void on_sent(nccl::NetId id, Instant now) noexcept override {
    ++sent;
    if (then_sent) {
      then_sent(id, now);
    }
  }
  void on_closed(nccl::NetId id, std::string_view why, Instant) noexcept override {
    closed.emplace_back(id, std::string{why});
  }

  std::size_t ready = 0;
  std::size_t sent = 0;
  std::vector<std::uint64_t> received;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> clear;
  std::vector<std::pair<nccl::NetId, std::string>> closed;
  std::function<void(nccl::NetId, Instant)> then_ready;
  std::function<void(nccl::NetId, std::uint64_t, Instant)> then_received;
  std::function<void(nccl::NetId, Instant)> then_clear;
  std::function<void(nccl::NetId, Instant)> then_sent;
};

struct NetHost {
  static constexpr GhostId ghost = Endpoint::ghost;
  static constexpr std::uint16_t port = 4801;

  explicit NetHost(std::uint8_t number, std::uint64_t seed = 1) : NetHost(path_between(number, 0), seed) {}
  explicit NetHost(const wire::Path& self, std::uint64_t seed = 1)
      : directory({{.name = "ghost", .mac = self.source_mac, .addresses = {{self.source_ip, 24}}}}),
        neighbours(directory, *endpoint.pool, endpoint.wheel, endpoint.counters, questions),
        cm({}, *endpoint.transport, endpoint.wheel, endpoint.counters, Rng{seed}),
        ports(streams),
        net(ghost::Context{ghost,
                           directory,
                           *endpoint.transport,
                           cm,
                           neighbours,
                           ports,
                           endpoint.wheel,
                           endpoint.counters,
                           ledger,
                           {},
                           Rng{seed}}) {}
  ~NetHost() { endpoint.pool->free_all(questions); }
  NetHost(const NetHost&) = delete;
  NetHost& operator=(const NetHost&) = delete;
  NetHost(NetHost&&) = delete;
  NetHost& operator=(NetHost&&) = delete;

  rdma::MemoryTable& memory() { return endpoint.transport->memory(ghost); }
  rdma::Region& add_memory(std::uint64_t addr, std::uint64_t length, std::uint32_t key = 0) {
    return *memory().add({.addr = addr,
                          .length = length,
                          .key = key,
                          .access = rdma::access::local_write | rdma::access::remote_write,
                          .backing = rdma::Backing::memory});
  }

  Endpoint endpoint;
  Ledger ledger;
  ghost::Directory directory;
  FrameList questions;  // ARP and ND
  ghost::Neighbours neighbours;
  rdma::Cm cm;
  TestStreams streams;
  ghost::StreamPorts ports;
  nccl::Net net;
};

/// Two hosts: a lossy wire between their transports, and TCP that loses nothing.
class Cable {
 public:
  Cable(NetHost& a, NetHost& b, Link::Judge judge) : hosts_{&a, &b}, link_(a.endpoint, b.endpoint, std::move(judge)) {
    for (unsigned side = 0; side < 2; ++side) {
      const ghost::Identity& peer = hosts_[1 - side]->directory[NetHost::ghost];
      hosts_[side]->neighbours.learn(peer.addresses.front().ip, peer.mac);
    }
  }

  /// Until nothing moves any more, or `limit`.
  void run(Instant limit) {
    do {
      link_.run(limit);
    } while (move_streams());
  }
  [[nodiscard]] Instant now() const { return link_.now; }

 private:
  bool move_streams() {
    bool moved = false;
    for (unsigned side = 0; side < 2; ++side) {
      NetHost& from = *hosts_[side];
      NetHost& to = *hosts_[1 - side];
      for (const TestStreams::Call& call : std::exchange(from.streams.calls, {})) {
        moved = true;
        if (!to.streams.listeners.contains(call.port)) {
          from.streams.end(call.id, now());
          continue;
        }
        const ghost::StreamId other =
            to.streams.accept(call.port, from.directory[NetHost::ghost].addresses[0].ip, now());
        pairs_.push_back({side, call.id, other});
        from.streams.open.at(call.id).user->on_open(call.id, NetHost::ghost, call.port, call.peer, now());
      }
    }
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      const Pair pair = pairs_[i];
      NetHost& caller = *hosts_[pair.caller_side];
      NetHost& called = *hosts_[1 - pair.caller_side];
      moved |= move(caller, pair.caller, called, pair.called);
      moved |= move(called, pair.called, caller, pair.caller);
    }
    return moved;
  }
  bool move(NetHost& from, ghost::StreamId id, NetHost& to, ghost::StreamId other) {
    const Bytes bytes = from.streams.take(id);
    if (!bytes.empty()) {
      to.streams.deliver(other, bytes, now());
      return true;
    }
    if (from.streams.open.at(id).closed && !to.streams.open.at(other).closed) {
      to.streams.end(other, now());
      return true;
    }
    return false;
  }

  struct Pair {
    unsigned caller_side = 0;
    ghost::StreamId caller{};
    ghost::StreamId called{};
  };

  std::array<NetHost*, 2> hosts_;
  Link link_;
  std::vector<Pair> pairs_;
};

}  // namespace nbx::test
