// What a BTH opcode means, looked up in one load. The table is opcode.def.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "wire/roce.hpp"

namespace nbx::wire {

enum class Opcode : std::uint8_t {
#define NBX_OPCODE(value, name, operation, position, headers, payload) name = value,
#include "wire/opcode.def"
#undef NBX_OPCODE
};

enum class Transport : std::uint8_t { rc = 0, uc = 1, rd = 2, ud = 3, cnp = 4, xrc = 5 };

enum class Operation : std::uint8_t {
  unknown,
  send,
  rdma_write,
  rdma_read_request,
  rdma_read_response,
  acknowledge,
  atomic_acknowledge,
  compare_swap,
  fetch_add,
  congestion_notification,
};

enum class Position : std::uint8_t { only, first, middle, last };

/// The extension headers an opcode carries, as bits in wire order.
namespace ext {
inline constexpr std::uint8_t none = 0;
inline constexpr std::uint8_t deth = 1U << 0U;
inline constexpr std::uint8_t reth = 1U << 1U;
inline constexpr std::uint8_t atomiceth = 1U << 2U;
inline constexpr std::uint8_t aeth = 1U << 3U;
inline constexpr std::uint8_t atomicacketh = 1U << 4U;
inline constexpr std::uint8_t immdt = 1U << 5U;
inline constexpr std::uint8_t ieth = 1U << 6U;
inline constexpr std::uint8_t cnp_reserved = 1U << 7U;  // sixteen reserved bytes, A17.9.3
}  // namespace ext

struct OpcodeTraits {
  std::string_view name{};  // empty: not an opcode of this table
  Operation operation = Operation::unknown;
  Position position = Position::only;
  std::uint8_t headers = 0;      // ext:: bits
  std::uint8_t header_size = 0;  // bytes of extension headers behind the BTH
  bool payload = false;

  [[nodiscard]] constexpr bool known() const { return operation != Operation::unknown; }
  [[nodiscard]] constexpr bool has(std::uint8_t header) const { return (headers & header) != 0; }
  /// First or only packet of a message.
  [[nodiscard]] constexpr bool starts() const { return position == Position::first || position == Position::only; }
  /// Last or only packet of a message.
  [[nodiscard]] constexpr bool ends() const { return position == Position::last || position == Position::only; }
};

namespace detail {
constexpr std::uint8_t header_bytes(std::uint8_t headers) {
  unsigned n = 0;
  n += (headers & ext::deth) != 0 ? sizeof(Deth) : 0;
  n += (headers & ext::reth) != 0 ? sizeof(Reth) : 0;
  n += (headers & ext::atomiceth) != 0 ? sizeof(AtomicEth) : 0;
  n += (headers & ext::aeth) != 0 ? sizeof(Aeth) : 0;
  n += (headers & ext::atomicacketh) != 0 ? sizeof(AtomicAckEth) : 0;
  n += (headers & ext::immdt) != 0 ? sizeof(ImmDt) : 0;
  n += (headers & ext::ieth) != 0 ? sizeof(Ieth) : 0;
  n += (headers & ext::cnp_reserved) != 0 ? 16 : 0;
  return static_cast<std::uint8_t>(n);
}

constexpr std::array<OpcodeTraits, 256> make_opcode_table() {
  using namespace ext;
  std::array<OpcodeTraits, 256> table{};
#define NBX_OPCODE(value, name, op, pos, hdrs, data) \
  table[value] = {#name, Operation::op, Position::pos, hdrs, header_bytes(hdrs), data};
#include "wire/opcode.def"
#undef NBX_OPCODE
  return table;
}
}  // namespace detail

inline constexpr std::array<OpcodeTraits, 256> opcode_table = detail::make_opcode_table();

[[nodiscard]] constexpr const OpcodeTraits& traits(std::uint8_t opcode) { return opcode_table[opcode]; }
[[nodiscard]] constexpr const OpcodeTraits& traits(Opcode opcode) {
  return opcode_table[static_cast<std::uint8_t>(opcode)];
}
[[nodiscard]] constexpr Transport transport_of(std::uint8_t opcode) { return static_cast<Transport>(opcode >> 5U); }

/// Classes by which a profile selects frames.
enum class OpcodeClass : std::uint8_t { data, ack, nak, cnp, cm, other };

}  // namespace nbx::wire
