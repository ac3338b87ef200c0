#include "nccl-glue/service/service.hpp"

#include <algorithm>
#include <utility>

namespace nbx::nccl {
namespace {

using announce::Kind;

constexpr std::uint64_t arena_bytes = 64ULL << 30U;  // of address space
constexpr std::size_t past_max = 64;                 // worlds that ended, kept for the report
constexpr std::uint8_t locals_max = 16;              // ranks of one communicator on a ghost: they have 64 ports

void tell(ghost::StreamPorts& streams, ghost::StreamId id, const std::vector<std::byte>& record) {
  streams.send(id, record);
}

}  // namespace

Service::Service(const ghost::Context& any, ServiceOptions options, std::unique_ptr<DelayModel> delay)
    : any_(any),
      options_(std::move(options)),
      delay_(std::move(delay)),
      net_(any_),
      lobby_(any_.streams),
      arena_(any_.transport, arena_bytes) {
  settled_.client = this;
}

Service::~Service() { any_.wheel.cancel(settled_); }

void Service::start(Instant /*now*/) {
  // Every stream is ours: nobody else listens on these ports.
  const auto anything = [](ConstBytes) { return true; };
  for (const GhostId host : options_.hosts) {
    any_.streams.listen(host, options_.announce_port, *this, anything);
  }
}

std::string Service::status() const {
  std::string text = "nccl: " + std::to_string(sessions_.size()) + " real processes, " +
                     std::to_string(worlds_.size()) + " communicators";
  for (const auto& world : worlds_) {
    text += "; " + world->report().state;
  }
  return text;
}

std::vector<WorldReport> Service::report() const {
  std::vector<WorldReport> reports = past_;
  for (const auto& world : worlds_) {
    reports.push_back(world->report());
  }
  return reports;
}

void Service::on_open(ghost::StreamId id, GhostId /*ghost*/, std::uint16_t /*port*/, const IpAddress& peer,
                      Instant /*now*/) noexcept {
  sessions_[id].peer = peer;
}

void Service::on_bytes(ghost::StreamId id, ConstBytes bytes, Instant now) noexcept {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) {
    return;
  }
  Session& session = found->second;
  session.decoder.feed(bytes);
  while (true) {
    const auto record = session.decoder.next();
    if (!record) {
      refuse(id, record.error().message);
      return;
    }
    if (!*record) {
      break;
    }
    std::string error;
    if (!take(id, session, **record, error, now)) {
      refuse(id, error);
      return;
    }
  }
  sweep();
}

void Service::refuse(ghost::StreamId id, const std::string& error) {
  tell(any_.streams, id, announce::encode(Kind::failure, error));
  any_.streams.close(id);
  sessions_.erase(id);
}

void Service::on_close(ghost::StreamId id, Instant now) noexcept {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) {
    return;
  }
  const std::map<std::uint64_t, Member> comms = std::move(found->second.comms);
  sessions_.erase(found);
  for (const auto& [number, member] : comms) {
    if (member.world != nullptr) {
      member.world->leave(member.rank, now);
    }
  }
  for (auto& [unique_id, pending] : pending_) {
    std::erase_if(pending.members, [&](const auto& entry) { return entry.second.stream == id; });
  }
  std::erase_if(pending_, [](const auto& entry) { return entry.second.members.empty(); });
  sweep();
}

bool Service::take(ghost::StreamId id, Session& session, const announce::Record& record, std::string& error,
                   Instant now) {
  if (record.kind == Kind::hello) {
    return hello(id, session, record.as<announce::Hello>(), error);
  }
  if (session.version == nullptr) {
    error = "the first record is not a hello";
    return false;
  }
  const auto member = [&](std::uint64_t number) -> Member* {
    const auto found = session.comms.find(number);
    return found == session.comms.end() || found->second.world == nullptr ? nullptr : &found->second;
  };
  switch (record.kind) {
    case Kind::comm_init:
      return init(id, session, record.as<announce::CommInit>(), error, now);
    case Kind::comm_split: {
      const auto split = record.as<announce::CommSplit>();
      if (const Member* parent = member(split.parent)) {
        parent->world->split(parent->rank, split.color, now);
        session.comms[split.comm] = {.world = nullptr, .rank = parent->rank, .parent = parent->world};
      }
      return true;
    }
    case Kind::comm_shrink: {
      const auto shrink = record.as<announce::CommShrink>();
      if (const Member* parent = member(shrink.parent)) {
        const ConstBytes bits = record.body.subspan(sizeof shrink);
        std::vector<std::int32_t> excluded;
        for (std::uint32_t rank = 0; rank < shrink.parent_ranks; ++rank) {
          if ((std::to_integer<unsigned>(bits[rank / 8]) >> (rank % 8) & 1U) != 0) {
            excluded.push_back(static_cast<std::int32_t>(rank));
          }
        }
        session.comms[shrink.comm] = {.world = nullptr, .rank = parent->rank, .parent = parent->world};
        parent->world->shrink(parent->rank, excluded, now);
      }
      return true;
    }
    case Kind::operation: {
      const auto call = record.as<announce::OperationCall>();
      if (Member* m = member(call.comm)) {
        m->world->call(m->rank, call, now);
      }
      return true;
    }
    case Kind::decision: {
      const auto decision = record.as<announce::OperationDecision>();
      if (Member* m = member(decision.comm)) {
        m->world->decide(m->rank, decision, now);
      }
      return true;
    }
    case Kind::group_end:
      for (auto& [number, m] : session.comms) {
        if (m.world != nullptr) {
          m.world->close_group(m.rank, now);
        }
      }
      return true;
    case Kind::comm_destroy:  // in order: the rank's last operation was over, whatever others still do
      session.comms.erase(record.as<announce::CommRef>().comm);
      return true;
    default:
      return true;  // comm_ready: NCCL's own connections tell, and more exactly
  }
}

