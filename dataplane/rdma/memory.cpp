// Memory regions: lookup by key, bounds, and what the backings hold.
#include "rdma/memory.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

namespace nbx::rdma {

namespace {
constexpr std::uint32_t variant_bits = 8;

/// What a NIC guarantees to a reader that polls memory for flags inside the data: whole words, none before those at
/// lower addresses. memcpy() promises no order, and stores the first bytes of a long copy last.
void copy_in_order(std::byte* to, ConstBytes data) noexcept {
  const auto store = [&]<class Word>(Word value) {
    std::memcpy(&value, data.data(), sizeof value);
    std::atomic_ref{*static_cast<Word*>(static_cast<void*>(to))}.store(value, std::memory_order_release);
    to += sizeof value;
    data = data.subspan(sizeof value);
  };
  while (!data.empty()) {
    constexpr std::size_t word = sizeof(std::uint64_t);
    if (std::bit_cast<std::uintptr_t>(to) % word == 0 && data.size() >= word) {
      store(std::uint64_t{});
    } else {
      store(std::uint8_t{});
    }
  }
}
}  // namespace

Region::Region(const RegionSpec& spec)
    : spec_(spec),
      owned_(spec.backing == Backing::memory ? spec.length : 0),
      stored_(spec.backing == Backing::external ? MutableBytes{spec.external, spec.length} : MutableBytes{owned_}) {}

bool Region::contains(std::uint64_t addr, std::uint64_t length) const noexcept {
  if (length == 0) {
    return true;
  }
  if (addr < spec_.addr) {
    return false;
  }
  const std::uint64_t offset = addr - spec_.addr;
  return offset <= spec_.length && length <= spec_.length - offset;
}

void Region::write(std::uint64_t addr, ConstBytes data) noexcept {
  if (stored_.empty() || data.empty()) {
    return;
  }
  if (spec_.polled) {
    copy_in_order(stored_.data() + (addr - spec_.addr), data);
  } else {
    std::memcpy(stored_.data() + (addr - spec_.addr), data.data(), data.size());
  }
}

void Region::read(std::uint64_t addr, MutableBytes out) const noexcept {
  if (out.empty()) {
    return;
  }
  switch (spec_.backing) {
    case Backing::sink:
      std::memset(out.data(), 0, out.size());
      return;
    case Backing::pattern:
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = static_cast<std::byte>(pattern_byte(addr + i));
      }
      return;
    case Backing::memory:
    case Backing::external:
      std::memcpy(out.data(), stored_.data() + (addr - spec_.addr), out.size());
      return;
  }
}

Region* MemoryTable::add(RegionSpec spec) {
  if (spec.key != 0) {
    if (locate(spec.key) != nullptr) {
      return nullptr;
    }
    return fixed_.emplace_back(std::make_unique<Region>(spec)).get();
  }
  auto slot = std::find_if(slots_.begin(), slots_.end(), [](const Slot& s) { return s.region == nullptr; });
  if (slot == slots_.end()) {
    slot = slots_.insert(slots_.end(), Slot{});
  }
  // Index 0 is skipped, so that no key is 0; a key that a file has fixed is skipped as well.
  const auto index = static_cast<std::uint32_t>(slot - slots_.begin()) + 1;
  do {
    spec.key = (index << variant_bits) | slot->variant++;
  } while (locate(spec.key) != nullptr);
  slot->region = std::make_unique<Region>(spec);
  return slot->region.get();
}

void MemoryTable::remove(std::uint32_t key) {
  const std::uint32_t index = (key >> variant_bits) - 1;
  if (index < slots_.size() && slots_[index].region != nullptr && slots_[index].region->spec().key == key) {
    slots_[index].region.reset();
    return;
  }
  std::erase_if(fixed_, [key](const auto& region) { return region->spec().key == key; });
}

Region* MemoryTable::locate(std::uint32_t key) noexcept {
  const std::uint32_t index = (key >> variant_bits) - 1;
  if (index < slots_.size()) {
    Region* region = slots_[index].region.get();
    if (region != nullptr && region->spec().key == key) {
      return region;
    }
  }
  for (const auto& region : fixed_) {
    if (region->spec().key == key) {
      return region.get();
    }
  }
  return nullptr;
}

Region* MemoryTable::find(std::uint32_t key) noexcept {
  Region* region = locate(key);
  return region != nullptr && region->valid() ? region : nullptr;
}

std::size_t MemoryTable::size() const noexcept {
  const auto used = std::count_if(slots_.begin(), slots_.end(), [](const Slot& s) { return s.region != nullptr; });
  return static_cast<std::size_t>(used) + fixed_.size();
}

}  // namespace nbx::rdma
