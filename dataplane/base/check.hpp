// Invariants of our own code. A peer's packet or a user's file never reaches one of these.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace nbx {

[[noreturn]] inline void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: internal error: %s does not hold\n", file, line, condition);
  std::abort();
}

}  // namespace nbx

#define NBX_CHECK(condition)                               \
  do {                                                     \
    if (!(condition)) {                                    \
      ::nbx::check_failed(#condition, __FILE__, __LINE__); \
    }                                                      \
  } while (false)
