// Children of a communicator: the parent's members agree on who is in (split: by a gather; shrink: without), neighbours
// tell each other their ring listeners over the parent, and then the child comes up like any other, with the hash of
// its descent as magic.
#include <algorithm>
#include <map>

#include "nccl-glue/comm/state.hpp"
#include "nccl-glue/wire/little.hpp"

namespace nbx::nccl {

/// The real ranks may be at it already; then the gather goes on with the next timers, not in a call of the user.
void Comm::State::expect_split(Split split) {
  expected_splits_.push_back(std::move(split));
  around_.wheel.arm(retry_, {});
}

SplitKey Comm::State::split_key(std::int32_t ghost) const {
  const auto at = static_cast<std::size_t>(ghost);
  const Split& split = expected_splits_.front();
  return {.key = at < split.key.size() ? split.key[at] : 0, .color = at < split.color.size() ? split.color[at] : -1};
}

void Comm::State::finish_split(Instant now) {
  ++splits_;
  std::map<std::int32_t, std::vector<std::pair<std::int32_t, std::int32_t>>> colors;  // key and rank
  for (std::int32_t rank = 0; rank < ranks(); ++rank) {
    const SplitKey mine = is_real(rank) ? *decode_split_key(gather_->real_blocks().at(rank)) : split_key(rank);
    if (mine.color >= 0) {
      colors[mine.color].emplace_back(mine.key, rank);
    }
  }
  expected_splits_.pop_front();
  for (auto& [color, members] : colors) {
    std::ranges::sort(members);  // equal keys: by rank
    std::vector<std::int32_t> order;
    for (const auto& [key, rank] : members) {
      order.push_back(rank);
    }
    make_child(order, child_hash(hash_, splits_, color), now);
  }
}

void Comm::State::shrink(const std::vector<std::int32_t>& excluded, Instant now) {
  std::vector<std::int32_t> members;
  for (std::int32_t rank = 0; rank < ranks(); ++rank) {
    if (!std::ranges::binary_search(excluded, rank)) {
      members.push_back(rank);
    }
  }
  shrunk_.push_back(std::move(members));
  make_shrunk(now);
}

/// A real rank may be ready before its ghosts know the last of what others gathered.
void Comm::State::make_shrunk(Instant now) {
  while (stage_ == Stage::idle && !closed_ && !shrunk_.empty()) {
    const std::vector<std::int32_t> members = std::move(shrunk_.front());
    shrunk_.pop_front();
    make_child(members, child_hash(hash_, 0, 0), now);
  }
}

/// Where only real ranks or only ghosts are in, nothing is to be played.
void Comm::State::make_child(const std::vector<std::int32_t>& members, std::uint64_t hash, Instant now) {
  const auto real = std::ranges::count_if(members, [this](std::int32_t rank) { return is_real(rank); });
  if (real == 0 || real == std::ssize(members)) {
    return;
  }
  CommSpec spec = spec_;
  spec.id = {};
  store(spec.id, 0, hash);
  spec.ranks.clear();
  for (const std::int32_t rank : members) {
    RankPlace& place = spec.ranks.emplace_back(spec_.ranks[static_cast<std::size_t>(rank)]);
    place.parent_rank = rank;
  }
  auto state = std::make_unique<State>(around_, std::move(spec), hash, hash);
  State& child = *state;
  std::unique_ptr<Comm> comm(new Comm(std::move(state)));
  child.join_parent(*this, members, now);
  deliver_split_messages();
  around_.user->on_split(*self_, std::move(comm), now);
}

void Comm::State::join_parent(State& parent, std::vector<std::int32_t> parent_ranks, Instant now) {
  root_ = parent.root_;
  stage_ = Stage::ring;
  if (!enter_lobby()) {
    around_.wheel.arm(retry_, now);  // tells the user, who does not know this communicator yet
    return;
  }
  parent_ranks_ = std::move(parent_ranks);
  parent_ = &parent;
  parent.children_.push_back(this);
  for (const RingEnd& end : ends_) {
    if (!end.to_next) {
      parent.send_message(parent_ranks_[static_cast<std::size_t>(end.ghost)],
                          parent_ranks_[static_cast<std::size_t>(end.real)], split_tag,
                          encode_ring_address(version_, address(end.ghost, Port::ring)));
    }
  }
}

void Comm::State::leave_parent() {
  if (parent_ != nullptr) {
    std::erase(parent_->children_, this);
    parent_ = nullptr;
  }
}

/// Members may send before the child, or even the split, is known here.
void Comm::State::deliver_split_messages() {
  for (auto& entry : early_split_messages_) {
    const std::pair<std::int32_t, std::int32_t> way = entry.first;
    std::deque<Bytes>& messages = entry.second;
    const auto taken = [&](State* child) { return child->take_split_message(way.first, way.second, messages.front()); };
    while (!messages.empty() && std::ranges::any_of(children_, taken)) {
      messages.pop_front();
    }
  }
}

bool Comm::State::take_split_message(std::int32_t parent_ghost, std::int32_t parent_real, ConstBytes payload) {
  const auto end = std::ranges::find_if(ends_, [&](const RingEnd& e) {
    return e.to_next && !e.connecting && parent_ranks_[static_cast<std::size_t>(e.ghost)] == parent_ghost &&
           parent_ranks_[static_cast<std::size_t>(e.real)] == parent_real;
  });
  if (end == ends_.end()) {
    return false;
  }
  if (const std::optional<SocketAddress> address = decode_ring_address(version_, payload)) {
    next_known(*end, *address);
  } else {
    fail("rank " + std::to_string(end->real) + " tells no address for the ring");
  }
  return true;
}

}  // namespace nbx::nccl
