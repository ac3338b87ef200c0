// Background traffic as a cluster file says it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cc/params.hpp"
#include "config/scalar.hpp"
#include "config/source.hpp"
#include "traffic/spec.hpp"

namespace nbx::config {

enum class Ecn : std::uint8_t { none = 0, ect1 = 1, ect0 = 2 };  // RFC 3168

/// In the order of cc::dcqcn_presets.
enum class DcqcnPreset : std::uint8_t { mlx5, paper, validation, hpcc_production, otg_default };
struct Dcqcn {
  DcqcnPreset preset = DcqcnPreset::mlx5;
  cc::DcqcnParams params;  // the preset's, but for what is given
};

struct Load {
  Probability share{1};
};

struct Traffic {
  Located<std::string> name;
  Located<traffic::Pattern> pattern;
  std::vector<Located<std::string>> from;  // ghosts; empty: all
  std::vector<Located<std::string>> to;    // ghosts or `node`; empty: all ghosts
  std::variant<BitRate, Load> rate;
  traffic::Sizes sizes;
  std::uint32_t packet_bytes = 1024;
  std::uint8_t dscp = 0;
  Ecn ecn = Ecn::ect0;
  Duration start{};
  Duration lasts{};
  std::optional<Dcqcn> dcqcn;
  std::uint32_t flows_max = 1024;
};

/// Every real node, where hosts of the network are named.
inline constexpr const char* node_word = "node";

}  // namespace nbx::config
