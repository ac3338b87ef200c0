// One Ethernet port: any device that DPDK drives, by PCI address or as a virtual device, with one queue each way.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/net.hpp"
#include "base/result.hpp"
#include "frame/frame.hpp"
#include "port/eal.hpp"
#include "port/mbuf_source.hpp"

namespace nbx::port {

struct EthdevConfig {
  std::string device;                  // "0000:17:00.0,options" or "net_vhost0,iface=/run/nbx/p0.sock"
  std::uint32_t mtu = 4200;            // largest IP packet
  std::vector<IpAddress> ghosts = {};  // whose frames are taken where the kernel has the interface too (net_af_xdp)
};

struct Link {
  bool up = false;
  BitRate speed;  // unlimited(): not known
};

class EthdevPort {
 public:
  /// Brings the device up; receives into buffers of `source`. On an error nothing of it is left.
  static Result<std::unique_ptr<EthdevPort>> open(Eal& eal, const EthdevConfig& config, MbufSource& source);
  ~EthdevPort();
  EthdevPort(const EthdevPort&) = delete;
  EthdevPort& operator=(const EthdevPort&) = delete;
  EthdevPort(EthdevPort&&) = delete;
  EthdevPort& operator=(EthdevPort&&) = delete;

  // The worker's.

  /// Appends what has arrived; answers how many packets were dropped because they were longer than a buffer.
  std::size_t receive(FrameList& burst, Instant now) noexcept;
  /// Sends `frames`, all of which leave the list. What the device does not take waits here, in order, for the next
  /// call; what finds no room to wait, or waits for a device that takes nothing, goes to `refused`. True when the
  /// device took something.
  bool transmit(FrameList& frames, FrameList& refused, Instant now) noexcept;
  /// Whether ghosts may say more: few frames wait for the device.
  [[nodiscard]] bool has_room() const noexcept { return pending_count_ < pending_enough; }
  /// Gives up what still waits.
  void take_pending(FrameList& out) noexcept;
  [[nodiscard]] bool transmit_pending() const noexcept { return pending_count_ != 0; }

  // Anyone's.
  [[nodiscard]] Link link() const noexcept;
  [[nodiscard]] const std::string& driver() const noexcept { return driver_; }

 private:
  static constexpr std::uint16_t burst_max = 32;
  static constexpr std::size_t pending_max = 8192;    // what a guest that is not run for a while makes wait
  static constexpr std::size_t pending_enough = 256;  // ghosts wait then, as a NIC waits for its link
  static constexpr Duration patience = std::chrono::seconds{1};

  explicit EthdevPort(std::uint16_t id) noexcept : id_(id) {}
  std::optional<Error> configure(const EthdevConfig& config, MbufSource& source);
  void queue(FrameList& frames) noexcept;
  std::size_t send_queued() noexcept;

  std::uint16_t id_;
  std::string driver_;
  // mbufs that wait for the device: a ring of pending_count_ entries from pending_first_.
  std::array<rte_mbuf*, pending_max> pending_{};
  std::size_t pending_first_ = 0;
  std::size_t pending_count_ = 0;
  Instant last_taken_{};
};

}  // namespace nbx::port
