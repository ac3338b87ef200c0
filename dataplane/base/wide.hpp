// 128-bit arithmetic, which ISO C++ does not name.
#pragma once

namespace nbx {

__extension__ typedef unsigned __int128 uint128;  // NOLINT(modernize-use-using): __extension__ needs a typedef
__extension__ typedef __int128 int128;            // NOLINT(modernize-use-using)

}  // namespace nbx
