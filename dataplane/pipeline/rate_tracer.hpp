// A trace of rates at work: which queue pairs are in it, those that come later too.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "rdma/rate_trace.hpp"
#include "rdma/transport.hpp"

namespace nbx::pipeline {

struct TraceRequest {
  std::vector<GhostId> ghosts;  // empty: all
  std::optional<Qpn> qpn;       // absent: all
  std::size_t steps_max = 65'536;
  bool rates_only = false;
};

class RateTracer {
 public:
  explicit RateTracer(rdma::Transport& transport) : transport_(transport) {}

  /// In place of the trace before. Answers how many queue pairs are in it now.
  std::size_t start(const TraceRequest& request) {
    stop();
    request_ = request;
    trace_ = std::make_unique<rdma::RateTrace>(request.steps_max, request.rates_only);
    std::size_t traced = 0;
    transport_.for_each_qp([&](rdma::Qp& qp) { traced += add(qp) ? 1U : 0U; });
    return traced;
  }
  void stop() {
    transport_.for_each_qp([&](rdma::Qp& qp) { transport_.trace_rate(qp, nullptr); });
    trace_.reset();
  }
  void on_connected(const rdma::Qp& qp) {
    if (trace_) {
      add(*transport_.find_qp(qp.ghost(), qp.qpn()));
    }
  }
  /// nullptr: none runs.
  [[nodiscard]] rdma::RateTrace* trace() const noexcept { return trace_.get(); }

 private:
  bool add(rdma::Qp& qp) {
    const bool chosen = (request_.ghosts.empty() || std::find(request_.ghosts.begin(), request_.ghosts.end(),
                                                              qp.ghost()) != request_.ghosts.end()) &&
                        (!request_.qpn || *request_.qpn == qp.qpn());
    return chosen && transport_.trace_rate(qp, trace_.get());
  }

  rdma::Transport& transport_;
  TraceRequest request_;
  std::unique_ptr<rdma::RateTrace> trace_;
};

}  // namespace nbx::pipeline
