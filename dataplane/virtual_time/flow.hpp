// What sends and what counts: a flow between two hosts of a world.
#pragma once

#include <cstdint>

#include "switching/packet.hpp"
#include "timer/wheel.hpp"
#include "virtual_time/packet_pool.hpp"

namespace nbx::virtual_time {

class World;

struct FlowSpec {
  switching::HostId source = 0;
  switching::HostId destination = 0;
  std::uint32_t packet_bytes = 1000;
  std::uint8_t priority = 3;
  switching::Ecn ecn = switching::Ecn::ect0;
  std::uint32_t hash = 0;     // what ECMP sees
  std::uint64_t packets = 0;  // then it ends; 0: never
  Instant start{};
  Instant stop = Instant::never();
};

struct FlowStats {
  std::uint64_t sent = 0;  // handed to the port
  std::uint64_t delivered = 0;
  std::uint64_t delivered_bytes = 0;
  std::uint64_t dropped = 0;
  std::uint64_t marked = 0;  // delivered with CE
  std::uint64_t cnps = 0;    // received by the source
  std::uint64_t departed = 0;
  Duration waited{};  // in the queue of the port, before the first bit left: the sum
  Instant last_delivery{};
  std::uint64_t reordered = 0;       // came behind one that was sent later; a packet sent again counts too
  std::uint32_t reorder_extent = 0;  // the most PSNs it was behind (near to RFC 4737, 4.2.1)
};

class Flow : protected TimerClient {
 public:
  Flow(World& world, const FlowSpec& spec);
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;
  Flow(Flow&&) = delete;
  Flow& operator=(Flow&&) = delete;
  virtual ~Flow() = default;

  /// At the source: the last bit left its host, after `waited` in the queue.
  void departed(SimPacket& packet, Duration waited, Instant now) noexcept;
  /// At the destination, or back at the source for a packet that answers.
  void arrived(SimPacket& packet, Instant now) noexcept;
  virtual void on_dropped(SimPacket& packet, Instant now) noexcept;

  [[nodiscard]] const FlowStats& stats() const noexcept { return stats_; }
  [[nodiscard]] const FlowSpec& spec() const noexcept { return spec_; }

 protected:
  virtual void on_departed(Instant /*now*/) noexcept {}
  virtual void on_data(SimPacket& /*packet*/, Instant /*now*/) noexcept {}
  virtual void on_answer(SimPacket& /*packet*/, Instant /*now*/) noexcept {}

  [[nodiscard]] bool ended(Instant now) const noexcept {
    return now >= spec_.stop || (spec_.packets != 0 && stats_.sent >= spec_.packets);
  }
  /// False: no packet is free.
  bool send_data(std::uint32_t size, Instant now, std::uint32_t psn = 0) noexcept;
  /// From the destination to the source; not ECN-capable, as a CNP is.
  bool send_answer(Kind kind, std::uint32_t size, std::uint8_t priority, Instant now, std::uint32_t psn = 0,
                   std::uint32_t out_of_order_psn = 0) noexcept;
  void wake_at(Instant at) noexcept;
  [[nodiscard]] std::uint32_t on_line(std::uint32_t size) const noexcept;
  [[nodiscard]] World& world() const noexcept { return *world_; }

 private:
  World* world_;
  FlowSpec spec_;
  FlowStats stats_;
  std::uint32_t highest_psn_ = 0;
  TimerNode timer_;
};

}  // namespace nbx::virtual_time
