// A scenario: a cluster, a job, what is changed of them, what goes wrong, and what has to hold all the same.
#pragma once

#include <string>
#include <vector>

#include "config/assertion.hpp"
#include "config/cluster.hpp"
#include "config/document.hpp"
#include "config/job.hpp"
#include "config/keys.hpp"

namespace nbx::config {

/// The path of a file, relative to the one where it stands, or the keys of such a file.
struct FileOrKeys {
  Value value;
};

/// Values by the way to them, which begins with `cluster`, `job` or `profile`, the profile of the first port.
struct Changes {
  std::vector<Entry> entries;
};

struct Scenario {
  std::string name;
  std::string description;
  FileOrKeys cluster;
  FileOrKeys job;
  Changes changes;
  Changes faults;
  std::vector<Assertion> assertions;
  Duration limit = std::chrono::minutes{1440};
};

struct LoadedScenario {
  Scenario scenario;
  ClusterConfig cluster;
  Job job;
  // Without the faults.
  ClusterConfig baseline_cluster;
  Job baseline_job;
  Diagnostics diagnostics;
  Diagnostics warnings;

  [[nodiscard]] bool ok() const { return diagnostics.empty(); }
};

/// Reads and checks a scenario with everything that it names. `more` counts as further faults: of a sweep.
[[nodiscard]] LoadedScenario load_scenario(const std::string& path, const Changes& more = {});
/// "PATH=VALUE" of a command line; `option` stands for the file in diagnostics.
[[nodiscard]] Changes parse_changes(const std::string& option,
                                    const std::vector<std::pair<std::string, std::string>>& values, Diagnostics& out);

template <>
struct Raw<FileOrKeys> {
  static std::string type();
  static Json schema();
  static void read(const Value& value, FileOrKeys& target, Diagnostics& out);
};
template <>
struct Raw<Changes> {
  static std::string type();
  static Json schema();
  static void read(const Value& value, Changes& target, Diagnostics& out);
};
template <>
struct Raw<Assertion> {
  static std::string type();
  static Json schema();
  static void read(const Value& value, Assertion& target, Diagnostics& out);
};

}  // namespace nbx::config
