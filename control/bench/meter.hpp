// What a stage is to `nbx bench`: packets prepared outside the measured time, and a stopwatch around the rest.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <x86intrin.h>
#else
#include <chrono>
#endif

namespace nbx::bench {

/// The time-stamp counter, or nanoseconds where there is none.
[[nodiscard]] inline std::uint64_t ticks() noexcept {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  std::uint64_t value = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

/// Sums up the time between start() and stop().
class Stopwatch {
 public:
  void start() noexcept { begin_ = ticks(); }
  void stop() noexcept { total_ += ticks() - begin_; }
  [[nodiscard]] std::uint64_t total() const noexcept { return total_; }

 private:
  std::uint64_t begin_ = 0;
  std::uint64_t total_ = 0;
};

/// The words by which a figure is found in the table.
struct Label {
  std::string stage;
  std::string variant{};
  unsigned burst = 32;
  unsigned bytes = 0;       // of payload; 0: the stage never looks at it
  unsigned wire_bytes = 0;  // of the frame, with preamble, FCS and gap; 0: no rate is meant
  unsigned qps = 1;
};

class Case {
 public:
  explicit Case(Label label) : label_(std::move(label)) {}
  virtual ~Case() = default;
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;
  Case(Case&&) = delete;
  Case& operator=(Case&&) = delete;

  [[nodiscard]] const Label& label() const noexcept { return label_; }
  /// Runs some packets through the stage, the watch running only over what is measured, and answers how many.
  virtual std::uint64_t round(Stopwatch& watch) = 0;
  /// A sum over what came out, so that no work can be left out. Wrong results: throws std::runtime_error.
  [[nodiscard]] virtual std::uint64_t checksum() const = 0;

 private:
  Label label_;
};

using Cases = std::vector<std::unique_ptr<Case>>;
/// Makes the cases of a group when its turn comes, so that only one group holds memory.
struct Group {
  const char* name;
  Cases (*make)();
};

Cases wire_cases();
Cases profile_cases();
Cases network_cases();
Cases rdma_cases();
Cases capture_cases();

}  // namespace nbx::bench
