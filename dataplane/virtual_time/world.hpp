// A network in virtual time: one wheel, the switches, and a host at every end. Time is the next event; nothing happens
// between events and nothing else is random but what the seed says.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/rng.hpp"
#include "switching/network.hpp"
#include "timer/wheel.hpp"
#include "virtual_time/flow.hpp"
#include "virtual_time/packet_pool.hpp"

namespace nbx::virtual_time {

/// An end station: a port into the network, and whatever flows begin and end here.
class Host final : public switching::Receiver, private switching::EgressPort::Owner {
 public:
  Host(Wheel& wheel, PacketPool& pool, switching::Link& up, const switching::EgressSpec& spec) noexcept
      : pool_(&pool), port_(wheel, *this, up, spec), overhead_(spec.overhead_bytes) {}

  void on_packet(switching::Packet& packet, switching::PortIndex port, Instant now) noexcept override;
  void on_pause(const switching::PauseFrame& frame, switching::PortIndex port, Instant now) noexcept override {
    (void)port;
    port_.on_pause(frame, now);
  }

  void send(SimPacket& packet, Instant now) noexcept {
    packet.queued_at = now;
    port_.enqueue(packet, now);
  }
  [[nodiscard]] switching::EgressPort& port() noexcept { return port_; }
  [[nodiscard]] std::uint32_t overhead_bytes() const noexcept { return overhead_; }

 private:
  void on_departed(switching::Packet& packet, Instant now) noexcept override;

  PacketPool* pool_;
  switching::EgressPort port_;
  std::uint32_t overhead_;
};

struct WorldSpec {
  switching::Topology topology{};
  switching::NetworkSpec network{};
  std::size_t packets = 10'000;  // in existence at one time
  std::uint64_t seed = 1;
};

class World {
 public:
  explicit World(const WorldSpec& spec);

  /// Makes a flow of type F; it lives as long as the world. F(World&, args...).
  template <class F, class... Args>
  F& add(Args&&... args) {
    flows_.push_back(std::make_unique<F>(*this, std::forward<Args>(args)...));
    return static_cast<F&>(*flows_.back());
  }

  /// Everything that is due up to and including `until` happens.
  void run(Instant until) noexcept {
    wheel_.run(until);
    now_ = until;
  }
  /// Runs on until nothing is due any more, or `limit`. True: nothing is.
  bool run_dry(Instant limit) noexcept {
    run(limit);
    return wheel_.armed() == 0;
  }

  [[nodiscard]] Instant now() const noexcept { return now_; }
  [[nodiscard]] Wheel& wheel() noexcept { return wheel_; }
  [[nodiscard]] PacketPool& pool() noexcept { return pool_; }
  [[nodiscard]] switching::Network& network() noexcept { return network_; }
  [[nodiscard]] Host& host(switching::HostId id) noexcept { return *hosts_[id]; }
  /// A stream for the next that asks.
  [[nodiscard]] Rng fork_rng();

 private:
  Rng rng_;
  Wheel wheel_;
  PacketPool pool_;
  switching::Network network_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<Flow>> flows_;
  std::uint32_t forks_ = 0;
  Instant now_{};
};

}  // namespace nbx::virtual_time
