#include "doctor/doctor.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string_view>

namespace nbx::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t hugepages_wanted_mib = 608;  // the default memory.size, and 96 for DPDK itself
constexpr int mtu_wanted = 4200;                     // IB path MTU of 4096 bytes, and the headers of RoCEv2

/// NICs that DPDK 22.11 drives; `bifurcated`: the kernel keeps its driver meanwhile (DPDK, "Linux Drivers").
struct NicDriver {
  std::string_view name;
  bool bifurcated;
};
constexpr auto drivers = std::to_array<NicDriver>({{"mlx5_core", true},
                                                   {"mlx4_core", true},
                                                   {"mana", true},
                                                   {"ice", false},
                                                   {"i40e", false},
                                                   {"ixgbe", false},
                                                   {"bnxt_en", false},
                                                   {"ena", false},
                                                   {"virtio_net", false},
                                                   {"virtio-pci", false},
                                                   {"vmxnet3", false}});

/// The text of a file without its last newline; empty when there is none.
std::string read(const fs::path& path) {
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) {
    text.pop_back();
  }
  return text;
}

std::optional<std::int64_t> number(const fs::path& path) {
  const std::string text = read(path);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} ? std::optional{value} : std::nullopt;
}

/// Entries of a folder in the order of their names.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    found.push_back(at->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// The PCI device that a NIC is, or is a function of: "0000:3b:00.0".
std::string pci_address(const fs::path& device) {
  std::error_code error;
  for (fs::path at = fs::canonical(device, error); at.has_relative_path(); at = at.parent_path()) {
    const std::string name = at.filename();
    if (std::count(name.begin(), name.end(), ':') == 2 && name.find('.') != std::string::npos) {
      return name;
    }
  }
  return device;
}

std::string target_name(const fs::path& link) {
  std::error_code error;
  return fs::read_symlink(link, error).filename();
}

bool has_word(const std::string& text, std::string_view word) {
  std::istringstream words(text);
  return std::any_of(std::istream_iterator<std::string>(words), {}, [&](const std::string& w) { return w == word; });
}

class Examination {
 public:
  explicit Examination(fs::path root) : root_(std::move(root)) {}

  std::vector<Finding> run() {
    clock();
    crc();
    hugepages();
    cores();
    governor();
    iommu();
    nics();
    return std::move(findings_);
  }

 private:
  void add(std::string about, Verdict verdict, std::string found, std::string fix = {}) {
    findings_.push_back({std::move(about), verdict, std::move(found), verdict == Verdict::fine ? "" : std::move(fix)});
  }
  [[nodiscard]] fs::path at(const char* below) const { return root_ / below; }

  /// The value behind `key` in /proc/cpuinfo, of the first CPU.
  [[nodiscard]] std::string cpuinfo(std::string_view key) const {
    std::ifstream file(at("proc/cpuinfo"));
    for (std::string line; std::getline(file, line);) {
      const std::size_t colon = line.find(':');
      if (line.starts_with(key) && colon != std::string::npos) {
        return line.substr(colon + 1);
      }
    }
    return {};
  }

  void clock() {
    const std::string flags = cpuinfo("flags");
    if (flags.empty()) {
      return;  // not x86: the architecture's counter is constant
    }
    const bool steady = has_word(flags, "constant_tsc") && has_word(flags, "nonstop_tsc");
    add("time-stamp counter", steady ? Verdict::fine : Verdict::missing,
        steady ? "constant, never stops" : "changes its rate or stops in idle states",
        "delays are wrong on this CPU; use another host");
  }

  void crc() {
    const std::string flags = cpuinfo("flags");
    const bool wide = has_word(flags, "vpclmulqdq") && has_word(flags, "avx512f");
    const bool narrow = has_word(flags, "pclmulqdq");
    add("ICRC", wide ? Verdict::fine : Verdict::slow,
        wide     ? "carry-less multiplication, 512 bits at once (VPCLMULQDQ)"
        : narrow ? "carry-less multiplication, 128 bits at once"
                 : "by table",
        "a CPU with AVX-512 and VPCLMULQDQ computes it several times faster ('nbx bench --only icrc')");
  }

  void hugepages() {
    std::uint64_t total_mib = 0;
    std::uint64_t free_mib = 0;
    std::string sizes;
    for (const fs::path& size : entries(at("sys/kernel/mm/hugepages"))) {
      const std::string text = size.filename().string();  // hugepages-2048kB
      std::uint64_t kib = 0;
      const std::size_t dash = text.find('-');
      if (dash == std::string::npos) {
        continue;
      }
      std::from_chars(text.data() + dash + 1, text.data() + text.size(), kib);
      const auto pages = static_cast<std::uint64_t>(number(size / "nr_hugepages").value_or(0));
      total_mib += pages * kib / 1024;
      free_mib += static_cast<std::uint64_t>(number(size / "free_hugepages").value_or(0)) * kib / 1024;
      if (pages != 0) {
        sizes += (sizes.empty() ? "" : ", ") + std::to_string(pages) + " of " + std::to_string(kib / 1024) + " MiB";
      }
    }
    add("hugepages", free_mib >= hugepages_wanted_mib ? Verdict::fine : Verdict::missing,
        total_mib == 0 ? "none" : sizes + "; " + std::to_string(free_mib) + " MiB free",
        "sysctl vm.nr_hugepages=" + std::to_string(hugepages_wanted_mib / 2) +
            ", or hugepagesz=1G hugepages=4 on the kernel's command line");
  }