bool Service::hello(ghost::StreamId id, Session& session, const announce::Hello& hello, std::string& error) {
  const auto version = find_version(static_cast<int>(hello.nccl_version), options_.allow_untested);
  if (!version) {
    error = version.error().message;
    return false;
  }
  session.version = *version;
  session.variables = hello.variables;
  tell(any_.streams, id,
       announce::encode(Kind::welcome, announce::Welcome{.ranks = static_cast<std::int32_t>(options_.ranks)}));
  return true;
}

bool Service::init(ghost::StreamId id, Session& session, const announce::CommInit& init, std::string& error,
                   Instant now) {
  UniqueId unique_id;
  std::copy(init.id.begin(), init.id.end(), unique_id.begin());
  Pending& pending = pending_[unique_id];
  if (pending.members.empty()) {
    pending.id = unique_id;
    pending.ranks = init.ranks;
    pending.version = session.version;
    pending.variables = session.variables;
  }
  if (pending.ranks != init.ranks || pending.version != session.version) {
    error = "rank " + std::to_string(init.rank) + " says " + std::to_string(init.ranks) + " ranks and NCCL " +
            version_text(session.version->code) + ", another real rank of the same communicator said " +
            std::to_string(pending.ranks) + " and " + version_text(pending.version->code);
  } else if (pending.variables != session.variables) {
    error = "rank " + std::to_string(init.rank) +
            " has other NCCL_*BUFFSIZE, NCCL_P2P_NET_CHUNKSIZE or NCCL_*_P2P_NCHANNELS than another real rank";
  }
  if (!error.empty()) {
    for (const auto& [rank, member] : pending.members) {
      tell(any_.streams, member.stream, announce::encode(Kind::failure, error));
    }
    pending_.erase(unique_id);
    return false;
  }
  if (!pending.members.try_emplace(init.rank, PendingMember{.stream = id, .comm = init.comm}).second) {
    error = "two real processes say that they are rank " + std::to_string(init.rank) + " of one communicator";
    return false;
  }
  session.comms[init.comm] = {.world = nullptr, .rank = init.rank};
  pending.last = now;
  complete_worlds(now);
  return true;
}

Result<CommSpec> Service::make_spec(const Pending& pending) const {
  CommSpec spec;
  spec.version = pending.version;
  spec.id = pending.id;
  spec.port_base = options_.port_base;
  spec.compute_capability = static_cast<int>(options_.compute_capability);
  spec.net.version = pending.version;
  spec.net.port = static_cast<std::uint16_t>(options_.port_base + 1);
  spec.net.path_mtu = options_.path_mtu;
  spec.net.timeout = options_.timeout;
  spec.net.retry_cnt = options_.retry_cnt;
  spec.ranks.resize(static_cast<std::size_t>(pending.ranks));
  if (std::optional<Error> error = place_ghosts(pending, spec.ranks)) {
    return *std::move(error);
  }
  return spec;
}

/// A group within the world has as many of its ranks on a ghost node as on a real one.
std::uint32_t Service::ranks_per_node(const Pending& pending) const {
  if (options_.ranks == 0 || options_.ranks == static_cast<std::uint32_t>(pending.ranks)) {
    return options_.ranks_per_node;
  }
  std::map<IpAddress, std::uint32_t> on_node;
  std::uint32_t most = 1;
  for (const auto& [rank, member] : pending.members) {
    most = std::max(most, ++on_node[sessions_.at(member.stream).peer]);
  }
  return std::min(most, options_.ranks_per_node);
}

