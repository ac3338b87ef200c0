#include "nccl-glue/service/world.hpp"

#include <algorithm>
#include <utility>

#include "nccl-glue/plan/names.hpp"
#include "nccl-glue/service/ring_transfer.hpp"

namespace nbx::nccl {
namespace {

bool collective(const Operation& operation) {
  return operation.collective != Collective::send && operation.collective != Collective::recv;
}

Operation operation_of(const announce::OperationCall& call) {
  return {.collective = call.collective, .count = call.count, .type = call.type, .op = call.op, .root = call.root};
}

}  // namespace

World::World(const Tools& tools, CommSpec spec, const announce::Variables& variables, Instant now)
    : tools_(tools),
      payloads_(tools.arena, tools.options, static_cast<std::uint32_t>(spec.ranks.size())),
      variables_(variables),
      started_(now),
      last_progress_(now),
      comm_(std::make_unique<Comm>(tools.any, tools.lobby, tools.net, std::move(spec), *this)) {
  watchdog_.client = this;
  recognition_.client = this;
  watch(now);
  comm_->start(now);
}

World::World(const Tools& tools, std::unique_ptr<Comm> comm, const announce::Variables& variables, Instant now)
    : tools_(tools),
      payloads_(tools.arena, tools.options, static_cast<std::uint32_t>(comm->spec().ranks.size())),
      variables_(variables),
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
  } else if (collectives_[at] != operation) {
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

// --- the communicator ---

void World::on_topology(Comm& /*comm*/, Instant now) noexcept { last_progress_ = now; }

void World::on_edge(Comm& /*comm*/, const Edge& edge, Instant now) noexcept {
  last_progress_ = now;
  const EdgeTools tools{tools_.net, tools_.arena, tools_.any.wheel, *this};
  const auto& places = comm_->spec().ranks;
  const GhostId ghost = places[static_cast<std::size_t>(edge.ghost_rank)].ghost;
  const auto tag = static_cast<std::uint32_t>(edge.real_rank);
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
             : "; no profiler plugin told how NCCL runs it, and what the real ranks send and clear to send does not "
               "tell either"));
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
