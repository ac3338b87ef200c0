// ncclSend and ncclRecv: in parts over channels, each part in messages. Between nodes it is protocol Simple, one step
// per message (NCCL_ALLOC_P2P_NET_LL_BUFFERS unset). Invariant: both ends compute the same parts from the same bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nccl-glue/plan/channels.hpp"

namespace nbx::nccl {

struct PointToPointShape {
  std::uint32_t ranks = 2;
  std::uint8_t channels = 1;           // p2pnChannels, a power of two
  std::uint8_t channels_per_peer = 1;  // p2pnChannelsPerPeer, a power of two
  std::uint32_t chunk = 128U << 10U;   // NCCL_P2P_NET_CHUNKSIZE; at most a step of the Simple buffer
};

struct PointToPointPart {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint32_t message = 0;  // bytes of a full message

  /// A send of zero bytes is one empty message.
  [[nodiscard]] std::uint64_t messages() const { return bytes == 0 ? 1 : (bytes + message - 1) / message; }
  /// Bytes of message i.
  [[nodiscard]] std::uint32_t message_bytes(std::uint64_t i) const {
    const std::uint64_t rest = bytes - i * message;
    return static_cast<std::uint32_t>(rest < message ? rest : message);
  }
};

/// Part p goes over the connection of channel point_to_point_channel(..., p).
[[nodiscard]] std::vector<PointToPointPart> point_to_point_parts(const PointToPointShape& shape, std::uint64_t bytes);

/// Size in the clear-to-send of a real receiver.
[[nodiscard]] constexpr std::uint32_t point_to_point_clear_to_send(const PointToPointShape& shape) {
  return shape.chunk;
}

/// The order in which a rank serves its peers: in round k it sends to one and receives from another.
class PointToPointSchedule {
 public:
  /// `node`: of each rank. `group`: the most ranks of a node that take turns (NCCL_P2P_SCHEDULE_GROUP_SIZE, 8).
  PointToPointSchedule(std::span<const std::uint32_t> node, std::uint32_t group);

  /// The round in which `from` sends to `to`, which is the round in which `to` receives from `from`.
  [[nodiscard]] std::uint32_t round(std::uint32_t from, std::uint32_t to) const;
  /// The channel that carries part `part` of what is sent in this round.
  [[nodiscard]] std::uint8_t channel(const PointToPointShape& shape, std::uint32_t round, std::uint32_t part) const;

 private:
  std::vector<std::uint32_t> position_;  // [rank]: when ranks are numbered node by node
  std::uint32_t group_;                  // ranks per group; groups are consecutive positions
  std::uint32_t groups_;
  std::vector<std::uint32_t> turn_;  // [distance between groups]: the how-manieth it is served
};

}  // namespace nbx::nccl
