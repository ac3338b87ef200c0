#include "port/xdp_steering.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <net/if.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "port/xdp/keys.h"

// The object file that clang made of steer.bpf.c, by the names that the linker gives it.
extern "C" const char _binary_nbx_steer_elf_start[];
extern "C" const char _binary_nbx_steer_elf_end[];

namespace nbx::port {
namespace {

Error system_error(const std::string& what) { return {what + ": " + std::strerror(errno)}; }

/// The map of that name which the program uses.
UniqueFd find_map(int program, std::string_view name) {
  std::array<__u32, 8> ids{};
  bpf_prog_info info{};
  info.nr_map_ids = ids.size();
  info.map_ids = reinterpret_cast<std::uintptr_t>(ids.data());
  __u32 size = sizeof info;
  if (bpf_obj_get_info_by_fd(program, &info, &size) != 0) {
    return UniqueFd{};
  }
  for (__u32 i = 0; i < info.nr_map_ids && i < ids.size(); ++i) {
    UniqueFd map{bpf_map_get_fd_by_id(ids[i])};
    bpf_map_info found{};
    size = sizeof found;
    if (map && bpf_obj_get_info_by_fd(map.get(), &found, &size) == 0 && found.name == name) {
      return map;
    }
  }
  return UniqueFd{};
}

/// The id of the XDP program of an interface; 0: none.
__u32 program_on(const std::string& interface) {
  __u32 id = 0;
  const int index = static_cast<int>(if_nametoindex(interface.c_str()));
  return bpf_xdp_query_id(index, 0, &id) == 0 ? id : 0;
}

std::optional<Mac> mac_of(const std::string& interface) {
  std::ifstream file("/sys/class/net/" + interface + "/address");
  std::string text;
  file >> text;
  return parse_mac(text);
}

}  // namespace

std::optional<std::string> xdp_interface(std::string_view device) {
  constexpr std::string_view driver = "net_af_xdp";
  constexpr std::string_view key = ",iface=";
  const std::size_t at = device.find(key);
  if (!device.starts_with(driver) || at == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view rest = device.substr(at + key.size());
  return std::string(rest.substr(0, rest.find(',')));
}

Result<XdpProgram> XdpProgram::create_for(const std::string& interface) {
  if (program_on(interface) != 0) {
    return Error{"an XDP program runs on interface '" + interface +
                 "' already, of another program or left by an nbxd that was killed; ip link set dev " + interface +
                 " xdp off removes it"};
  }
  XdpProgram program;
  program.file_ = UniqueFd{memfd_create("nbx-xdp", MFD_CLOEXEC)};
  const auto size = static_cast<std::size_t>(_binary_nbx_steer_elf_end - _binary_nbx_steer_elf_start);
  if (!program.file_ || write(program.file_.get(), _binary_nbx_steer_elf_start, size) != static_cast<ssize_t>(size)) {
    return system_error("cannot make a file for the XDP program");
  }
  program.path_ = "/proc/self/fd/" + std::to_string(program.file_.get());
  return program;
}

std::optional<Error> steer(const std::string& interface, std::span<const IpAddress> ghosts) {
  if (ghosts.size() > NBX_XDP_GHOSTS_MAX) {
    return Error{"an XDP port serves at most " + std::to_string(NBX_XDP_GHOSTS_MAX) + " addresses of ghosts, not " +
                 std::to_string(ghosts.size())};
  }
  const auto own = mac_of(interface);
  if (!own) {
    return Error{"interface '" + interface + "' has no MAC address"};
  }
  const UniqueFd program{bpf_prog_get_fd_by_id(program_on(interface))};
  const UniqueFd addresses = find_map(program.get(), "nbx_ghosts");
  const UniqueFd own_mac = find_map(program.get(), "nbx_own_mac");
  if (!addresses || !own_mac) {
    return Error{"the XDP program of interface '" + interface + "' is not ours"};
  }
  for (const IpAddress& ghost : ghosts) {
    const __u8 present = 1;
    static_assert(sizeof ghost.octets == sizeof(nbx_xdp_address));
    if (bpf_map_update_elem(addresses.get(), ghost.octets.data(), &present, BPF_ANY) != 0) {
      return system_error("cannot tell the XDP program of " + to_string(ghost));
    }
  }
  nbx_xdp_mac mac{.bytes = {}, .set = 1, .pad = 0};
  std::memcpy(mac.bytes, own->octets.data(), sizeof mac.bytes);
  const __u32 first = 0;
  if (bpf_map_update_elem(own_mac.get(), &first, &mac, BPF_ANY) != 0) {
    return system_error("cannot tell the XDP program the MAC of '" + interface + "'");
  }
  return std::nullopt;
}

}  // namespace nbx::port
