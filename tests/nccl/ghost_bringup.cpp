// Plays the ghost ranks of one communicator, and of what is split from it, up to the point where all connections are
// made, over the kernel's sockets on loopback: rank g is at 127.1.g/256.g%256. Instead of NET/IB it speaks the part of
// NET/Socket that makes connections.
//
//   ghost_bringup --id-file PATH --ranks N --real R,R [--per-node L] [--version CODE] [--port BASE]
//                 [--split MODULUS] [--shrink RANK]
//
// --split: ghosts take part in the first split with color rank % MODULUS and key -rank.
// --shrink: of the first communicator, a child without that rank is expected.
//
// Prints what happens; ends when all communicators are closed, with 0 if all closed in order.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "ghost/stream_ports.hpp"
#include "nccl-glue/comm/comm.hpp"
#include "nccl-glue/wire/little.hpp"
#include "support/ghost_context.hpp"
#include "support/posix_streams.hpp"

namespace nbx::nccl {

// The room `net` as this program has it: connections come up and carry nothing.
class Net::State final : public ghost::StreamUser {
 public:
  explicit State(const ghost::Context& any) : streams(any.streams), directory(any.directory) {}

  void on_open(ghost::StreamId id, GhostId, std::uint16_t, const IpAddress&, Instant) noexcept override {
    if (const auto found = hellos.find(id); found != hellos.end()) {
      streams.send(id, found->second);
    }
  }
  void on_bytes(ghost::StreamId, ConstBytes, Instant) noexcept override {}
  void on_close(ghost::StreamId, Instant) noexcept override {}

  ghost::StreamPorts& streams;
  const ghost::Directory& directory;
  std::map<ghost::StreamId, Bytes> hellos;
  std::uint32_t last = 0;
};

namespace {
constexpr std::uint64_t net_magic = 0x564ab9f2fc4b9d6c;
constexpr std::uint32_t net_socket = 3;
constexpr std::size_t sockets_at = 40;
}  // namespace

Net::Net(const ghost::Context& any) : state_(std::make_unique<State>(any)) {}
Net::~Net() = default;

NetId Net::listen(GhostId ghost, const NetConfig& config, NetUser&, Handle& handle) {
  state_->streams.listen(ghost, config.port, *state_, [](ConstBytes) { return true; });
  handle = {};
  put_address(handle, {state_->directory[ghost].addresses[0].ip, config.port});
  store(handle, 32, net_magic);
  store(handle, sockets_at, std::int32_t{1});
  store(handle, sockets_at + 4, std::int32_t{1});
  return static_cast<NetId>(++state_->last);
}

NetId Net::connect(GhostId ghost, const NetConfig&, const Handle& handle, NetUser&, Instant) {
  const SocketAddress to = *get_address(handle);
  for (std::int32_t i = 0; i <= load<std::int32_t>(handle, sockets_at); ++i) {
    const auto hello = encode(nccl::Hello{.magic = net_magic, .type = net_socket});
    Bytes bytes(hello.begin(), hello.end());
    bytes.push_back(static_cast<std::byte>(i));
    state_->hellos[state_->streams.connect(ghost, to.ip, to.port, *state_)] = std::move(bytes);
  }
  return static_cast<NetId>(++state_->last);
}

void Net::close(NetId) noexcept {}

struct Options {
  std::string id_file;
  int ranks = 2;
  std::vector<int> real{0};
  int per_node = 1;
  int version = 22907;
  int port = 20000;
  int split = 0;
  int shrink = -1;
};

Options options_from(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto next = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (name == "--id-file") {
      o.id_file = next();
    } else if (name == "--ranks") {
      o.ranks = std::atoi(next().c_str());
    } else if (name == "--real") {
      o.real.clear();
      std::istringstream list(next());
      for (std::string item; std::getline(list, item, ',');) {
        o.real.push_back(std::atoi(item.c_str()));
      }
    } else if (name == "--per-node") {
      o.per_node = std::atoi(next().c_str());
    } else if (name == "--version") {
      o.version = std::atoi(next().c_str());
    } else if (name == "--port") {
      o.port = std::atoi(next().c_str());
    } else if (name == "--split") {
      o.split = std::atoi(next().c_str());
    } else if (name == "--shrink") {
      o.shrink = std::atoi(next().c_str());
    }
  }
  return o;
}

class Player final : public CommUser, public NetUser {
 public:
  explicit Player(int split) : split_(split) {}

  void own(std::unique_ptr<Comm> comm) {
    prepare(*comm);
    comms_.push_back(std::move(comm));
  }

  void on_topology(Comm& comm, Instant now) noexcept override {
    say(comm, now, "topology of " + std::to_string(comm.topology().channels) + " channels");
  }
  void on_edge(Comm& comm, const Edge& edge, Instant now) noexcept override {
    say(comm, now,
        "edge rank " + std::to_string(edge.ghost_rank) + (edge.to_real ? " -> " : " <- ") + "rank " +
            std::to_string(edge.real_rank) + (edge.collective ? ", channel " : ", send/recv ") +
            std::to_string(edge.channel));
  }
  NetUser& net_user(Comm&) noexcept override { return *this; }
  void on_connected(Comm& comm, Instant now) noexcept override { say(comm, now, "connected"); }
  void on_split(Comm& parent, std::unique_ptr<Comm> child, Instant now) noexcept override {
    say(parent, now, "child of " + std::to_string(child->spec().ranks.size()) + " ranks");
    own(std::move(child));
  }
  void on_closed(Comm& comm, std::string_view why, Instant now) noexcept override {
    say(comm, now, "closed" + (why.empty() ? std::string() : ": " + std::string(why)));
    in_order_ = in_order_ && why.empty();
    std::erase_if(comms_, [&](const std::unique_ptr<Comm>& held) { return held.get() == &comm; });
  }

