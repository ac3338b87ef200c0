// A transmitter: a queue per priority, a scheduler, the line, and the pauses it has received. One frame at a time;
// pause frames of its own go before any packet and are not paused (802.3 31B.1, 802.1Q 36.1). A frame that has begun
// is finished.
#pragma once

#include <array>
#include <cstdint>

#include "switching/link.hpp"
#include "switching/packet.hpp"
#include "switching/pause.hpp"
#include "switching/scheduler.hpp"

namespace nbx::switching {

struct EgressSpec {
  BitRate rate = BitRate::gbps(100);
  SchedulerSpec scheduler{};
  std::uint32_t overhead_bytes = ethernet_overhead_bytes;  // of every frame on the line
};

/// What a port did, per priority; the names are those of mlx5's ethtool counters without their `prio[p]`.
struct EgressCounters {
  std::uint64_t tx_packets = 0;
  std::uint64_t tx_bytes = 0;
  std::uint64_t rx_pause = 0;             // frames that named this priority
  std::uint64_t rx_pause_transition = 0;  // from sending to paused
  Duration rx_pause_duration{};
  std::uint64_t queue_peak_bytes = 0;
};

class EgressPort final : private TimerClient {
 public:
  class Owner {
   public:
    /// The last bit of `packet` has left; it goes to the link next.
    virtual void on_departed(Packet& packet, Instant now) noexcept = 0;

   protected:
    ~Owner() = default;
  };

  EgressPort(Wheel& wheel, Owner& owner, Link& link, const EgressSpec& spec) noexcept;
  EgressPort(const EgressPort&) = delete;
  EgressPort& operator=(const EgressPort&) = delete;
  EgressPort(EgressPort&&) = delete;
  EgressPort& operator=(EgressPort&&) = delete;
  ~EgressPort() = default;

  void enqueue(Packet& packet, Instant now) noexcept;
  /// Sends `frame` as soon as the frame on the line is finished. One that still waits is merged: the later word counts.
  void send_pause(const PauseFrame& frame, Instant now) noexcept;
  /// The peer's.
  void on_pause(const PauseFrame& frame, Instant now) noexcept;
  /// While set, `priority` does not obey pauses.
  void ignore_pause(unsigned priority, bool ignore, Instant now) noexcept;
  void set_rate(BitRate rate) noexcept;
  /// Empties the queue of `priority` into `out`; a frame on the line stays.
  void flush(unsigned priority, PacketList& out) noexcept;

  /// Every byte accepted and not yet sent.
  [[nodiscard]] std::uint64_t queued(unsigned priority) const noexcept { return queues_[priority].bytes; }
  [[nodiscard]] bool paused(unsigned priority, Instant now) const noexcept {
    return ((ignored_ >> priority) & 1U) == 0 && pause_.paused(priority, now);
  }
  [[nodiscard]] Instant paused_until(unsigned priority) const noexcept { return pause_.until(priority); }
  /// Since when `priority`, paused now, has had a packet and begun none; never() when it is empty or may send.
  [[nodiscard]] Instant blocked_since(unsigned priority, Instant now) const noexcept;
  [[nodiscard]] BitRate rate() const noexcept { return spec_.rate; }
  [[nodiscard]] const Link& link() const noexcept { return *link_; }
  [[nodiscard]] const EgressCounters& counters(unsigned priority) const noexcept { return queues_[priority].counters; }
  [[nodiscard]] std::uint64_t pause_frames_sent() const noexcept { return pause_frames_sent_; }
  [[nodiscard]] std::uint64_t plain_pauses_received() const noexcept { return plain_pauses_received_; }

  /// Calls `visit(const Packet&)` for what waits.
  template <class Visit>
  void for_each_waiting(unsigned priority, Visit visit) const {
    auto& packets = const_cast<PacketList&>(queues_[priority].packets);  // the list has no const iteration
    for (Packet* p = packets.front(); p != nullptr; p = packets.after(*p)) {
      visit(const_cast<const Packet&>(*p));
    }
  }

 private:
  struct Queue {
    PacketList packets;  // the one on the line is not among them
    std::uint64_t bytes = 0;
    Instant waiting_since{};  // when its first packet became the first
    EgressCounters counters;
  };

  void on_timer(TimerNode& node, Instant now) noexcept override;
  void next(Instant now) noexcept;
  void send_pause_again(Instant now) noexcept;
  void begin(std::uint32_t size, Instant now) noexcept;
  void wait_for_resume(Instant now) noexcept;
  void count_pause(unsigned priority, Instant before, Instant now) noexcept;
  [[nodiscard]] std::uint32_t on_line(std::uint32_t size) const noexcept { return size + spec_.overhead_bytes; }

  Wheel* wheel_;
  Owner* owner_;
  Link* link_;
  EgressSpec spec_;
  Scheduler scheduler_;
  PauseState pause_;
  std::array<Queue, priorities> queues_;
  std::uint8_t nonempty_ = 0;
  std::uint8_t ignored_ = 0;
  bool busy_ = false;
  Packet* on_the_line_ = nullptr;  // while busy; nullptr: a pause frame
  PauseFrame pause_on_the_line_{};
  PauseFrame pending_{};
  bool pause_pending_ = false;
  Instant line_free_{std::numeric_limits<std::int64_t>::min()};
  std::uint64_t fraction_ = 0;  // of a picosecond behind line_free_, times the rate
  std::uint64_t pause_frames_sent_ = 0;
  std::uint64_t plain_pauses_received_ = 0;
  TimerNode timer_;  // busy: the last bit leaves; idle: a pause ends
};

}  // namespace nbx::switching
