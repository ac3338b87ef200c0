// What differs between NCCL releases on the wire, as data: one row per exact version. The rest of the room reads its
// layouts from here. Offsets are those of x86-64 and arm64 Linux (little-endian, natural alignment).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.hpp"

namespace nbx::nccl {

enum class Tested : std::uint8_t {
  live,      // against the running library
  captures,  // against recorded traffic of the library
  no,        // from reading alone: refused unless allowed
};

/// One field's place; `absent` when the release does not have it.
inline constexpr std::uint16_t absent = 0xffff;

struct Version {
  int code = 0;  // major * 10000 + minor * 100 + patch
  Tested tested = Tested::no;

  // bootstrap
  bool two_phase_root = true;  // false (to 2.22): 64-byte check-in, ring listener is the P2P listener, 4+4 header
  std::uint16_t check_in_size = 172;
  std::uint16_t check_in_reply_address = 16;
  std::uint16_t check_in_ring_info = 44;
  std::uint16_t root_reply_size = 128;
  std::uint16_t ring_data_size = 120;  // 0: three gathers of 28, 28 and 8
  bool ring_both_ways = true;
  bool receiver_waits_for_close = true;

  // peer info
  std::uint16_t peer_info_size = 120;
  std::uint16_t peer_total_memory = 64;
  std::uint16_t peer_fabric_info = 72;
  std::uint16_t peer_cu_mem_support = 108;
  std::uint16_t peer_version = 112;

  // graph exchange
  std::uint16_t graph_size = 2292;
  std::uint8_t graph_records = 7;
  std::uint16_t graph_topology = 224;  // crossNicRing when present, then the arrays
  bool graph_cross_nic_ring = true;
  std::uint8_t channels_max = 64;  // entries of each array
  std::uint16_t graph_p2p_channels = absent;

  bool gather_after_ring_connect = true;  // 2 bytes
  bool empty_handshake = true;            // false: a 4-byte int
  bool lazy_connect = true;

  // NET/IB
  bool ib_device_list = true;  // 20 bytes each way before the metadata
  std::uint16_t ib_metadata_size = 3648;
  std::uint16_t ib_devices = 3072;
  std::uint8_t ib_devices_max = 4;
  std::uint16_t ib_name = 3296;
  std::uint16_t ib_name_size = 324;
  std::uint16_t ib_address = 3624;
  std::uint16_t ib_ndevs = 3632;
  std::uint16_t ib_traffic_class = 3636;  // then service level
  std::uint16_t completion_row = 32;      // bytes per slot of the receiver's sizes area
  std::uint8_t cts_rkeys = 4;             // entries; then n, tag, sequence
  std::uint8_t cts_rkey_offset = 16;
  bool cts_size_64bit = true;
  bool imm_network_order = false;
  bool qp_by_request_number = false;  // 2.29: message k on QP k mod nqps

  // operations over channels
  std::uint32_t channel_traffic_min = 16384;
  bool ll_traffic_times_four = true;
  bool continuous_ranges = true;     // false (to 2.21): grid loop
  bool channel_target_floor = true;  // a channel's target is at least channel_traffic_min; false: rounded up to 16
};

/// Every version known, oldest first.
[[nodiscard]] std::span<const Version> versions();
/// "2.29.7" or 22907.
[[nodiscard]] std::string version_text(int code);
/// The row of exactly this version. An error names the versions known; and untested ones unless allowed.
[[nodiscard]] Result<const Version*> find_version(int code, bool allow_untested = false);

}  // namespace nbx::nccl
