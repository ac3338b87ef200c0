// What the plugin takes from its environment: the interfaces it plays RNICs on, NCCL's own NET/IB variables, and which
// release of NCCL it is in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/net.hpp"
#include "base/result.hpp"
#include "nccl-glue/wire/version.hpp"

namespace nbx::nccl::plugin {

struct Interface {
  std::string name;  // of the kernel's device; the address itself when it was given by address
  IpAddress address;
  std::uint32_t mtu = 0;
  std::uint32_t speed_mbps = 0;
  std::string pci_path;  // empty: a virtual device
};

struct Settings {
  const Version* version = nullptr;
  std::uint8_t timeout = 20;                       // NCCL_IB_TIMEOUT
  std::uint8_t retry_cnt = 7;                      // NCCL_IB_RETRY_CNT
  std::uint32_t qps_per_connection = 1;            // NCCL_IB_QPS_PER_CONNECTION
  bool split_data_on_qps = false;                  // NCCL_IB_SPLIT_DATA_ON_QPS
  std::uint16_t window = 0;                        // NBX_NET_WINDOW: packets in flight; 0: as the socket has room
  std::optional<std::uint8_t> traffic_class;       // NCCL_IB_TC; without it the communicator's
  std::optional<std::uint8_t> service_level;       // NCCL_IB_SL, likewise
  std::optional<std::uint8_t> fifo_traffic_class;  // NCCL_IB_FIFO_TC: of what a receiver sends
};

/// The variables' values for the release `version_code` of NCCL; NBX_NCCL_VERSION names another.
[[nodiscard]] Result<Settings> read_settings(int version_code);

/// The interfaces that NBX_NET_INTERFACE lists by name or address, else those that NCCL_SOCKET_IFNAME selects, else
/// the first that is up and neither loopback nor a bridge of containers, else loopback.
[[nodiscard]] Result<std::vector<Interface>> find_interfaces();

}  // namespace nbx::nccl::plugin
