// The yardstick: DPDK's testpmd forwarding between two null devices in one of its own modes.
#pragma once

#include <string>

#include "base/result.hpp"

namespace nbx::bench {

/// Packets a second and core that testpmd forwards in `mode` (io, 5tswap). Takes about four seconds.
Result<double> testpmd_rate(const std::string& mode, unsigned frame_bytes);

}  // namespace nbx::bench
