// Values of a file that another one, or a command line, says anew: by the way to them, as `network.host_rate` or
// `ports.0.profile.both.loss`. Items of a list have their number, from 0, or their name.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config/document.hpp"

namespace nbx::config {

/// Puts `value` where `path` leads from `root`; keys that are not there are added, for the reader to judge. `skip` is
/// how much of the path has been followed. False, with a diagnostic, when it leads nowhere.
bool change(Value& root, const Located<std::string>& path, std::size_t skip, const Value& value, Diagnostics& out);

/// What the KEY=VALUEs of a command say together: keys by the way to them, values in YAML. In diagnostics a key stands
/// for the file of its value.
[[nodiscard]] Value tree_of(const std::vector<std::pair<std::string, std::string>>& values, Diagnostics& out);

}  // namespace nbx::config
