#include "import/import.hpp"

#include <algorithm>

namespace nbx::import {

bool Imported::ok() const {
  return std::none_of(diagnostics.begin(), diagnostics.end(),
                      [](const auto& diagnostic) { return diagnostic.severity == config::Severity::error; });
}

}  // namespace nbx::import
