#include "nccl-glue/wire/version.hpp"

#include <algorithm>
#include <array>

namespace nbx::nccl {

namespace {

constexpr Version nccl_2_22_3() {
  Version v;
  v.code = 22203;
  v.two_phase_root = false;
  v.check_in_size = 64;
  v.check_in_reply_address = 8;
  v.check_in_ring_info = 36;
  v.root_reply_size = 28;
  v.ring_data_size = 0;
  v.ring_both_ways = false;
  v.receiver_waits_for_close = false;
  v.peer_info_size = 104;
  v.peer_total_memory = absent;
  v.peer_fabric_info = 60;
  v.peer_cu_mem_support = 96;
  v.peer_version = absent;
  v.graph_size = 1228;
  v.graph_records = 6;
  v.graph_topology = 192;
  v.graph_cross_nic_ring = false;
  v.channels_max = 32;
  v.gather_after_ring_connect = false;
  v.empty_handshake = false;
  v.ib_device_list = false;
  v.ib_metadata_size = 3336;
  v.ib_devices_max = 2;
  v.ib_name = 3184;
  v.ib_name_size = 130;
  v.ib_address = 3320;
  v.ib_ndevs = 3328;
  v.ib_traffic_class = absent;
  v.cts_rkeys = 2;
  v.cts_rkey_offset = 12;
  v.cts_size_64bit = false;
  v.channel_traffic_min = 512;
  v.ll_traffic_times_four = false;
  return v;
}

constexpr Version nccl_2_27_7() {
  Version v;
  v.code = 22707;
  v.ring_both_ways = false;
  v.graph_size = 2288;
  v.graph_cross_nic_ring = false;
  return v;
}

constexpr Version nccl_2_28_9() {
  Version v;  // the defaults are this release's
  v.code = 22809;
  v.tested = Tested::captures;
  return v;
}

constexpr Version nccl_2_29_7() {
  Version v;
  v.code = 22907;
  v.tested = Tested::live;
  v.check_in_size = 176;
  v.check_in_reply_address = 20;
  v.check_in_ring_info = 48;
  v.peer_info_size = 128;
  v.graph_size = 2300;
  v.graph_p2p_channels = 2292;
  v.ib_metadata_size = 3744;
  v.ib_devices = 3168;
  v.ib_name = 3392;
  v.ib_address = 3720;
  v.ib_ndevs = 3728;
  v.ib_traffic_class = 3732;
  v.completion_row = 160;
  v.imm_network_order = true;
  v.qp_by_request_number = true;
  v.channel_traffic_min = 32768;
  v.channel_target_floor = false;
  return v;
}

constexpr std::array table{nccl_2_22_3(), nccl_2_27_7(), nccl_2_28_9(), nccl_2_29_7()};

std::string known_versions() {
  std::string text;
  for (const Version& v : table) {
    text += text.empty() ? "" : ", ";
    text += version_text(v.code);
    text += v.tested == Tested::no ? " (untested)" : "";
  }
  return text;
}

}  // namespace

std::span<const Version> versions() { return table; }

std::string version_text(int code) {
  return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." + std::to_string(code % 100);
}

Result<const Version*> find_version(int code, bool allow_untested) {
  const auto* found = std::ranges::find(table, code, &Version::code);
  if (found == table.end()) {
    return Error{"NCCL " + version_text(code) + " is not known; known are " + known_versions()};
  }
  if (found->tested == Tested::no && !allow_untested) {
    return Error{"NCCL " + version_text(code) + " is untested and not allowed; known are " + known_versions()};
  }
  return found;
}

}  // namespace nbx::nccl
