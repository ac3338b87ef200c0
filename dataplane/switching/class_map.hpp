// Which priority a frame has at one end of a link: from its PCP (IEEE 802.1Q 6.9) or its DSCP (RFC 2474), as the end
// trusts. Two ends that disagree lose what one of them believes lossless.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "switching/packet.hpp"

namespace nbx::switching {

enum class Trust : std::uint8_t { pcp, dscp };

struct ClassMap {
  Trust trust = Trust::dscp;
  std::array<std::uint8_t, 8> of_pcp{0, 1, 2, 3, 4, 5, 6, 7};
  std::array<std::uint8_t, 64> of_dscp = by_precedence();
  std::uint8_t untagged = 0;  // the priority of a frame that has no tag, or no IP header
  std::uint8_t lossless = 0;  // the set of priorities with PFC (802.1Q DCBX: PFC enable)

  /// DSCP 8n ... 8n + 7 to n: what mlx5 and most switches begin with.
  static constexpr std::array<std::uint8_t, 64> by_precedence() {
    std::array<std::uint8_t, 64> map{};
    for (std::uint8_t d = 0; d < 64; ++d) {
      map[d] = static_cast<std::uint8_t>(d / 8);
    }
    return map;
  }

  /// `pcp` 8: no tag. `dscp` 64: not IP.
  [[nodiscard]] constexpr std::uint8_t priority(std::uint8_t pcp, std::uint8_t dscp) const noexcept {
    if (trust == Trust::dscp) {
      return dscp < 64 ? of_dscp[dscp] : untagged;
    }
    return pcp < 8 ? of_pcp[pcp] : untagged;
  }
};

/// What the two ends of a link see differently, one line each. Cold.
[[nodiscard]] std::vector<std::string> disagreements(const std::string& a_name, const ClassMap& a,
                                                     const std::string& b_name, const ClassMap& b);

}  // namespace nbx::switching
