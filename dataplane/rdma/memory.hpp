// Memory regions of one ghost. Virtual addresses are the ghost's own invention: what lies behind them is the backing.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.hpp"
#include "rdma/verbs.hpp"

namespace nbx::rdma {

enum class Backing : std::uint8_t {
  sink,      // writes vanish, reads give zeros
  pattern,   // writes vanish, reads give pattern_byte(address)
  memory,    // reads give what was written
  external,  // the same, in the owner's memory: several regions may share it
};

/// The byte that a pattern region holds at `address`: differs between neighbouring words and pages, so a shifted or
/// repeated packet shows.
[[nodiscard]] constexpr std::uint8_t pattern_byte(std::uint64_t address) {
  return static_cast<std::uint8_t>(address ^ (address >> 8U) ^ (address >> 16U));
}

struct RegionSpec {
  std::uint64_t addr = 0;
  std::uint64_t length = 0;
  std::uint32_t key = 0;  // lkey and rkey; 0: chosen
  std::uint8_t access = 0;
  Backing backing = Backing::sink;
  std::byte* external = nullptr;  // `length` bytes that outlive the region
  bool polled = false;            // another thread watches them: written by words of 8 bytes in rising order
};

class Region {
 public:
  explicit Region(const RegionSpec& spec);
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  Region(Region&&) = delete;
  Region& operator=(Region&&) = delete;
  ~Region() = default;

  [[nodiscard]] const RegionSpec& spec() const { return spec_; }
  /// Whether [addr, addr+length) lies inside; overflow of the sum is outside. Length 0 is inside for any address.
  [[nodiscard]] bool contains(std::uint64_t addr, std::uint64_t length) const noexcept;
  void write(std::uint64_t addr, ConstBytes data) noexcept;
  void read(std::uint64_t addr, MutableBytes out) const noexcept;
  /// The stored bytes; empty when nothing is stored.
  [[nodiscard]] MutableBytes storage() noexcept { return stored_; }

  /// The peer sent SEND with invalidate: the key is refused from now on; the owner still removes the region.
  void invalidate() noexcept { valid_ = false; }
  [[nodiscard]] bool valid() const noexcept { return valid_; }

 private:
  RegionSpec spec_;
  bool valid_ = true;
  std::vector<std::byte> owned_;
  MutableBytes stored_;
};

class MemoryTable {
 public:
  /// Answers nullptr when the key is taken. May allocate: control only.
  Region* add(RegionSpec spec);
  void remove(std::uint32_t key);
  /// The region behind a valid key, or nullptr.
  [[nodiscard]] Region* find(std::uint32_t key) noexcept;
  [[nodiscard]] std::size_t size() const noexcept;

 private:
  // Key = index << 8 | variant, as HCAs do it: a lookup is one load, and a stale key is seen. Keys that a cluster
  // file fixes need not have this form and are found by search.
  struct Slot {
    std::unique_ptr<Region> region;
    std::uint8_t variant = 0;
  };

  [[nodiscard]] Region* locate(std::uint32_t key) noexcept;

  std::vector<Slot> slots_;
  std::vector<std::unique_ptr<Region>> fixed_;
};

}  // namespace nbx::rdma
