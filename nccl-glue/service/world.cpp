#include "nccl-glue/service/world.hpp"

#include <algorithm>
#include <utility>

#include "nccl-glue/plan/names.hpp"
#include "nccl-glue/plan/point_to_point.hpp"
#include "nccl-glue/service/peer_transfer.hpp"
#include "nccl-glue/service/ring_transfer.hpp"
#include "nccl-glue/service/tree_transfer.hpp"

namespace nbx::nccl {
namespace {

constexpr std::size_t reports_max = 4096;  // of collectives, and of sends and receives

bool collective(const Operation& operation) {
  return operation.collective != Collective::send && operation.collective != Collective::recv;
}

bool same(const Operation& a, const Operation& b) {
  return a.collective == b.collective && a.count == b.count && a.type == b.type && a.op == b.op && a.root == b.root;
}

Operation operation_of(const announce::OperationCall& call) {
  return {.collective = call.collective, .count = call.count, .type = call.type, .op = call.op, .root = call.root};
}

std::uint8_t power_of_two(int n) {
  std::uint8_t p = 1;
  while (p < n) {
    p = static_cast<std::uint8_t>(p * 2);
  }
  return p;
}

}  // namespace

World::World(const Tools& tools, CommSpec spec, Instant now)
    : tools_(tools),
      payloads_(tools.arena, tools.options, static_cast<std::uint32_t>(spec.ranks.size())),
      started_(now),
      last_progress_(now),
      comm_(std::make_unique<Comm>(tools.any, tools.lobby, tools.net, std::move(spec), *this)) {
  watchdog_.client = this;
  recognition_.client = this;
  watch(now);
  comm_->start(now);
}

World::World(const Tools& tools, std::unique_ptr<Comm> comm, Instant now)
    : tools_(tools),
      payloads_(tools.arena, tools.options, static_cast<std::uint32_t>(comm->spec().ranks.size())),
      started_(now),
      last_progress_(now),
      comm_(std::move(comm)) {
  watchdog_.client = this;
  recognition_.client = this;
  comm_->report_to(*this);
  watch(now);
}

World::~World() {
  tools_.any.wheel.cancel(watchdog_);
  tools_.any.wheel.cancel(recognition_);
  for (const auto& [net, edge] : in_by_net_) {
    tools_.net.close(net);
  }
  for (const auto& [net, edge] : out_by_net_) {
    tools_.net.close(net);
  }
}

// --- what the real ranks announce ---

void World::call(std::int32_t rank, const announce::OperationCall& call, Instant now) {
  if (over_) {
    return;
  }
  const Operation operation = operation_of(call);
  const bool has_root = operation.collective == Collective::broadcast || operation.collective == Collective::reduce;
  if ((has_root || !collective(operation)) && operation.root >= ranks()) {
    fail("real rank " + std::to_string(rank) + " calls " + text(operation) + " in a communicator of " +
             std::to_string(ranks()) + " ranks",
         now);
    return;
  }
  Caller& caller = callers_[rank];
  caller.open.push_back(call);
  if (collective(operation)) {
    compare(rank, caller.collectives++, operation, now);
  }
}

void World::compare(std::int32_t rank, std::uint64_t number, const Operation& operation, Instant now) {
  if (number < collectives_before_) {
    return;  // of a rank that was not heard before
  }
  const std::uint64_t at = number - collectives_before_;
  if (at >= collectives_.size()) {
    collectives_.push_back(operation);
  } else if (!same(collectives_[at], operation)) {
    fail("collective " + std::to_string(number) + " is not the same on all real ranks\n  rank " + std::to_string(rank) +
             ": " + text(operation) + "\n  another: " + text(collectives_[at]),
         now);
    return;
  }
  const auto slowest = std::min_element(callers_.begin(), callers_.end(), [](const auto& a, const auto& b) {
    return a.second.collectives < b.second.collectives;
  });
  while (collectives_before_ < slowest->second.collectives && !collectives_.empty()) {
    collectives_.pop_front();
    ++collectives_before_;
  }
}

void World::decide(std::int32_t rank, const announce::OperationDecision& decision, Instant now) {
  if (over_) {
    return;
  }
  Caller& caller = callers_[rank];
  caller.decides = true;
  caller.decisions[decision.sequence] = {
      .algorithm = decision.algorithm, .protocol = decision.protocol, .channels = decision.channels};
  schedule(now);
}

void World::close_group(std::int32_t rank, Instant now) {
  if (over_) {
    return;
  }
  Caller& caller = callers_[rank];
  if (caller.open.empty()) {
    return;
  }
  if (leader_ < 0) {
    leader_ = rank;
  }
  const std::vector<announce::OperationCall> calls = std::exchange(caller.open, {});
  Group group{.first = caller.collectives, .operations = {}, .called = now, .booked = account_.shares(now)};
  for (const announce::OperationCall& call : calls) {
    const Operation operation = operation_of(call);
    if (collective(operation)) {
      --group.first;
      group.operations.push_back(operation);
    } else if (!real(operation.root)) {
      peer_calls_.push_back({.real_rank = rank,
                             .operation = operation,
                             .called = now,
                             .booked = group.booked,
                             .sequence = peer_sequence_++});
    }
  }
  if (rank == leader_ && !group.operations.empty()) {
    groups_.push_back(std::move(group));
  }
  last_progress_ = now;
  watch(now);
  schedule(now);
  await_recognition(now);
}

void World::split(std::int32_t rank, int color, Instant now) {
  const auto& rules = tools_.options.splits;
  const std::size_t number = callers_[rank].splits++;
  const Split rule = rules.empty() ? Split{} : rules[std::min(number, rules.size() - 1)];
  const auto color_of = [&](std::int32_t r) {
    const auto size = static_cast<std::int32_t>(std::max<std::uint32_t>(rule.size, 1));
    return rule.rule == SplitRule::block ? r / size : rule.rule == SplitRule::stride ? r % size : 0;
  };
  if (color >= 0 && color != color_of(rank)) {
    fail("real rank " + std::to_string(rank) + " splits the communicator with color " + std::to_string(color) +
             "; by the rule of split " + std::to_string(number) + " it would be " + std::to_string(color_of(rank)) +
             ": give the rule under 'nccl: splits'",
         now);
    return;
  }
  if (number < splits_) {
    return;
  }
  ++splits_;
  Comm::Split ours;
  for (std::int32_t r = 0; r < ranks(); ++r) {
    ours.color.push_back(color_of(r));
    ours.key.push_back(r);
  }
  comm_->expect_split(std::move(ours));
}

void World::shrink(std::int32_t rank, const std::vector<std::int32_t>& excluded, Instant now) {
  if (callers_[rank].shrinks++ == shrinks_ && !over_) {
    ++shrinks_;
    comm_->shrink(excluded, now);
  }
}

void World::leave(std::int32_t rank, Instant now) {
  callers_.erase(rank);
  const bool busy = !groups_.empty() || !under_way_.empty();
  if (busy && !over_) {
    fail("real rank " + std::to_string(rank) + " is gone while operations are under way\n" + waits_for(), now);
  }
}

// --- from operations to transfers ---

CommShape World::shape() const {
  const auto& places = comm_->spec().ranks;
  std::uint32_t nodes = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    nodes += i == 0 || places[i].node != places[i - 1].node ? 1 : 0;
  }
  return {.ranks = static_cast<std::uint32_t>(places.size()),
          .nodes = nodes,
          .channels = static_cast<std::uint8_t>(comm_->topology().channels)};
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
  const PointToPointShape peer_shape{.ranks = static_cast<std::uint32_t>(ranks()),
                                     .channels = std::max(power_of_two(comm_->topology().channels), connections),
                                     .channels_per_peer = connections};
  // Connections are numbered in the order of their channels.
  std::vector<std::uint32_t> per_node;
  for (std::size_t i = 0; i < comm_->spec().ranks.size(); ++i) {
    const auto& places = comm_->spec().ranks;
    if (i == 0 || places[i].node != places[i - 1].node) {
      per_node.push_back(0);
    }
    ++per_node.back();
  }
  const PointToPointSchedule schedule(per_node, 8);
  const auto from = static_cast<std::uint32_t>(to_real ? ghost : call.real_rank);
  const auto to = static_cast<std::uint32_t>(to_real ? call.real_rank : ghost);
  const std::uint32_t round = schedule.round(from, to);
  std::vector<std::uint8_t> channels;
  for (std::uint32_t part = 0; part < connections; ++part) {
    channels.push_back(schedule.channel(peer_shape, round, part));
  }
  std::vector<std::uint8_t> sorted = channels;
  std::sort(sorted.begin(), sorted.end());

