// What stops a host from line rate, read from /proc and /sys, each with its fix.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace nbx::doctor {

enum class Verdict : std::uint8_t {
  fine,
  slow,     // nbxd runs, not as fast or as evenly as it could
  missing,  // nbxd does not start on a NIC, or its times are wrong
};
[[nodiscard]] const char* name(Verdict verdict);

struct Finding {
  std::string about;  // "hugepages", "NIC eth0: driver"
  Verdict verdict = Verdict::fine;
  std::string found;
  std::string fix;  // empty when there is nothing to do
};

/// Everything about the host whose /proc and /sys are below `root`. What cannot be read is taken as absent; no errors.
[[nodiscard]] std::vector<Finding> examine(const std::filesystem::path& root = "/");

}  // namespace nbx::doctor
