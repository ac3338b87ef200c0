// Any frame as one line of text, for logs, test failures and nbx inspect. Never on the fast path.
#pragma once

#include <string>

#include "base/bytes.hpp"
#include "wire/parse.hpp"

namespace nbx::wire {

/// Describes `frame` as parse() with every check on understands it; a malformed one ends in "!" and the reason.
[[nodiscard]] std::string format(ConstBytes frame);
/// The same of a frame that was parsed before.
[[nodiscard]] std::string format(ConstBytes frame, const Parsed& p, Drop verdict);

}  // namespace nbx::wire
