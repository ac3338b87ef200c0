#include "events/table.hpp"

#include <algorithm>

#include "base/overloaded.hpp"

namespace nbx::events {
namespace {

constexpr std::size_t slots_min = 64;       // a power of two
constexpr std::size_t slots_of_key = 4;     // at least
constexpr std::size_t silences_max = 4096;  // queue pairs in both directions; a power of two

constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 31U)) * 0x9e37'79b9'7f4a'7c15ULL;
  return x ^ (x >> 29U);
}

bool is_response(const wire::Parsed& p) noexcept {
  using enum wire::Operation;
  const wire::Operation operation = p.op().operation;
  return operation == acknowledge || operation == atomic_acknowledge || operation == rdma_read_response;
}

/// What a responder of a reliable connection would answer.
bool is_reliable_request(const wire::Parsed& p) noexcept {
  return p.kind == wire::FrameKind::roce_v2 && wire::transport_of(p.opcode) == wire::Transport::rc && !is_response(p);
}

/// The byte as counted from the start of the frame; nothing when the packet has none there.
std::uint32_t byte_of(const Corrupt& action, const Frame& frame) noexcept {
  constexpr std::uint32_t icrc_size = 4;
  const wire::Parsed& p = frame.parsed;
  const bool roce = p.kind == wire::FrameKind::roce_v2;
  const std::uint32_t at = (roce ? p.bth_offset : p.l3_offset) + action.byte;
  const std::uint32_t end = roce ? p.end_offset - icrc_size : frame.size;
  return at < end ? at : 0;
}

std::uint8_t syndrome_of(NakCode code) noexcept {
  switch (code) {
    case NakCode::psn_sequence_error:
      return wire::syndrome::nak_psn_sequence_error;
    case NakCode::invalid_request:
      return wire::syndrome::nak_invalid_request;
    case NakCode::remote_access_error:
      return wire::syndrome::nak_remote_access_error;
    case NakCode::remote_operational_error:
      return wire::syndrome::nak_remote_operational_error;
  }
  return wire::syndrome::nak_psn_sequence_error;
}

std::uint64_t pair_key(GhostId ghost, Qpn qpn) noexcept { return std::uint64_t{index(ghost)} << 24U | qpn.value; }

bool waits_for_connection(const Match& match) noexcept {
  return match.qp != 0 || match.psn_offset.has_value() || match.edge.has_value();
}

bool is_meant(const EdgeMatch& match, const std::optional<RankEdge>& edge) noexcept {
  return edge && match.from.value_or(edge->from) == edge->from && match.to.value_or(edge->to) == edge->to &&
         match.channel.value_or(edge->channel) == edge->channel &&
         match.send_recv.value_or(edge->send_recv) == edge->send_recv;
}

}  // namespace

Table::Table(const std::vector<Spec>& specs, Host& host, Instant loaded)
    : specs_(specs),
      states_(specs.size()),
      host_(host),
      loaded_(loaded),
      slots_(slots_min),
      filter_(slots_min / slots_of_key),
      log_(log_max) {
  for (std::uint32_t i = 0; i < specs_.size(); ++i) {
    const Match& match = specs_[i].match;
    states_[i].nth = Ordinals{match.nth};
    if (const auto* reorder = std::get_if<Reorder>(&specs_[i].action)) {
      const auto known = std::find(holds_.begin(), holds_.end(), *reorder);
      states_[i].hold = static_cast<std::uint32_t>(known - holds_.begin()) + 1;
      if (known == holds_.end()) {
        holds_.push_back(*reorder);
      }
    }
    const auto* silent = std::get_if<Silent>(&specs_[i].action);
    if (silent != nullptr && silent->scope == Silent::Scope::qp && silences_.empty()) {
      silences_.resize(silences_max);
    }
    std::vector<GhostId> ghosts = match.ghosts;
    if (ghosts.empty()) {
      ghosts.push_back(no_ghost);
    }
    for (const GhostId ghost : ghosts) {
      if (waits_for_connection(match)) {
        bindable_[index(ghost)].push_back(i);
        continue;
      }
      Instance instance;
      instance.event = i;
      instance.shape = static_cast<std::uint8_t>(ghost != no_ghost ? by_ghost : Shape{});
      instance.ghost = ghost;
      if (match.dest_qpn) {
        instance.shape |= by_qpn;
        instance.qpn = *match.dest_qpn;
      }
      add_psns(instance, match);
    }
  }
}

