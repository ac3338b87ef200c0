// Unreliable datagrams (IBTA volume 1, 9.8.3) and the GSI queue pair of every ghost, QP1 (13.5.3: MADs over UD).
#pragma once

#include "rdma/core.hpp"

namespace nbx::rdma {

class Datagram {
 public:
  explicit Datagram(Core& core) noexcept : core_(core) {}

  void post(QueuePair& qp, const SendWr& wr) noexcept;
  /// Sends posted datagrams, up to one burst. True when some are left.
  bool transmit(QueuePair& qp, Instant now) noexcept;
  Drop receive(QueuePair& qp, const Frame& frame, Instant now) noexcept;

  /// A packet to QP1 of `ghost`.
  Drop receive_mad(GhostId ghost, const Frame& frame, Instant now) noexcept;
  bool send_mad(GhostId ghost, const wire::Path& path, ConstBytes mad, Instant now) noexcept;

 private:
  bool send_packet(QueuePair& qp, const Wqe& wqe, const UdDestination& to, Instant now) noexcept;

  Core& core_;
};

/// The way back to whoever sent `frame`.
[[nodiscard]] wire::Path reply_path(const Frame& frame) noexcept;

}  // namespace nbx::rdma
