// DCQCN's notification point: whether a CE mark is answered with a CNP (IBTA A17.9.3 for the packet; Zhu et al. 2015,
// section 5.2, for the pacing). NICs differ in what shares one interval: the queue pair, the peer's address, the port.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/units.hpp"
#include "cc/params.hpp"

namespace nbx::cc {

class NotificationPoint {
 public:
  /// Allocates for `qps` queue pairs of `peers` addresses; their indices are the caller's.
  NotificationPoint(const DcqcnParams& params, std::size_t qps, std::size_t peers)
      : params_(&params),
        next_(slots(params.np_cnp_scope, qps, peers), Instant{std::numeric_limits<std::int64_t>::min()}) {}

  /// A packet of `qp` from `peer` came with CE. True: send a CNP now.
  [[nodiscard]] bool on_ce(std::size_t qp, std::size_t peer, Instant now) noexcept {
    Instant& next = next_[slot(qp, peer)];
    if (now < next) {
      return false;
    }
    next = now + Duration{std::int64_t{params_->np_min_time_between_cnps} * 1'000'000};
    return true;
  }

 private:
  static std::size_t slots(CnpScope scope, std::size_t qps, std::size_t peers) {
    switch (scope) {
      case CnpScope::qp:
        return qps;
      case CnpScope::ip:
        return peers;
      case CnpScope::port:
        return 1;
    }
    return 1;
  }
  [[nodiscard]] std::size_t slot(std::size_t qp, std::size_t peer) const noexcept {
    switch (params_->np_cnp_scope) {
      case CnpScope::qp:
        return qp;
      case CnpScope::ip:
        return peer;
      case CnpScope::port:
        return 0;
    }
    return 0;
  }

  const DcqcnParams* params_;
  std::vector<Instant> next_;  // before: no CNP
};

}  // namespace nbx::cc
