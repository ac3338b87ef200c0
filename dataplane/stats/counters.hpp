// The counters of one shard: plain integers, written by one worker, read by anyone who can live with a moment's lag.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace nbx {

/// Why a frame went no further. Drop::none is not a drop.
enum class Drop : std::uint8_t {
  none,
#define NBX_DROP(name, text) name,
#define NBX_COUNTER(name, text)
#include "stats/counters.def"
#undef NBX_DROP
#undef NBX_COUNTER
};

enum class Counter : std::uint8_t {
#define NBX_DROP(name, text)
#define NBX_COUNTER(name, text) name,
#include "stats/counters.def"
#undef NBX_DROP
#undef NBX_COUNTER
};

struct CounterInfo {
  std::string_view name;
  std::string_view help;
};

inline constexpr auto drop_info = std::to_array<CounterInfo>({
    {"none", "not dropped"},
#define NBX_DROP(name, text) {#name, text},
#define NBX_COUNTER(name, text)
#include "stats/counters.def"
#undef NBX_DROP
#undef NBX_COUNTER
});

inline constexpr auto counter_info = std::to_array<CounterInfo>({
#define NBX_DROP(name, text)
#define NBX_COUNTER(name, text) {#name, text},
#include "stats/counters.def"
#undef NBX_DROP
#undef NBX_COUNTER
});

[[nodiscard]] constexpr std::string_view name(Drop d) { return drop_info[static_cast<std::size_t>(d)].name; }
[[nodiscard]] constexpr std::string_view name(Counter c) { return counter_info[static_cast<std::size_t>(c)].name; }

class alignas(64) Counters {
 public:
  void count(Counter c, std::uint64_t n = 1) noexcept { bump(counters_[static_cast<std::size_t>(c)], n); }
  /// Counts a drop; Drop::none is ignored.
  void count(Drop d) noexcept { bump(drops_[static_cast<std::size_t>(d)], 1); }

  [[nodiscard]] std::uint64_t get(Counter c) const noexcept {
    return counters_[static_cast<std::size_t>(c)].load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t get(Drop d) const noexcept {
    return d == Drop::none ? 0 : drops_[static_cast<std::size_t>(d)].load(std::memory_order_relaxed);
  }

 private:
  using Cell = std::atomic<std::uint64_t>;
  // One writer: a relaxed load and store is an ordinary add, and readers never see a torn value.
  static void bump(Cell& cell, std::uint64_t n) noexcept {
    cell.store(cell.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }

  std::array<Cell, drop_info.size()> drops_{};
  std::array<Cell, counter_info.size()> counters_{};
};

}  // namespace nbx