  const std::uint64_t bytes = call.operation.count * type_size(call.operation.type);
  const std::vector<PointToPointPart> parts = point_to_point_parts(peer_shape, bytes);
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
        call.operation, parts[part], to_real, point_to_point_clear_to_send(peer_shape), ghost, ghost_called, payloads_);
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

// --- the communicator ---

void World::on_topology(Comm& /*comm*/, Instant now) noexcept { last_progress_ = now; }

void World::on_edge(Comm& /*comm*/, const Edge& edge, Instant now) noexcept {
  last_progress_ = now;
  const EdgeTools tools{tools_.net, tools_.arena, tools_.any.wheel, *this};
  const auto& places = comm_->spec().ranks;
  const GhostId ghost = places[static_cast<std::size_t>(edge.ghost_rank)].ghost;
  const std::int32_t top = places[static_cast<std::size_t>(edge.real_rank)].top_rank;
  const auto tag = static_cast<std::uint32_t>(top >= 0 ? top : edge.real_rank);
  const EdgeKey key{edge.ghost_rank, edge.real_rank, edge.collective, edge.channel};
  tools_.net.book(edge.net, account_);
  if (edge.to_real) {
    auto& made = out_[key] = std::make_unique<OutEdge>(tools, edge, ghost, tag);
    out_by_net_[edge.net] = made.get();
  } else {
    auto& made = in_[key] = std::make_unique<InEdge>(tools, edge, ghost, tag);
    in_by_net_[edge.net] = made.get();
  }
}

