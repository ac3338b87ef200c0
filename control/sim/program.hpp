// What one rank has to send and receive in one operation of a job.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "config/job.hpp"

namespace nbx::sim {

/// Messages of an operation from one rank to another have a lane: which connection it is, and as which stream the other
/// side counts them.
inline constexpr std::uint32_t lanes_max = 384;  // 64 channels of two trees, in which a rank has three neighbours

/// Messages from one rank to another, in order. A message may go when enough have come in: a ring passes on what it has
/// received, a tree the sum of what its children sent.
struct Stream {
  std::uint32_t to = 0;
  std::uint32_t lane = 0;
  std::vector<std::uint32_t> after{};  // lanes that this rank receives on, of which each must have so many
  std::uint64_t messages = 0;
  std::uint32_t behind = 0;                                         // nothing goes before on this lane
  std::uint64_t behind_messages = 0;                                // so many have come in
  std::uint64_t ahead = std::numeric_limits<std::uint64_t>::max();  // so many may go before anything has come in
  std::uint64_t slices = 1;                                         // messages of a chunk
  std::uint32_t slice_bytes = 0;
  std::uint32_t last_bytes = 0;  // of a chunk's last slice

  [[nodiscard]] std::uint32_t bytes_of(std::uint64_t message) const noexcept {
    return message % slices == slices - 1 ? last_bytes : slice_bytes;
  }
  [[nodiscard]] std::uint64_t total_bytes() const noexcept {
    return messages / slices * ((slices - 1) * slice_bytes + last_bytes);
  }
  /// How many may have gone when so many have `come` in, by lane.
  [[nodiscard]] std::uint64_t allowed(const std::vector<std::uint64_t>& come) const noexcept {
    if (behind_messages != 0 && come[behind] < behind_messages) {
      return 0;
    }
    std::uint64_t received = messages;
    for (const std::uint32_t from : after) {
      received = std::min(received, come[from]);
    }
    return ahead >= messages || received >= messages - ahead ? messages : ahead + received;
  }
};

struct Part {
  Duration compute{};
  std::vector<Stream> out;
  std::vector<std::uint64_t> in;  // messages that come, by lane

  [[nodiscard]] bool idle() const noexcept { return compute == Duration::zero() && out.empty() && in.empty(); }
};

/// The part of `rank`, one of `ranks`. A message longer than RDMA allows (2^31 bytes, IBTA 9.7.1) goes as several.
[[nodiscard]] Part part_of(const config::JobOperation& operation, std::uint32_t rank, std::uint32_t ranks);

/// Bytes that `rank` has to send or to receive, whichever is more.
[[nodiscard]] std::uint64_t rank_bytes(const config::JobOperation& operation, std::uint32_t rank, std::uint32_t ranks);

/// Bytes that the busiest host has to send or to receive: no network is faster than these at its cable.
[[nodiscard]] std::uint64_t busiest_bytes(const config::JobOperation& operation, std::uint32_t ranks);

/// "all_reduce", or the name that the file gives.
[[nodiscard]] std::string name_of(const config::JobOperation& operation);
/// Of the vector or message; 0 for computing.
[[nodiscard]] std::uint64_t bytes_of(const config::JobOperation& operation);

}  // namespace nbx::sim
