// A registered region of a ghost cut into slots of equal size, for messages it receives and sends.
#pragma once

#include <cstdint>

#include "rdma/memory.hpp"

namespace nbx::ghost {

class Slots {
 public:
  Slots(rdma::MemoryTable& memory, std::uint32_t count, std::uint32_t size,
        rdma::Backing backing = rdma::Backing::memory, std::uint8_t access = rdma::access::local_write)
      : memory_(memory), size_(size) {
    region_ = memory_.add({.addr = base, .length = std::uint64_t{count} * size, .access = access, .backing = backing});
  }
  ~Slots() {
    if (region_ != nullptr) {
      memory_.remove(key());
    }
  }
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;
  Slots(Slots&&) = delete;
  Slots& operator=(Slots&&) = delete;

  [[nodiscard]] std::uint32_t key() const noexcept { return region_->spec().key; }
  [[nodiscard]] std::uint64_t addr(std::uint64_t slot = 0) const noexcept { return base + slot * size_; }
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] rdma::Sge sge(std::uint64_t slot, std::uint32_t length) const noexcept {
    return {addr(slot), length, key()};
  }
  /// The bytes of a slot; only with backing memory.
  [[nodiscard]] MutableBytes bytes(std::uint64_t slot) noexcept {
    return region_->storage().subspan(slot * size_, size_);
  }

 private:
  static constexpr std::uint64_t base = 0x10'0000;

  rdma::MemoryTable& memory_;
  std::uint32_t size_;
  rdma::Region* region_ = nullptr;
};

}  // namespace nbx::ghost
