// Regions, queue pairs and listeners that the cluster file declares: for replays, tests and peers without a CM.
#pragma once

#include <deque>
#include <map>
#include <memory>

#include "pipeline/plan.hpp"
#include "rdma/cm.hpp"
#include "rdma/transport.hpp"
#include "timer/wheel.hpp"

namespace nbx::pipeline {

class Observer;

class StaticEndpoints {
 public:
  StaticEndpoints(const ShardPlan& plan, rdma::Transport& transport, rdma::Cm& cm, Wheel& wheel, Observer* observer);
  ~StaticEndpoints();
  StaticEndpoints(const StaticEndpoints&) = delete;
  StaticEndpoints& operator=(const StaticEndpoints&) = delete;
  StaticEndpoints(StaticEndpoints&&) = delete;
  StaticEndpoints& operator=(StaticEndpoints&&) = delete;

  void start(Instant now);

 private:
  class Endpoint;
  class Listener;

  void add_region(GhostId ghost, const StaticRegion& region);

  const ShardPlan& plan_;
  rdma::Transport& transport_;
  rdma::Cm& cm_;
  Wheel& wheel_;
  Observer* observer_;
  std::deque<Endpoint> endpoints_;  // addresses are stable
  std::deque<Listener> listeners_;
};

}  // namespace nbx::pipeline
