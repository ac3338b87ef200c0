// Connection records: a ghost answers every record of a real rank with one of its own, so it need not know what the
// real ranks are about to connect; rings and trees tell which channel each record belongs to.
#include <bit>

#include "nccl-glue/comm/state.hpp"

namespace nbx::nccl {

namespace {

// Low bits of the tag: NCCL's graph id and one, or 0 for send/recv.
constexpr std::int32_t graph_bits = 0x7f;
constexpr std::int32_t point_to_point = 0;
constexpr std::int32_t ring = 1;
constexpr std::int32_t tree = 2;  // and PAT, which connects more peers with the same tag

ChannelMask all_channels(int channels) {
  return channels >= 64 ? ~ChannelMask{0} : (ChannelMask{1} << static_cast<unsigned>(channels)) - 1;
}

std::size_t count_of(ChannelMask mask) { return static_cast<std::size_t>(std::popcount(mask)); }

std::string rank_text(std::int32_t rank) { return "rank " + std::to_string(rank); }

}  // namespace

void Comm::State::on_records(std::int32_t ghost, SendHeader header, ConstBytes records, Instant now) {
  const std::int32_t real = header.rank;
  const std::int32_t graph = header.tag & graph_bits;
  if (graph > tree || records.empty() || records.size() % connect_record_size != 0) {
    fail(rank_text(real) + " sends " + rank_text(ghost) + " " + std::to_string(records.size()) +
         " bytes of connection records for graph " + std::to_string(graph - 1) + ", which ghosts do not play");
    return;
  }
  std::vector<NetHandle> handles;  // where we shall send
  for (std::size_t at = 0; at < records.size(); at += connect_record_size) {
    if (const std::optional<NetHandle> handle = handle_in(records.subspan(at, connect_record_size))) {
      handles.push_back(*handle);
    }
  }
  const std::size_t to_ghost = records.size() / connect_record_size - handles.size();
  if (graph != point_to_point && topology_.channels == 0 &&
      !choose_channels(ghost, real, graph, to_ghost, handles.size(), now)) {
    return;
  }
  const std::optional<Channels> receiving = take_channels({real, ghost, false}, graph, to_ghost);
  const std::optional<Channels> sending = take_channels({real, ghost, true}, graph, handles.size());
  if (!receiving || !sending) {
    fail(rank_text(real) + " wants " + std::to_string(receiving ? handles.size() : to_ghost) + " connections " +
         (receiving ? "from " : "to ") + rank_text(ghost) + ", which does not fit the " +
         (graph == ring ? "ring" : "tree") + " of " + std::to_string(topology_.channels) + " channels");
    return;
  }
  // The peer's records of receivers came first; so do ours.
  Bytes answer;
  const auto add = [&](const ConnectRecord& record) { answer.insert(answer.end(), record.begin(), record.end()); };
  const GhostId id = spec_.ranks[static_cast<std::size_t>(ghost)].ghost;
  const bool collective = graph != point_to_point;
  const auto named = [&](std::uint8_t channel, bool to_real) {
    NetConfig out = spec_.net;
    out.edge = RankEdge{.from = static_cast<std::uint32_t>(to_real ? ghost : real),
                        .to = static_cast<std::uint32_t>(to_real ? real : ghost),
                        .channel = channel,
                        .send_recv = !collective};
    return out;
  };
  for (const std::uint8_t channel : *receiving) {
    NetHandle handle{};
    const NetId net = around_.net.listen(id, named(channel, false), around_.user->net_user(*self_), handle);
    around_.user->on_edge(*self_, {ghost, real, false, collective, channel, net}, now);
    add(receive_record(handle));
  }
  for (std::size_t i = 0; i < handles.size(); ++i) {
    const NetId net =
        around_.net.connect(id, named((*sending)[i], true), handles[i], around_.user->net_user(*self_), now);
    around_.user->on_edge(*self_, {ghost, real, true, collective, (*sending)[i], net}, now);
    add(send_record(ghost));
  }
  exchanges_.insert({real, ghost, header.tag});
  send_message(ghost, real, header.tag, answer);
}

/// Of all numbers of channels, the likeliest that explains what is asked for.
bool Comm::State::choose_channels(std::int32_t ghost, std::int32_t real, std::int32_t graph, std::size_t to_ghost,
                                  std::size_t to_real, Instant now) {
  if (!pattern_) {
    fail(rank_text(real) + " sends connection records before the graph exchange");
    return false;
  }
  const auto fits = [&](int channels) {
    return (to_ghost == 0 || count_of(edges({real, ghost, false}, graph, channels)) == to_ghost) &&
           (to_real == 0 || count_of(edges({real, ghost, true}, graph, channels)) == to_real);
  };
  // What NCCL makes unless told otherwise; then whole patterns, which limits and copies usually leave; then any.
  std::vector<int> candidates{pattern_->usual_channels()};
  for (const int step : {pattern_->channels_found(), 1}) {
    for (int channels = step; channels <= version_.channels_max; channels += step) {
      candidates.push_back(channels);
    }
  }
  for (const int channels : candidates) {
    if (fits(channels)) {
      topology_ = pattern_->with_channels(channels);
      around_.user->on_topology(*self_, now);
      return true;
    }
  }
  fail(rank_text(real) + " wants " + std::to_string(to_ghost) + " connections to and " + std::to_string(to_real) +
       " from " + rank_text(ghost) + ": no number of channels explains that");
  return false;
}

ChannelMask Comm::State::edges(const Direction& direction, std::int32_t graph, int channels) const {
  const auto& [real, ghost, to_real] = direction;
  if (graph == tree) {
    return pattern_->tree_edges(real, ghost, channels);
  }
  return to_real ? pattern_->ring_edges(ghost, real, channels) : pattern_->ring_edges(real, ghost, channels);
}

/// The channels of `count` records, in order; they count as connected from now on.
std::optional<Comm::State::Channels> Comm::State::take_channels(const Direction& direction, std::int32_t graph,
                                                                std::size_t count) {
  Channels channels;
  if (graph == point_to_point) {
    std::uint8_t& next = point_to_point_[direction];
    for (std::size_t i = 0; i < count; ++i) {
      channels.push_back(next++);
    }
    return channels;
  }
  if (count == 0) {
    return channels;
  }
  ChannelMask& connected = connected_[direction];
  ChannelMask wanted = edges(direction, graph, topology_.channels) & ~connected;
  if (graph == tree && count_of(wanted) != count) {
    wanted = all_channels(topology_.channels) & ~connected;  // PAT
  }
  if (count_of(wanted) != count) {
    return std::nullopt;
  }
  connected |= wanted;
  for (; wanted != 0; wanted &= wanted - 1) {
    channels.push_back(static_cast<std::uint8_t>(std::countr_zero(wanted)));
  }
  return channels;
}

/// The real rank's connections are up. Ours are too: its last words made them so.
void Comm::State::on_handshake(std::int32_t ghost, SendHeader header, Instant now) {
  if (exchanges_.erase({header.rank, ghost, header.tag & ~handshake_bit}) == 0) {
    fail(rank_text(header.rank) + " ends an exchange with " + rank_text(ghost) + " that was not begun");
    return;
  }
  send_message(ghost, header.rank, header.tag, Bytes(version_.empty_handshake ? 0 : sizeof(std::int32_t)));
  if (exchanges_.empty()) {
    around_.user->on_connected(*self_, now);
  }
}

}  // namespace nbx::nccl
