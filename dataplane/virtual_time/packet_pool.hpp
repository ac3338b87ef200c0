// The packets of a simulation: made once, counted when the network drops one.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/units.hpp"
#include "switching/packet.hpp"

namespace nbx::virtual_time {

class Flow;

enum class Kind : std::uint8_t { data, ack, nak, cnp };

struct SimPacket : switching::Packet {
  Flow* of = nullptr;
  Kind kind = Kind::data;
  std::uint32_t psn = 0;               // of an answer: what is expected next
  std::uint32_t out_of_order_psn = 0;  // of a nak: what came instead
  Instant queued_at{};                 // at the port of its host
};

class PacketPool final : public switching::PacketOwner {
 public:
  explicit PacketPool(std::size_t packets) : slab_(std::make_unique<SimPacket[]>(packets)), size_(packets) {
    for (std::size_t i = 0; i < packets; ++i) {
      free_.push_back(slab_[i]);
    }
    free_count_ = packets;
  }

  /// nullptr, and counted, when all are in use.
  [[nodiscard]] SimPacket* take() noexcept {
    auto* packet = static_cast<SimPacket*>(free_.pop_front());
    if (packet == nullptr) {
      ++exhausted_;
      return nullptr;
    }
    --free_count_;
    return packet;
  }
  void give_back(SimPacket& packet) noexcept {
    free_.push_front(packet);
    ++free_count_;
  }

  void on_dropped(switching::Packet& packet, switching::SwitchDrop reason, Instant now) noexcept override;

  [[nodiscard]] std::uint64_t dropped(switching::SwitchDrop reason) const noexcept {
    return dropped_[static_cast<std::size_t>(reason)];
  }
  [[nodiscard]] std::uint64_t exhausted() const noexcept { return exhausted_; }
  [[nodiscard]] std::size_t in_use() const noexcept { return size_ - free_count_; }

 private:
  std::unique_ptr<SimPacket[]> slab_;
  std::size_t size_;
  std::size_t free_count_ = 0;
  switching::PacketList free_;
  std::array<std::uint64_t, switching::switch_drops> dropped_{};
  std::uint64_t exhausted_ = 0;
};

}  // namespace nbx::virtual_time
