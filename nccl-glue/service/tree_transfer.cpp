#include "nccl-glue/service/tree_transfer.hpp"

#include <algorithm>

namespace nbx::nccl {

TreeTransfer::TreeTransfer(const PlannedOperation& planned, const TreePlan& plan, TreeGroup place,
                           std::vector<Instant> called, const DelayModel& delay, Payloads& payloads)
    : planned_(planned),
      plan_(plan),
      place_(std::move(place)),
      called_(std::move(called)),
      delay_(delay),
      payloads_(payloads) {}

TreeTransfer::~TreeTransfer() {
  for (auto& [i, c] : chunks_) {
    drop(c);
  }
}

std::uint64_t TreeTransfer::messages_in(unsigned /*edge*/) const { return plan_.messages(); }
std::uint64_t TreeTransfer::messages_out(unsigned /*edge*/) const { return plan_.messages(); }

Transfer::Offer TreeTransfer::offer(unsigned /*edge*/, std::uint64_t i) const {
  return {.room = plan_.clear_to_send(), .size = plan_.wire_bytes(plan_.message(i).bytes)};
}

Instant TreeTransfer::open(unsigned /*edge*/) const { return *std::min_element(called_.begin(), called_.end()); }

TreeTransfer::Chunk& TreeTransfer::chunk(std::uint64_t i) {
  Chunk& c = chunks_[i];
  c.up.resize(place_.child_depth.size());
  return c;
}

void TreeTransfer::received(unsigned edge, std::uint64_t i, const Message& message) {
  Chunk& c = chunk(i);
  if (edge != place_.parent()) {
    c.up[edge] = message;
  } else if (place_.child_depth.empty()) {
    payloads_.give_back(message);  // nobody real below
    chunks_.erase(i);
  } else {
    c.down = message;
  }
}

Duration TreeTransfer::hop(std::uint64_t i, bool reduces) const {
  const std::uint32_t bytes = plan_.message(i).bytes;
  return delay_.hop({.wire = plan_.wire_bytes(bytes), .data = bytes}, reduces);
}

Instant TreeTransfer::all_called(Duration hop) const {
  Instant at = called_.front();
  for (std::size_t g = 0; g < place_.ghosts.size(); ++g) {
    at = std::max(at, called_[g] + hop * place_.ghosts[g].depth);
  }
  return at;
}

Instant TreeTransfer::up_ready(std::uint64_t i) {
  const Duration per_hop = hop(i, true);
  Instant at = all_called(per_hop);
  if (place_.child_depth.empty()) {
    return at;
  }
  const Chunk& c = chunk(i);
  for (std::size_t child = 0; child < c.up.size(); ++child) {
    if (!c.up[child]) {
      return Instant::never();
    }
    at = std::max(at, c.up[child]->arrival + per_hop * place_.child_depth[child]);
  }
  return at;
}

Instant TreeTransfer::down_ready(std::uint64_t i) {
  const Chunk& c = chunk(i);
  if (place_.has_parent) {
    return c.down ? c.down->arrival : Instant::never();
  }
  return c.sum ? c.sum->arrival : up_ready(i);
}

Instant TreeTransfer::ready(unsigned edge, std::uint64_t i) {
  if (edge == place_.parent()) {
    return up_ready(i);
  }
  const Instant at = down_ready(i);
  return at == Instant::never() ? at : at + hop(i, false) * place_.child_depth[edge];
}

Outgoing TreeTransfer::take(unsigned edge, std::uint64_t i, std::uint64_t step) {
  return edge == place_.parent() ? sum(i, step, false) : take_down(edge, i, step);
}

Outgoing TreeTransfer::sum(std::uint64_t i, std::uint64_t step, bool finished) {
  const Operation& operation = planned_.operation;
  const Protocol protocol = planned_.decision.protocol;
  const TreeMessage shape = plan_.message(i);
  const Extent extent{shape.offset, shape.bytes};
  Chunk& c = chunk(i);
  const auto complete = [&](MutableBytes data) {
    for (const TreeGroup::Member& ghost : place_.ghosts) {
      payloads_.contribute(data, operation, ghost.rank, extent);
    }
    if (finished) {
      divide(data, operation.type, operation.op, payloads_.ranks());
    }
  };
  const bool computes = payloads_.contributes() || (finished && operation.op == RedOp::avg);
  if (c.up.empty()) {
    if (!computes) {
      chunks_.erase(i);
      return payloads_.identity(operation, protocol, shape.bytes, step);
    }
    std::vector<std::byte> data(shape.bytes);
    fill_identity(data, operation.type, operation.op);
    complete(data);
    chunks_.erase(i);
    return payloads_.made(data, protocol, step);
  }
  const Message first = *c.up.front();
  std::vector<Message> others;
  for (std::size_t child = 1; child < c.up.size(); ++child) {
    others.push_back(*c.up[child]);
  }
  std::fill(c.up.begin(), c.up.end(), std::nullopt);
  if (others.empty() && !computes) {
    return payloads_.passed(first, protocol, shape.bytes, step);
  }
  const Outgoing out = payloads_.passed(first, protocol, shape.bytes, step, [&](MutableBytes data) {
    for (const Message& other : others) {
      nccl::reduce(data, payloads_.data(other, protocol, shape.bytes), operation.type, operation.op);
    }
    complete(data);
  });
  for (const Message& other : others) {
    payloads_.give_back(other);
  }
  return out;
}

Outgoing TreeTransfer::take_down(unsigned /*edge*/, std::uint64_t i, std::uint64_t step) {
  const TreeMessage shape = plan_.message(i);
  Chunk& c = chunk(i);
  std::optional<Message>& result = place_.has_parent ? c.down : c.sum;
  if (!result) {  // the root is one of us: the sum is the result
    const Instant at = up_ready(i);
    const Outgoing made = sum(i, step, true);
    result = Message{.buffer = made.buffer, .size = made.size, .arrival = at};
  }
  if (++c.taken < place_.child_depth.size()) {
    return payloads_.copied(*result, planned_.decision.protocol, step);
  }
  const Message last = *result;
  result.reset();
  chunks_.erase(i);
  return payloads_.passed(last, planned_.decision.protocol, shape.bytes, step);
}

void TreeTransfer::drop(Chunk& c) {
  for (const auto& message : c.up) {
    if (message) {
      payloads_.give_back(*message);
    }
  }
  for (const auto* message : {&c.down, &c.sum}) {
    if (*message) {
      payloads_.give_back(**message);
    }
  }
}

}  // namespace nbx::nccl
