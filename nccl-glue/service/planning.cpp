// From operations that real ranks have called to transfers on edges: which ghosts hang together, and what each of their
// messages is.
#include <algorithm>
#include <bit>
#include <utility>

#include "nccl-glue/plan/point_to_point.hpp"
#include "nccl-glue/service/peer_transfer.hpp"
#include "nccl-glue/service/ring_transfer.hpp"
#include "nccl-glue/service/tree_transfer.hpp"
#include "nccl-glue/service/world.hpp"

namespace nbx::nccl {
namespace {

constexpr std::size_t reports_max = 4096;  // of collectives, and of sends and receives

}  // namespace

CommShape World::shape() const {
  Buffers buffers;
  const auto take = [](std::uint32_t given, std::uint32_t& size) { size = given != 0 ? given : size; };
  take(variables_.buffsize, buffers.simple);
  take(variables_.ll_buffsize, buffers.ll);
  take(variables_.ll128_buffsize, buffers.ll128);
  const Topology& topology = comm_->topology();
  return {.ranks = static_cast<std::uint32_t>(ranks()),
          .nodes = *std::max_element(topology.node.begin(), topology.node.end()) + 1,
          .channels = static_cast<std::uint8_t>(topology.channels),
          .buffers = buffers};
}

PointToPointShape World::peer_shape(std::uint8_t connections) const {
  PointToPointShape out{.ranks = static_cast<std::uint32_t>(ranks()), .channels_per_peer = connections};
  auto channels = static_cast<std::uint32_t>(comm_->topology().channels);
  if (variables_.max_p2p_nchannels != 0) {
    channels = std::min(channels, variables_.max_p2p_nchannels);
  }
  channels = std::max(channels, variables_.min_p2p_nchannels);
  out.channels = std::max(static_cast<std::uint8_t>(std::bit_ceil(channels)), connections);
  if (variables_.p2p_net_chunksize != 0) {
    out.chunk = variables_.p2p_net_chunksize;
  }
  out.chunk = std::min(out.chunk, shape().buffers.step(Protocol::simple));
  return out;
}

void World::schedule(Instant now) {
  while (!over_ && !groups_.empty() && schedule_group(groups_.front(), now)) {
    if (!groups_.empty()) {
      groups_.pop_front();
    }
  }
  for (std::size_t tries = peer_calls_.size(); tries > 0 && !over_; --tries) {
    const PeerCall call = peer_calls_.front();
    peer_calls_.pop_front();
    if (!schedule_peer(call, now)) {
      peer_calls_.push_back(call);
    }
  }
}

bool World::schedule_group(const Group& group, Instant now) {
  if (comm_->topology().channels == 0) {
    return false;
  }
  std::vector<PlannedOperation> operations;
  Caller& leader = callers_[leader_];
  for (std::size_t i = 0; i < group.operations.size(); ++i) {
    const auto decision = leader.decisions.find(group.first + i);
    if (decision == leader.decisions.end()) {
      if (group.operations[i].count != 0) {
        return false;
      }
      operations.push_back({group.operations[i], {}});  // NCCL decides nothing about nothing
      continue;
    }
    operations.push_back({group.operations[i], decision->second});
  }
  auto planned = plan(group, operations, progress_, now);
  if (!planned) {
    return false;
  }
  for (std::size_t i = 0; i < operations.size(); ++i) {
    leader.decisions.erase(group.first + i);
  }
  for (const auto& [progress, transfers] : *planned) {
    begin(transfers, *progress, now);
  }
  forget_old(progress_);
  return true;
}

std::optional<std::vector<std::pair<World::Progress*, std::vector<World::Planned>>>> World::plan(
    const Group& group, const std::vector<PlannedOperation>& operations, ProgressMap& progress, Instant now) {
  const auto placements = place(*comm_->spec().version, shape(), operations);
  if (!placements) {
    fail(placements.error().message, now);
    return std::nullopt;
  }
  for (std::size_t i = 0; i < operations.size(); ++i) {
    Progress& of_this = progress[group.first + i];
    of_this.booked = group.booked;
    OperationReport& report = of_this.report;
    report = {};
    report.sequence = group.first + i;
    report.operation = operations[i].operation;
    report.decision = operations[i].decision;
    report.called = group.called;
    report.done = true;  // until there is something to do
  }
  std::vector<std::pair<Progress*, std::vector<Planned>>> all;
  for (const Placement& placement : *placements) {
    const PlannedOperation& planned = operations[placement.index];
    Progress& of = progress[group.first + placement.index];
    auto& transfers = all.emplace_back(&of, std::vector<Planned>{}).second;
    for (const Share& share : placement.shares) {
      const bool exists = planned.decision.algorithm == Algorithm::ring ? plan_ring(planned, share, of, transfers)
                                                                        : plan_tree(planned, share, of, transfers);
      if (!exists) {
        return std::nullopt;
      }
    }
  }
  return all;
}

void World::forget_old(ProgressMap& progress) {
  while (progress.size() > reports_max && progress.begin()->second.report.done) {
    progress.erase(progress.begin());
  }
}

void World::begin(const std::vector<Planned>& planned, Progress& progress, Instant now) {
  for (const Planned& one : planned) {
    if (one.ring != nullptr) {
      one.ring->follow(std::exchange(latest_in_ring_[one.in.front().first], one.ring));
    }
    progress.open_edges += one.in.size() + one.out.size();
    progress.report.done = false;
    UnderWay& under_way = under_way_[one.transfer.get()];
    under_way.progress = &progress;
    for (const auto& [edge, index] : one.out) {
      under_way.out.push_back(edge);
    }
  }
  for (const Planned& one : planned) {
    for (const auto& [edge, index] : one.out) {
      edge->claim(one.transfer->messages_out(index));
      edge->add(one.transfer, index, now);
    }
    for (const auto& [edge, index] : one.in) {
      edge->add(one.transfer, index, now);
    }
  }
}

void World::note_latest(OperationReport& report, std::int32_t rank, Instant at) {
  if (report.latest_rank < 0 || at > report.called + report.latest_by) {
    report.latest_rank = rank;
    report.latest_by = at - report.called;
  }
}

bool World::plan_ring(const PlannedOperation& planned, const Share& share, Progress& progress,
                      std::vector<Planned>& out) {
  OperationReport& report = progress.report;
  const auto& ring = comm_->topology().ring[share.channel];
  const auto n = static_cast<std::uint32_t>(ring.size());
  const auto at = [&](std::uint32_t index) { return ring[index % n]; };
  std::uint32_t root = 0;
  while (at(root) != planned.operation.root && root + 1 < n) {
    ++root;
  }
  const bool rooted =
      planned.operation.collective == Collective::broadcast || planned.operation.collective == Collective::reduce;
  const RingPlan plan(planned.operation, planned.decision, shape(), share, rooted ? root : 0);
  for (std::uint32_t before = 0; before < n; ++before) {
    if (!real(at(before)) || real(at(before + 1))) {
      continue;
    }
    std::uint32_t length = 1;
    while (!real(at(before + length + 1))) {
      ++length;
    }
    const std::uint32_t last = (before + length) % n;
    RingPlace place{.last = last, .length = length, .ranks = n, .rank_at = [&ring, last, n](std::uint32_t distance) {
                      return ring[(last + n - distance) % n];
                    }};
    InEdge* in = in_edge(at(before + 1), at(before), true, share.channel);
    OutEdge* to = out_edge(at(last), at(last + 1), true, share.channel);
    if (in == nullptr || to == nullptr) {
      return false;
    }
    RunReadiness readiness(tools_.delay, ranks(), report.sequence, report.called, place.rank_at, length);
    const auto [late, when] = readiness.latest();
    note_latest(report, place.rank_at(late), when);
    const auto transfer =
        std::make_shared<RingTransfer>(planned, plan, std::move(place), std::move(readiness), tools_.delay, payloads_);
    out.push_back({.transfer = transfer, .ring = transfer, .in = {{in, 0}}, .out = {{to, 0}}});
  }
  return true;
}

bool World::plan_tree(const PlannedOperation& planned, const Share& share, Progress& progress,
                      std::vector<Planned>& out) {
  OperationReport& report = progress.report;
  const auto& tree = comm_->topology().tree[share.channel];
  const TreePlan plan(planned.decision, shape(), share);
  for (std::int32_t top = 0; top < ranks(); ++top) {
    const std::int32_t parent = tree[static_cast<std::size_t>(top)].parent;
    if (real(top) || (parent >= 0 && !real(parent))) {
      continue;
    }
    // All ghosts below `top` that hang together with it.
    TreeGroup ghosts;
    ghosts.ghosts.push_back({top, 0});
    Planned made;
    bool exists = true;
    for (std::size_t i = 0; i < ghosts.ghosts.size(); ++i) {
      const TreeGroup::Member member = ghosts.ghosts[i];
      for (const std::int32_t child : tree[static_cast<std::size_t>(member.rank)].children) {
        if (child < 0) {
          continue;
        }
        if (!real(child)) {
          ghosts.ghosts.push_back({child, member.depth + 1});
          continue;
        }
        const auto index = static_cast<unsigned>(ghosts.child_depth.size());
        ghosts.child_depth.push_back(member.depth);
        made.in.emplace_back(in_edge(member.rank, child, true, share.channel), index);
        made.out.emplace_back(out_edge(member.rank, child, true, share.channel), index);
        exists = exists && made.in.back().first != nullptr && made.out.back().first != nullptr;
      }
    }
    ghosts.has_parent = parent >= 0;
    if (ghosts.has_parent) {
      made.in.emplace_back(in_edge(top, parent, true, share.channel), ghosts.parent());
      made.out.emplace_back(out_edge(top, parent, true, share.channel), ghosts.parent());
      exists = exists && made.in.back().first != nullptr && made.out.back().first != nullptr;
    }
    if (!exists) {
      return false;
    }
    std::vector<Instant> called;
    for (const TreeGroup::Member& member : ghosts.ghosts) {
      called.push_back(report.called + tools_.delay.skew(member.rank, ranks(), report.sequence));
      note_latest(report, member.rank, called.back());
    }
    if (!made.in.empty()) {
      made.transfer =
          std::make_shared<TreeTransfer>(planned, plan, std::move(ghosts), std::move(called), tools_.delay, payloads_);
      out.push_back(std::move(made));
    }
  }
  return true;
}

bool World::schedule_peer(const PeerCall& call, Instant now) {
  const std::int32_t ghost = call.operation.root;
  const bool to_real = call.operation.collective == Collective::recv;
  std::uint8_t connections = 0;
  while (to_real ? out_edge(ghost, call.real_rank, false, connections) != nullptr
                 : in_edge(ghost, call.real_rank, false, connections) != nullptr) {
    ++connections;
  }
  if (connections == 0) {
    return false;
  }
  const PointToPointShape shape = peer_shape(connections);
  // Connections are numbered in the order of their channels.
  const PointToPointSchedule schedule(comm_->topology().node, 8);
  const auto from = static_cast<std::uint32_t>(to_real ? ghost : call.real_rank);
  const auto to = static_cast<std::uint32_t>(to_real ? call.real_rank : ghost);
  const std::uint32_t round = schedule.round(from, to);
  std::vector<std::uint8_t> channels;
  for (std::uint32_t part = 0; part < connections; ++part) {
    channels.push_back(schedule.channel(shape, round, part));
  }
  std::vector<std::uint8_t> sorted = channels;
  std::sort(sorted.begin(), sorted.end());

  const std::uint64_t bytes = call.operation.count * type_size(call.operation.type);
  const std::vector<PointToPointPart> parts = point_to_point_parts(shape, bytes);
  Progress& progress = peer_progress_[call.sequence];
  OperationReport& report = progress.report;
  report.sequence = call.sequence;
  report.operation = call.operation;
  report.called = call.called;
  progress.booked = call.booked;
  const Instant ghost_called = call.called + tools_.delay.skew(ghost, ranks(), call.sequence);
  note_latest(report, ghost, ghost_called);
  std::vector<Planned> all;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const auto connection =
        static_cast<std::uint8_t>(std::lower_bound(sorted.begin(), sorted.end(), channels[part]) - sorted.begin());
    Planned planned;
    planned.transfer = std::make_shared<PeerTransfer>(
        call.operation, parts[part], to_real, point_to_point_clear_to_send(shape), ghost, ghost_called, payloads_);
    if (to_real) {
      planned.out.emplace_back(out_edge(ghost, call.real_rank, false, connection), 0);
    } else {
      planned.in.emplace_back(in_edge(ghost, call.real_rank, false, connection), 0);
    }
    all.push_back(std::move(planned));
  }
  begin(all, progress, now);
  forget_old(peer_progress_);
  return true;
}

InEdge* World::in_edge(std::int32_t ghost, std::int32_t real, bool collective, std::uint8_t channel) {
  const auto found = in_.find({ghost, real, collective, channel});
  return found == in_.end() ? nullptr : found->second.get();
}
OutEdge* World::out_edge(std::int32_t ghost, std::int32_t real, bool collective, std::uint8_t channel) {
  const auto found = out_.find({ghost, real, collective, channel});
  return found == out_.end() ? nullptr : found->second.get();
}

}  // namespace nbx::nccl
