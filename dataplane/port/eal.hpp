// DPDK's environment, started once per process from what the cluster file asks for. Its own log goes to a function of
// the caller's, and its last error becomes part of ours.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace nbx::port {

enum class HugepageUse : std::uint8_t {
  when_there,  // ordinary pages otherwise: fine for virtual devices
  always,
  never,
};

struct EalConfig {
  HugepageUse hugepages = HugepageUse::when_there;
  std::uint64_t memory_bytes = 0;        // packet buffers of all ports
  std::vector<std::string> pci_devices;  // addresses, with options behind a comma
  std::function<void(std::string_view line)> log;
};

class Eal {
 public:
  static Result<std::unique_ptr<Eal>> start(const EalConfig& config);
  ~Eal();
  Eal(const Eal&) = delete;
  Eal& operator=(const Eal&) = delete;
  Eal(Eal&&) = delete;
  Eal& operator=(Eal&&) = delete;

  [[nodiscard]] bool on_hugepages() const noexcept { return on_hugepages_; }
  /// The first thing that DPDK said since it was asked last, for error messages: a driver comes to the point at once,
  /// and those above it only repeat that it failed.
  [[nodiscard]] std::string take_first_words();

 private:
  class Log;
  Eal();

  std::unique_ptr<Log> log_;
  bool on_hugepages_ = false;
};

/// Whether a device string names a PCI function: [domain:]bus:device.function, options behind a comma.
[[nodiscard]] bool is_pci_address(std::string_view device) noexcept;
/// Whether this machine has the PCI function that a device string names.
[[nodiscard]] bool pci_function_exists(std::string_view device);

/// Makes the calling thread one that DPDK's per-thread caches know, for as long as the object lives.
class RegisteredThread {
 public:
  RegisteredThread();
  ~RegisteredThread();
  RegisteredThread(const RegisteredThread&) = delete;
  RegisteredThread& operator=(const RegisteredThread&) = delete;
  RegisteredThread(RegisteredThread&&) = delete;
  RegisteredThread& operator=(RegisteredThread&&) = delete;
};

}  // namespace nbx::port
