// DCQCN as parameters: mlx5's names and units, so that the settings of a real NIC can be pasted (Linux
// drivers/infiniband/hw/mlx5/cong.c, debugfs `cc_params`; NVIDIA "DCQCN CC Parameters"). Plain data.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace nbx::cc {

/// When the reaction point moves alpha.
enum class AlphaUpdate : std::uint8_t {
  on_cnp,  // up with every CNP, after the rate cut; down after rp_dce_tcp_rtt without one (Zhu et al. 2015, section 5)
  periodic,  // every rp_dce_tcp_rtt: up when a CNP came within it, else down (mlx5, the ns-3 model)
};

/// Which CNPs share one np_min_time_between_cnps.
enum class CnpScope : std::uint8_t { qp, ip, port };

struct DcqcnParams {
  AlphaUpdate alpha_update = AlphaUpdate::periodic;

  // Reaction point.
  bool rp_clamp_tgt_rate = false;     // every cut sets the target rate to the current rate
  bool rp_clamp_tgt_rate_ati = true;  // so does the first cut after an increase by the timer; by bytes it always does
  std::uint32_t rp_time_reset = 300;  // us between increases by the timer
  std::uint32_t rp_byte_reset = 32'767;             // bytes between increases by the byte counter; 0: off
  std::uint32_t rp_threshold = 1;                   // F: so many increases of fast recovery
  std::uint32_t rp_ai_rate = 5;                     // Mb/s, R_AI
  std::uint32_t rp_hai_rate = 50;                   // Mb/s, R_HAI
  std::uint32_t rp_max_rate = 0;                    // Mb/s; 0: the link's
  std::uint32_t rp_gd = 11;                         // a cut takes alpha / 2^(rp_gd - 10) of the rate: 11 is alpha / 2
  std::uint32_t rp_min_dec_fac = 50;                // %: a cut leaves at least so much
  std::uint32_t rp_min_rate = 1;                    // Mb/s
  std::uint32_t rp_rate_to_set_on_first_cnp = 0;    // Mb/s, target and current, in place of the first cut; 0: cut
  std::uint32_t rp_dce_tcp_g = 1019;                // of 1024: what alpha keeps at an update; 1 - g of the paper
  std::uint32_t rp_dce_tcp_rtt = 1;                 // us, see AlphaUpdate
  std::uint32_t rp_rate_reduce_monitor_period = 4;  // us between cuts
  std::uint32_t rp_initial_alpha_value = 1023;      // of 1024

  // Notification point.
  std::uint32_t np_min_time_between_cnps = 4;  // us
  std::uint32_t np_cnp_dscp = 48;
  std::uint32_t np_cnp_prio = 6;
  CnpScope np_cnp_scope = CnpScope::qp;
};

struct DcqcnPreset {
  std::string_view name;
  std::string_view source;
  DcqcnParams params;
};

namespace detail {

constexpr DcqcnParams paper_params() {
  DcqcnParams p;
  p.alpha_update = AlphaUpdate::on_cnp;
  p.rp_clamp_tgt_rate = true;  // R_T = R_C at every cut, equation (1)
  p.rp_time_reset = 55;
  p.rp_byte_reset = 10'000'000;
  p.rp_threshold = 5;
  p.rp_ai_rate = 40;
  p.rp_hai_rate = 40;     // the paper gives no value: hyper increase is then no faster than additive
  p.rp_min_dec_fac = 0;   // no bound
  p.rp_dce_tcp_g = 1020;  // g = 1/256
  p.rp_dce_tcp_rtt = 55;
  p.rp_rate_reduce_monitor_period = 0;
  p.rp_initial_alpha_value = 1024;
  p.np_min_time_between_cnps = 50;
  return p;
}

constexpr DcqcnParams validation_params() {
  DcqcnParams p = paper_params();
  p.rp_time_reset = 50;
  return p;
}

constexpr DcqcnParams hpcc_production_params() {
  DcqcnParams p;
  p.rp_time_reset = 900;
  p.rp_byte_reset = 0;
  p.rp_ai_rate = 50;
  p.rp_hai_rate = 100;
  p.rp_min_dec_fac = 0;
  p.rp_min_rate = 100;
  p.rp_dce_tcp_g = 1020;
  p.rp_initial_alpha_value = 1024;
  return p;
}

constexpr DcqcnParams otg_default_params() {
  DcqcnParams p;
  p.rp_clamp_tgt_rate = true;
  p.rp_time_reset = 250;
  p.rp_threshold = 25;
  p.rp_min_dec_fac = 90;  // "maximum decrement 10 %"
  p.rp_dce_tcp_rtt = 21;
  p.rp_rate_reduce_monitor_period = 21;
  p.np_min_time_between_cnps = 55;
  return p;
}

}  // namespace detail

inline constexpr auto dcqcn_presets = std::to_array<DcqcnPreset>({
    {"mlx5", "defaults of ConnectX firmware, as mlxconfig shows them", DcqcnParams{}},
    {"paper", "Zhu et al., SIGCOMM 2015, section 5", detail::paper_params()},
    {"validation", "DCQCN-validation for ns-3: as the paper, timer 50 us", detail::validation_params()},
    {"hpcc-production", "ns-3 model of HPCC, with the values its authors run", detail::hpcc_production_params()},
    {"otg-default", "Open Traffic Generator RoCEv2 model", detail::otg_default_params()},
});

/// nullptr when there is no preset of that name.
[[nodiscard]] constexpr const DcqcnParams* dcqcn_preset(std::string_view name) {
  for (const DcqcnPreset& preset : dcqcn_presets) {
    if (preset.name == name) {
      return &preset.params;
    }
  }
  return nullptr;
}

}  // namespace nbx::cc
