// Where messages of ghosts lie from their arrival to their departure. One piece of virtual memory, registered at every
// ghost that has a connection, so that a message that arrived at the first ghost of a run leaves from the last one
// without being copied. Pages are touched, and so taken from the machine, only when a message needs them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "nccl-glue/net/net.hpp"

namespace nbx::nccl {

class Arena {
 public:
  /// A part of the arena; `size` is what was asked for.
  struct Buffer {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
  };

  /// Reserves `bytes` of address space.
  Arena(rdma::Transport& transport, std::uint64_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  Arena(Arena&&) = delete;
  Arena& operator=(Arena&&) = delete;

  /// nullopt: the arena is full, or `size` is above buffer_max.
  std::optional<Buffer> take(std::uint64_t size);
  void give_back(const Buffer& buffer);
  [[nodiscard]] MutableBytes bytes(const Buffer& buffer) const noexcept {
    return {memory_ + buffer.offset, static_cast<std::size_t>(buffer.size)};
  }
  /// The buffer as `ghost` posts it.
  [[nodiscard]] NetBuffer at(GhostId ghost, const Buffer& buffer);
  [[nodiscard]] std::uint64_t in_use() const noexcept { return in_use_; }

  static constexpr std::uint64_t buffer_max = 1U << 30U;  // NCCL's largest message

 private:
  static constexpr unsigned smallest_bits = 12;
  static constexpr unsigned classes = 30 - smallest_bits + 1;
  [[nodiscard]] static unsigned class_of(std::uint64_t size) noexcept;

  rdma::Transport& transport_;
  std::uint64_t length_;
  std::byte* memory_ = nullptr;
  std::uint64_t fresh_ = 0;  // from here on nothing was given out yet
  std::uint64_t in_use_ = 0;
  std::array<std::vector<std::uint64_t>, classes> free_;
  std::map<GhostId, std::uint32_t> keys_;
};

}  // namespace nbx::nccl