void Table::add_psns(const Instance& like, const Match& match) {
  Instance instance = like;
  instance.direction = specs_[like.event].direction;
  if (match.message != 0) {
    instance.kind = Kind::request;
  }
  if (!match.psn_first) {
    add(instance);
    return;
  }
  instance.shape |= by_psn;
  const Psn last = match.psn_last.value_or(*match.psn_first);
  for (Psn psn = *match.psn_first;; psn = psn.next()) {
    instance.psn = psn;
    add(instance);
    if (psn == last) {
      return;
    }
  }
}

void Table::bind(const Connection& connection) {
  for (const GhostId ghost : {connection.ghost, no_ghost}) {
    if (const auto found = bindable_.find(index(ghost)); found != bindable_.end()) {
      for (const std::uint32_t event : found->second) {
        bind_event(event, connection);
      }
    }
  }
}

void Table::bind_event(std::uint32_t event, const Connection& connection) {
  const Match& match = specs_[event].match;
  const bool to_node = specs_[event].direction == Direction::to_node;
  const Qpn qpn = to_node ? connection.peer_qpn : connection.qpn;
  if ((match.qp != 0 && match.qp != connection.number) || (match.dest_qpn && *match.dest_qpn != qpn) ||
      (match.edge && !is_meant(*match.edge, connection.edge))) {
    return;
  }
  Instance instance;
  instance.event = event;
  instance.shape = by_ghost | by_qpn;
  instance.ghost = connection.ghost;
  instance.qpn = qpn;
  const std::size_t before = instances_.size();
  if (match.psn_offset) {
    // Acknowledgements carry the PSNs of the requests of the other direction.
    constexpr unsigned acknowledgements =
        1U << static_cast<unsigned>(wire::OpcodeClass::ack) | 1U << static_cast<unsigned>(wire::OpcodeClass::nak);
    const bool response = (match.classes & ~acknowledgements) == 0;
    instance.kind = response ? Kind::response : Kind::request;
    Match at = match;
    at.psn_first = (to_node != response ? connection.sq_psn : connection.rq_psn).plus(*match.psn_offset);
    at.psn_last.reset();
    add_psns(instance, at);
  } else {
    add_psns(instance, match);
  }
  std::vector<std::uint32_t>& mine = bound_[pair_key(connection.ghost, connection.qpn)];
  for (std::size_t i = before; i < instances_.size(); ++i) {
    mine.push_back(static_cast<std::uint32_t>(i));
  }
}

void Table::unbind(GhostId ghost, Qpn qpn) {
  const auto found = bound_.find(pair_key(ghost, qpn));
  if (found == bound_.end()) {
    return;
  }
  for (const std::uint32_t i : found->second) {
    instances_[i].gone = true;
  }
  gone_ += found->second.size();
  bound_.erase(found);
  constexpr std::size_t few = 1024;
  if (gone_ > few && gone_ > instances_.size() / 2) {
    forget_gone();
  }
}

// Connections come and go for as long as the emulator runs; what is kept of them must not grow with all that ever were.
void Table::forget_gone() {
  std::vector<std::uint32_t> now_at(instances_.size(), none);
  std::vector<Instance> kept;
  for (std::uint32_t i = 0; i < instances_.size(); ++i) {
    if (!instances_[i].gone) {
      now_at[i] = static_cast<std::uint32_t>(kept.size());
      kept.push_back(instances_[i]);
    }
  }
  for (auto& [key, mine] : bound_) {
    for (std::uint32_t& i : mine) {
      i = now_at[i];
    }
  }
  instances_.clear();
  slots_.assign(slots_min, {});
  filter_ = KeyFilter{slots_min / slots_of_key};
  slots_taken_ = 0;
  gone_ = 0;
  for (const Instance& instance : kept) {
    add(instance);
  }
}

std::uint64_t Table::key_of(Direction direction, unsigned shape, GhostId ghost, Qpn qpn, Psn psn) noexcept {
  std::uint64_t hash = mix((std::uint64_t{shape} << 1U | static_cast<std::uint64_t>(direction)) + 1);
  hash = (shape & by_ghost) != 0 ? mix(hash + index(ghost)) : hash;
  const std::uint64_t number = ((shape & by_qpn) != 0 ? std::uint64_t{qpn.value} : 0) |
                               ((shape & by_psn) != 0 ? std::uint64_t{psn.value} << 24U : 0);
  return mix(hash + number);
}

