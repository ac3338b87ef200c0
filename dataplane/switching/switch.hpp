// A store-and-forward switch: route, ECN ramp, admission to the shared buffer, a queue per port and priority; pauses
// its peers when a lossless priority fills its share, and obeys theirs.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/rng.hpp"
#include "switching/ecn.hpp"
#include "switching/egress_port.hpp"
#include "switching/pfc_sender.hpp"
#include "switching/pfc_watchdog.hpp"
#include "switching/routes.hpp"
#include "switching/shared_buffer.hpp"

namespace nbx::switching {

struct SwitchSpec {
  BufferSpec buffer{};
  std::array<EcnSpec, priorities> ecn{};
  SchedulerSpec scheduler{};
  std::uint32_t overhead_bytes = ethernet_overhead_bytes;
  std::uint16_t pfc_quanta = max_quanta;
  WatchdogSpec watchdog{};
  Duration latency{};  // from the last bit in to the decision; the links that lead here have it
};

struct SwitchCounters {
  std::array<std::array<std::uint64_t, priorities>, switch_drops> drops{};  // [reason][priority]
  std::array<std::uint64_t, priorities> admitted{};
  std::array<std::uint64_t, priorities> marked{};
  std::array<std::uint64_t, priorities> unmarkable{};  // chosen, lossless and not ECN-capable: left alone

  [[nodiscard]] std::uint64_t dropped() const noexcept {
    std::uint64_t sum = 0;
    for (const auto& reason : drops) {
      for (const std::uint64_t n : reason) {
        sum += n;
      }
    }
    return sum;
  }
  [[nodiscard]] std::uint64_t dropped(SwitchDrop reason) const noexcept {
    std::uint64_t sum = 0;
    for (const std::uint64_t n : drops[static_cast<std::size_t>(reason)]) {
      sum += n;
    }
    return sum;
  }
};

class Switch final : public Receiver, private EgressPort::Owner, private PfcWatchdog::Owner {
 public:
  struct PortSpec {
    BitRate rate;
    Link* link;  // outwards
  };

  /// Allocates for its ports. `routes` are this switch's.
  Switch(Wheel& wheel, PacketOwner& owner, Rng rng, const SwitchSpec& spec, const std::vector<PortSpec>& ports,
         Routes routes);
  Switch(const Switch&) = delete;
  Switch& operator=(const Switch&) = delete;
  Switch(Switch&&) = delete;
  Switch& operator=(Switch&&) = delete;
  ~Switch() = default;

  void on_packet(Packet& packet, PortIndex port, Instant now) noexcept override;
  void on_pause(const PauseFrame& frame, PortIndex port, Instant now) noexcept override;

  /// Cold: what a routing protocol has found out. Pins are in it, or gone.
  void set_routes(Routes routes) { routes_ = std::move(routes); }
  void resize_buffer(std::uint64_t size_bytes) noexcept { buffer_.resize(size_bytes); }
  /// See Routes::pin. Cold.
  void pin(std::uint64_t flow, HostId destination, PortIndex port) { routes_.pin(flow, destination, port); }

  [[nodiscard]] PortIndex ports() const noexcept { return static_cast<PortIndex>(ports_.size()); }
  [[nodiscard]] EgressPort& port(PortIndex i) noexcept { return ports_[i]->out; }
  [[nodiscard]] const EgressPort& port(PortIndex i) const noexcept { return ports_[i]->out; }
  [[nodiscard]] const PfcSender& pfc(PortIndex i) const noexcept { return ports_[i]->pfc; }
  [[nodiscard]] const PfcWatchdog& watchdog(PortIndex i) const noexcept { return ports_[i]->watchdog; }
  [[nodiscard]] const SharedBuffer& buffer() const noexcept { return buffer_; }
  [[nodiscard]] const SwitchCounters& counters() const noexcept { return counters_; }

 private:
  struct Port {
    Port(Switch& owner, Wheel& wheel, const PortSpec& port, const SwitchSpec& spec) noexcept
        : out(wheel, owner, *port.link, EgressSpec{port.rate, spec.scheduler, spec.overhead_bytes}),
          pfc(wheel, out, spec.pfc_quanta),
          watchdog(wheel, owner, out, spec.watchdog) {}
    EgressPort out;
    PfcSender pfc;
    PfcWatchdog watchdog;
    std::array<EcnRamp, priorities> ramps;
  };

  void on_departed(Packet& packet, Instant now) noexcept override;
  void on_storm(EgressPort& port, unsigned priority, Instant now) noexcept override;
  void drop(Packet& packet, SwitchDrop reason, Instant now) noexcept;
  void release(const Packet& packet, Instant now) noexcept;
  [[nodiscard]] bool lossless(const Packet& packet) const noexcept { return buffer_.lossless(packet.priority); }

  PacketOwner* owner_;
  Rng rng_;
  SharedBuffer buffer_;
  std::vector<std::unique_ptr<Port>> ports_;
  Routes routes_;
  SwitchCounters counters_;
};

}  // namespace nbx::switching
