// nbx doctor, on hosts that are folders: /proc and /sys as Linux writes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "doctor/doctor.hpp"

namespace nbx::doctor {
namespace {

namespace fs = std::filesystem;

class Doctor : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(root); }
  void TearDown() override { fs::remove_all(root); }

  void write(const fs::path& path, const std::string& text) const {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text << '\n';
  }
  [[nodiscard]] Finding find(const std::string& about) const {
    for (const Finding& finding : examine(root)) {
      if (finding.about == about) {
        return finding;
      }
    }
    return {.about = "not examined", .verdict = Verdict::fine, .found = {}, .fix = {}};
  }
  /// A NIC with this driver in PCI slot 0000:3b:00.0.
  void nic(const std::string& driver) const {
    const fs::path device = "sys/devices/pci0000:3a/0000:3b:00.0";
    write(device / "current_link_width", "8");
    write(device / "max_link_width", "16");
    write(device / "current_link_speed", "16.0 GT/s PCIe");
    write(device / "max_link_speed", "16.0 GT/s PCIe");
    write(device / "numa_node", "1");
    fs::create_directories(root / "sys/class/net/eth7");
    fs::create_directory_symlink(root / device, root / "sys/class/net/eth7/device");
    fs::create_directory_symlink("../../bus/pci/drivers/" + driver, root / device / "driver");
    write("sys/class/net/eth7/mtu", "1500");
  }

  fs::path root = fs::temp_directory_path() / ("nbx-doctor-" + std::to_string(getpid()));
};

TEST_F(Doctor, an_empty_host_misses_a_nic_and_nothing_crashes) {
  EXPECT_EQ(find("NICs").verdict, Verdict::missing);
  EXPECT_EQ(find("hugepages").verdict, Verdict::missing);
  EXPECT_EQ(find("time-stamp counter").about, "not examined");
}

TEST_F(Doctor, a_counter_that_stops_is_no_clock) {
  write("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu tsc constant_tsc pclmulqdq\n");
  EXPECT_EQ(find("time-stamp counter").verdict, Verdict::missing);
  EXPECT_THAT(find("ICRC").found, testing::HasSubstr("128 bits"));
  write("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu tsc constant_tsc nonstop_tsc avx512f vpclmulqdq\n");
  EXPECT_EQ(find("time-stamp counter").verdict, Verdict::fine);
  EXPECT_EQ(find("ICRC").verdict, Verdict::fine);
}

TEST_F(Doctor, free_hugepages_of_all_sizes_count) {
  write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512");
  write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "100");
  EXPECT_EQ(find("hugepages").verdict, Verdict::missing);
  EXPECT_EQ(find("hugepages").found, "512 of 2 MiB; 200 MiB free");
  EXPECT_THAT(find("hugepages").fix, testing::HasSubstr("vm.nr_hugepages=304"));
  write("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "1");
  write("sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "1");
  EXPECT_EQ(find("hugepages").verdict, Verdict::fine);
}

TEST_F(Doctor, governor_cores_and_iommu) {
  write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance");
  EXPECT_EQ(find("frequency governor").verdict, Verdict::fine);
  write("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave");
  EXPECT_EQ(find("frequency governor").found, "powersave");
  EXPECT_EQ(find("cores of their own").verdict, Verdict::slow);
  write("sys/devices/system/cpu/isolated", "2-3");
  EXPECT_EQ(find("cores of their own").verdict, Verdict::fine);
  EXPECT_EQ(find("IOMMU").verdict, Verdict::fine);
  write("sys/class/iommu/dmar0/name", "");
  write("proc/cmdline", "quiet iommu=pt_no");
  EXPECT_EQ(find("IOMMU").verdict, Verdict::slow);
  write("proc/cmdline", "quiet iommu=pt");
  EXPECT_EQ(find("IOMMU").verdict, Verdict::fine);
}

TEST_F(Doctor, a_mellanox_nic_stays_with_the_kernel) {
  nic("mlx5_core");
  write("sys/class/net/eth7/device/infiniband/mlx5_0/fw_ver", "22.35.1012");
  EXPECT_EQ(find("NIC eth7: driver").verdict, Verdict::fine);
  EXPECT_EQ(find("NIC eth7: firmware").found, "mlx5_0 22.35.1012");
  EXPECT_EQ(find("NIC eth7: MTU").fix, "ip link set eth7 mtu 4200, for a path MTU of 4096 bytes");
  EXPECT_EQ(find("NIC eth7: PCIe").found, "x8 at 16.0 GT/s PCIe");
  EXPECT_EQ(find("NIC eth7: PCIe").verdict, Verdict::slow);
  EXPECT_THAT(find("NIC eth7: NUMA node").found, testing::HasSubstr("no free hugepages"));
  write("sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "3");
  EXPECT_EQ(find("NIC eth7: NUMA node").verdict, Verdict::fine);
}

TEST_F(Doctor, other_nics_are_bound_to_vfio_or_have_no_driver) {
  nic("ice");
  EXPECT_EQ(find("NIC eth7: driver").fix, "dpdk-devbind.py --bind=vfio-pci 0000:3b:00.0, when the port is to have it");
  fs::remove_all(root);
  nic("r8169");
  EXPECT_THAT(find("NIC eth7: driver").fix, testing::HasSubstr("net_af_packet"));
}

TEST_F(Doctor, a_bound_nic_is_found_at_its_driver) {
  write("sys/bus/pci/drivers/vfio-pci/0000:5e:00.0/class", "0x020000");
  write("sys/bus/pci/drivers/vfio-pci/0000:65:00.0/class", "0x030000");  // a display
  EXPECT_EQ(find("NIC 0000:5e:00.0").found, "bound to vfio-pci");
  EXPECT_EQ(find("NIC 0000:65:00.0").about, "not examined");
  EXPECT_EQ(find("NICs").about, "not examined");
}

}  // namespace
}  // namespace nbx::doctor
