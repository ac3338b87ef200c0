// One direction of a cable: carries packets and pause frames to the other end, in order, a fixed time later. A link
// that went down loses what is on it; the other direction is another link, so a half-open cable is one link down.
#pragma once

#include <array>
#include <cstdint>

#include "switching/packet.hpp"
#include "switching/pause.hpp"
#include "timer/wheel.hpp"

namespace nbx::switching {

/// What is at the end of a link: a port of a switch or of a host.
class Receiver {
 public:
  /// The last bit of `packet` is here, the time in the switch included (see Link).
  virtual void on_packet(Packet& packet, PortIndex port, Instant now) noexcept = 0;
  virtual void on_pause(const PauseFrame& frame, PortIndex port, Instant now) noexcept = 0;

 protected:
  ~Receiver() = default;
};

class Link final : private TimerClient {
 public:
  Link(Wheel& wheel, PacketOwner& owner) noexcept;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  Link(Link&&) = delete;
  Link& operator=(Link&&) = delete;
  ~Link() = default;

  /// `latency` is the receiver's own: from the last bit of a packet to its decision. Pause frames do not wait for it.
  void connect(Receiver& to, PortIndex port, Duration propagation, Duration latency) noexcept;

  /// The last bit leaves at `now`.
  void carry(Packet& packet, Instant now) noexcept;
  /// False: so many are on their way that there is no place for one more.
  [[nodiscard]] bool carry(const PauseFrame& frame, Instant now) noexcept;

  void set_up(bool up, Instant now) noexcept;
  [[nodiscard]] bool up() const noexcept { return up_; }
  [[nodiscard]] Receiver& to() const noexcept { return *to_; }
  [[nodiscard]] PortIndex port() const noexcept { return port_; }

 private:
  struct PauseInFlight : TimerNode {
    PauseFrame frame;
  };
  class PauseTimer final : public TimerClient {
   public:
    explicit PauseTimer(Link& link) noexcept : link_(&link) {}
    void on_timer(TimerNode& node, Instant now) noexcept override;

   private:
    Link* link_;
  };
  static constexpr std::size_t pauses_in_flight_max = 64;

  void on_timer(TimerNode& node, Instant now) noexcept override;
  /// Whether the link was cut since `sent`.
  [[nodiscard]] bool lost(Instant sent) const noexcept { return !up_ || sent <= went_down_; }

  Wheel* wheel_;
  PacketOwner* owner_;
  Receiver* to_ = nullptr;
  PortIndex port_ = no_port;
  bool up_ = true;
  Duration propagation_{};
  Duration latency_{};
  Instant went_down_{std::numeric_limits<std::int64_t>::min()};
  PauseTimer pause_timer_{*this};
  std::array<PauseInFlight, pauses_in_flight_max> pauses_;
  List<TimerNode> free_pauses_;
};

}  // namespace nbx::switching