  void on_ready(NetId, Instant) noexcept override {}
  void on_received(NetId, std::uint64_t, Instant) noexcept override {}
  void on_clear_to_send(NetId, std::uint64_t, std::uint32_t, Instant) noexcept override {}
  void on_sent(NetId, Instant) noexcept override {}
  void on_closed(NetId, std::string_view, Instant) noexcept override {}

  [[nodiscard]] bool finished() const { return comms_.empty(); }
  [[nodiscard]] bool in_order() const { return in_order_; }
  [[nodiscard]] std::string waiting_for() const { return comms_.empty() ? "" : comms_.front()->waiting_for(); }

 private:
  void prepare(Comm& comm) const {
    if (split_ > 0) {
      Comm::Split split;
      for (int rank = 0; rank < static_cast<int>(comm.spec().ranks.size()); ++rank) {
        split.color.push_back(rank % split_);
        split.key.push_back(-rank);
      }
      comm.expect_split(split);
    }
  }
  static void say(const Comm& comm, Instant now, const std::string& what) {
    std::printf("%9.3f ms %016lx: %s\n", static_cast<double>(now.ps) / 1e9, comm.hash(), what.c_str());
    std::fflush(stdout);
  }

  int split_;
  bool in_order_ = true;
  std::vector<std::unique_ptr<Comm>> comms_;
};

std::optional<UniqueId> read_id(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  UniqueId id{};
  if (bytes.size() != id.size()) {
    return std::nullopt;
  }
  std::memcpy(id.data(), bytes.data(), id.size());
  return id;
}

Instant clock_now() {
  static const auto start = std::chrono::steady_clock::now();
  return {std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count() *
          1000};
}

CommSpec spec_from(const Options& o, const UniqueId& id, const Version& version) {
  CommSpec spec;
  spec.version = &version;
  spec.id = id;
  spec.port_base = static_cast<std::uint16_t>(o.port);
  spec.net.version = &version;
  spec.net.port = static_cast<std::uint16_t>(o.port + 1);
  spec.ranks.resize(static_cast<std::size_t>(o.ranks));
  for (int rank = 0; rank < o.ranks; ++rank) {
    RankPlace& place = spec.ranks[static_cast<std::size_t>(rank)];
    place.ghost = static_cast<GhostId>(rank);
    place.node = static_cast<std::uint32_t>(rank / o.per_node);
    place.local = static_cast<std::uint8_t>(rank % o.per_node);
  }
  for (const int rank : o.real) {
    spec.ranks[static_cast<std::size_t>(rank)] = {.real = true};
  }
  return spec;
}

int play(const Options& o) {
  const Result<const Version*> version = find_version(o.version, true);
  if (!version) {
    std::fprintf(stderr, "%s\n", version.error().message.c_str());
    return 2;
  }
  std::optional<UniqueId> id;
  for (int tries = 0; !id && tries < 600; ++tries) {
    id = read_id(o.id_file);
    if (!id) {
      usleep(50'000);
    }
  }
  if (!id) {
    std::fprintf(stderr, "no unique id in %s\n", o.id_file.c_str());
    return 2;
  }
  std::vector<ghost::Identity> ghosts;
  for (int rank = 0; rank < o.ranks; ++rank) {
    ghosts.push_back({.name = "rank" + std::to_string(rank),
                      .mac = {},
                      .addresses = {{IpAddress::v4(0x7f010000U + static_cast<std::uint32_t>(rank)), 8}}});
  }
  const ghost::Directory directory(std::move(ghosts));
  test::PosixStreams streams(directory);
  test::GhostContext ghosts_context(streams, directory);
  Lobby lobby(ghosts_context.ports);
  Net net(ghosts_context.context);
  Player player(o.split);
  const CommSpec spec = spec_from(o, *id, **version);
  auto comm = std::make_unique<Comm>(ghosts_context.context, lobby, net, spec, player);
  Comm& first = *comm;
  player.own(std::move(comm));
  first.start(clock_now());
  if (o.shrink >= 0) {
    first.shrink({o.shrink}, clock_now());
  }
  std::string waiting_for;
  while (!player.finished()) {
    streams.run(50, clock_now());
    ghosts_context.wheel.run(clock_now());
    if (const std::string text = player.waiting_for(); text != waiting_for) {
      waiting_for = text;
      std::printf("%s%s\n", text.empty() ? "waits for nothing" : "waits for ", text.c_str());
      std::fflush(stdout);
    }
  }
  return player.in_order() ? 0 : 1;
}

}  // namespace nbx::nccl

int main(int argc, char** argv) { return nbx::nccl::play(nbx::nccl::options_from(argc, argv)); }
