// The rate limiter of one queue pair: a pacer at the line's rate, slowed down by DCQCN's reaction point where there is
// one (A17.9 leaves the reaction to the implementation).
#pragma once

#include <optional>

#include "cc/dcqcn.hpp"
#include "cc/pacer.hpp"
#include "rdma/rate_trace.hpp"
#include "rdma/transport.hpp"
#include "rdma/wakeup.hpp"

namespace nbx::rdma {

/// The node is armed while a packet waits for its time.
class RateLimiter final : public Wakeup, private cc::DcqcnTrace {
 public:
  /// `limit` and `stats` outlive it.
  RateLimiter(const RateLimit& limit, QueuePair& qp, QpStats& stats) noexcept;

  /// When the next packet may start; not later than `now`: at once.
  [[nodiscard]] Instant next_start(Instant now) noexcept;
  void sent(std::uint32_t frame_bytes, Instant now) noexcept;
  void on_cnp(Instant now) noexcept;
  /// nullptr: none. False: there is no reaction point.
  bool set_trace(RateTrace* trace) noexcept;

 private:
  void on_step(const cc::DcqcnStep& step) noexcept override;
  void follow(Instant now) noexcept;

  // How far a turn that comes late may catch up: more would be a burst that no NIC sends.
  static constexpr std::uint32_t credit_bytes = 4 * 4096;

  QpStats& stats_;
  cc::Pacer pacer_;
  std::optional<cc::ReactionPoint> reaction_;
  RateTrace* trace_ = nullptr;
};

}  // namespace nbx::rdma
