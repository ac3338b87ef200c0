// How NCCL runs an operation that was announced without a decision, because another profiler plugin has the place: the
// sizes and numbers of the receives that the real ranks post at its start tell protocol, algorithm and channels. Real
// ranks that only send post none: they are asked for one message on each connection, and its size tells.
#include <algorithm>

#include "nccl-glue/plan/names.hpp"
#include "nccl-glue/service/world.hpp"

namespace nbx::nccl {
namespace {

// For what real ranks send and clear to send at the start of an operation to have come, counted from the latest; at
// first decisions may be on their way.
constexpr Duration recognition_settle = std::chrono::milliseconds{5};
constexpr Duration decision_wait = std::chrono::milliseconds{500};

}  // namespace

void World::await_recognition(Instant now) {
  const bool told = leader_ < 0 || groups_.empty() || callers_[leader_].decides;
  if (!told) {
    tools_.any.wheel.arm(recognition_, now + (recognised_ ? recognition_settle : decision_wait));
  }
}

void World::recognise(Instant now) {
  if (groups_.empty() || callers_[leader_].decides || comm_->topology().channels == 0) {
    return;
  }
  const Group& group = groups_.front();
  const std::vector<Decision> fit = decisions_that_fit(group, now);
  if (over_) {
    return;
  }
  if (fit.empty()) {  // more is to come; if it does not, the watchdog says what is missing
    ask(now);
    return;
  }
  for (const Decision& other : fit) {
    if (other.algorithm != fit.front().algorithm || other.protocol != fit.front().protocol) {
      fail("how NCCL runs " + text(group.operations.front()) + " was not announced, and what real rank " +
               std::to_string(leader_) + " has cleared to send fits " + name(fit.front().algorithm) + " with " +
               name(fit.front().protocol) + " as well as " + name(other.algorithm) + " with " + name(other.protocol) +
               ": load the profiler plugin",
           now);
      return;
    }
  }
  recognised_ = true;
  for (std::size_t i = 0; i < group.operations.size(); ++i) {
    callers_[leader_].decisions[group.first + i] = fit.front();
  }
  schedule(now);
  await_recognition(now);
}

void World::on_untaken(Instant now) noexcept { tools_.any.wheel.arm(recognition_, now + recognition_settle); }

void World::ask(Instant now) {
  const auto waits = [](const auto& entry) {
    return std::get<bool>(entry.first) && !entry.second->unclaimed().empty();
  };
  if (std::ranges::any_of(out_, waits)) {
    return;
  }
  const std::uint64_t room = std::uint64_t{step_units(Collective::all_reduce, {}).slice} *
                             shape().buffers.step(Protocol::simple);  // none is larger
  for (const auto& [key, edge] : in_) {
    if (std::get<bool>(key)) {
      edge->ask(room, now);
    }
  }
  await_recognition(now);  // again, for the edges that are busy yet
}

std::vector<Decision> World::decisions_that_fit(const Group& group, Instant now) {
  std::set<std::uint8_t> channels;
  for (const auto& [key, edge] : in_) {
    if (edge->untaken()) {
      channels.insert(std::get<std::uint8_t>(key));
    }
  }
  for (const auto& [key, edge] : out_) {
    if (std::get<bool>(key) && !edge->unclaimed().empty()) {
      channels.insert(std::get<std::uint8_t>(key));
    }
  }
  std::vector<Decision> fit;
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::tree}) {
    for (const Protocol protocol : {Protocol::simple, Protocol::ll, Protocol::ll128}) {
      for (std::size_t count = std::max<std::size_t>(channels.size(), 1); count <= shape().channels; ++count) {
        const Decision decision{
            .algorithm = algorithm, .protocol = protocol, .channels = static_cast<std::uint8_t>(count)};
        if (fits(group, decision, channels, now)) {
          fit.push_back(decision);
          break;
        }
      }
    }
  }
  return fit;
}

/// Whether the real ranks have cleared to send, or sent, exactly what they would at the start of a group that is run
/// like this.
bool World::fits(const Group& group, const Decision& decision, const std::set<std::uint8_t>& channels, Instant now) {
  std::vector<PlannedOperation> operations;
  for (const Operation& operation : group.operations) {
    if (decision.algorithm == Algorithm::tree && operation.collective != Collective::all_reduce) {
      return false;
    }
    operations.push_back({operation, operation.count == 0 ? Decision{} : decision});
  }
  const auto placements = place(*comm_->spec().version, shape(), operations);
  if (!placements) {
    return false;
  }
  std::set<std::uint8_t> used;
  for (const Placement& placement : *placements) {
    for (const Share& share : placement.shares) {
      used.insert(share.channel);
    }
  }
  if (!std::includes(used.begin(), used.end(), channels.begin(), channels.end())) {
    return false;
  }
  ProgressMap scratch;
  const auto planned = plan(group, operations, scratch, now);
  if (!planned) {
    return false;
  }
  // By the first operation that uses an edge:
  std::map<const OutEdge*, std::deque<std::uint64_t>> cleared;
  std::map<const InEdge*, std::uint64_t> first_sizes;
  for (const auto& [progress, transfers] : *planned) {
    for (const Planned& one : transfers) {
      for (const auto& [edge, index] : one.out) {
        const std::uint64_t messages =
            std::min<std::uint64_t>(one.transfer->messages_out(index), one.transfer->window());
        if (messages > 0) {
          const std::uint64_t room = std::uint64_t{step_units(progress->report.operation.collective, decision).slice} *
                                     shape().buffers.step(decision.protocol);
          cleared.try_emplace(edge, messages, room);
        }
      }
      for (const auto& [edge, index] : one.in) {
        if (one.transfer->messages_in(index) > 0) {
          first_sizes.try_emplace(edge, edge->first_size(*one.transfer, index));
        }
      }
    }
  }
  const bool all_cleared = std::ranges::all_of(out_, [&](const auto& entry) {
    const auto expected = cleared.find(entry.second.get());
    return !std::get<bool>(entry.first) ||
           entry.second->unclaimed() == (expected == cleared.end() ? std::deque<std::uint64_t>{} : expected->second);
  });
  const bool all_sent = std::ranges::all_of(in_, [&](const auto& entry) {
    const auto& untaken = entry.second->untaken();
    const auto expected = first_sizes.find(entry.second.get());
    return untaken ? expected != first_sizes.end() && expected->second == *untaken
                   : expected == first_sizes.end() || !cleared.empty();
  });
  return all_cleared && all_sent && !(cleared.empty() && first_sizes.empty());
}

}  // namespace nbx::nccl
