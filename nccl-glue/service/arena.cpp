#include "nccl-glue/service/arena.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "base/check.hpp"

namespace nbx::nccl {
namespace {

constexpr std::uint64_t base_address = 1ULL << 44U;  // of the regions: a ghost's addresses are its own invention

}  // namespace

Arena::Arena(rdma::Transport& transport, std::uint64_t bytes) : transport_(transport), length_(bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  NBX_CHECK(memory != MAP_FAILED);
  memory_ = static_cast<std::byte*>(memory);
}

Arena::~Arena() {
  for (const auto& [ghost, key] : keys_) {
    transport_.memory(ghost).remove(key);
  }
  munmap(memory_, length_);
}

unsigned Arena::class_of(std::uint64_t size) noexcept {
  const auto bits = static_cast<unsigned>(std::bit_width(std::max<std::uint64_t>(size, 1) - 1));
  return std::max(bits, smallest_bits) - smallest_bits;
}

std::optional<Arena::Buffer> Arena::take(std::uint64_t size) {
  if (size > buffer_max) {
    return std::nullopt;
  }
  const unsigned index = class_of(size);
  const std::uint64_t room = 1ULL << (index + smallest_bits);
  std::uint64_t offset = fresh_;
  if (!free_[index].empty()) {
    offset = free_[index].back();
    free_[index].pop_back();
  } else if (room <= length_ - fresh_) {
    fresh_ += room;
  } else {
    return std::nullopt;
  }
  in_use_ += room;
  return Buffer{.offset = offset, .size = size};
}

void Arena::give_back(const Buffer& buffer) {
  const unsigned index = class_of(buffer.size);
  free_[index].push_back(buffer.offset);
  in_use_ -= 1ULL << (index + smallest_bits);
}

NetBuffer Arena::at(GhostId ghost, const Buffer& buffer) {
  const auto [key, is_new] = keys_.try_emplace(ghost, 0);
  if (is_new) {
    const rdma::Region* region =
        transport_.memory(ghost).add({.addr = base_address,
                                      .length = length_,
                                      .key = 0,
                                      .access = rdma::access::local_write | rdma::access::remote_write,
                                      .backing = rdma::Backing::external,
                                      .external = memory_});
    NBX_CHECK(region != nullptr);
    key->second = region->spec().key;
  }
  return {.addr = base_address + buffer.offset, .key = key->second, .size = buffer.size};
}

}  // namespace nbx::nccl
