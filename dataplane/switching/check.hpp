// What is wrong with a network, in words with the arithmetic, before it is built. Cold.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "switching/network.hpp"

namespace nbx::switching {

struct Finding {
  bool fatal = false;  // else: legal, and hardly meant
  std::string text;
};

/// `max_frame_bytes`: the largest Packet::size that will be sent.
[[nodiscard]] std::vector<Finding> check(const Topology& topology, const NetworkSpec& spec,
                                         std::uint32_t max_frame_bytes);

}  // namespace nbx::switching
