// What a communicator gathers: ring data, peer info and graphs while it comes up; later what the real ranks ask for.
#include <algorithm>

#include "nccl-glue/comm/state.hpp"

namespace nbx::nccl {

namespace {

// What may be gathered later is told by its size only.
constexpr std::size_t ring_connection_size = 2;  // bool useNetPXN, useGdr

// Ghosts' host, process and bus identities are anything that no real rank has.
constexpr std::int32_t host_salt = 1;
constexpr std::int32_t process_salt = 2;
constexpr unsigned bus_shift = 12;

constexpr std::size_t socket_address_gather = 28;
constexpr std::size_t proxy_seed_gather = 8;

}  // namespace

/// Runs as long as a gather completes.
void Comm::State::pump(Instant now) {
  if (stage_ == Stage::check_in || stage_ == Stage::ring) {
    const auto closed = [](const RingEnd& end) { return end.stream == ghost::StreamId::none; };
    if (std::ranges::any_of(ends_, closed)) {
      return;
    }
    leave_parent();
    begin(Stage::ring_data);
  }
  while (!closed_) {
    if (!gather_) {
      begin_asked_for();
    }
    if (!gather_ || closed_) {
      return;
    }
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      if (std::optional<std::string> error = gather_->read(i, ends_[i])) {
        fail(*error + ": another version than " + version_text(version_.code) + "?");
        return;
      }
    }
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      gather_->write(i, ends_[i], [&](ConstBytes bytes) { around_.streams.send(ends_[i].stream, bytes); });
    }
    if (!gather_->done(ends_)) {
      return;
    }
    finish_gather(now);
  }
}

void Comm::State::begin(Stage stage) {
  stage_ = stage;
  const auto part_of_ring_data = [this](std::size_t at, std::size_t size) {
    return [this, at, size](std::int32_t ghost) {
      const Bytes whole = encode(version_, ring_data(ghost));
      const ConstBytes part = ConstBytes(whole).subspan(at, size);
      return Bytes(part.begin(), part.end());
    };
  };
  switch (stage) {
    case Stage::ring_data:
      if (version_.ring_data_size > 0) {
        begin_gather("ring data", version_.ring_data_size, part_of_ring_data(0, version_.ring_data_size));
      } else {
        begin_gather("address", socket_address_gather, part_of_ring_data(0, socket_address_gather));
      }
      return;
    case Stage::proxies:
      begin_gather("proxy address", socket_address_gather, part_of_ring_data(28, socket_address_gather));
      return;
    case Stage::proxy_seeds:
      begin_gather("proxy seed", proxy_seed_gather, part_of_ring_data(56, proxy_seed_gather));
      return;
    case Stage::peer_info:
      begin_gather("peer info", version_.peer_info_size, [this](std::int32_t ghost) {
        const auto& known = gather_->real_blocks();
        if (known.empty()) {
          return Bytes{};
        }
        cu_mem_ = decode_peer_info(version_, known.begin()->second)->cu_mem;
        return peer_block(ghost);
      });
      return;
    case Stage::graph:
      begin_gather("graph info", version_.graph_size, [this](std::int32_t ghost) {
        // The CPU's kind must be that of the real ranks: the first one that is known tells.
        const auto& known = gather_->real_blocks();
        if (real_graphs_.empty() && !known.empty()) {
          real_graphs_[known.begin()->first] = *decode_graph(version_, known.begin()->second);
        }
        return real_graphs_.empty() ? Bytes{} : encode(version_, ghost_graph(ghost));
      });
      return;
    case Stage::check_in:
    case Stage::ring:
    case Stage::idle:
      return;
  }
}

void Comm::State::begin_gather(std::string what, std::size_t block_size,
                               std::function<Bytes(std::int32_t)> ghost_block) {
  gather_.emplace(Gather::Spec{.what = std::move(what),
                               .ranks = ranks(),
                               .both_ways = version_.ring_both_ways,
                               .block_size = block_size,
                               .is_real = [this](std::int32_t rank) { return is_real(rank); },
                               .ghost_block = std::move(ghost_block)},
                  ends_.size());
}

