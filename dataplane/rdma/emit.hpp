// A packet that a ghost sends, while it is being made: headers of the path and BTH first, then extension headers one by
// one, then payload; send() adds pad and ICRC and hands it over.
#pragma once

#include "base/check.hpp"
#include "rdma/core.hpp"

namespace nbx::rdma {

class Packet {
 public:
  /// Takes a frame from the pool; without one the packet is false and a drop is counted.
  Packet(Core& core, GhostId ghost, const wire::Encapsulation& encapsulation, const wire::BthFields& bth,
         std::size_t payload_size) noexcept
      : core_(core), encapsulation_(encapsulation), size_(wire::traits(bth.opcode).header_size + payload_size) {
    frame_ = core.pool.alloc(encapsulation.frame_size(size_));
    if (frame_ == nullptr) {
      core.counters.count(Drop::frame_pool_empty);
      return;
    }
    frame_->ghost = ghost;
    rest_ = frame_->bytes().subspan(encapsulation.begin(frame_->bytes(), bth, size_), size_);
  }

  [[nodiscard]] std::uint32_t frame_size() const noexcept { return frame_->size; }

  explicit operator bool() const noexcept { return frame_ != nullptr; }

  /// The next extension header, in wire order; every field must be set.
  template <WireImage T>
  [[nodiscard]] T& header() noexcept {
    T* image = mutable_overlay<T>(rest_);
    rest_ = rest_.subspan(sizeof(T));
    return *image;
  }
  void aeth(std::uint8_t syndrome, std::uint32_t msn) noexcept {
    auto& aeth = header<wire::Aeth>();
    aeth.syndrome = syndrome;
    aeth.msn = msn & mask24;
  }
  /// What follows the headers taken so far.
  [[nodiscard]] MutableBytes payload() noexcept { return rest_; }

  void send(Instant now) noexcept {
    encapsulation_.seal(frame_->bytes(), size_);
    frame_->arrival = now;
    // Described by the parser itself, so what a ghost sends and what it receives cannot be described differently.
    constexpr wire::ParsePolicy trust{
        .verify_icrc = false, .verify_ipv4_checksum = false, .verify_udp_checksum = false};
    NBX_CHECK(wire::parse(frame_->bytes(), trust, frame_->parsed) == Drop::none);
    core_.counters.count(Counter::tx_roce_packets);
    core_.out.push_back(*frame_);
  }

 private:
  Core& core_;
  const wire::Encapsulation& encapsulation_;
  std::size_t size_;  // of extension headers and payload
  Frame* frame_ = nullptr;
  MutableBytes rest_;
};

/// P_Keys match when the 15-bit keys are equal and valid and one of the two is a full member (10.9.3).
[[nodiscard]] constexpr bool pkeys_match(std::uint16_t a, std::uint16_t b) noexcept {
  constexpr std::uint16_t full_member = 0x8000;
  constexpr std::uint16_t key = 0x7fff;
  return (a & key) == (b & key) && (a & key) != 0 && ((a | b) & full_member) != 0;
}

/// Position of packet `i` of `n` in its message.
[[nodiscard]] constexpr wire::Position position(std::uint32_t i, std::uint32_t n) noexcept {
  if (n == 1) {
    return wire::Position::only;
  }
  if (i == 0) {
    return wire::Position::first;
  }
  return i == n - 1 ? wire::Position::last : wire::Position::middle;
}

}  // namespace nbx::rdma
