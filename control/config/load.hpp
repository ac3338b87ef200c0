// Files in, checked values and diagnostics out. A value without diagnostics is fit for control/plan.
#pragma once

#include <string>
#include <vector>

#include "config/cluster.hpp"
#include "config/document.hpp"
#include "config/source.hpp"

namespace nbx::config {

struct Loaded {
  ClusterConfig config;
  Diagnostics diagnostics;
  Diagnostics warnings;  // legal, and hardly meant

  [[nodiscard]] bool ok() const { return diagnostics.empty(); }
};
struct LoadedProfile {
  Profile profile;  // nothing left to inherit
  Diagnostics diagnostics;

  [[nodiscard]] bool ok() const { return diagnostics.empty(); }
};

/// Reads and checks a cluster file with everything that it names.
[[nodiscard]] Loaded load_cluster(const std::string& path);
/// The same of a text; `name` stands for its file, in diagnostics and for what it names beside it.
[[nodiscard]] Loaded parse_cluster(const std::string& name, const std::string& text);
/// The same of what `file` holds: nothing, or a tree.
[[nodiscard]] Loaded cluster_of(const std::string& file, const std::optional<Value>& document);
/// Reads a profile: a path, or the name of a shipped one. What needs a cluster is left to check_profile (checks.hpp).
[[nodiscard]] LoadedProfile load_profile(const std::string& path_or_name);
/// `current` with what `text`, keys of a profile in YAML, says instead. `name` stands for a file in diagnostics.
[[nodiscard]] LoadedProfile change_profile(const Profile& current, const std::string& name, const std::string& text);
[[nodiscard]] LoadedProfile change_profile(const Profile& current, const Value& keys);

/// What a command starts in the emulated network.
enum class NetworkPart : std::uint8_t { storm, slow_receiver, traffic };
/// `current` with what `keys` say as its only such part.
[[nodiscard]] Loaded with_part(const ClusterConfig& current, NetworkPart part, const std::string& port,
                               const Value& keys);

enum class FileKind : std::uint8_t { unknown, cluster, profile, job, nic, scenario };
/// By the keys at its top; unknown, with a diagnostic, when it cannot be read or has keys of none.
[[nodiscard]] FileKind file_kind(const std::string& path, Diagnostics& out);

/// A path in a file is relative to that file.
[[nodiscard]] std::string beside(const Located<std::string>& path);

/// Where shipped profiles are: $NBX_PROFILES, the source tree, or the installed data.
[[nodiscard]] std::string shipped_profiles_folder();
[[nodiscard]] std::vector<std::string> shipped_profiles();
[[nodiscard]] std::string shipped_nics_folder();
[[nodiscard]] std::vector<std::string> shipped_nics();

}  // namespace nbx::config
