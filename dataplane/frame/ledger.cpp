#include "frame/ledger.hpp"

#include <bit>

namespace nbx {
namespace {

/// Queue pair numbers are a node's own, so the peer's address belongs to the key.
std::uint64_t key_of(Direction direction, GhostId ghost, const IpAddress& peer, Qpn dest_qpn) {
  const auto halves = std::bit_cast<std::array<std::uint64_t, 2>>(peer.octets);
  constexpr std::uint64_t odd = 0x9e37'79b9'7f4a'7c15;
  return (halves[0] ^ (halves[1] * odd) ^ (std::uint64_t{index(ghost)} << 24U | dest_qpn.value)) * odd +
         static_cast<std::uint64_t>(direction);
}

bool is_response(wire::Operation operation) {
  using enum wire::Operation;
  return operation == acknowledge || operation == atomic_acknowledge || operation == rdma_read_response;
}

bool acknowledges(const wire::Parsed& packet) {
  return packet.op().operation == wire::Operation::acknowledge &&
         (packet.syndrome & wire::syndrome::type_mask) == wire::syndrome::ack;
}

}  // namespace

void Ledger::open(const QueuePairs& pair, Account& account) {
  auto flow = std::make_shared<Flow>();
  flow->account = &account;
  flows_[key_of(Direction::from_node, pair.ghost, pair.peer, pair.qpn)] = flow;
  flows_[key_of(Direction::to_node, pair.ghost, pair.peer, pair.peer_qpn)] = std::move(flow);
}

void Ledger::close(const QueuePairs& pair) {
  flows_.erase(key_of(Direction::from_node, pair.ghost, pair.peer, pair.qpn));
  flows_.erase(key_of(Direction::to_node, pair.ghost, pair.peer, pair.peer_qpn));
}

void Ledger::record_roce(const Frame& frame, Direction direction, Instant now) noexcept {
  const bool to_node = direction == Direction::to_node;
  const IpAddress peer =
      to_node ? wire::destination_ip(frame.bytes(), frame.parsed) : wire::source_ip(frame.bytes(), frame.parsed);
  const auto found = flows_.find(key_of(direction, frame.ghost, peer, frame.parsed.dest_qpn));
  if (found != flows_.end() && frame.parsed.op().operation != wire::Operation::congestion_notification) {
    book(*found->second, frame, direction, now);
  }
}

void Ledger::repair(Flow& flow, Harmed& harmed, Instant now) noexcept {
  harmed.open = false;
  --flow.open;
  flow.account->repair(harmed.firing, now);
}

void Ledger::book(Flow& flow, const Frame& frame, Direction direction, Instant now) noexcept {
  const wire::Parsed& packet = frame.parsed;
  const Treatment& treatment = frame.treatment;
  Account& account = *flow.account;
  const bool response = is_response(packet.op().operation);
  auto& this_way = flow.harmed[static_cast<std::size_t>(direction)];
  Harmed& same_kind = this_way[response ? 1 : 0];

  const auto harm = [&](Effect effect) {
    const std::size_t firing = account.fire(frame, direction, effect, now);
    if (!same_kind.open && !treatment.duplicate) {
      same_kind = {.open = true, .psn = packet.psn, .firing = firing};
      ++flow.open;
      account.harm(firing, &flow, now);
    }
  };
  if (treatment.dropped != Drop::none) {
    harm(treatment.dropped == Drop::loss || treatment.dropped == Drop::event ? Effect::loss
         : treatment.dropped == Drop::link_down                              ? Effect::link_down
                                                                             : Effect::no_room);
    return;
  }
  if (treatment.corrupted) {
    harm(Effect::corrupt);
  } else if (treatment.reordered) {
    harm(Effect::reorder);
  } else {
    if (same_kind.open && (response ? !packet.psn.before(same_kind.psn) : packet.psn == same_kind.psn)) {
      repair(flow, same_kind, now);
    }
    Harmed& request = flow.harmed[direction == Direction::to_node ? 0 : 1][0];
    if (request.open && acknowledges(packet) && !packet.psn.before(request.psn)) {
      repair(flow, request, now);
    }
  }
  if (treatment.duplicate) {
    account.fire(frame, direction, Effect::duplicate, now);
  }
  if (treatment.ecn_marked) {
    account.fire(frame, direction, Effect::ecn, now);
  }
  if (treatment.delay != Duration::zero()) {
    account.fire(frame, direction, Effect::delay, now);
  }
  if (flow.open == 0) {  // else it is part of the repair, or of no use before
    account.pass(frame, direction, &flow, now);
  }
}

}  // namespace nbx
