// What `nbx run` (or the user) says through the environment.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "nccl-glue/announce/protocol.hpp"

namespace nbx::nccl::announce {

struct Settings {
  std::string host;  // NBX_ANNOUNCE=HOST:PORT; empty: the library passes every call on and says nothing
  std::string port;
  std::chrono::milliseconds timeout{10'000};  // NBX_ANNOUNCE_TIMEOUT, seconds
  bool inflate = false;                       // NBX_MODE=inflate
  std::int32_t ranks = 0;                     // NBX_RANKS: of the world with its ghosts; inflate only
  std::vector<std::int32_t> rank_map;         // NBX_RANK_MAP=0,4: the program's rank k is rank_map[k] of the world
  bool mirror = false;                        // NBX_MIRROR=1
  std::int32_t real_ranks = 0;                // NBX_REAL_RANKS: of the world; mirror only
};

[[nodiscard]] Result<Settings> settings_from_environment();
[[nodiscard]] Variables nccl_variables();

}  // namespace nbx::nccl::announce
