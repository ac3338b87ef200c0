// What a ghost does above verbs. A personality is started once per ghost and lives as long as the shard; everything it
// does happens in callbacks of the transport, the CM, the streams and its timers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/rng.hpp"
#include "frame/ledger.hpp"
#include "ghost/ghost.hpp"
#include "ghost/neighbours.hpp"
#include "ghost/stream_ports.hpp"
#include "rdma/cm.hpp"
#include "rdma/transport.hpp"
#include "traffic/sizes.hpp"

namespace nbx::ghost {

/// Defaults for the queue pairs that personalities make.
struct QpDefaults {
  std::uint32_t path_mtu = 4096;
  std::uint8_t timeout = 14;
  std::uint8_t retry_cnt = 7;
  std::uint8_t rnr_retry = 7;
  std::uint8_t min_rnr_timer = 12;

  [[nodiscard]] rdma::QpAttr qp_attr() const {
    rdma::QpAttr attr;
    attr.path_mtu = path_mtu;
    attr.timeout = timeout;
    attr.retry_cnt = retry_cnt;
    attr.rnr_retry = rnr_retry;
    attr.min_rnr_timer = min_rnr_timer;
    return attr;
  }
};

/// Everything a personality may touch.
struct Context {
  GhostId ghost;
  const Directory& directory;
  rdma::Transport& transport;
  rdma::Cm& cm;
  Neighbours& neighbours;
  StreamPorts& streams;
  Wheel& wheel;
  Counters& counters;
  Ledger& ledger;
  QpDefaults defaults;
  Rng rng;

  [[nodiscard]] const Identity& identity() const { return directory[ghost]; }
  /// The path to `peer` behind `mac`; nullopt when the ghost has no address of the peer's family.
  [[nodiscard]] std::optional<wire::Path> path_to(const IpAddress& peer, const Mac& mac) const {
    const Identity& self = identity();
    const IpAddress* own = self.source_for(peer);
    if (own == nullptr) {
      return std::nullopt;
    }
    return wire::Path{.source_mac = self.mac,
                      .destination_mac = mac,
                      .source_ip = *own,
                      .destination_ip = peer,
                      .vlan_tci = self.vlan_tci,
                      .traffic_class = self.traffic_class};
  }
};

class Personality {
 public:
  virtual void start(Instant now) = 0;
  /// One line for `nbx ghosts`: what it is doing.
  [[nodiscard]] virtual std::string status() const = 0;
  virtual ~Personality() = default;
};

// One options struct per personality; the variant is what the cluster file can name.
struct PerftestOptions {  // ib_{write,read,send,atomic}_{bw,lat}: the server, over TCP or rdma_cm (-R)
  std::uint16_t port = 18515;
};
struct PingpongOptions {  // ibv_{rc,uc,ud}_pingpong: the server
  std::uint16_t port = 18515;
};
struct RpingOptions {
  std::uint16_t port = 7174;
  std::string connect;  // address of a real node: the ghost is the client; empty: the server
  std::uint32_t count = 10;
  std::uint32_t size = 100;
};
struct RcopsOptions {
  std::uint16_t port = 7471;
  std::string connect;
  std::uint32_t length = 10000;
};
struct EchoOptions {  // sends every message back
  std::uint16_t port = 7475;
};
struct SinkOptions {  // takes everything: SEND, WRITE (a region's address and key are in the REP's private data), READ,
                      // atomics
  std::uint16_t port = 7476;
  std::uint64_t region_bytes = 16 << 20;
  rdma::Backing backing = rdma::Backing::memory;
};
struct SourceOptions {  // a ghost that sends to a listening real node
  std::string connect;
  std::uint16_t port = 7477;
  rdma::WrOpcode operation = rdma::WrOpcode::send;
  static constexpr std::uint32_t message_max = 1U << 30U;
  std::uint32_t message_size = 65536;
  std::optional<traffic::Sizes> sizes{};  // of messages, instead of message_size; 1 GiB at most
  BitRate rate{};                         // of messages' bytes in the mean, which come at random times; 0: no pause
  std::uint64_t count = 1000;             // 0: until the connection ends
  std::uint32_t depth = 16;               // messages in flight
  Duration start{};                       // after the start of the emulator
  std::uint64_t remote_addr = 0;          // for rdma operations when the peer's REP private data does not tell
  std::uint32_t rkey = 0;
};
using PersonalityOptions =
    std::variant<PerftestOptions, PingpongOptions, RpingOptions, RcopsOptions, EchoOptions, SinkOptions, SourceOptions>;

[[nodiscard]] std::string_view name(const PersonalityOptions& options);
[[nodiscard]] std::unique_ptr<Personality> make_personality(const PersonalityOptions& options, const Context& context);

}  // namespace nbx::ghost
