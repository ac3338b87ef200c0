// An option whose value is written as in files: a time, a rate.
#pragma once

#include <iostream>
#include <optional>
#include <string>

#include "config/scalar.hpp"

namespace nbx::cli {

/// nullopt: it is none, and the user has been told.
template <class T>
std::optional<T> quantity(const char* command, const char* option, const std::string& text) {
  Result<T> parsed = config::Scalar<T>::parse({text});
  if (!parsed) {
    std::cerr << "nbx " << command << ": " << option << ": " << parsed.error().message << '\n';
    return std::nullopt;
  }
  return *parsed;
}

}  // namespace nbx::cli
