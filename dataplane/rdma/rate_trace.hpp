// Every step of chosen reaction points, kept until somebody takes them: bounded, what does not fit is counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "cc/dcqcn.hpp"
#include "rdma/transport.hpp"

namespace nbx::rdma {

struct RateStep {
  GhostId ghost = no_ghost;
  Qpn qpn{};
  cc::DcqcnStep step{};
};

class RateTrace {
 public:
  /// `rates_only`: steps that moved alpha alone are left out.
  RateTrace(std::size_t capacity, bool rates_only) : capacity_(capacity), rates_only_(rates_only) {
    steps_.reserve(capacity);
  }

  void record(const Qp& qp, const cc::DcqcnStep& step) noexcept {
    if (rates_only_ && step.cause == cc::Cause::alpha_update) {
      return;
    }
    if (steps_.size() == capacity_) {
      ++dropped_;
      return;
    }
    steps_.push_back({qp.ghost(), qp.qpn(), step});
  }

  /// Those since the last call. A queue pair's are in order of time; those of several are as their packets were. Cold.
  [[nodiscard]] std::vector<RateStep> take() {
    std::vector<RateStep> empty;
    empty.reserve(capacity_);
    return std::exchange(steps_, std::move(empty));
  }
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_; }

 private:
  std::size_t capacity_;
  bool rates_only_;
  std::vector<RateStep> steps_;
  std::uint64_t dropped_ = 0;
};

}  // namespace nbx::rdma
