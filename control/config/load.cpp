#include "config/load.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "config/checks.hpp"
#include "config/cluster_keys.hpp"
#include "config/nic.hpp"
#include "config/reader.hpp"

namespace nbx::config {
namespace {

namespace fs = std::filesystem;

template <class T>
void inherit(std::optional<T>& own, const std::optional<T>& from) {
  if (!own) {
    own = from;
  }
}
void inherit(Direction& own, const Direction& from) {
  inherit(own.loss, from.loss);
  inherit(own.corrupt, from.corrupt);
  inherit(own.duplicate, from.duplicate);
  inherit(own.ecn, from.ecn);
  inherit(own.rate, from.rate);
  inherit(own.delay, from.delay);
  inherit(own.reorder, from.reorder);
  inherit(own.delay_line_frames, from.delay_line_frames);
}
void inherit_direction(std::optional<Direction>& own, const std::optional<Direction>& from) {
  if (own && from) {
    inherit(*own, *from);
  } else {
    inherit(own, from);
  }
}

/// Names of the files, without `.yaml`, sorted.
std::vector<std::string> yaml_files_of(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".yaml") {
      names.push_back(entry.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool is_path(const std::string& name) { return name.find('/') != std::string::npos || name.ends_with(".yaml"); }

/// The file that a word stands for: a path, or the name of a shipped one. Empty, with a diagnostic, when there is none.
std::string find_file(const Located<std::string>& name, const std::string& what, const std::string& folder,
                      const std::vector<std::string>& shipped, Diagnostics& out) {
  if (is_path(*name)) {
    std::string path = beside(name);
    if (fs::is_regular_file(path)) {
      return path;
    }
    out.push_back({name.pos, "there is no file '" + path + "'"});
    return {};
  }
  if (std::find(shipped.begin(), shipped.end(), *name) != shipped.end()) {
    return (fs::path(folder) / (*name + ".yaml")).string();
  }
  out.push_back({name.pos, "no shipped " + what + " is called '" + *name + "'" + did_you_mean(*name, shipped) +
                               (shipped.empty() ? " (none found in '" + folder + "')" : "")});
  return {};
}

/// Resolves what profiles extend; `chain` are the files on the way, to end circles.
class ProfileLoader {
 public:
  explicit ProfileLoader(Diagnostics& out) : out_(out) {}

  Profile load(const std::string& path) {
    Profile profile;
    if (const std::optional<Value> document = read_document(path, out_)) {
      read(*document, profile, {}, out_);
    }
    if (profile.name.empty()) {
      profile.name = fs::path(path).stem().string();
    }
    chain_.push_back(path);
    resolve(profile);
    chain_.pop_back();
    return profile;
  }

  /// Fills in everything that `profile` inherits.
  void resolve(Profile& profile) {
    if (profile.both) {
      inherit_direction(profile.from_node, profile.both);
      inherit_direction(profile.to_node, profile.both);
      profile.both.reset();
    }
    if (!profile.extends) {
      return;
    }
    const Located<std::string> name = *profile.extends;
    profile.extends.reset();
    const std::string path = find(name);
    if (path.empty()) {
      return;
    }
    if (std::find(chain_.begin(), chain_.end(), path) != chain_.end()) {
      out_.push_back({name.pos, "'" + *name + "' extends itself"});
      return;
    }
    const Profile base = load(path);
    if (profile.name.empty()) {
      profile.name = base.name;
    }
    inherit(profile.verify_icrc, base.verify_icrc);
    inherit(profile.events, base.events);
    inherit(profile.failures, base.failures);
    inherit_direction(profile.from_node, base.from_node);
    inherit_direction(profile.to_node, base.to_node);
  }

 private:
  std::string find(const Located<std::string>& name) {
    return find_file(name, "profile", shipped_profiles_folder(), shipped_profiles(), out_);
  }

  Diagnostics& out_;
  std::vector<std::string> chain_;
};

IpAddress plus(IpAddress ip, std::uint32_t n) {
  for (std::size_t i = ip.octets.size(); i-- > 0 && n != 0;) {
    n += ip.octets[i];
    ip.octets[i] = static_cast<std::uint8_t>(n);
    n >>= 8U;
  }
  return ip;
}
Mac plus(Mac mac, std::uint32_t n) {
  for (std::size_t i = mac.octets.size(); i-- > 0 && n != 0;) {
    n += mac.octets[i];
    mac.octets[i] = static_cast<std::uint8_t>(n);
    n >>= 8U;
  }
  return mac;
}

bool same_network(const IpAddress& a, const IpAddress& b, std::uint8_t prefix) {
  const unsigned bits = prefix + (a.is_v4() ? 96U : 0U);
  for (unsigned i = 0; i < bits; ++i) {
    const auto bit = static_cast<std::uint8_t>(0x80U >> (i % 8));
    if (((a.octets[i / 8] ^ b.octets[i / 8]) & bit) != 0) {
      return false;
    }
  }
  return true;
}

/// One ghost per unit of count, each with a MAC.
std::vector<Ghost> expand(std::vector<Ghost> ghosts, Diagnostics& out) {
  constexpr std::size_t ghosts_max = 65536;
  constexpr Mac first_mac{{0x02, 0x4e, 0x42, 0, 0, 0}};  // locally administered, "NB"
  std::vector<Ghost> all;
  for (Ghost& ghost : ghosts) {
    const std::uint32_t count = ghost.count ? **ghost.count : 1;
    for (const Located<Subnet>& address : ghost.addresses) {
      if (!same_network(address->ip, plus(address->ip, count - 1), address->prefix)) {
        out.push_back({address.pos, std::to_string(count) + " addresses from '" + Scalar<Subnet>::format(*address) +
                                        "' leave the network"});
      }
    }
    if (all.size() + count > ghosts_max) {
      out.push_back({ghost.name.pos, "more than " + std::to_string(ghosts_max) + " ghosts"});
      break;
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      Ghost one = ghost;
      one.group = *ghost.name;
      if (ghost.count) {
        *one.name += std::to_string(i);
        one.count.reset();
      }
      if (one.mac) {
        *one.mac = {plus(**one.mac, i), one.mac->pos};
      } else {
        one.mac = Located<Mac>{plus(first_mac, static_cast<std::uint32_t>(all.size())), one.name.pos};
      }
      for (Located<Subnet>& address : one.addresses) {
        address->ip = plus(address->ip, i);
      }
      all.push_back(std::move(one));
    }
  }
  return all;
}

void read_file(FileBytes& file, Diagnostics& out) {
  if (!file.path.given()) {
    return;
  }
  const std::string path = beside(file.path);
  std::ifstream in(path, std::ios::binary);
  if (!in || !fs::is_regular_file(path)) {
    out.push_back({file.path.pos, "cannot read '" + path + "'"});
    return;
  }
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto bytes = std::as_bytes(std::span(text));
  file.bytes.assign(bytes.begin(), bytes.end());
}

template <class Bytes>
void read_file_of(std::optional<Located<Bytes>>& bytes, Diagnostics& out) {
  if (bytes) {
    if (auto* file = std::get_if<FileBytes>(&bytes->value)) {
      read_file(*file, out);
    }
  }
}

void complete_nccl(Nccl& nccl, Diagnostics& out) {
  if (nccl.file) {
    FileBytes file{.path = *nccl.file, .bytes = {}};
    read_file(file, out);
    nccl.options.file = std::move(file.bytes);
  }
  if (nccl.library) {
    nccl.options.delay.library = beside(*nccl.library);
  }
  if (nccl.ranks) {
    nccl.options.ranks = **nccl.ranks;
  }
  for (const auto& rank : nccl.real) {
    nccl.options.real_ranks.push_back(*rank);
  }
  nccl.options.ranks_per_node = *nccl.ranks_per_node;
}

void complete_nic(Ghost& ghost, Diagnostics& out) {
  if (!ghost.nic || !ghost.nic->given()) {
    return;
  }
  const std::string path = find_file(*ghost.nic, "NIC", shipped_nics_folder(), shipped_nics(), out);
  if (!path.empty()) {
    LoadedNic loaded = load_nic(path);
    out.insert(out.end(), loaded.diagnostics.begin(), loaded.diagnostics.end());
    ghost.behaviour = loaded.nic.behaviour;
  }
}

/// Adds to what the file says what it leaves to us.
void complete(ClusterConfig& config, Diagnostics& out) {
  ProfileLoader profiles(out);
  for (Port& port : config.ports) {
    profiles.resolve(port.profile);
  }
  for (Ghost& ghost : config.ghosts) {
    if (!ghost.port.given() && config.ports.size() == 1) {
      ghost.port = {*config.ports.front().name, ghost.name.pos};
    }
    complete_nic(ghost, out);
    for (Region& region : ghost.memory) {
      read_file_of(region.content, out);
    }
    for (Located<Listener>& listener : ghost.listen) {
      read_file_of(listener->private_data, out);
    }
  }
  config.ghosts = expand(std::move(config.ghosts), out);
  if (config.network) {
    config.network->hosts = static_cast<std::uint32_t>(config.ghosts.size() + config.ports.size());
    if (config.ports.size() > 1 && !config.one_worker.given()) {
      config.one_worker.value = true;
    }
  }
  if (config.nccl) {
    complete_nccl(*config.nccl, out);
  }
}

void read_cluster(const std::string& file, const std::optional<Value>& document, Loaded& loaded) {
  loaded.config.file = file;
  if (document) {
    read(*document, loaded.config, {}, loaded.diagnostics);
    complete(loaded.config, loaded.diagnostics);
    check_cluster(loaded.config, loaded.diagnostics, loaded.warnings);
  }
  sort(loaded.diagnostics);
  sort(loaded.warnings);
}

}  // namespace

std::string beside(const Located<std::string>& path) {
  return (fs::path(*path.pos.file).parent_path() / *path).lexically_normal().string();
}

Loaded cluster_of(const std::string& file, const std::optional<Value>& document) {
  Loaded loaded;
  read_cluster(file, document, loaded);
  return loaded;
}

Loaded load_cluster(const std::string& path) {
  Loaded loaded;
  read_cluster(path, read_document(path, loaded.diagnostics), loaded);
  return loaded;
}

Loaded parse_cluster(const std::string& name, const std::string& text) {
  Loaded loaded;
  read_cluster(name, parse_document(name, text, loaded.diagnostics), loaded);
  return loaded;
}

LoadedProfile load_profile(const std::string& path_or_name) {
  LoadedProfile loaded;
  const std::vector<std::string> shipped = shipped_profiles();
  const bool by_name = std::find(shipped.begin(), shipped.end(), path_or_name) != shipped.end();
  ProfileLoader profiles(loaded.diagnostics);
  loaded.profile =
      profiles.load(by_name ? (fs::path(shipped_profiles_folder()) / (path_or_name + ".yaml")).string() : path_or_name);
  sort(loaded.diagnostics);
  return loaded;
}

LoadedProfile change_profile(const Profile& current, const std::string& name, const std::string& text) {
  Diagnostics wrong;
  const std::optional<Value> document = parse_document(name, text, wrong);
  LoadedProfile changed =
      document ? change_profile(current, *document) : LoadedProfile{.profile = current, .diagnostics = {}};
  changed.diagnostics.insert(changed.diagnostics.end(), wrong.begin(), wrong.end());
  sort(changed.diagnostics);
  return changed;
}

LoadedProfile change_profile(const Profile& current, const Value& keys) {
  LoadedProfile changed;
  read(keys, changed.profile, {}, changed.diagnostics);
  ProfileLoader(changed.diagnostics).resolve(changed.profile);
  if (changed.profile.name.empty()) {
    changed.profile.name = current.name;
  }
  inherit(changed.profile.verify_icrc, current.verify_icrc);
  inherit(changed.profile.events, current.events);
  inherit(changed.profile.failures, current.failures);
  inherit_direction(changed.profile.from_node, current.from_node);
  inherit_direction(changed.profile.to_node, current.to_node);
  sort(changed.diagnostics);
  return changed;
}

Loaded with_part(const ClusterConfig& current, NetworkPart part, const std::string& port, const Value& keys) {
  Loaded loaded{.config = current, .diagnostics = {}, .warnings = {}};
  if (!loaded.config.network) {
    loaded.diagnostics.push_back({keys.pos, "there is no emulated network"});
    return loaded;
  }
  Network& network = *loaded.config.network;
  network.storm.reset();
  network.slow_receivers.clear();
  loaded.config.traffic.clear();
  switch (part) {
    case NetworkPart::storm:
      read(keys, network.storm.emplace(), {}, loaded.diagnostics);
      (*network.storm)->port = {port, keys.pos};
      break;
    case NetworkPart::slow_receiver:
      read(keys, network.slow_receivers.emplace_back(), {}, loaded.diagnostics);
      break;
    case NetworkPart::traffic:
      read(keys, loaded.config.traffic.emplace_back(), {}, loaded.diagnostics);
      break;
  }
  check_cluster(loaded.config, loaded.diagnostics, loaded.warnings);
  sort(loaded.diagnostics);
  return loaded;
}

FileKind file_kind(const std::string& path, Diagnostics& out) {
  const std::optional<Value> document = read_document(path, out);
  if (!document) {
    return FileKind::unknown;
  }
  const auto has_any = [&](std::initializer_list<const char*> keys) {
    return std::any_of(keys.begin(), keys.end(), [&](const char* key) { return document->find(key) != nullptr; });
  };
  if (has_any({"scenario", "assert"})) {
    return FileKind::scenario;
  }
  if (has_any({"job", "each_step"})) {
    return FileKind::job;
  }
  if (has_any({"cluster", "ports", "nodes", "ghosts", "nccl"})) {
    return FileKind::cluster;
  }
  if (has_any({"nic"})) {
    return FileKind::nic;
  }
  if (has_any(
          {"both", "from_node", "to_node", "extends", "description", "verify_icrc", "name", "events", "failures"})) {
    return FileKind::profile;
  }
  out.push_back({document->pos,
                 "neither a cluster file ('cluster', 'ports', 'ghosts') nor a profile ('from_node', 'to_node', 'both', "
                 "'extends') nor a job ('job', 'each_step') nor a scenario ('scenario', 'assert')"});
  return FileKind::unknown;
}

std::string shipped_profiles_folder() {
  if (const char* folder = std::getenv("NBX_PROFILES"); folder != nullptr && *folder != '\0') {
    return folder;
  }
  return fs::is_directory(NBX_SOURCE_PROFILES) ? NBX_SOURCE_PROFILES : NBX_INSTALLED_PROFILES;
}

std::vector<std::string> shipped_profiles() { return yaml_files_of(shipped_profiles_folder()); }

std::string shipped_nics_folder() { return shipped_profiles_folder() + "/nics"; }
std::vector<std::string> shipped_nics() { return yaml_files_of(shipped_nics_folder()); }

}  // namespace nbx::config
