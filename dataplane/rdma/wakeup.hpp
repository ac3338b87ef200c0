// A timer that gives a queue pair a turn when it fires.
#pragma once

#include "timer/wheel.hpp"

namespace nbx::rdma {

class QueuePair;

class Wakeup : public TimerNode {
 public:
  explicit Wakeup(QueuePair& qp) noexcept : qp_(qp) {}
  [[nodiscard]] QueuePair& qp() const noexcept { return qp_; }

 private:
  QueuePair& qp_;
};

}  // namespace nbx::rdma
