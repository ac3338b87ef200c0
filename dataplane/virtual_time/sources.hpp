// The sources of a simulation: open loop (constant, Poisson, on-off), a greedy window, and a DCQCN sender with its
// notification point.
#pragma once

#include <cstdint>

#include "base/rng.hpp"
#include "cc/dcqcn.hpp"
#include "cc/notification_point.hpp"
#include "cc/pacer.hpp"
#include "virtual_time/flow.hpp"

namespace nbx::virtual_time {

struct ArrivalSpec {
  Duration interval{};             // between packets: the mean, or, when not poisson, every one
  bool poisson = false;            // exponential intervals
  bool exponential_sizes = false;  // of mean FlowSpec::packet_bytes
  Duration on{};                   // mean of the exponential times of sending and of silence; zero: always on
  Duration off{};
};

/// Sends without regard to what becomes of it.
class OpenLoopFlow final : public Flow {
 public:
  OpenLoopFlow(World& world, const FlowSpec& spec, const ArrivalSpec& arrivals);

 private:
  void on_timer(TimerNode& node, Instant now) noexcept override;

  ArrivalSpec arrivals_;
  Rng rng_;
  Instant on_until_ = Instant::never();
};

/// Keeps `window_packets` between its port and the acknowledgement of each. A lost packet opens the window again.
class GreedyFlow final : public Flow {
 public:
  GreedyFlow(World& world, const FlowSpec& spec, std::uint32_t window_packets, std::uint8_t ack_priority)
      : Flow(world, spec), window_(window_packets), ack_priority_(ack_priority) {}

  void on_dropped(SimPacket& packet, Instant now) noexcept override;

 private:
  static constexpr std::uint32_t ack_bytes = 14 + 20 + 8 + 12 + 4 + 4;  // Ethernet, IPv4, UDP, BTH, AETH, ICRC

  void on_timer(TimerNode& node, Instant now) noexcept override;
  void on_data(SimPacket& packet, Instant now) noexcept override;
  void on_answer(SimPacket& packet, Instant now) noexcept override;
  void fill(Instant now) noexcept;

  std::uint32_t window_;
  std::uint8_t ack_priority_;
  std::uint32_t outstanding_ = 0;
};

/// A queue pair that always has something to send, at the rate of its reaction point. Rates count what a packet
/// occupies on the line. One packet at a time is in the port's queue: what a port that is paused or shared holds back
/// stays with the flow.
class DcqcnFlow final : public Flow {
 public:
  /// `np` is the destination's; `qp` and `peer` are this flow's indices there.
  DcqcnFlow(World& world, const FlowSpec& spec, const cc::DcqcnParams& params, cc::NotificationPoint& np,
            std::size_t qp, std::size_t peer);

  [[nodiscard]] cc::ReactionPoint& reaction_point() noexcept { return rp_; }

 private:
  static constexpr std::uint32_t cnp_bytes = 14 + 20 + 8 + 12 + 16 + 4;  // the payload of a CNP is 16 zeroes (A17.9.3)

  void on_timer(TimerNode& node, Instant now) noexcept override;
  void on_departed(Instant now) noexcept override;
  void on_data(SimPacket& packet, Instant now) noexcept override;
  void on_answer(SimPacket& packet, Instant now) noexcept override;
  void try_send(Instant now) noexcept;

  const cc::DcqcnParams* params_;
  cc::NotificationPoint* np_;
  std::size_t qp_;
  std::size_t peer_;
  cc::ReactionPoint rp_;
  cc::Pacer pacer_;
  bool in_port_ = false;  // a packet is in the port's queue or on the line
};

}  // namespace nbx::virtual_time
