#include "nccl-glue/net-plugin/settings.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "base/unique_fd.hpp"

namespace nbx::nccl::plugin {

namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string{} : std::string{value};
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream list(text);
  for (std::string word; std::getline(list, word, ',');) {
    words.push_back(word);
  }
  return words;
}

/// The variable when it is set; -1 is NCCL's own way to say that it is not.
Result<std::optional<int>> number(const char* name, int most) {
  const std::string text = environment(name);
  if (text.empty() || text == "-1") {
    return std::optional<int>{};
  }
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0 || value > most) {
    return Error{std::string{name} + "=" + text + ": a number from 0 to " + std::to_string(most) + " is expected"};
  }
  return std::optional<int>{value};
}

/// "2.29.7" as 22907.
std::optional<int> version_code(const std::string& text) {
  int major = 0;
  int minor = 0;
  int patch = 0;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%d.%d.%d%c", &major, &minor, &patch, &rest) != 3) {
    return std::nullopt;
  }
  return major * 10000 + minor * 100 + patch;
}

// ---- interfaces

struct AddressEntry {
  std::string name;
  unsigned flags = 0;
  IpAddress address;
};

std::vector<AddressEntry> system_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return {};
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<AddressEntry> entries;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) {
      continue;
    }
    AddressEntry found{.name = entry->ifa_name, .flags = entry->ifa_flags, .address = {}};
    if (entry->ifa_addr->sa_family == AF_INET) {
      sockaddr_in address{};
      std::memcpy(&address, entry->ifa_addr, sizeof address);
      found.address = IpAddress::v4(ntohl(address.sin_addr.s_addr));
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      sockaddr_in6 address{};
      std::memcpy(&address, entry->ifa_addr, sizeof address);
      std::memcpy(found.address.octets.data(), &address.sin6_addr, found.address.octets.size());
    } else {
      continue;
    }
    if (!found.address.is_link_local_v6()) {
      entries.push_back(found);
    }
  }
  // IPv4 first, as NET/IB prefers it among the GIDs of a port.
  std::stable_partition(entries.begin(), entries.end(), [](const AddressEntry& e) { return e.address.is_v4(); });
  return entries;
}

std::uint32_t mtu_of(const std::string& name) {
  const UniqueFd socket{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  ifreq request{};
  name.copy(static_cast<char*>(request.ifr_name), IFNAMSIZ - 1);
  constexpr std::uint32_t ethernet = 1500;
  return ioctl(socket.get(), SIOCGIFMTU, &request) == 0 ? static_cast<std::uint32_t>(request.ifr_mtu) : ethernet;
}

std::uint32_t speed_of(const std::string& name) {
  constexpr std::uint32_t unknown = 10'000;
  std::ifstream file("/sys/class/net/" + name + "/speed");
  int speed = 0;
  return file >> speed && speed > 0 ? static_cast<std::uint32_t>(speed) : unknown;
}

Interface describe(const AddressEntry& entry) {
  std::error_code error;
  const std::filesystem::path device = "/sys/class/net/" + entry.name + "/device";
  const std::filesystem::path real = std::filesystem::canonical(device, error);
  return {.name = entry.name,
          .address = entry.address,
          .mtu = mtu_of(entry.name),
          .speed_mbps = speed_of(entry.name),
          .pci_path = error ? std::string{} : real.string()};
}

/// Whether NCCL_SOCKET_IFNAME selects `name`: a list of prefixes, of names after "=", of exclusions after "^".
bool selected(const std::string& pattern, const std::string& name) {
  const bool exclude = pattern.starts_with('^');
  std::string list = exclude ? pattern.substr(1) : pattern;
  const bool exact = list.starts_with('=');
  list = exact ? list.substr(1) : list;
  const std::vector<std::string> words = split(list);
  const bool listed = std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return exact ? name == word : name.starts_with(word);
  });
  return listed != exclude;
}

