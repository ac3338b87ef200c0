// The emit side: headers from values. For every valid packet, parse(build(x)) describes x.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "wire/opcode.hpp"
#include "wire/path.hpp"

namespace nbx::wire {

struct BthFields {
  Opcode opcode{};
  Qpn dest_qpn{};
  Psn psn{};
  std::uint16_t pkey = default_pkey;
  bool solicited = false;
  bool ack_request = false;
  bool mig_req = true;  // migrated: the state of a QP without an alternate path (9.2.4)
  bool becn = false;
  bool selective_repeat = false;  // Bth::selective_repeat_bit
};

/// Ethernet, VLAN, IP and UDP headers of one path, prepared once; each packet copies them and sets its lengths.
class Encapsulation {
 public:
  static constexpr std::size_t size_max = 14 + 4 + 40 + 8;

  Encapsulation() = default;
  explicit Encapsulation(const Path& path) noexcept;

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Bytes of a whole frame that carries `ext_and_payload` bytes behind the BTH, pad and ICRC included.
  [[nodiscard]] std::size_t frame_size(std::size_t ext_and_payload) const noexcept {
    return size_ + sizeof(Bth) + ((ext_and_payload + 3U) & ~std::size_t{3}) + icrc_size;
  }

  /// Writes everything up to and including the BTH into `frame`, which must hold frame_size(ext_and_payload) bytes;
  /// pad bytes are zeroed. Answers the offset behind the BTH, where extension headers and payload go. Then seal().
  std::size_t begin(MutableBytes frame, const BthFields& bth, std::size_t ext_and_payload) const noexcept;
  /// Computes and stores the ICRC of a frame that begin() laid out and the caller filled.
  void seal(MutableBytes frame, std::size_t ext_and_payload) const noexcept;

 private:
  std::array<std::byte, size_max> bytes_{};
  std::uint8_t size_ = 0;
  std::uint8_t l3_offset_ = 0;
  bool ipv6_ = false;
};

/// Bytes that a CNP carries behind its BTH (A17.9.3).
inline constexpr std::size_t cnp_reserved_size = 16;
/// A whole congestion notification packet to `dest_qpn` (A17.9.3). `out` must hold frame_size(cnp_reserved_size)
/// bytes, which is also the answer.
std::size_t build_cnp(MutableBytes out, const Encapsulation& encapsulation, Qpn dest_qpn,
                      std::uint16_t pkey = default_pkey) noexcept;

/// Sets CE in the IP header and mends the IPv4 header checksum. The ICRC does not cover these bits.
void mark_congestion(MutableBytes frame, std::size_t l3_offset, bool ipv6) noexcept;
/// Recomputes and stores the ICRC of a RoCEv2 frame after its bytes were changed. The ICRC lies at `end`.
void repair_icrc(MutableBytes frame, std::size_t l3_offset, std::size_t bth_offset, std::size_t end,
                 bool ipv6) noexcept;

}  // namespace nbx::wire