/// A real rank has begun one: its first message has the size of a block.
void Comm::State::begin_asked_for() {
  for (const RingEnd& end : ends_) {
    const std::optional<std::int32_t> size = prefix_of(end.input);
    if (!size) {
      continue;
    }
    if (*size == static_cast<std::int32_t>(ring_connection_size)) {
      begin_gather("ring connection info", ring_connection_size, [](std::int32_t) {
        return Bytes(ring_connection_size);  // neither PXN nor direct access to registered buffers
      });
    } else if (*size == static_cast<std::int32_t>(split_key_size)) {
      begin_gather("split color and key", split_key_size, [this](std::int32_t ghost) {
        return expected_splits_.empty() ? Bytes{} : encode(split_key(ghost));
      });
    } else {
      fail("rank " + std::to_string(end.real) + " gathers " + std::to_string(*size) +
           " bytes per rank, which ghosts do not play");
    }
    return;
  }
}

void Comm::State::finish_gather(Instant now) {
  switch (stage_) {
    case Stage::ring_data:
      take_ring_data();
      gather_.reset();
      begin(version_.ring_data_size > 0 ? Stage::peer_info : Stage::proxies);
      return;
    case Stage::proxies:
      gather_.reset();
      begin(Stage::proxy_seeds);
      return;
    case Stage::proxy_seeds:
      gather_.reset();
      begin(Stage::peer_info);
      return;
    case Stage::peer_info:
      take_peer_info();
      gather_.reset();
      begin(Stage::graph);
      return;
    case Stage::graph:
      stage_ = Stage::idle;
      take_graphs();
      gather_.reset();
      make_shrunk(now);
      if (cu_mem_ && !closed_) {
        around_.user->on_connected(*self_, now);
      }
      return;
    case Stage::idle:
      if (!gather_->real_blocks().empty() && gather_->real_blocks().begin()->second.size() == split_key_size) {
        finish_split(now);
      }
      gather_.reset();
      return;
    case Stage::check_in:
    case Stage::ring:
      return;
  }
}

RingData Comm::State::ring_data(std::int32_t ghost) const {
  // Nobody ever connects to a ghost's proxy: it has to look like an address only.
  return {.p2p = address(ghost, Port::p2p), .proxy = address(ghost, Port::p2p), .proxy_seed = 0};
}

void Comm::State::take_ring_data() {
  for (const auto& [rank, block] : gather_->real_blocks()) {
    const std::optional<SocketAddress> p2p = get_address(block);
    if (!p2p) {
      fail("rank " + std::to_string(rank) + " has no address in its " + gather_->what());
      return;
    }
    real_p2p_[rank] = *p2p;
  }
}

Bytes Comm::State::peer_block(std::int32_t ghost) const {
  const RankPlace& place = spec_.ranks[static_cast<std::size_t>(ghost)];
  const std::uint64_t host = child_hash(hash_, static_cast<std::int32_t>(place.node), host_salt);
  return encode(version_, PeerInfo{.rank = ghost,
                                   .device = place.local,
                                   .host_hash = host,
                                   .process_hash = child_hash(hash_, ghost, process_salt),
                                   .bus_id = std::int64_t{place.local + 1} << bus_shift,
                                   .compute_capability = spec_.compute_capability,
                                   .cu_mem = cu_mem_,
                                   .version = version_.code});
}

void Comm::State::take_peer_info() {
  compute_capability_min_ = spec_.compute_capability;
  for (const auto& [rank, block] : gather_->real_blocks()) {
    const PeerInfo info = *decode_peer_info(version_, block);
    if (info.version != version_.code) {
      fail("rank " + std::to_string(rank) + " has NCCL " + version_text(info.version) + ", its ghosts play " +
           version_text(version_.code));
      return;
    }
    compute_capability_min_ = std::min(compute_capability_min_, info.compute_capability);
  }
}

GhostGraph Comm::State::ghost_graph(std::int32_t ghost) const {
  const auto at = static_cast<std::size_t>(ghost);
  const Graph& like = real_graphs_.begin()->second;
  return {.node = nodes_.at(spec_.ranks[at].node),
          .self = static_cast<std::size_t>(node_position_[at]),
          .cpu_arch = like.cpu_arch,
          .cpu_vendor = like.cpu_vendor};
}

void Comm::State::take_graphs() {
  for (const auto& [rank, block] : gather_->real_blocks()) {
    real_graphs_[rank] = *decode_graph(version_, block);
  }
  Result<TopologyPattern> pattern =
      TopologyPattern::from({.ranks = ranks(),
                             .channels_limit = version_.channels_max,
                             .compute_capability_min = compute_capability_min_,
                             .graph = [this](std::int32_t rank) {
                               return is_real(rank) ? real_graphs_.at(rank) : graph_of(version_, ghost_graph(rank));
                             }});
  if (!pattern) {
    fail(pattern.error().message);
    return;
  }
  pattern_ = std::move(*pattern);
}

}  // namespace nbx::nccl