/// A run of ghost ranks begins a node. A group of the world may have more nodes than there are: then they share.
std::optional<Error> Service::place_ghosts(const Pending& pending, std::vector<RankPlace>& ranks) const {
  const std::uint32_t per_node = ranks_per_node(pending);
  const bool share = options_.ranks != 0 && options_.ranks != static_cast<std::uint32_t>(pending.ranks);
  std::vector<std::uint8_t> taken(options_.hosts.size());  // local ranks
  std::uint32_t nodes = 0;
  std::uint32_t free = 0;  // places on the present node
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    RankPlace& place = ranks[rank];
    place.real = pending.members.contains(static_cast<std::int32_t>(rank));
    if (place.real) {
      free = 0;
      continue;
    }
    if (free == 0) {
      free = per_node;
      ++nodes;
    }
    --free;
    const std::size_t host = share ? (nodes - 1) % options_.hosts.size() : nodes - 1;
    if (host >= options_.hosts.size() || taken[host] == locals_max) {
      return Error{"a communicator of " + std::to_string(pending.ranks) + " ranks, " +
                   std::to_string(pending.members.size()) + " of them real, needs more than the " +
                   std::to_string(options_.hosts.size()) + " ghost nodes of the cluster file"};
    }
    place.node = nodes - 1;
    place.ghost = options_.hosts[host];
    place.local = taken[host]++;
  }
  return std::nullopt;
}

void Service::complete_worlds(Instant now) {
  Instant next = Instant::never();
  for (auto i = pending_.begin(); i != pending_.end();) {
    Pending& pending = i->second;
    const bool all_here = options_.ranks == static_cast<std::uint32_t>(pending.ranks) && !options_.real_ranks.empty() &&
                          std::all_of(options_.real_ranks.begin(), options_.real_ranks.end(), [&](std::uint32_t rank) {
                            return pending.members.contains(static_cast<std::int32_t>(rank));
                          });
    const bool fixed = options_.ranks == static_cast<std::uint32_t>(pending.ranks) && !options_.real_ranks.empty();
    const Instant due = pending.last + options_.settle;
    if (!all_here && (fixed || due > now)) {
      if (!fixed) {
        next = std::min(next, due);
      }
      ++i;
      continue;
    }
    auto spec = make_spec(pending);
    if (!spec) {
      for (const auto& [rank, member] : pending.members) {
        tell(any_.streams, member.stream, announce::encode(Kind::failure, spec.error().message));
      }
      i = pending_.erase(i);
      continue;
    }
    const bool any_ghost = pending.members.size() < static_cast<std::size_t>(pending.ranks);
    if (any_ghost) {
      worlds_.push_back(std::make_unique<World>(World::Tools{any_, net_, lobby_, arena_, *delay_, options_, *this},
                                                std::move(*spec), pending.variables, now));
      for (const auto& [rank, member] : pending.members) {
        sessions_.at(member.stream).comms[member.comm].world = worlds_.back().get();
      }
    }
    i = pending_.erase(i);
  }
  if (next != Instant::never()) {
    any_.wheel.arm(settled_, next);
  }
}

void Service::on_timer(TimerNode& /*node*/, Instant now) noexcept {
  sweep();
  complete_worlds(now);
}

void Service::on_failed(World& world, const std::string& text, Instant now) noexcept {
  any_.wheel.arm(settled_, now);  // the world goes when nobody is in it any more
  for (auto& [id, session] : sessions_) {
    for (auto& [number, member] : session.comms) {
      if (member.parent == &world) {
        member.parent = nullptr;
      }
      if (member.world == &world) {
        member.world = nullptr;
        if (!text.empty()) {
          tell(any_.streams, id, announce::encode(Kind::failure, text));
        }
      }
    }
  }
}

void Service::on_child(World& parent, std::unique_ptr<Comm> child, Instant now) noexcept {
  worlds_.push_back(std::make_unique<World>(World::Tools{any_, net_, lobby_, arena_, *delay_, options_, *this},
                                            std::move(child), parent.variables(), now));
  World& world = *worlds_.back();
  const auto& places = world.comm().spec().ranks;
  for (auto& [id, session] : sessions_) {
    for (auto& [number, member] : session.comms) {
      for (std::size_t rank = 0; member.parent == &parent && rank < places.size(); ++rank) {
        if (places[rank].real && places[rank].parent_rank == member.rank) {
          member = {.world = &world, .rank = static_cast<std::int32_t>(rank)};
        }
      }
    }
  }
}

void Service::sweep() {
  for (auto& world : worlds_) {
    if (world->over()) {
      past_.push_back(world->report());
      world.reset();
    }
  }
  std::erase(worlds_, nullptr);
  if (past_.size() > past_max) {
    past_.erase(past_.begin(), past_.end() - static_cast<std::ptrdiff_t>(past_max));
  }
}

}  // namespace nbx::nccl
