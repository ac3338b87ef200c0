// What NCCL's ghost ranks did, as tables narrow enough to read.
#pragma once

#include <nlohmann/json.hpp>

namespace nbx::report {

/// `nccl` is the document that /nccl answers. The latest operations and steps; times in milliseconds.
[[nodiscard]] nlohmann::ordered_json nccl_tables(const nlohmann::ordered_json& nccl);

}  // namespace nbx::report
