// A capture's filter as machine code: classic BPF, converted and compiled by DPDK's rte_bpf.
#pragma once

#include <memory>
#include <string>

#include "base/result.hpp"
#include "capture/filter.hpp"

namespace nbx::port {

/// A filter for one worker, or null when the expression is empty: every frame. The EAL must have been started.
[[nodiscard]] Result<std::unique_ptr<capture::Filter>> make_jit_filter(const std::string& expression);

}  // namespace nbx::port
