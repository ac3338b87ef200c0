// A NIC as its file says it: how ghosts behave where NICs differ.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/source.hpp"
#include "rdma/nic.hpp"

namespace nbx::config {

/// rdma::AdaptiveTimer as it is written.
struct AdaptiveTimer {
  Located<Duration> time_base{std::chrono::microseconds{4}};
  std::uint8_t init_low_bound = 0;
  Located<std::uint8_t> init_range_size{1};
  Located<std::uint8_t> start_range_index{0};
  std::vector<Located<rdma::AdaptiveTimer::Range>> ranges;
  std::optional<Located<std::uint8_t>> total_timeout;
};

struct Nic {
  std::string name;
  std::string description;
  std::optional<Located<AdaptiveTimer>> adaptive;
  std::optional<Located<rdma::RtoTimer>> rto;
  std::optional<Located<std::uint32_t>> out_of_order_packets;
  rdma::Nic behaviour;  // all of it after load_nic
};

struct LoadedNic {
  Nic nic;
  Diagnostics diagnostics;

  [[nodiscard]] bool ok() const { return diagnostics.empty(); }
};
/// Reads and checks the file of a NIC.
[[nodiscard]] LoadedNic load_nic(const std::string& path);

}  // namespace nbx::config