void Table::add(Instance instance) {
  const auto direction = static_cast<std::size_t>(instance.direction);
  if (std::find(used_[direction].begin(), used_[direction].end(), instance.shape) == used_[direction].end()) {
    used_[direction].push_back(instance.shape);
  }
  const std::uint64_t hash = key_of(instance.direction, instance.shape, instance.ghost, instance.qpn, instance.psn);
  instances_.push_back(instance);
  place(hash, static_cast<std::uint32_t>(instances_.size() - 1));
}

void Table::place(std::uint64_t hash, std::uint32_t instance) {
  if ((slots_taken_ + 1) * slots_of_key > slots_.size()) {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    filter_ = KeyFilter{slots_.size() / slots_of_key};
    for (const Slot& slot : old) {
      if (slot.first != none) {
        filter_.add(slot.hash);
        std::size_t i = slot.hash & (slots_.size() - 1);
        while (slots_[i].first != none) {
          i = (i + 1) & (slots_.size() - 1);
        }
        slots_[i] = slot;
      }
    }
  }
  std::size_t i = hash & (slots_.size() - 1);
  while (slots_[i].first != none && slots_[i].hash != hash) {
    i = (i + 1) & (slots_.size() - 1);
  }
  slots_taken_ += slots_[i].first == none ? 1 : 0;
  instances_[instance].next = slots_[i].first;
  slots_[i] = {hash, instance};
  filter_.add(hash);
}

std::uint32_t Table::find(std::uint64_t hash) const noexcept {
  if (!filter_.may_have(hash)) {
    return none;
  }
  for (std::size_t i = hash & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
    if (slots_[i].first == none || slots_[i].hash == hash) {
      return slots_[i].first;
    }
  }
}

Verdict Table::look_at(const Frame& frame, Direction direction, GhostId ghost, Instant now) noexcept {
  Verdict verdict;
  const wire::Parsed& p = frame.parsed;
  const bool roce = p.kind == wire::FrameKind::roce_v2;
  ++packets_;
  if (roce && silences_used_ != 0 && silent(direction, ghost, p.dest_qpn, now)) {
    verdict.drop = nbx::Drop::silent;
    return verdict;
  }
  for (const std::uint8_t shape : used_[static_cast<std::size_t>(direction)]) {
    if (!roce && (shape & (by_qpn | by_psn)) != 0) {
      continue;
    }
    std::uint32_t i = find(key_of(direction, shape, ghost, p.dest_qpn, p.psn));
    for (; i != none; i = instances_[i].next) {
      if (accepts(instances_[i], frame, ghost, now)) {
        fire(instances_[i], frame, ghost, now, verdict);
      }
    }
  }
  return verdict;
}

bool Table::accepts(Instance& instance, const Frame& frame, GhostId ghost, Instant now) noexcept {
  const wire::Parsed& p = frame.parsed;
  const Spec& spec = specs_[instance.event];
  const Match& match = spec.match;
  const bool at_key = !instance.gone && ((instance.shape & by_ghost) == 0 || instance.ghost == ghost) &&
                      ((instance.shape & by_qpn) == 0 || instance.qpn == p.dest_qpn) &&
                      ((instance.shape & by_psn) == 0 || instance.psn == p.psn);
  if (!at_key || (match.classes >> static_cast<unsigned>(p.op_class) & 1U) == 0 ||
      (instance.kind != Kind::any && (p.kind != wire::FrameKind::roce_v2 || p.op_class == wire::OpcodeClass::cnp ||
                                      is_response(p) != (instance.kind == Kind::response)))) {
    return false;
  }
  if (match.message != 0 && !in_message(instance, match.message, p)) {
    return false;
  }
  ++instance.seen;
  if (match.transmission != 0 && match.transmission != instance.seen) {
    return false;
  }
  if (now < loaded_ + match.from || (match.until && now >= loaded_ + *match.until)) {
    return false;
  }
  if (match.after && (states_[*match.after].fired == 0 || states_[*match.after].first_packet == packets_)) {
    return false;
  }
  if (const auto* corrupt = std::get_if<Corrupt>(&spec.action); corrupt != nullptr && byte_of(*corrupt, frame) == 0) {
    return false;
  }
  const bool answered = std::holds_alternative<Nak>(spec.action) || std::holds_alternative<Rnr>(spec.action);
  if (answered && (ghost == no_ghost || !is_reliable_request(p))) {
    return false;
  }
  Ordinals& nth = states_[instance.event].nth;
  return nth.empty() || nth.next_is_listed();
}