void World::on_connected(Comm& /*comm*/, Instant now) noexcept {
  if (!connected_) {
    connected_ = now;
  }
  last_progress_ = now;
  schedule(now);
  await_recognition(now);
}

void World::on_split(Comm& /*parent*/, std::unique_ptr<Comm> child, Instant now) noexcept {
  tools_.user.on_child(*this, std::move(child), now);
}

void World::on_closed(Comm& /*comm*/, std::string_view why, Instant now) noexcept {
  if (over_) {
    return;
  }
  const bool busy = !groups_.empty() || !under_way_.empty();
  if (why.empty() && !busy) {
    over_ = true;
    end_ = "ended in order";
    tools_.any.wheel.cancel(watchdog_);
    tools_.user.on_failed(*this, {}, now);
    return;
  }
  fail((why.empty() ? "a real rank left while operations were under way" : std::string{why}) + "\n" + waits_for(), now);
}

// --- connections ---

void World::on_ready(NetId id, Instant now) noexcept {
  last_progress_ = now;
  if (const auto in = in_by_net_.find(id); in != in_by_net_.end()) {
    in->second->ready(now);
  } else if (const auto out = out_by_net_.find(id); out != out_by_net_.end()) {
    out->second->ready(now);
  }
}

void World::on_received(NetId id, std::uint64_t size, Instant now) noexcept {
  if (const auto in = in_by_net_.find(id); in != in_by_net_.end() && !over_) {
    in->second->received(size, now);
  }
}

void World::on_clear_to_send(NetId id, std::uint64_t size, std::uint32_t /*tag*/, Instant now) noexcept {
  if (const auto out = out_by_net_.find(id); out != out_by_net_.end() && !over_) {
    out->second->cleared(size, now);
    await_recognition(now);
  }
}

void World::on_sent(NetId id, Instant now) noexcept {
  if (const auto out = out_by_net_.find(id); out != out_by_net_.end() && !over_) {
    out->second->sent(now);
  }
}

void World::on_closed(NetId id, std::string_view why, Instant now) noexcept {
  in_by_net_.erase(id);
  out_by_net_.erase(id);
  if (!why.empty() && !over_) {
    fail(std::string{why} + "\n" + waits_for(), now);
  }
}

// --- progress ---

void World::on_progress(const Transfer& transfer, std::uint64_t bytes, bool to_real, Instant now) noexcept {
  last_progress_ = now;
  const auto found = under_way_.find(&transfer);
  if (found == under_way_.end()) {
    return;
  }
  OperationReport& report = found->second.progress->report;
  (to_real ? report.bytes_to_real : report.bytes_from_real) += bytes;
  if (report.first_message == Instant{}) {
    report.first_message = now;
  }
  report.last_message = now;
  if (!to_real) {  // what came may let others go on
    for (OutEdge* edge : found->second.out) {
      edge->advance(now);
    }
  }
}

void World::on_held(const Transfer& transfer, Instant until, Instant now) noexcept {
  const auto found = under_way_.find(&transfer);
  if (found == under_way_.end()) {
    return;
  }
  const OperationReport& report = found->second.progress->report;
  account_.hold(report.called + report.latest_by, until, now);
}

void World::explain(const Progress& progress, OperationReport& report, Instant now) const {
  const bool behind = last_end_ > report.called;
  report.behind = behind ? last_end_ - report.called : Duration::zero();
  report.shares = account_.shares(now).since(behind ? at_end_ : progress.booked);
}