const AddressEntry* automatic(const std::vector<AddressEntry>& entries) {
  const std::string pattern = environment("NCCL_SOCKET_IFNAME");
  const auto wanted = [&](const AddressEntry& entry) {
    if (!pattern.empty()) {
      return selected(pattern, entry.name);
    }
    return (entry.flags & IFF_LOOPBACK) == 0 && !entry.name.starts_with("docker") && !entry.name.starts_with("virbr");
  };
  auto found = std::find_if(entries.begin(), entries.end(), wanted);
  if (found == entries.end() && pattern.empty()) {
    found = entries.begin();
  }
  return found == entries.end() ? nullptr : &*found;
}

}  // namespace

Result<Settings> read_settings(int version_code_of_library) {
  int code = version_code_of_library;
  if (const std::string text = environment("NBX_NCCL_VERSION"); !text.empty()) {
    const std::optional<int> given = version_code(text);
    if (!given) {
      return Error{"NBX_NCCL_VERSION=" + text + ": a release like 2.29.7 is expected"};
    }
    code = *given;
  }
  const auto version = find_version(code, true);
  if (!version) {
    return version.error();
  }
  Settings settings;
  settings.version = *version;
  constexpr int without_dynamic_gid = 22300;  // the release that raised the time-out
  settings.timeout = code < without_dynamic_gid ? 18 : 20;
  std::optional<Error> wrong;
  const auto take = [&wrong](const char* name, int most, auto& into) {
    const auto value = number(name, most);
    if (!value) {
      wrong = value.error();
    } else if (*value) {
      into = static_cast<std::uint8_t>(**value);
    }
  };
  std::uint8_t qps = 1;
  std::uint8_t split_data = 0;
  take("NCCL_IB_TIMEOUT", 31, settings.timeout);
  take("NCCL_IB_RETRY_CNT", 7, settings.retry_cnt);
  take("NCCL_IB_QPS_PER_CONNECTION", 128, qps);
  take("NCCL_IB_SPLIT_DATA_ON_QPS", 1, split_data);
  take("NCCL_IB_TC", 255, settings.traffic_class);
  take("NCCL_IB_SL", 15, settings.service_level);
  take("NCCL_IB_FIFO_TC", 255, settings.fifo_traffic_class);
  const auto window = number("NBX_NET_WINDOW", UINT16_MAX);
  if (!window) {
    return window.error();
  }
  settings.window = static_cast<std::uint16_t>((*window).value_or(0));
  if (wrong) {
    return *wrong;
  }
  settings.qps_per_connection = std::max<std::uint32_t>(qps, 1);
  settings.split_data_on_qps = split_data != 0;
  return settings;
}

Result<std::vector<Interface>> find_interfaces() {
  const std::vector<AddressEntry> entries = system_addresses();
  const std::string list = environment("NBX_NET_INTERFACE");
  if (list.empty()) {
    const AddressEntry* entry = automatic(entries);
    if (entry == nullptr) {
      return Error{"no interface is up and matches NCCL_SOCKET_IFNAME=" + environment("NCCL_SOCKET_IFNAME")};
    }
    return std::vector{describe(*entry)};
  }
  std::vector<Interface> interfaces;
  for (const std::string& word : split(list)) {
    const std::optional<IpAddress> address = parse_ip(word);
    const auto entry = std::find_if(entries.begin(), entries.end(), [&](const AddressEntry& e) {
      return address ? e.address == *address : e.name == word;
    });
    if (entry != entries.end()) {
      interfaces.push_back(describe(*entry));
    } else if (address && address->is_v4() && address->v4_value() >> 24U == 127) {
      // All of 127.0.0.0/8 is the host's, listed or not.
      interfaces.push_back(
          {.name = word, .address = *address, .mtu = mtu_of("lo"), .speed_mbps = speed_of("lo"), .pci_path = {}});
    } else {
      return Error{"NBX_NET_INTERFACE=" + list + ": no interface that is up has the name or address " + word};
    }
  }
  return interfaces;
}

}  // namespace nbx::nccl::plugin
