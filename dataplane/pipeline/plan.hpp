// What a shard is to be: checked, immutable, written by control. Everything a cluster file says of one port.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fabric/spec.hpp"
#include "ghost/personality.hpp"
#include "pipeline/emulated_network.hpp"
#include "rdma/cm.hpp"
#include "rdma/transport.hpp"

namespace nbx::pipeline {

/// A work request that a static queue pair posts at a given time after the start.
struct TimedRequest {
  Duration at{};
  rdma::SendWr wr;
};

/// Receives that are posted from the start.
struct Receives {
  std::uint32_t count = 0;
  std::uint32_t size = 0;    // bytes of each; taken one behind the other from the region
  std::uint32_t region = 0;  // key; 0: a sink region of its own
  bool repost = true;        // when one completes, it is posted again
};

/// A queue pair that exists from the start, connected to a peer that the file describes.
struct StaticQp {
  rdma::QpAttr attr;  // attr.path: from the ghost to the peer
  Receives receives;
  std::vector<TimedRequest> requests;
};

/// A CM listener that accepts every REQ with a queue pair of these attributes.
struct StaticListener {
  std::uint64_t service_id = 0;
  rdma::QpAttr attr;
  rdma::AcceptParam accept;  // its private_data is taken from below
  std::vector<std::byte> private_data;
  Receives receives;
  std::vector<TimedRequest> requests;  // times count from the establishment
};

/// Initial content of a region with backing `memory`.
struct RegionContent {
  enum class Kind : std::uint8_t { zero, pattern, bytes } kind = Kind::zero;
  std::vector<std::byte> bytes;  // written at the start of the region
};

struct StaticRegion {
  rdma::RegionSpec spec;
  RegionContent content;
};

struct GhostPlan {
  ghost::Identity identity;
  rdma::Nic nic;
  ghost::QpDefaults defaults;
  std::vector<ghost::PersonalityOptions> personalities;
  std::vector<StaticRegion> regions;
  std::vector<StaticQp> qps;
  std::vector<StaticListener> listeners;
};

struct ShardPlan {
  PortId port{};
  std::string port_name;
  std::uint64_t seed = 1;
  std::uint32_t mtu = 4200;  // largest IP packet
  std::vector<GhostPlan> ghosts;
  std::vector<std::pair<IpAddress, Mac>> neighbours;  // known in advance: real nodes whose file entry has a MAC
  std::vector<std::pair<Mac, PortId>> elsewhere;      // likewise: nodes and ghosts behind other ports
  fabric::ProfileSpec profile;
  std::optional<NetworkPlan> network;  // the cluster's; none: the ghosts are at the other end of the port's cable
  rdma::TransportConfig transport;
  rdma::CmConfig cm;
  std::uint16_t beside_tcp_port = 0;  // TCP with this port is the emulator's own: no profile touches it
  std::uint32_t ports = 1;            // of the cluster: more than one makes transit possible
};

}  // namespace nbx::pipeline
