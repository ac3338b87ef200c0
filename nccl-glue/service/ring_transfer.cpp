#include "nccl-glue/service/ring_transfer.hpp"

#include <algorithm>

namespace nbx::nccl {

RingTransfer::RingTransfer(const PlannedOperation& planned, const RingPlan& plan, RingPlace place,
                           RunReadiness readiness, const DelayModel& delay, Payloads& payloads)
    : planned_(planned),
      plan_(plan),
      place_(std::move(place)),
      readiness_(std::move(readiness)),
      delay_(delay),
      payloads_(payloads) {}

RingTransfer::~RingTransfer() {
  for (const auto& [number, message] : stored_) {
    payloads_.give_back(message);
  }
}

std::uint64_t RingTransfer::messages_in(unsigned /*edge*/) const { return plan_.receives(place_.first()); }
std::uint64_t RingTransfer::messages_out(unsigned /*edge*/) const { return plan_.sends(place_.last); }

Transfer::Offer RingTransfer::offer(unsigned /*edge*/, std::uint64_t i) const {
  return {.room = plan_.clear_to_send(), .size = plan_.wire_bytes(plan_.received(place_.first(), i).bytes)};
}

Instant RingTransfer::open(unsigned /*edge*/) const { return readiness_.called(place_.length - 1); }

void RingTransfer::received(unsigned /*edge*/, std::uint64_t i, const Message& message) {
  const RingMessage about = plan_.received(place_.first(), i);
  if (in_loops() && about.slice + 1 == plan_.slices() && about.position + place_.length >= plan_.positions()) {
    ends_.emplace(i, message.arrival);
  }
  if (sent_on_as(i)) {
    stored_.emplace(i, message);
  } else {
    payloads_.give_back(message);
  }
}

std::optional<std::uint64_t> RingTransfer::sent_on_as(std::uint64_t i) const {
  std::uint64_t out = i;
  const Collective collective = planned_.operation.collective;
  if (collective != Collective::broadcast && collective != Collective::reduce) {
    if (plan_.received(place_.first(), i).position + place_.length >= plan_.positions()) {
      return std::nullopt;
    }
    out += static_cast<std::uint64_t>(place_.length) * plan_.slices();
  }
  const bool stems = out < plan_.sends(place_.last) && plan_.source(place_.last, out, place_.length) == i;
  return stems ? std::optional{out} : std::nullopt;
}

Instant RingTransfer::ready(unsigned /*edge*/, std::uint64_t i) {
  const RingMessage message = plan_.sent(place_.last, i);
  const MessageSize size{.wire = plan_.wire_bytes(message.bytes), .data = message.bytes};
  const Duration work = delay_.work(size, reduces(message));
  const Duration hop = place_.length > 1 ? delay_.hop(size, reduces(message)) : Duration::zero();
  const auto source = plan_.source(place_.last, i, place_.length);
  if (!source) {
    return own_ready(message, work, hop);
  }
  const auto found = stored_.find(*source);
  return found != stored_.end() ? readiness_.passed(found->second.arrival, work, hop) : Instant::never();
}

bool RingTransfer::in_loops() const {
  const Collective collective = planned_.operation.collective;
  return collective != Collective::broadcast && collective != Collective::reduce;
}

std::uint64_t RingTransfer::end_of(std::uint64_t loop, std::uint32_t distance) const {
  const std::uint64_t from_first = place_.length - 1 - distance;
  return ((loop + 1) * plan_.positions() - from_first) * plan_.slices() - 1;
}

Instant RingTransfer::loop_ended(std::uint64_t loop, std::uint32_t distance) const {
  const auto found = ends_.find(end_of(loop, distance));
  return found != ends_.end() ? found->second : Instant::never();
}

Instant RingTransfer::ended(std::uint32_t distance) const {
  return in_loops() && plan_.loops() > 0 ? loop_ended(plan_.loops() - 1, distance) : Instant{};
}

/// A ghost that begins a loop has ended the one before it; what ended it passed the ghosts in front of this one, and
/// the message that it sends passes those behind it: together the way of one message through the run.
Instant RingTransfer::own_ready(const RingMessage& message, Duration work, Duration hop) {
  const Instant own = readiness_.own(message.hops, work, hop);
  if (!in_loops() || (message.loop == 0 && before_ == nullptr)) {
    return own;
  }
  const bool first = message.loop == 0;
  const Instant ended = first ? before_->ended(message.hops) : loop_ended(message.loop - 1, message.hops);
  if (ended == Instant::never()) {
    return ended;
  }
  // What ended the collective before met ghosts that had called that one; they need not have called this one.
  RunReadiness& met = first ? before_->readiness_ : readiness_;
  return ended == Instant{} ? own : std::max(own, met.passed(ended, work, hop));
}

Outgoing RingTransfer::take(unsigned /*edge*/, std::uint64_t i, std::uint64_t step) {
  const RingMessage message = plan_.sent(place_.last, i);
  const auto source = plan_.source(place_.last, i, place_.length);
  if (message.loop == 0 && message.slice + 1 == plan_.slices() && message.hops + 1 == place_.length) {
    before_.reset();
  }
  if (!source) {
    return first_sent(message, step);
  }
  const auto found = stored_.find(*source);
  const Message came = found->second;
  stored_.erase(found);
  return sent_on(message, came, step);
}

Transfer::Steps RingTransfer::steps() const {
  return {.per_message = plan_.steps_per_message(),
          .align = static_cast<std::uint32_t>(plan_.steps_per_message() * plan_.slices()),
          .whole = planned_.decision.protocol == Protocol::ll ? plan_.clear_to_send() : 0};
}

unsigned RingTransfer::window() const { return steps_in_flight / plan_.steps_per_message(); }

bool RingTransfer::reduces(const RingMessage& message) const {
  switch (planned_.operation.collective) {
    case Collective::all_reduce:
      return message.hops < place_.ranks;
    case Collective::reduce_scatter:
    case Collective::reduce:
      return true;
    default:
      return false;
  }
}

Outgoing RingTransfer::first_sent(const RingMessage& message, std::uint64_t step) {
  const Protocol protocol = planned_.decision.protocol;
  const Operation& operation = planned_.operation;
  if (!reduces(message)) {
    return payloads_.own(operation, protocol, place_.rank_at(message.hops), {message.offset, message.bytes}, step);
  }
  if (!payloads_.contributes()) {
    return payloads_.identity(operation, protocol, message.bytes, step);
  }
  std::vector<std::byte> data(message.bytes);
  fill_identity(data, operation.type, operation.op);
  add_contributions(data, message, message.hops);
  return payloads_.made(data, protocol, step);
}

Outgoing RingTransfer::sent_on(const RingMessage& message, const Message& came, std::uint64_t step) {
  const Operation& operation = planned_.operation;
  const std::uint32_t turn = place_.ranks - 1;  // hops after which an all-reduce's message is finished
  const bool finished_here =
      operation.collective == Collective::all_reduce && message.hops >= turn && message.hops - turn < place_.length;
  const bool adds = payloads_.contributes() && operation.collective != Collective::all_gather &&
                    operation.collective != Collective::broadcast;
  const bool divides = finished_here && operation.op == RedOp::avg;
  if (!adds && !divides) {
    return payloads_.passed(came, planned_.decision.protocol, message.bytes, step);
  }
  return payloads_.passed(came, planned_.decision.protocol, message.bytes, step, [&](MutableBytes data) {
    if (adds) {
      add_contributions(data, message, place_.length - 1);
    }
    if (divides) {
      divide(data, operation.type, operation.op, place_.ranks);
    }
  });
}

void RingTransfer::add_contributions(MutableBytes data, const RingMessage& message, std::uint32_t from) const {
  const Operation& operation = planned_.operation;
  // The ghost at distance d saw the message hops - d ranks after its origin.
  for (std::uint32_t d = from + 1; d-- > 0;) {
    const bool adds = operation.collective != Collective::all_reduce || message.hops - d < place_.ranks;
    if (adds) {
      payloads_.contribute(data, operation, place_.rank_at(d), {message.offset, message.bytes});
    }
  }
}

}  // namespace nbx::nccl
