// BTH and the extension headers: IBTA volume 1, chapter 9; RoCEv2: annex A17. Images over the bytes of a frame.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"
#include "base/ids.hpp"

namespace nbx::wire {

/// Base transport header, 9.2.
struct Bth {
  std::uint8_t opcode;
  std::uint8_t flags;  // SE, MigReq, PadCnt(2), TVer(4)
  Be16 pkey;
  std::uint8_t ecn;  // FECN, BECN, six reserved bits: variant, so outside the ICRC
  Be24 dest_qp;
  std::uint8_t ack_req;  // AckReq, seven reserved bits
  Be24 psn;

  static constexpr std::uint8_t solicited_bit = 0x80;
  static constexpr std::uint8_t mig_req_bit = 0x40;
  static constexpr std::uint8_t fecn_bit = 0x80;
  static constexpr std::uint8_t becn_bit = 0x40;
  static constexpr std::uint8_t ack_req_bit = 0x80;
  // Ours, of the reserved ones, which peers ignore (9.2): the sender repairs by selective repeat, and the MSN of a
  // sequence NAK is the PSN that arrived.
  static constexpr std::uint8_t selective_repeat_bit = 0x40;

  [[nodiscard]] constexpr bool solicited() const { return (flags & solicited_bit) != 0; }
  [[nodiscard]] constexpr bool mig_req() const { return (flags & mig_req_bit) != 0; }
  [[nodiscard]] constexpr unsigned pad_count() const { return (flags >> 4U) & 3U; }
  [[nodiscard]] constexpr unsigned version() const { return flags & 0x0fU; }
  [[nodiscard]] constexpr bool ack_requested() const { return (ack_req & ack_req_bit) != 0; }
};
static_assert(WireImage<Bth> && sizeof(Bth) == 12);

/// RDMA extended transport header, 9.3.3.
struct Reth {
  Be64 virtual_address;
  Be32 rkey;
  Be32 dma_length;
};
static_assert(WireImage<Reth> && sizeof(Reth) == 16);

/// ACK extended transport header, 9.3.5.
struct Aeth {
  std::uint8_t syndrome;
  Be24 msn;
};
static_assert(WireImage<Aeth> && sizeof(Aeth) == 4);

/// Datagram extended transport header, 9.3.2.
struct Deth {
  Be32 qkey;
  std::uint8_t reserved;
  Be24 source_qp;
};
static_assert(WireImage<Deth> && sizeof(Deth) == 8);

/// Atomic extended transport header, 9.3.4.
struct AtomicEth {
  Be64 virtual_address;
  Be32 rkey;
  Be64 swap_or_add;
  Be64 compare;
};
static_assert(WireImage<AtomicEth> && sizeof(AtomicEth) == 28);

/// Atomic ACK extended transport header, 9.3.5.3.
struct AtomicAckEth {
  Be64 original;
};
static_assert(WireImage<AtomicAckEth> && sizeof(AtomicAckEth) == 8);

/// Immediate extended transport header, 9.3.6. The four bytes are the application's; they are kept in wire order.
struct ImmDt {
  Be32 data;
};
static_assert(WireImage<ImmDt> && sizeof(ImmDt) == 4);

/// Invalidate extended transport header, 9.3.7.
struct Ieth {
  Be32 rkey;
};
static_assert(WireImage<Ieth> && sizeof(Ieth) == 4);

inline constexpr unsigned icrc_size = 4;

/// AETH syndromes, 9.7.5.2.4 and table 46.
namespace syndrome {
inline constexpr std::uint8_t type_mask = 0xe0;
inline constexpr std::uint8_t value_mask = 0x1f;
inline constexpr std::uint8_t ack = 0x00;
inline constexpr std::uint8_t rnr_nak = 0x20;
inline constexpr std::uint8_t nak = 0x60;
inline constexpr std::uint8_t no_credit_count = 0x1f;  // an ACK that says nothing of credits

inline constexpr std::uint8_t nak_psn_sequence_error = nak | 0x00;
inline constexpr std::uint8_t nak_invalid_request = nak | 0x01;
inline constexpr std::uint8_t nak_remote_access_error = nak | 0x02;
inline constexpr std::uint8_t nak_remote_operational_error = nak | 0x03;
inline constexpr std::uint8_t nak_invalid_rd_request = nak | 0x04;
}  // namespace syndrome

inline constexpr std::uint16_t default_pkey = 0xffff;
inline constexpr std::uint32_t gsi_qkey = 0x8001'0000;  // 3.5.3
inline constexpr std::uint32_t privileged_qkey_bit = 0x8000'0000;

}  // namespace nbx::wire
