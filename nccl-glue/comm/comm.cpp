#include "nccl-glue/comm/comm.hpp"

#include <algorithm>

#include "nccl-glue/comm/state.hpp"

namespace nbx::nccl {

namespace {

// So that the root's backlog does not overflow: the kernel would then lose connections for a minute.
constexpr std::size_t checking_in_max = 64;
constexpr std::uint16_t first_port = 16;
constexpr std::uint16_t ports_per_rank = 3;
constexpr std::size_t message_max = 2 * channels_max * connect_record_size;  // both directions of every channel

// A root or a rank may be announced before it listens. NCCL's own ranks give up after about a minute as well.
constexpr Duration retry_interval = std::chrono::milliseconds(200);
constexpr int attempts_max = 300;

std::uint64_t place_key(GhostId ghost, std::uint8_t local) { return (std::uint64_t{index(ghost)} << 8U) | local; }

std::string rank_text(std::int32_t rank) { return "rank " + std::to_string(rank); }

}  // namespace

Comm::Comm(const ghost::Context& any, Lobby& lobby, Net& net, CommSpec spec, CommUser& user) {
  const std::optional<Root> root = root_of(spec.id);
  const std::uint64_t hash = comm_hash(spec.id);
  state_ = std::make_unique<State>(State::Surroundings{any.streams, any.directory, any.wheel, lobby, net, &user},
                                   std::move(spec), root ? root->magic : 0, hash);
  state_->set_self(*this);
}
Comm::Comm(std::unique_ptr<State> state) : state_(std::move(state)) { state_->set_self(*this); }
Comm::~Comm() = default;

void Comm::report_to(CommUser& user) { state_->report_to(user); }
void Comm::start(Instant now) { state_->start(now); }
void Comm::expect_split(Split split) { state_->expect_split(std::move(split)); }
void Comm::shrink(const std::vector<std::int32_t>& excluded, Instant now) { state_->shrink(excluded, now); }
const CommSpec& Comm::spec() const noexcept { return state_->spec(); }
const Topology& Comm::topology() const noexcept { return state_->topology(); }
std::uint64_t Comm::hash() const noexcept { return state_->hash(); }
std::string Comm::waiting_for() const { return state_->waiting_for(); }

Comm::State::State(const Surroundings& around, CommSpec spec, std::uint64_t magic, std::uint64_t hash)
    : around_(around), spec_(std::move(spec)), version_(*spec_.version), magic_(magic), hash_(hash) {
  retry_.client = this;
  for (std::int32_t rank = 0; rank < ranks(); ++rank) {
    const RankPlace& place = spec_.ranks[static_cast<std::size_t>(rank)];
    if (!place.real) {
      rank_at_[place_key(place.ghost, place.local)] = rank;
      nodes_[place.node].push_back(rank);
    }
  }
  node_position_.resize(spec_.ranks.size());
  for (auto& [node, members] : nodes_) {
    const auto local = [&](std::int32_t rank) { return spec_.ranks[static_cast<std::size_t>(rank)].local; };
    std::ranges::sort(members, {}, local);
    for (std::size_t i = 0; i < members.size(); ++i) {
      node_position_[static_cast<std::size_t>(members[i])] = static_cast<std::int32_t>(i);
    }
  }
  find_ends();
}

Comm::State::~State() {
  release();
  leave_parent();
  for (State* child : children_) {
    child->parent_ = nullptr;
  }
}

/// From both sides of every run of ghosts.
void Comm::State::find_ends() {
  for (std::int32_t rank = 0; rank < ranks(); ++rank) {
    const std::int32_t next = (rank + 1) % ranks();
    if (is_real(rank) && !is_real(next)) {
      ends_.push_back({.ghost = next, .real = rank, .to_next = false});
    } else if (!is_real(rank) && is_real(next)) {
      ends_.push_back({.ghost = rank, .real = next, .to_next = true});
    }
  }
}

std::uint16_t Comm::State::port_number(std::int32_t ghost, Port port) const {
  const unsigned local = spec_.ranks[static_cast<std::size_t>(ghost)].local;
  return static_cast<std::uint16_t>(spec_.port_base + first_port + ports_per_rank * local +
                                    static_cast<unsigned>(port));
}

SocketAddress Comm::State::address(std::int32_t ghost, Port port) const {
  const GhostId id = spec_.ranks[static_cast<std::size_t>(ghost)].ghost;
  return {*around_.directory[id].source_for(root_.ip), port_number(ghost, port)};
}

void Comm::State::start(Instant now) {
  const std::optional<Root> root = root_of(spec_.id);
  if (!root) {
    fail("the unique ID has no address");
  } else {
    root_ = root->address;
    if (enter_lobby()) {
      check_in_more();
    }
  }
  settle(now);
}

bool Comm::State::enter_lobby() {
  if (ends_.empty()) {
    fail("a communicator needs both real and ghost ranks");
    return false;
  }
  if (!around_.lobby.join(magic_, *this)) {
    fail("another communicator uses the same unique ID");
    return false;
  }
  joined_ = true;
  for (const auto& [key, rank] : rank_at_) {
    const GhostId ghost = spec_.ranks[static_cast<std::size_t>(rank)].ghost;
    if (around_.directory[ghost].source_for(root_.ip) == nullptr) {
      fail("ghost " + around_.directory[ghost].name + " has no address to talk to " + to_string(root_.ip) + " from");
      return false;
    }
    around_.lobby.listen(ghost, port_number(rank, Port::reply));
    around_.lobby.listen(ghost, port_number(rank, Port::p2p));
  }
  for (const RingEnd& end : ends_) {
    if (!end.to_next) {
      around_.lobby.listen(spec_.ranks[static_cast<std::size_t>(end.ghost)].ghost, port_number(end.ghost, Port::ring));
    }
  }
  return true;
}

void Comm::State::check_in_more() {
  for (; next_check_in_ < ranks() && checking_in_.size() < checking_in_max; ++next_check_in_) {
    const std::int32_t rank = next_check_in_;
    if (is_real(rank)) {
      continue;
    }
    const auto hello = encode(Hello{.magic = magic_});
    Bytes bytes(hello.begin(), hello.end());
    append_message(bytes, encode(version_, CheckIn{.rank = rank,
                                                   .ranks = ranks(),
                                                   .reply = address(rank, Port::reply),
                                                   .ring = address(rank, Port::ring)}));
    checking_in_.insert(rank);
    connect({.ghost = rank, .to = root_, .bytes = std::move(bytes), .check_in = true});
  }
}

void Comm::State::checked_in(std::int32_t ghost) {
  checking_in_.erase(ghost);
  check_in_more();
}

void Comm::State::connect(Outgoing outgoing) {
  const GhostId ghost = spec_.ranks[static_cast<std::size_t>(outgoing.ghost)].ghost;
  const ghost::StreamId id = around_.streams.connect(ghost, outgoing.to.ip, outgoing.to.port, *this);
  outgoing_[id] = std::move(outgoing);
}

void Comm::State::send_message(std::int32_t ghost, std::int32_t real, std::int32_t tag, ConstBytes payload) {
  const auto hello = encode(Hello{.magic = magic_});
  Bytes bytes(hello.begin(), hello.end());
  const Bytes header = encode(version_, SendHeader{ghost, tag});
  bytes.insert(bytes.end(), header.begin(), header.end());
  append_message(bytes, payload);
  connect({.ghost = ghost, .to = real_p2p_.at(real), .bytes = std::move(bytes)});
}

void Comm::State::next_known(RingEnd& end, const SocketAddress& address) {
  end.connecting = true;
  const auto hello = encode(Hello{.magic = magic_});
  connect({.ghost = end.ghost, .to = address, .bytes = {hello.begin(), hello.end()}, .end = &end});
}

void Comm::State::on_open(ghost::StreamId id, GhostId ghost, std::uint16_t port, const IpAddress&,
                          Instant now) noexcept {
  if (const auto own = outgoing_.find(id); own != outgoing_.end()) {
    on_own_open(id, own->second, now);
    settle(now);
    return;
  }
  const int number = port - spec_.port_base - first_port;
  const auto rank = rank_at_.find(place_key(ghost, static_cast<std::uint8_t>(number / ports_per_rank)));
  if (number < 0 || rank == rank_at_.end()) {
    around_.lobby.close(id);
    return;
  }
  Incoming incoming{.ghost = rank->second, .port = static_cast<Port>(number % ports_per_rank)};
  if (incoming.port == Port::ring) {
    const auto end = std::ranges::find_if(ends_, [&](const RingEnd& e) {
      return e.ghost == incoming.ghost && !e.to_next && e.stream == ghost::StreamId::none;
    });
    if (end == ends_.end()) {
      around_.lobby.close(id);
      return;
    }
    incoming.end = &*end;
    end->stream = id;
  }
  incoming_[id] = std::move(incoming);
  pump(now);
  settle(now);
}

void Comm::State::on_own_open(ghost::StreamId id, Outgoing& outgoing, Instant now) {
  around_.streams.send(id, outgoing.bytes);
  if (outgoing.end != nullptr) {
    outgoing.end->stream = id;
    pump(now);
    return;
  }
  const bool check_in = outgoing.check_in;
  const std::int32_t ghost = outgoing.ghost;
  outgoing_.erase(id);
  around_.streams.close(id);
  // The root's answer tells that it has taken the check-in, unless it waits for ranks that are not ours.
  if (check_in && (is_real((ghost + 1) % ranks()) || !version_.two_phase_root)) {
    checked_in(ghost);
  }
}

void Comm::State::on_bytes(ghost::StreamId id, ConstBytes bytes, Instant now) noexcept {
  if (const auto own = outgoing_.find(id); own != outgoing_.end()) {
    if (RingEnd* end = own->second.end; end != nullptr) {
      end->input.insert(end->input.end(), bytes.begin(), bytes.end());
      pump(now);
    }
  } else if (const auto found = incoming_.find(id); found != incoming_.end()) {
    Incoming& incoming = found->second;
    Bytes& input = incoming.end != nullptr ? incoming.end->input : incoming.input;
    input.insert(input.end(), bytes.begin(), bytes.end());
    on_incoming(id, incoming, now);
  }
  settle(now);
}

void Comm::State::on_incoming(ghost::StreamId id, Incoming& incoming, Instant now) {
  if (incoming.end != nullptr) {
    pump(now);
    return;
  }
  ConstBytes rest(incoming.input);
  const std::size_t header_size = incoming.port == Port::p2p ? send_header_size(version_) : 0;
  if (rest.size() < header_size) {
    return;
  }
  const std::optional<SendHeader> header = decode_send_header(version_, rest);
  rest = rest.subspan(header_size);
  const std::optional<std::int32_t> size = prefix_of(rest);
  const bool bad = (header_size > 0 && !header) || (size && (*size < 0 || std::size_t(*size) > message_max));
  if (!bad && (!size || rest.size() < prefix_size + std::size_t(*size))) {
    return;
  }
  // Complete: the stream has done its duty. The body stays alive until it is dealt with.
  const Incoming complete = std::move(incoming);
  incoming_.erase(id);
  around_.lobby.close(id);
  if (bad) {
    return;
  }
  const ConstBytes body = ConstBytes(complete.input).subspan(header_size + prefix_size, std::size_t(*size));
  if (complete.port == Port::p2p) {
    on_message(complete.ghost, *header, body, now);
  } else {
    on_reply(complete.ghost, body);
  }
}

void Comm::State::on_reply(std::int32_t ghost, ConstBytes body) {
  const auto end = std::ranges::find_if(ends_, [&](const RingEnd& e) { return e.ghost == ghost && e.to_next; });
  if (end == ends_.end()) {
    checked_in(ghost);  // its next is a ghost too
    return;
  }
  const std::optional<SocketAddress> address = decode_ring_address(version_, body);
  if (!address) {
    fail("the root's answer to " + rank_text(ghost) + " is not one of NCCL " + version_text(version_.code));
    return;
  }
  if (!end->connecting) {
    next_known(*end, *address);
  }
}

void Comm::State::on_message(std::int32_t ghost, SendHeader header, ConstBytes payload, Instant now) {
  if (!in_range(header.rank) || !is_real(header.rank)) {
    return;
  }
  constexpr std::int32_t first_distance = 1 << 8;
  if (header.tag == split_tag) {
    early_split_messages_[{ghost, header.rank}].emplace_back(payload.begin(), payload.end());
    deliver_split_messages();
  } else if (header.tag < first_distance || header.tag / first_distance >= ranks()) {
    fail(rank_text(header.rank) + " sends " + rank_text(ghost) + " a message with tag " + std::to_string(header.tag) +
         ", which ghosts do not play");
  } else if ((header.tag & handshake_bit) != 0) {
    on_handshake(ghost, header, now);
  } else {
    on_records(ghost, header, payload, now);
  }
}

void Comm::State::on_close(ghost::StreamId id, Instant now) noexcept {
  RingEnd* end = nullptr;
  if (const auto own = outgoing_.find(id); own != outgoing_.end()) {
    Outgoing outgoing = std::move(own->second);
    outgoing_.erase(own);
    if (outgoing.end == nullptr || outgoing.end->stream != id) {
      on_refused(std::move(outgoing), now);
    } else {
      end = outgoing.end;
    }
  } else if (const auto found = incoming_.find(id); found != incoming_.end()) {
    end = found->second.end;
    incoming_.erase(found);
  }
  if (end != nullptr) {
    on_left(*end);
  }
  settle(now);
}

/// Real ranks leave one by one. The others may still need the ghosts, but what the leaving one was awaited for will not
/// come any more.
void Comm::State::on_left(RingEnd& end) {
  end.left = true;
  const auto with_it = [&](const Exchange& exchange) { return std::get<0>(exchange) == end.real; };
  if (stage_ != Stage::idle || gather_ || std::ranges::any_of(exchanges_, with_it)) {
    fail(rank_text(end.real) + " has left; waited for " + waiting_for());
  } else if (std::ranges::all_of(ends_, &RingEnd::left)) {
    closed_ = true;
  }
}

void Comm::State::on_refused(Outgoing outgoing, Instant now) {
  if (++outgoing.attempts >= attempts_max) {
    fail(rank_text(outgoing.ghost) + " cannot reach " + to_string(outgoing.to.ip) + " port " +
         std::to_string(outgoing.to.port));
    return;
  }
  if (refused_.empty()) {
    around_.wheel.arm(retry_, now + retry_interval);
  }
  refused_.push_back(std::move(outgoing));
}

void Comm::State::on_timer(TimerNode&, Instant now) noexcept {
  if (told_) {
    return;
  }
  for (Outgoing& outgoing : std::exchange(refused_, {})) {
    connect(std::move(outgoing));
  }
  pump(now);
  settle(now);
}

void Comm::State::fail(std::string why) {
  if (!closed_) {
    closed_ = true;
    why_ = std::move(why);
  }
}

void Comm::State::release() {
  around_.wheel.cancel(retry_);
  if (std::exchange(joined_, false)) {
    around_.lobby.leave(magic_);
  }
  for (const auto& [id, outgoing] : std::exchange(outgoing_, {})) {
    around_.streams.close(id);
  }
  for (const auto& [id, incoming] : std::exchange(incoming_, {})) {
    around_.lobby.close(id);
  }
}

void Comm::State::settle(Instant now) {
  if (closed_ && !std::exchange(told_, true)) {
    release();
    const std::string why = why_;
    around_.user->on_closed(*self_, why, now);
  }
}

std::string Comm::State::waiting_for() const {
  if (stage_ == Stage::check_in || stage_ == Stage::ring) {
    return waiting_for_ring();
  }
  if (gather_) {
    std::string text;
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      if (!gather_->reads_all(i, ends_[i])) {
        text += (text.empty() ? gather_->what() + " from " : ", ") + rank_text(ends_[i].real);
      }
    }
    return text.empty() ? gather_->what() + " of the ghosts" : text;
  }
  if (!exchanges_.empty()) {
    const auto& [real, ghost, tag] = *exchanges_.begin();
    return rank_text(real) + " to connect to " + rank_text(ghost);
  }
  return {};
}

std::string Comm::State::waiting_for_ring() const {
  if (next_check_in_ < ranks() && stage_ == Stage::check_in) {
    return "the root at " + to_string(root_.ip) + " port " + std::to_string(root_.port) + " to take the check-in of " +
           rank_text(next_check_in_) + " of " + std::to_string(ranks());
  }
  std::string text;
  for (const RingEnd& end : ends_) {
    if (end.stream == ghost::StreamId::none) {
      text += (text.empty() ? "the bootstrap ring from " : ", from ") + rank_text(end.real) +
              (end.to_next ? " (its address)" : "");
    }
  }
  return text;
}

}  // namespace nbx::nccl
