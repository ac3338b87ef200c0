// A cluster as its file says it: checked values, each with its place where a later stage may complain. Ghosts with a
// count are expanded; profiles are read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "capture/recorder.hpp"
#include "cc/params.hpp"
#include "config/network.hpp"
#include "config/profile.hpp"
#include "config/scalar.hpp"
#include "config/source.hpp"
#include "config/traffic.hpp"
#include "ghost/personality.hpp"
#include "nccl-glue/service/options.hpp"
#include "rdma/cm.hpp"
#include "rdma/memory.hpp"
#include "rdma/nic.hpp"
#include "rdma/verbs.hpp"

namespace nbx::config {

struct Port {
  Located<std::string> name;
  Located<std::string> device;  // vdev string or PCI address; empty: only for replays
  Profile profile;
  Located<std::uint32_t> mtu{4200};  // largest IP packet
  std::optional<Located<std::uint32_t>> core;
};

/// A real node, known in advance.
struct Node {
  Located<std::string> name;
  Located<std::string> port;
  Located<Mac> mac;
  std::vector<Located<Subnet>> addresses;
};

enum class Access : std::uint8_t {
  local_write = rdma::access::local_write,
  remote_write = rdma::access::remote_write,
  remote_read = rdma::access::remote_read,
  remote_atomic = rdma::access::remote_atomic,
};

/// What is not given comes from the ghost, then from ghost::QpDefaults; the path MTU from the port.
struct QpDefaults {
  std::optional<Located<PathMtu>> path_mtu;
  std::optional<std::uint8_t> timeout;
  std::optional<std::uint8_t> retry_cnt;
  std::optional<std::uint8_t> rnr_retry;
  std::optional<std::uint8_t> min_rnr_timer;
};

struct Zero {};
struct Pattern {};
struct FileBytes {
  Located<std::string> path;     // relative to the file that names it
  std::vector<std::byte> bytes;  // read by load_cluster
};
struct Text {
  std::string value;
};
using Content = std::variant<Zero, Pattern, HexBytes, Text, FileBytes>;
using PrivateData = std::variant<Text, HexBytes, FileBytes>;

struct Region {
  Located<std::uint64_t> addr;
  Located<ByteCount> length;
  Located<std::uint32_t> key;
  std::vector<Access> access{Access::local_write, Access::remote_write, Access::remote_read, Access::remote_atomic};
  rdma::Backing backing = rdma::Backing::memory;
  std::optional<Located<Content>> content;
};

struct Peer {
  std::optional<Mac> mac;  // absent: the one of the real node with that address
  Located<IpAddress> address;
  Qpn qpn;
};

struct Receives {
  std::uint32_t count = 0;
  std::uint32_t size = 0;
  std::optional<Located<std::uint32_t>> region;
  bool repost = true;
};

struct LocalRange {
  Located<std::uint32_t> key;
  std::uint64_t addr = 0;
  std::uint32_t length = 0;
};
struct RemoteRange {
  std::uint64_t addr = 0;
  std::uint32_t rkey = 0;
};

struct Request {
  Duration at{};
  Located<rdma::WrOpcode> op;
  std::uint64_t wr_id = 0;
  std::optional<LocalRange> local;
  std::optional<RemoteRange> remote;
  std::uint32_t imm = 0;
  std::uint32_t invalidate = 0;
  std::uint64_t compare = 0;
  std::uint64_t swap = 0;
  std::uint64_t add = 0;
  bool signaled = true;
  bool solicited = false;
  bool fence = false;
};

/// What static queue pairs and those of listeners have in common.
struct QpKeys {
  QpDefaults timing;
  std::uint16_t pkey = wire::default_pkey;
  std::uint32_t qkey = 0;
  std::vector<Access> access{Access::remote_write, Access::remote_read, Access::remote_atomic};
  std::uint8_t max_rd_atomic = 16;
  std::uint8_t max_dest_rd_atomic = 16;
  std::uint32_t max_send_wr = 256;
  std::uint32_t max_recv_wr = 256;
  std::uint32_t max_outstanding_packets = 256;
  bool end_to_end_credits = false;
};

struct StaticQp {
  Located<rdma::QpType> type{rdma::QpType::rc};
  Located<Qpn> qpn;
  Located<Peer> peer;
  Psn sq_psn;
  Psn rq_psn;
  std::optional<std::uint16_t> vlan;
  std::uint16_t udp_source_port = 0xc000;
  std::uint8_t hop_limit = 64;
  QpKeys keys;
  Receives receives;
  std::vector<Request> requests;
};

struct TcpPort {
  std::uint16_t port = 0;
};
struct ServiceId {
  std::uint64_t id = 0;
};
struct Listener {
  std::variant<TcpPort, ServiceId> service;
  Located<rdma::QpType> type{rdma::QpType::rc};
  std::optional<Qpn> qpn;
  std::optional<Psn> rq_psn;
  QpKeys keys;
  std::optional<Located<PrivateData>> private_data;
  std::uint8_t responder_resources = 16;
  std::uint8_t initiator_depth = 16;
  std::uint8_t rnr_retry_count = 7;
  Receives receives;
  std::vector<Request> requests;
};

struct Ghost {
  Located<std::string> name;
  Located<std::string> port;
  std::optional<Located<std::uint32_t>> count;  // expanded by load_cluster
  std::string group;                            // the name before that
  std::optional<Located<Mac>> mac;              // always there after load_cluster
  std::vector<Located<Subnet>> addresses;
  std::uint16_t vlan = 0;
  std::uint8_t dscp = 0;
  Ecn ecn = Ecn::ect0;
  std::optional<Located<std::string>> nic;
  rdma::Nic behaviour;  // its, after load_cluster
  QpDefaults qp_defaults;
  std::vector<Located<ghost::PersonalityOptions>> personalities;
  std::vector<Region> memory;
  std::vector<StaticQp> qps;
  std::vector<Located<Listener>> listen;
};

struct Transport {
  bool cnp = true;
  Duration cnp_interval = std::chrono::microseconds{50};
  cc::CnpScope cnp_scope = cc::CnpScope::qp;
  std::uint8_t cnp_dscp = 48;
  BitRate line_rate{};
  std::optional<Located<Dcqcn>> dcqcn;
};

/// snaplen 0: whole frames.
struct Capture {
  Located<std::string> file;
  FilterText filter;
  std::uint32_t snaplen = 0;
  bool per_port = false;
  ByteCount rotate_size;
  std::uint32_t files_max = 0;
};

/// The last frames in memory, written to a file when something goes wrong.
struct Recorder {
  Located<std::string> file;
  Located<ByteCount> size{{256ULL << 20U}};
  Duration before{};  // zero: as long ago as `size` holds
  Duration after = std::chrono::milliseconds{200};
  std::vector<capture::Trigger> triggers{capture::Trigger::timeout, capture::Trigger::qp_error,
                                         capture::Trigger::pfc_storm};
  Duration apart = std::chrono::seconds{10};
  std::uint32_t dumps_max = 16;
  std::uint32_t snaplen = 0;
  FilterText filter;
};

/// Ghost ranks of NCCL communicators.
struct Nccl {
  Located<std::string> ghosts;  // a ghost, or the name of several with a count
  std::optional<Located<std::uint32_t>> ranks;
  std::vector<Located<std::uint32_t>> real;
  Located<std::uint32_t> ranks_per_node{1};
  std::optional<Located<std::string>> file;     // read by load_cluster
  std::optional<Located<std::string>> library;  // relative to the file that names it
  nccl::ServiceOptions options;                 // the rest
};

enum class Hugepages : std::uint8_t { automatic, on, off };
struct Memory {
  Hugepages hugepages = Hugepages::automatic;
  Located<ByteCount> size{{512ULL << 20U}};
};

struct ClusterConfig {
  std::string file;
  std::string name;
  std::uint64_t seed = 1;
  std::vector<Port> ports;
  Located<bool> one_worker{false};  // serves all ports
  std::vector<Node> nodes;
  std::vector<Ghost> ghosts;
  Transport transport;
  rdma::CmConfig cm;
  std::optional<Nccl> nccl;
  std::optional<Network> network;
  std::vector<Traffic> traffic;
  std::optional<Capture> capture;
  std::optional<Recorder> recorder;
  std::string control_socket;  // empty: the default of the daemon
  Memory memory;
  std::string report_file;  // empty: none
};

/// A host of the network: a ghost, or the real node of a port.
struct NetworkHost {
  const Port* port = nullptr;
  const Ghost* ghost = nullptr;  // null: the real node
  std::string name;              // the ghost's; the real node's, or, when it has none and there are several, the port's
};
/// In the order of their HostId: for each port its real node, then its ghosts in the order of the file.
[[nodiscard]] std::vector<NetworkHost> hosts_of(const ClusterConfig& config);

/// Of a job in a simulation: real nodes and ghosts, in the same order.
[[nodiscard]] inline std::uint32_t ranks_of(const ClusterConfig& config) {
  return static_cast<std::uint32_t>(config.ports.size() + config.ghosts.size());
}

/// The hosts of the network that a name means, empty when there is none of that name; without names all ghosts.
[[nodiscard]] std::vector<switching::HostId> hosts_named(const Located<std::string>& name, const ClusterConfig& config);
[[nodiscard]] std::vector<switching::HostId> hosts_named(const std::vector<Located<std::string>>& names,
                                                         const ClusterConfig& config);

/// The peer's MAC, or that of the node with its address.
[[nodiscard]] std::optional<Mac> peer_mac(const Peer& peer, const ClusterConfig& config);

[[nodiscard]] std::vector<std::byte> bytes_of(const Content& content);
[[nodiscard]] std::vector<std::byte> bytes_of(const PrivateData& data);

}  // namespace nbx::config