// Messages are counted by their first packets, each when its PSN comes for the first time.
bool Table::in_message(Instance& instance, std::uint64_t message, const wire::Parsed& p) noexcept {
  if (p.op().starts() && (instance.messages == 0 || p.psn.after(instance.newest))) {
    instance.newest = p.psn;
    ++instance.messages;
    if (instance.messages == message) {
      instance.first = p.psn;
    } else if (instance.messages == message + 1) {
      instance.end = p.psn;
    }
  }
  return instance.messages >= message && !p.psn.before(instance.first) &&
         (instance.messages == message || p.psn.before(instance.end));
}

void Table::fire(const Instance& instance, const Frame& frame, GhostId ghost, Instant now, Verdict& verdict) noexcept {
  const wire::Parsed& p = frame.parsed;
  const Spec& spec = specs_[instance.event];
  State& state = states_[instance.event];
  state.first_packet = state.fired++ == 0 ? packets_ : state.first_packet;
  const bool roce = p.kind == wire::FrameKind::roce_v2;
  log_[logged_++ % log_max] = {.event = instance.event,
                               .at = now,
                               .ghost = ghost,
                               .dest_qpn = p.dest_qpn,
                               .psn = p.psn,
                               .opcode = p.opcode,
                               .roce = roce,
                               .transmission = (instance.shape & by_psn) != 0 ? instance.seen : 0};
  verdict.event = instance.event + 1;
  std::visit(Overloaded{
                 [&](const Drop&) { verdict.drop = nbx::Drop::event; },
                 [&](const Mark& a) {
                   verdict.mark = true;
                   verdict.force_mark = verdict.force_mark || a.force;
                 },
                 [&](const Corrupt& a) {
                   verdict.corrupt = true;
                   verdict.repair_icrc = a.repair_icrc;
                   verdict.corrupt_byte = byte_of(a, frame);
                 },
                 [&](const Delay& a) { verdict.delay += a.time; },
                 [&](const Duplicate&) { verdict.duplicate = true; },
                 [&](const Reorder&) { verdict.hold = state.hold; },
                 [&](const Nak& a) { verdict.answer = syndrome_of(a.code); },
                 [&](const Rnr&) { verdict.answer = wire::syndrome::rnr_nak; },
                 [&](const Silent& a) {
                   silence(a, frame, spec.direction, ghost, now);
                   verdict.drop = nbx::Drop::event;
                 },
                 [&](const QpError&) {
                   host_.on_qp_error(frame, spec.direction, ghost, now);
                   verdict.drop = nbx::Drop::event;
                 },
             },
             spec.action);
}

void Table::silence(const Silent& action, const Frame& frame, Direction direction, GhostId ghost,
                    Instant now) noexcept {
  const Instant until = action.time == Duration::zero() ? Instant::never() : now + action.time;
  if (action.scope == Silent::Scope::ghost) {
    if (ghost != no_ghost) {
      host_.on_silent_ghost(ghost, until);
    }
    return;
  }
  Connection connection;
  if (host_.find_connection(direction, ghost, frame.parsed.dest_qpn, connection)) {
    silence_flow(Direction::from_node, ghost, connection.qpn, until);
    silence_flow(Direction::to_node, ghost, connection.peer_qpn, until);
  } else if (frame.parsed.kind == wire::FrameKind::roce_v2) {
    silence_flow(direction, ghost, frame.parsed.dest_qpn, until);
  }
}

/// The entry of a key, or the free one where it belongs.
Table::Silence& Table::silence_at(std::uint64_t key) noexcept {
  std::size_t i = key & (silences_max - 1);
  while (silences_[i].key != 0 && silences_[i].key != key) {
    i = (i + 1) & (silences_max - 1);
  }
  return silences_[i];
}

// Entries stay; a table of them that is half full takes no more.
void Table::silence_flow(Direction direction, GhostId ghost, Qpn dest_qpn, Instant until) noexcept {
  const std::uint64_t key = key_of(direction, by_ghost | by_qpn, ghost, dest_qpn, {});
  Silence& entry = silence_at(key);
  if (entry.key == 0) {
    if (silences_used_ == silences_max / 2) {
      return;
    }
    ++silences_used_;
  }
  entry = {key, std::max(entry.until, until)};
}

bool Table::silent(Direction direction, GhostId ghost, Qpn dest_qpn, Instant now) noexcept {
  return now < silence_at(key_of(direction, by_ghost | by_qpn, ghost, dest_qpn, {})).until;
}

std::vector<Firing> Table::log() const {
  std::vector<Firing> out;
  const std::uint64_t kept = std::min<std::uint64_t>(logged_, log_max);
  for (std::uint64_t i = logged_ - kept; i < logged_; ++i) {
    out.push_back(log_[i % log_max]);
  }
  return out;
}

}  // namespace nbx::events
