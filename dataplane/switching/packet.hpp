// What a switch knows of a frame: it queues and moves references and never opens them. Embedded in whatever carries
// the bytes; linked into one queue or armed on one link at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "base/list.hpp"
#include "base/units.hpp"
#include "timer/wheel.hpp"

namespace nbx::switching {

inline constexpr unsigned priorities = 8;  // IEEE 802.1Q: PCP

/// The ECN field of IP (RFC 3168, section 5).
enum class Ecn : std::uint8_t { not_ect = 0, ect1 = 1, ect0 = 2, ce = 3 };

enum class SwitchDrop : std::uint8_t {
#define NBX_SWITCH_DROP(name, text) name,
#include "switching/drops.def"
#undef NBX_SWITCH_DROP
};

inline constexpr const char* switch_drop_names[] = {
#define NBX_SWITCH_DROP(name, text) #name,
#include "switching/drops.def"
#undef NBX_SWITCH_DROP
};
inline constexpr std::size_t switch_drops = std::size(switch_drop_names);

/// Index of a host, that is of one port of an end station, in its topology.
using HostId = std::uint32_t;
using PortIndex = std::uint16_t;
inline constexpr PortIndex no_port = 0xffff;

struct Packet : TimerNode {
  std::uint32_t size = 0;  // bytes of the frame, without preamble, FCS and gap
  HostId destination = 0;
  std::uint32_t flow = 0;     // hash of the addresses and ports: what ECMP sees
  std::uint8_t priority = 0;  // below `priorities`
  Ecn ecn = Ecn::not_ect;     // a switch turns ECT into CE
  PortIndex ingress = 0;      // of the switch that holds it
  std::uint32_t pin = 0;      // which pins it follows, where those do not know it by its flow; 0: none

  /// What pins know it by.
  [[nodiscard]] std::uint64_t pinned_as() const noexcept { return pin != 0 ? pin_key(pin) : flow; }
  [[nodiscard]] static constexpr std::uint64_t pin_key(std::uint32_t pin) noexcept { return std::uint64_t{pin} << 32U; }
};

using PacketList = List<Packet>;

/// Who made the packets and takes them back when they are dropped.
class PacketOwner {
 public:
  /// Called from within the network, which must not be entered from here.
  virtual void on_dropped(Packet& packet, SwitchDrop reason, Instant now) noexcept = 0;

 protected:
  ~PacketOwner() = default;
};

}  // namespace nbx::switching
