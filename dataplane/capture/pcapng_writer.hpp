// pcapng blocks as bytes (draft-ietf-opsawg-pcapng), formatted straight into a buffer that the caller gives: no
// allocation, so a worker can do it. Numbers are in the machine's byte order, which the section header states.
// Every formatter answers the size of its block, or 0 when the buffer is too small.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/bytes.hpp"
#include "base/units.hpp"

namespace nbx::capture {

enum class Direction : std::uint8_t { unknown = 0, inbound = 1, outbound = 2 };  // as in epb_flags, bits 0 and 1

namespace block {
inline constexpr std::uint32_t section_header = 0x0a0d0d0a;
inline constexpr std::uint32_t interface_description = 1;
inline constexpr std::uint32_t packet = 2;  // obsolete, read but not written
inline constexpr std::uint32_t simple_packet = 3;
inline constexpr std::uint32_t interface_statistics = 5;
inline constexpr std::uint32_t enhanced_packet = 6;
}  // namespace block

namespace option {
inline constexpr std::uint16_t end = 0;
inline constexpr std::uint16_t comment = 1;
inline constexpr std::uint16_t shb_hardware = 2;
inline constexpr std::uint16_t shb_os = 3;
inline constexpr std::uint16_t shb_userappl = 4;
inline constexpr std::uint16_t if_name = 2;
inline constexpr std::uint16_t if_description = 3;
inline constexpr std::uint16_t if_speed = 8;
inline constexpr std::uint16_t if_tsresol = 9;
inline constexpr std::uint16_t if_tsoffset = 14;
inline constexpr std::uint16_t epb_flags = 2;
inline constexpr std::uint16_t isb_starttime = 2;
inline constexpr std::uint16_t isb_endtime = 3;
inline constexpr std::uint16_t isb_ifrecv = 4;
inline constexpr std::uint16_t isb_ifdrop = 5;
}  // namespace option

inline constexpr std::uint32_t byte_order_magic = 0x1a2b3c4d;
inline constexpr std::uint16_t linktype_ethernet = 1;

struct Section {
  std::string_view hardware;
  std::string_view os;
  std::string_view application;
  std::string_view comment{};  // empty: none
};

struct InterfaceDescription {
  std::string_view name;
  std::string_view description;
  std::uint32_t snaplen = 0;  // 0: unlimited
  BitRate speed{};            // unlimited(): not known, not stated
};

struct PacketRecord {
  std::uint32_t interface_id = 0;
  std::uint64_t timestamp_ns = 0;  // since 1970-01-01 UTC
  Direction direction = Direction::unknown;
  ConstBytes captured;
  std::uint32_t original_size = 0;
  std::string_view comment;  // empty: none
};

struct InterfaceStatistics {
  std::uint32_t interface_id = 0;
  std::uint64_t start_ns = 0;  // both since 1970-01-01 UTC
  std::uint64_t end_ns = 0;
  std::uint64_t received = 0;  // lost ones included
  std::uint64_t lost = 0;
};

std::size_t format_shb(MutableBytes out, const Section& section) noexcept;
std::size_t format_idb(MutableBytes out, const InterfaceDescription& interface) noexcept;
std::size_t format_epb(MutableBytes out, const PacketRecord& record) noexcept;
std::size_t format_isb(MutableBytes out, const InterfaceStatistics& statistics) noexcept;

/// Of a block that format_epb has made.
[[nodiscard]] std::uint64_t epb_time(ConstBytes epb) noexcept;
void set_epb_interface(MutableBytes epb, std::uint32_t interface) noexcept;

/// Size of every statistics block: header, four options of eight bytes, end of options, total length.
inline constexpr std::size_t isb_size = 20 + 4 * 12 + 4 + 4;

}  // namespace nbx::capture
