#include "port/eal.hpp"

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <mutex>

namespace nbx::port {
namespace {

// DPDK's own tables, and the driver's rings and shared areas, on top of the packet buffers.
constexpr std::uint64_t memory_overhead = 96ULL << 20U;

std::uint64_t read_number(const std::filesystem::path& file) {
  std::uint64_t number = 0;
  std::ifstream(file) >> number;
  return number;
}

/// Free huge pages of any size, in bytes.
std::uint64_t free_hugepage_bytes() {
  std::uint64_t bytes = 0;
  std::error_code none;
  for (const auto& size : std::filesystem::directory_iterator("/sys/kernel/mm/hugepages", none)) {
    const std::string name = size.path().filename();  // hugepages-2048kB
    std::uint64_t kib = 0;
    const std::size_t digits = name.find('-') + 1;
    std::from_chars(name.data() + digits, name.data() + name.size(), kib);
    bytes += read_number(size.path() / "free_hugepages") * kib * 1024;
  }
  return bytes;
}

std::string hugepage_remedy(std::uint64_t needed, std::uint64_t free) {
  constexpr std::uint64_t page = 2ULL << 20U;
  return "need " + std::to_string(needed >> 20U) + " MiB of huge pages, " + std::to_string(free >> 20U) +
         " MiB are free; as root: echo " + std::to_string((needed + page - 1) / page) + " > /proc/sys/vm/nr_hugepages";
}

/// Whether to run on huge pages, or why that cannot be decided well.
Result<bool> choose_hugepages(const EalConfig& config) {
  const std::uint64_t needed = config.memory_bytes + memory_overhead;
  const std::uint64_t free = free_hugepage_bytes();
  if (config.hugepages != HugepageUse::never && free >= needed) {
    return true;
  }
  if (config.hugepages == HugepageUse::always) {
    return Error{hugepage_remedy(needed, free)};
  }
  if (!config.pci_devices.empty()) {
    return Error{"the PCI device " + config.pci_devices.front() +
                 " cannot work without huge pages: " + hugepage_remedy(needed, free)};
  }
  return false;
}

std::vector<std::string> arguments(const EalConfig& config, bool on_hugepages) {
  std::vector<std::string> arguments = {"nbxd", "--file-prefix=nbx-" + std::to_string(getpid()), "--no-telemetry",
                                        "--iova-mode=va",
                                        "--lcores=0@(0-" + std::to_string(sysconf(_SC_NPROCESSORS_CONF) - 1) + ")"};
  if (on_hugepages) {
    arguments.insert(arguments.end(), {"--in-memory"});
  } else {
    arguments.insert(arguments.end(), {"--no-huge", "--no-shconf", "-m",
                                       std::to_string((config.memory_bytes + memory_overhead) >> 20U)});
  }
  if (config.pci_devices.empty()) {
    arguments.emplace_back("--no-pci");
  }
  for (const std::string& device : config.pci_devices) {
    arguments.insert(arguments.end(), {"-a", device});
  }
  return arguments;
}

}  // namespace

/// A stdio stream that DPDK writes its log to: whole lines go on to the owner.
class Eal::Log {
 public:
  explicit Log(std::function<void(std::string_view)> sink) : sink_(std::move(sink)) {
    stream_ = fopencookie(this, "w", {.read = nullptr, .write = write, .seek = nullptr, .close = nullptr});
    setvbuf(stream_, nullptr, _IOLBF, 1024);
    rte_openlog_stream(stream_);
  }
  ~Log() {
    rte_openlog_stream(nullptr);
    std::fclose(stream_);
  }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  Log(Log&&) = delete;
  Log& operator=(Log&&) = delete;

  std::string take_first_words() {
    std::fflush(stream_);
    const std::scoped_lock lock(mutex_);
    return std::exchange(first_, {});
  }
  std::string last_words() {
    std::fflush(stream_);
    const std::scoped_lock lock(mutex_);
    return last_;
  }

 private:
  static ssize_t write(void* self, const char* text, std::size_t size) {
    static_cast<Log*>(self)->append({text, size});
    return static_cast<ssize_t>(size);
  }
  void append(std::string_view text) {
    const std::scoped_lock lock(mutex_);
    partial_ += text;
    for (std::size_t end = partial_.find('\n'); end != std::string::npos; end = partial_.find('\n')) {
      last_ = partial_.substr(0, end);
      first_ = first_.empty() ? last_ : first_;
      partial_.erase(0, end + 1);
      if (sink_) {
        sink_(last_);
      }
    }
  }

  std::function<void(std::string_view)> sink_;
  std::FILE* stream_ = nullptr;
  std::mutex mutex_;
  std::string partial_;
  std::string first_;  // since it was taken
  std::string last_;
};

Eal::Eal() = default;

Result<std::unique_ptr<Eal>> Eal::start(const EalConfig& config) {
  const Result<bool> on_hugepages = choose_hugepages(config);
  if (!on_hugepages) {
    return on_hugepages.error();
  }
  std::vector<std::string> texts = arguments(config, *on_hugepages);
  std::vector<char*> argv;
  for (std::string& text : texts) {
    argv.push_back(text.data());
  }
  // rte_eal_init() pins the calling thread to its lcore's set, which is every processor: nothing to restore.
  auto log = std::make_unique<Log>(config.log);
  if (rte_eal_init(static_cast<int>(argv.size()), argv.data()) < 0) {
    return Error{std::string("DPDK did not start: ") + rte_strerror(rte_errno) + ": " + log->last_words()};
  }
  std::unique_ptr<Eal> eal(new Eal);
  eal->log_ = std::move(log);
  eal->on_hugepages_ = *on_hugepages;
  return eal;
}

Eal::~Eal() {
  const std::filesystem::path runtime_dir = rte_eal_get_runtime_dir();
  rte_eal_cleanup();
  std::error_code none;
  std::filesystem::remove_all(runtime_dir, none);  // ours alone, by --file-prefix; DPDK leaves it
}

std::string Eal::take_first_words() { return log_->take_first_words(); }

bool is_pci_address(std::string_view device) noexcept {
  const std::string_view address = device.substr(0, device.find(','));
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); };
  std::size_t colons = 0;
  std::size_t dots = 0;
  for (const char c : address) {
    colons += c == ':' ? 1 : 0;
    dots += c == '.' ? 1 : 0;
    if (c != ':' && c != '.' && !is_hex(c)) {
      return false;
    }
  }
  return (colons == 1 || colons == 2) && dots == 1;
}

bool pci_function_exists(std::string_view device) {
  const std::string address(device.substr(0, device.find(',')));
  const std::filesystem::path functions = "/sys/bus/pci/devices";
  return std::filesystem::exists(functions / address) || std::filesystem::exists(functions / ("0000:" + address));
}

RegisteredThread::RegisteredThread() { static_cast<void>(rte_thread_register()); }
RegisteredThread::~RegisteredThread() { rte_thread_unregister(); }

}  // namespace nbx::port