  void cores() {
    const std::string isolated = read(at("sys/devices/system/cpu/isolated"));
    const std::string online = read(at("sys/devices/system/cpu/online"));
    add("cores of their own", isolated.empty() ? Verdict::slow : Verdict::fine,
        (isolated.empty() ? "none isolated" : "isolated: " + isolated) + "; online: " + online,
        "isolcpus=, nohz_full= and rcu_nocbs= with one core per port on the kernel's command line: whatever else runs "
        "on "
        "a worker's core delays its packets");
  }

  void governor() {
    std::string others;
    bool known = false;
    for (const fs::path& cpu : entries(at("sys/devices/system/cpu"))) {
      const std::string governor = read(cpu / "cpufreq/scaling_governor");
      known = known || !governor.empty();
      if (!governor.empty() && governor != "performance") {
        others = governor;
      }
    }
    add("frequency governor", others.empty() ? Verdict::fine : Verdict::slow,
        !known           ? "not under this kernel's control"
        : others.empty() ? "performance"
                         : others,
        "cpupower frequency-set --governor performance");
  }

  void iommu() {
    const bool on = !entries(at("sys/class/iommu")).empty();
    const std::string options = read(at("proc/cmdline"));
    const bool direct = has_word(options, "iommu=pt");
    add("IOMMU", on && !direct ? Verdict::slow : Verdict::fine,
        !on      ? "off: vfio-pci works in its no-IOMMU mode only"
        : direct ? "on, with direct mapping for the kernel"
                 : "on, and the kernel's own transfers are translated too",
        "iommu=pt on the kernel's command line");
  }

  void nics() {
    bool any = false;
    for (const fs::path& nic : entries(at("sys/class/net"))) {
      if (fs::exists(nic / "device")) {
        any = true;
        nic_of_kernel(nic);
      }
    }
    for (const char* driver : {"vfio-pci", "uio_pci_generic", "igb_uio"}) {
      for (const fs::path& device : entries(at("sys/bus/pci/drivers") / driver)) {
        if (read(device / "class").starts_with("0x0200")) {  // PCI Code and ID Assignment: Ethernet controller
          any = true;
          add("NIC " + device.filename().string(), Verdict::fine, std::string("bound to ") + driver);
          width(device, "NIC " + device.filename().string());
        }
      }
    }
    if (!any) {
      add("NICs", Verdict::missing, "no NIC on a bus", "virtual devices work: docs/quickstart-without-a-nic.md");
    }
  }

  void nic_of_kernel(const fs::path& nic) {
    const std::string about = "NIC " + nic.filename().string();
    const std::string driver = target_name(nic / "device/driver");
    const auto known = std::find_if(drivers.begin(), drivers.end(), [&](const auto& d) { return d.name == driver; });
    const bool shared = known != drivers.end() && known->bifurcated;
    add(about + ": driver", shared ? Verdict::fine : Verdict::slow, driver.empty() ? "unknown" : driver,
        known == drivers.end()
            ? "DPDK has no driver for it: use net_af_packet or net_af_xdp as the port's device"
            : "dpdk-devbind.py --bind=vfio-pci " + pci_address(nic / "device") + ", when the port is to have it");
    for (const fs::path& rdma : entries(nic / "device/infiniband")) {
      if (const std::string firmware = read(rdma / "fw_ver"); !firmware.empty()) {
        add(about + ": firmware", Verdict::fine, rdma.filename().string() + " " + firmware);
      }
    }
    if (const auto mtu = number(nic / "mtu"); shared && mtu) {
      add(about + ": MTU", *mtu >= mtu_wanted ? Verdict::fine : Verdict::slow, std::to_string(*mtu),
          "ip link set " + nic.filename().string() + " mtu " + std::to_string(mtu_wanted) +
              ", for a path MTU of 4096 bytes");
    }
    if (const auto node = number(nic / "device/numa_node"); node && *node >= 0) {
      numa(about, static_cast<int>(*node));
    }
    width(nic / "device", about);
  }

  /// Whether there are hugepages where the NIC is.
  void numa(const std::string& about, int node) {
    const fs::path here = at("sys/devices/system/node") / ("node" + std::to_string(node));
    std::int64_t pages = 0;
    for (const fs::path& size : entries(here / "hugepages")) {
      pages += number(size / "free_hugepages").value_or(0);
    }
    add(about + ": NUMA node", pages > 0 ? Verdict::fine : Verdict::slow,
        std::to_string(node) + ", CPUs " + read(here / "cpulist") + (pages > 0 ? "" : ", no free hugepages there"),
        "echo 512 > /sys/devices/system/node/node" + std::to_string(node) +
            "/hugepages/hugepages-2048kB/nr_hugepages, and workers on its CPUs");
  }

  void width(const fs::path& device, const std::string& about) {
    const std::string now = read(device / "current_link_width");
    const std::string best = read(device / "max_link_width");
    const std::string speed = read(device / "current_link_speed");
    const std::string best_speed = read(device / "max_link_speed");
    if (now.empty() || now == "0" || best.empty()) {
      return;
    }
    const bool full = now == best && speed == best_speed;
    add(about + ": PCIe", full ? Verdict::fine : Verdict::slow, "x" + now + " at " + speed,
        "the card does x" + best + " at " + best_speed + ": another slot, or its seat");
  }

  fs::path root_;
  std::vector<Finding> findings_;
};

}  // namespace

const char* name(Verdict verdict) {
  constexpr std::array names{"fine", "slow", "missing"};
  return names.at(static_cast<std::size_t>(verdict));
}

std::vector<Finding> examine(const fs::path& root) { return Examination(root).run(); }

}  // namespace nbx::doctor
