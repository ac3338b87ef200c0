// A receiver that takes packets from its buffer more slowly than its cable brings them, and pauses its switch before
// the buffer is full: the slow-receiver symptom of Guo et al., "RDMA over Commodity Ethernet at Scale", SIGCOMM 2016,
// section 4.4. One packet at a time, in the order of arrival; `drain` counts the bytes of a frame, nothing of the line.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "switching/egress_port.hpp"
#include "switching/pfc_sender.hpp"

namespace nbx::switching {

struct SlowReceiverSpec {
  BitRate drain;
  std::uint64_t buffer_bytes = 0;
  // Of each lossless priority.
  std::uint64_t xoff_bytes = 0;  // pause above
  std::uint64_t xon_bytes = 0;   // resume at or below
  std::uint8_t lossless = 0;     // the set of priorities with PFC
};

struct SlowReceiverCounters {
  std::uint64_t drained_packets = 0;
  std::uint64_t drained_bytes = 0;
  std::uint64_t refused_packets = 0;  // the buffer had no room
  std::uint64_t peak_bytes = 0;
  Duration idle{};  // between two packets, the buffer being empty
};

class SlowReceiver final : private TimerClient {
 public:
  class Owner {
   public:
    /// `packet` is out of the buffer.
    virtual void on_drained(Packet& packet, Instant now) noexcept = 0;

   protected:
    ~Owner() = default;
  };

  /// `out` leads to the switch; `quanta` of every pause.
  SlowReceiver(Wheel& wheel, Owner& owner, EgressPort& out, std::uint16_t quanta, const SlowReceiverSpec& spec) noexcept
      : wheel_(&wheel), owner_(&owner), pfc_(wheel, out, quanta), spec_(spec) {
    timer_.client = this;
  }
  SlowReceiver(const SlowReceiver&) = delete;
  SlowReceiver& operator=(const SlowReceiver&) = delete;
  SlowReceiver(SlowReceiver&&) = delete;
  SlowReceiver& operator=(SlowReceiver&&) = delete;
  ~SlowReceiver() = default;

  /// False: no room, and the packet is still the caller's.
  [[nodiscard]] bool receive(Packet& packet, Instant now) noexcept {
    if (held_ + packet.size > spec_.buffer_bytes) {
      ++counters_.refused_packets;
      return false;
    }
    const unsigned p = packet.priority;
    held_ += packet.size;
    bytes_[p] += packet.size;
    counters_.peak_bytes = std::max(counters_.peak_bytes, held_);
    if (packets_.empty()) {
      counters_.idle += counters_.drained_packets == 0 ? Duration::zero() : now - free_at_;
      drain(packet, now);
    }
    packets_.push_back(packet);
    if (((spec_.lossless >> p) & 1U) != 0 && bytes_[p] > spec_.xoff_bytes && !pfc_.pausing(p)) {
      pfc_.pause(p, now);
    }
    return true;
  }

  /// It is slow no more: what it holds comes out now, and nothing is paused.
  void stop(Instant now) noexcept {
    wheel_->cancel(timer_);
    held_ = 0;
    bytes_.fill(0);
    for (unsigned p = 0; p < priorities; ++p) {
      if (pfc_.pausing(p)) {
        pfc_.resume(p, now);
      }
    }
    while (Packet* packet = packets_.pop_front()) {
      ++counters_.drained_packets;
      counters_.drained_bytes += packet->size;
      owner_->on_drained(*packet, now);
    }
  }

  [[nodiscard]] const SlowReceiverCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] std::uint64_t pauses() const noexcept { return pfc_.xoffs(); }

 private:
  void drain(const Packet& packet, Instant now) noexcept {
    free_at_ = now + serialize_time_ceil(packet.size, spec_.drain);
    wheel_->arm(timer_, free_at_);
  }

  void on_timer(TimerNode& node, Instant /*now*/) noexcept override {
    const Instant now = node.due;
    Packet& packet = *packets_.pop_front();
    const unsigned p = packet.priority;
    held_ -= packet.size;
    bytes_[p] -= packet.size;
    ++counters_.drained_packets;
    counters_.drained_bytes += packet.size;
    if (!packets_.empty()) {
      drain(*packets_.front(), now);
    }
    if (pfc_.pausing(p) && bytes_[p] <= spec_.xon_bytes) {
      pfc_.resume(p, now);
    }
    owner_->on_drained(packet, now);
  }

  Wheel* wheel_;
  Owner* owner_;
  PfcSender pfc_;
  SlowReceiverSpec spec_;
  PacketList packets_;  // the first is being drained
  std::array<std::uint64_t, priorities> bytes_{};
  std::uint64_t held_ = 0;
  Instant free_at_{};
  SlowReceiverCounters counters_;
  TimerNode timer_;
};

}  // namespace nbx::switching
