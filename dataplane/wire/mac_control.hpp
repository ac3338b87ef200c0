// MAC control frames: PAUSE (IEEE 802.3 annex 31B) and priority-based flow control (IEEE 802.1Q clause 36, annex 31D).
// Images at Parsed::l3_offset of a frame of kind `pause` or `pfc`.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/net.hpp"

namespace nbx::wire {

inline constexpr Mac mac_control_address{{0x01, 0x80, 0xc2, 0x00, 0x00, 0x01}};

inline constexpr std::uint16_t pause_opcode = 0x0001;
inline constexpr std::uint16_t pfc_opcode = 0x0101;

inline constexpr unsigned priorities = 8;
/// One quantum of pause time is this many bit times of the link (31B.2, 36.1.3.3).
inline constexpr unsigned pause_quantum_bits = 512;

struct PauseControl {
  Be16 opcode;
  Be16 quanta;  // zero: resume
};
static_assert(WireImage<PauseControl> && sizeof(PauseControl) == 4);

struct PfcControl {
  Be16 opcode;
  Be16 class_enable;  // bit p of the low octet: quanta[p] is meant; the high octet is zero
  std::array<Be16, priorities> quanta;

  [[nodiscard]] constexpr bool enabled(unsigned priority) const {
    return ((class_enable.value() >> priority) & 1U) != 0;
  }
};
static_assert(WireImage<PfcControl> && sizeof(PfcControl) == 20);

}  // namespace nbx::wire