void World::on_transfer_done(const Transfer& transfer, Instant now) noexcept {
  const auto found = under_way_.find(&transfer);
  if (found == under_way_.end()) {
    return;
  }
  Progress* const progress = found->second.progress;
  if (--progress->open_edges == 0) {
    progress->report.done = true;
    explain(*progress, progress->report, now);
    progress->report.firings = account_.take_firings(now);
    last_end_ = now;
    at_end_ = account_.shares(now);
    std::erase_if(under_way_, [progress](const auto& entry) { return entry.second.progress == progress; });
  }
}

void World::on_mismatch(const std::string& text, Instant now) noexcept {
  fail("what arrives is not what the schedule says\n  " + text, now);
}

void World::watch(Instant now) { tools_.any.wheel.arm(watchdog_, now + tools_.options.patience / 4); }

void World::on_timer(TimerNode& node, Instant now) noexcept {
  if (over_) {
    return;
  }
  if (&node == &recognition_) {
    recognise(now);
    return;
  }
  if (!connected_) {
    if (std::string waiting = comm_->waiting_for(); waiting != init_waits_for_) {
      init_waits_for_ = std::move(waiting);
      last_progress_ = now;
    }
  }
  const bool busy = !connected_ || !groups_.empty() || !peer_calls_.empty() || !under_way_.empty();
  if (busy && now - last_progress_ > tools_.options.patience) {
    fail("no progress for " +
             std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now - last_progress_).count()) + " s\n" +
             waits_for(),
         now);
    return;
  }
  watch(now);
}

std::string World::waits_for() const {
  constexpr int lines_max = 8;
  std::string out;
  int lines = 0;
  const auto add = [&](const std::string& line) {
    if (!line.empty() && lines++ < lines_max) {
      out += "  " + line + "\n";
    }
  };
  if (!connected_) {
    add("initialisation: " + comm_->waiting_for());
  }
  if (!groups_.empty()) {
    add("real rank " + std::to_string(leader_) + " called " + text(groups_.front().operations.front()) +
        (callers_.contains(leader_) && callers_.at(leader_).decides
             ? "; connections are missing"
             : "; no profiler plugin told how NCCL runs it, and what is cleared to send does not tell either"));
  }
  for (const PeerCall& call : peer_calls_) {
    add("real rank " + std::to_string(call.real_rank) + " called " + text(call.operation) + " with ghost rank " +
        std::to_string(call.operation.root) + "; there is no connection");
  }
  for (const auto* all : {&progress_, &peer_progress_}) {
    for (const auto& [number, progress] : *all) {
      if (!progress.report.done) {
        add("under way: " + text(progress.report.operation));
      }
    }
  }
  for (const auto& [key, edge] : in_) {
    add(edge->waits_for());
  }
  for (const auto& [key, edge] : out_) {
    add(edge->waits_for());
  }
  return out;
}

void World::fail(const std::string& text, Instant now) {
  if (over_) {
    return;
  }
  over_ = true;
  end_ = text;
  tools_.any.wheel.cancel(watchdog_);
  const auto& places = comm_->spec().ranks;
  const auto real_ranks =
      std::count_if(places.begin(), places.end(), [](const RankPlace& place) { return place.real; });
  tools_.user.on_failed(
      *this,
      "communicator of " + std::to_string(ranks()) + " ranks, " + std::to_string(real_ranks) + " of them real: " + text,
      now);
}

WorldReport World::report() const {
  WorldReport out;
  out.hash = comm_->hash();
  out.version = comm_->spec().version->code;
  out.ranks = comm_->spec().ranks.size();
  for (std::int32_t rank = 0; rank < ranks(); ++rank) {
    if (real(rank)) {
      out.real.push_back(rank);
    }
  }
  out.channels = comm_->topology().channels;
  out.started = started_;
  out.connected = connected_;
  out.operations = collectives_before_ + collectives_.size() + peer_sequence_;
  const std::string waiting = waits_for();
  out.state = over_ ? end_ : waiting.empty() ? "idle" : waiting;
  bool oldest = true;  // of those that have not ended
  for (const auto* all : {&progress_, &peer_progress_}) {
    for (const auto& [number, progress] : *all) {
      OperationReport& report = out.recent.emplace_back(progress.report);
      if (!report.done) {
        const Instant seen = std::max(account_.seen(), report.called);
        explain(progress, report, seen);
        report.last_message = std::max(report.last_message, seen);
        report.firings = oldest ? account_.firings(seen) : std::vector<Firing>{};
        oldest = false;
      }
    }
  }
  std::stable_sort(out.recent.begin(), out.recent.end(),
                   [](const OperationReport& a, const OperationReport& b) { return a.called < b.called; });
  return out;
}

}  // namespace nbx::nccl
