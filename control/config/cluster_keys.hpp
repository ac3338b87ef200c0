// Every key of a cluster file: see keys.hpp.
#pragma once

#include "config/cluster.hpp"
#include "config/keys.hpp"
#include "config/network_keys.hpp"
#include "config/nic_keys.hpp"
#include "config/profile_keys.hpp"
#include "config/traffic_keys.hpp"

namespace nbx::config {

template <>
struct Words<Ecn> {
  static constexpr auto table = words<Ecn>({{"none", Ecn::none}, {"ect0", Ecn::ect0}, {"ect1", Ecn::ect1}});
};
template <>
struct Words<Access> {
  using enum Access;
  static constexpr auto table = words<Access>({{"local_write", local_write},
                                               {"remote_write", remote_write},
                                               {"remote_read", remote_read},
                                               {"remote_atomic", remote_atomic}});
};
template <>
struct Words<rdma::Backing> {
  static constexpr auto table = words<rdma::Backing>(
      {{"memory", rdma::Backing::memory}, {"pattern", rdma::Backing::pattern}, {"sink", rdma::Backing::sink}});
};
template <>
struct Words<rdma::QpType> {
  static constexpr auto table =
      words<rdma::QpType>({{"rc", rdma::QpType::rc}, {"uc", rdma::QpType::uc}, {"ud", rdma::QpType::ud}});
};
template <>
struct Words<rdma::WrOpcode> {
  using enum rdma::WrOpcode;
  static constexpr auto table = words<rdma::WrOpcode>({{"rdma_write", rdma_write},
                                                       {"rdma_write_with_imm", rdma_write_with_imm},
                                                       {"send", send},
                                                       {"send_with_imm", send_with_imm},
                                                       {"send_with_inv", send_with_inv},
                                                       {"rdma_read", rdma_read},
                                                       {"atomic_cmp_and_swp", atomic_cmp_and_swp},
                                                       {"atomic_fetch_and_add", atomic_fetch_and_add}});
};
template <>
struct Words<capture::Trigger> {
  using enum capture::Trigger;
  static constexpr auto table = words<capture::Trigger>({{"nak", nak},
                                                         {"rnr_nak", rnr_nak},
                                                         {"timeout", timeout},
                                                         {"qp_error", qp_error},
                                                         {"event", event},
                                                         {"pfc_storm", pfc_storm}});
};
template <>
struct Words<Hugepages> {
  static constexpr auto table =
      words<Hugepages>({{"auto", Hugepages::automatic}, {"on", Hugepages::on}, {"off", Hugepages::off}});
};

template <>
struct Words<nccl::Contribution> {
  static constexpr auto table =
      words<nccl::Contribution>({{"identity", nccl::Contribution::identity}, {"pattern", nccl::Contribution::pattern}});
};
template <>
struct Words<nccl::Filling> {
  static constexpr auto table = words<nccl::Filling>(
      {{"zero", nccl::Filling::zero}, {"pattern", nccl::Filling::pattern}, {"file", nccl::Filling::file}});
};
template <>
struct Words<nccl::SplitRule> {
  static constexpr auto table = words<nccl::SplitRule>(
      {{"all", nccl::SplitRule::all}, {"block", nccl::SplitRule::block}, {"stride", nccl::SplitRule::stride}});
};
template <>
struct Words<nccl::SkewShape> {
  static constexpr auto table = words<nccl::SkewShape>({{"constant", nccl::SkewShape::constant},
                                                        {"uniform", nccl::SkewShape::uniform},
                                                        {"exponential", nccl::SkewShape::exponential}});
};

template <class V>
void describe(V& v, Port& x) {
  v.about({.name = "port", .doc = "One Ethernet port of the emulator, with one profile."});
  v.field("name", x.name, "How commands, captures and the other sections call it.", {.required = true});
  v.field("device", x.device,
          "A DPDK device: a PCI address such as `0000:3b:00.0`, or a virtual device with its arguments.",
          {.fallback = "none: only `nbx replay` can use the port"});
  v.field("profile", x.profile,
          "The network behind the port: a shipped profile's name, a path relative to this file, or the keys of a "
          "profile.",
          {.fallback = "`ideal`"});
  v.field("mtu", x.mtu, "Largest IP packet in bytes.", {.limits = {.min = 576, .max = 9600}});
  v.field("core", x.core, "CPU of the port's worker.", {.limits = {.max = 1023}, .fallback = "any that is free"});
}

template <class V>
void describe(V& v, Node& x) {
  v.about({.name = "node", .doc = "A real node. Those named here are known without asking for their MAC."});
  v.field("name", x.name, "For people.", {.required = true});
  v.field("port", x.port, "The port that it is cabled to.", {.required = true});
  v.field("mac", x.mac, "Its MAC address.", {.required = true});
  v.field("addresses", x.addresses, "Its addresses with prefix lengths.", {.required = true, .one_or_many = true});
}

template <class V>
void describe_timing(V& v, QpDefaults& x, std::string_view otherwise) {
  v.field("path_mtu", x.path_mtu, "Payload bytes per packet.", {.fallback = otherwise});
  v.field("timeout", x.timeout, "Local ACK timeout as a code: 4.096 us * 2^code; 0: never.",
          {.limits = {.max = 31}, .fallback = otherwise});
  v.field("retry_cnt", x.retry_cnt, "Retries after timeouts and sequence errors.",
          {.limits = {.max = 7}, .fallback = otherwise});
  v.field("rnr_retry", x.rnr_retry, "Retries after RNR NAKs; 7: without limit.",
          {.limits = {.max = 7}, .fallback = otherwise});
  v.field("min_rnr_timer", x.min_rnr_timer, "Wait that RNR NAKs ask for, as a code of IBTA table 45.",
          {.limits = {.max = 31}, .fallback = otherwise});
}
template <class V>
void describe(V& v, QpDefaults& x) {
  v.about({.name = "queue pair defaults", .doc = "For queue pairs of the ghost that do not say it themselves."});
  describe_timing(v, x, "IBTA default");
}

template <class V>
void describe(V& v, Zero& /*x*/) {
  v.about({.name = "zero", .doc = ""});
}
template <class V>
void describe(V& v, Pattern& /*x*/) {
  v.about({.name = "pattern", .doc = ""});
}
template <class V>
void describe(V& v, Content& x) {
  v.about({.name = "content", .doc = "The bytes at the start of a region; zeros follow.", .bare_names = true});
  v.choice(x, {}, alternative<Zero>("zero", "Nothing but zeros."),
           alternative<Pattern>("pattern", "Bytes that depend on their address: `a ^ a>>8 ^ a>>16`."),
           alternative<HexBytes>("hex", "These bytes."),
           alternative<Text>(
               "text", "The bytes of this text.", [](auto& c) -> auto& { return c.value; }),
           alternative<FileBytes>(
               "file", "The bytes of a file, relative to this one.", [](auto& c) -> auto& { return c.path; }));
}
template <class V>
void describe(V& v, PrivateData& x) {
  v.about({.name = "private data", .doc = "The consumer's bytes in a message of the CM.", .shorthand = "text"});
  v.choice(x, {},
           alternative<Text>(
               "text", "The bytes of this text.", [](auto& c) -> auto& { return c.value; }),
           alternative<HexBytes>("hex", "These bytes."),
           alternative<FileBytes>(
               "file", "The bytes of a file, relative to this one.", [](auto& c) -> auto& { return c.path; }));
}

template <class V>
void describe(V& v, Region& x) {
  v.about({.name = "region", .doc = "A memory region of the ghost. Its address is the ghost's own invention."});
  v.field("addr", x.addr, "Virtual address.", {.required = true});
  v.field("length", x.length, "Its size.", {.required = true, .limits = {.min = 1}});
  v.field("key", x.key, "Both its lkey and its rkey.", {.required = true, .limits = {.min = 1}});
  v.field("access", x.access, "What the region may be used for.", {.one_or_many = true});
  v.field("backing", x.backing,
          "`memory` reads as it was written; `pattern` drops writes and reads as the pattern; `sink` drops writes and "
          "reads as zeros.");
  v.field("content", x.content, "What memory holds at the start.", {.fallback = "`zero`"});
}

template <class V>
void describe(V& v, Peer& x) {
  v.about({.name = "peer", .doc = "The other end of a queue pair."});
  v.field("address", x.address, "Its IP address.", {.required = true});
  v.field("mac", x.mac, "Its MAC address.", {.fallback = "that of the node with the address"});
  v.field("qpn", x.qpn, "Its queue pair number.", {.required = true});
}

template <class V>
void describe(V& v, Receives& x) {
  v.about({.name = "receives", .doc = "Receives posted at the start."});
  v.field("count", x.count, "How many.", {.required = true});
  v.field("size", as<ByteCount>(x.size), "Room of each.", {.required = true});
  v.field("region", x.region, "Key of the region that they lie in, one behind the other.",
          {.fallback = "a sink of their own"});
  v.field("repost", x.repost, "Whether a receive is posted again when it has completed.");
}

template <class V>
void describe(V& v, LocalRange& x) {
  v.about({.name = "local range", .doc = "The ghost's side of a request."});
  v.field("key", x.key, "Key of the region.", {.required = true});
  v.field("addr", x.addr, "First byte.", {.required = true});
  v.field("length", as<ByteCount>(x.length), "Size of the message.", {.required = true});
}
template <class V>
void describe(V& v, RemoteRange& x) {
  v.about({.name = "remote range", .doc = "The peer's side of a request."});
  v.field("addr", x.addr, "First byte.", {.required = true});
  v.field("rkey", x.rkey, "Key of the peer's region.", {.required = true});
}
template <class V>
void describe(V& v, Request& x) {
  v.about({.name = "request", .doc = "A work request that the ghost posts, in the words of ibv_post_send."});
  v.field("at", x.at, "When, after the start or after the connection.");
  v.field("op", x.op, "The operation.", {.required = true});
  v.field("wr_id", x.wr_id, "Comes back in the completion.");
  v.field("local", x.local, "Where the data is, or goes.", {.fallback = "no data"});
  v.field("remote", x.remote, "Required for WRITE, READ and atomics.", {.fallback = "none"});
  v.field("imm", x.imm, "Immediate data, as a number in network order.");
  v.field("invalidate", x.invalidate, "The peer's key that send_with_inv invalidates.");
  v.field("compare", x.compare, "Compare operand of atomic_cmp_and_swp.");
  v.field("swap", x.swap, "Swap operand of atomic_cmp_and_swp.");
  v.field("add", x.add, "Operand of atomic_fetch_and_add.");
  v.field("signaled", x.signaled, "Whether success makes a completion.");
  v.field("solicited", x.solicited, "Sets the solicited event bit.");
  v.field("fence", x.fence, "Waits for earlier READs and atomics.");
}

template <class V>
void describe_qp(V& v, QpKeys& x) {
  describe_timing(v, x.timing, "the ghost's");
  v.field("pkey", x.pkey, "Partition key.");
  v.field("qkey", x.qkey, "Queue key, UD only.");
  v.field("access", x.access, "What the peer may do.", {.one_or_many = true});
  v.field("max_rd_atomic", x.max_rd_atomic, "READs and atomics in flight as requester.", {.limits = {.max = 128}});
  v.field("max_dest_rd_atomic", x.max_dest_rd_atomic, "READs and atomics that can be answered again.",
          {.limits = {.max = 128}});
  v.field("max_send_wr", x.max_send_wr, "Room of the send queue.", {.limits = {.min = 1, .max = 1U << 20U}});
  v.field("max_recv_wr", x.max_recv_wr, "Room of the receive queue.", {.limits = {.min = 1, .max = 1U << 20U}});
  v.field("max_outstanding_packets", x.max_outstanding_packets, "Request packets in flight.",
          {.limits = {.min = 1, .max = 1U << 22U}});
  v.field("end_to_end_credits", x.end_to_end_credits, "Whether ACKs tell how many receives are posted.");
}

template <class V>
void describe(V& v, StaticQp& x) {
  v.about({.name = "static queue pair",
           .doc = "A queue pair that is connected from the start, in the words of ibv_modify_qp."});
  v.field("type", x.type, "Its transport.");
  v.field("qpn", x.qpn, "Its number.", {.required = true, .limits = {.min = 2}});
  v.field("peer", x.peer, "The other end.", {.required = true});
  v.field("sq_psn", x.sq_psn, "First PSN that it sends.");
  v.field("rq_psn", x.rq_psn, "First PSN that it expects.");
  v.field("vlan", x.vlan, "VLAN of its packets; 0: untagged.", {.limits = {.max = 4094}, .fallback = "the ghost's"});
  v.field("udp_source_port", x.udp_source_port, "UDP source port of its packets.");
  v.field("hop_limit", x.hop_limit, "TTL or hop limit of its packets.", {.limits = {.min = 1}});
  describe_qp(v, x.keys);
  v.field("receives", x.receives, "Receives posted at the start.", {.fallback = "none"});
  v.field("requests", x.requests, "Work requests posted at given times.");
}

/// `qp` of a listener: all but what the connection brings.
struct ListenerQp {
  Located<rdma::QpType>& type;
  std::optional<Qpn>& qpn;
  std::optional<Psn>& rq_psn;
  QpKeys& keys;
};
template <class V>
void describe(V& v, ListenerQp& x) {
  v.about({.name = "listener queue pair", .doc = "Attributes of the queue pairs that accepted connections get."});
  v.field("type", x.type, "Their transport.");
  v.field("qpn", x.qpn, "Number of the queue pair: one connection at a time, then.",
          {.limits = {.min = 2}, .fallback = "the next free one"});
  v.field("rq_psn", x.rq_psn, "First PSN that they expect: the REP tells the peer.", {.fallback = "random"});
  describe_qp(v, x.keys);
}
template <class V>
void describe(V& v, Listener& x) {
  v.about({.name = "listener",
           .doc = "A service of the ghost's CM: every REQ is accepted, with a queue pair of its own.",
           .shorthand = "port"});
  v.choice(x.service, {},
           alternative<TcpPort>("port", "A port of rdma_cm's TCP port space.", [](auto& s) -> auto& { return s.port; },
                                {.limits = {.min = 1}}),
           alternative<ServiceId>(
               "service_id", "A service id.", [](auto& s) -> auto& { return s.id; }));
  ListenerQp qp{x.type, x.qpn, x.rq_psn, x.keys};
  v.field("qp", qp, "Queue pairs of the connections.");
  v.field("private_data", x.private_data, "Private data of the REP, up to 196 bytes.", {.fallback = "none"});
  v.field("responder_resources", x.responder_resources, "Offered in the REP.");
  v.field("initiator_depth", x.initiator_depth, "Offered in the REP.");
  v.field("rnr_retry_count", x.rnr_retry_count, "Offered in the REP.", {.limits = {.max = 7}});
  v.field("receives", x.receives, "Receives posted per connection.", {.fallback = "none"});
  v.field("requests", x.requests, "Work requests posted at given times after the connection.");
}

template <class V>
void describe(V& v, ghost::PerftestOptions& x) {
  v.about({.name = "perftest", .doc = "Server of ib_write_bw, ib_read_lat and the others, with and without `-R`."});
  v.field("port", x.port, "TCP port.", {.limits = {.min = 1}});
}
template <class V>
void describe(V& v, ghost::PingpongOptions& x) {
  v.about({.name = "pingpong", .doc = "Server of ibv_rc_pingpong, ibv_uc_pingpong and ibv_ud_pingpong."});
  v.field("port", x.port, "TCP port.", {.limits = {.min = 1}});
}
template <class V>
void describe(V& v, ghost::RpingOptions& x) {
  v.about({.name = "rping", .doc = "rping, as server or as client."});
  v.field("port", x.port, "Port of rdma_cm.", {.limits = {.min = 1}});
  v.field("connect", as<AddressText>(x.connect), "A real node's address, to be its client.", {.fallback = "server"});
  v.field("count", x.count, "Client: rounds.");
  v.field("size", as<ByteCount>(x.size), "Client: size of a ping.", {.limits = {.min = 1}});
}
template <class V>
void describe(V& v, ghost::RcopsOptions& x) {
  v.about({.name = "rcops", .doc = "Every verb once, data verified: the checker of the test machine, either side."});
  v.field("port", x.port, "Port of rdma_cm.", {.limits = {.min = 1}});
  v.field("connect", as<AddressText>(x.connect), "A real node's address, to be its client.", {.fallback = "server"});
  v.field("length", as<ByteCount>(x.length), "Client: size of a message.", {.limits = {.min = 1}});
}
template <class V>
void describe(V& v, ghost::EchoOptions& x) {
  v.about({.name = "echo", .doc = "Sends every message back."});
  v.field("port", x.port, "Port of rdma_cm.", {.limits = {.min = 1}});
}
template <class V>
void describe(V& v, ghost::SinkOptions& x) {
  v.about({.name = "sink",
           .doc = "Takes everything: SEND, WRITE, READ and atomics; the address and key of its region are in the REP's "
                  "private data."});
  v.field("port", x.port, "Port of rdma_cm.", {.limits = {.min = 1}});
  v.field("region_bytes", as<ByteCount>(x.region_bytes), "Size of the region.", {.limits = {.min = 1}});
  v.field("backing", x.backing, "What lies behind the region.");
}
template <class V>
void describe(V& v, ghost::SourceOptions& x) {
  v.about({.name = "source", .doc = "Connects to a listening real node and sends."});
  v.field("connect", as<AddressText>(x.connect), "The real node's address.", {.required = true});
  v.field("port", x.port, "Port of rdma_cm.", {.limits = {.min = 1}});
  v.field("operation", x.operation, "What it sends.");
  v.field("message_size", as<ByteCount>(x.message_size), "Size of a message.",
          {.limits = {.max = ghost::SourceOptions::message_max}});
  v.field("sizes", x.sizes, "Sizes of messages that differ, 1 GiB at most.", {.fallback = "`message_size`"});
  v.field("rate", x.rate,
          "Of messages' bytes in the mean: messages come at random times (Poisson), and wait while "
          "`depth` are in flight.",
          {.limits = {.min = 1}, .fallback = "as fast as `depth` allows"});
  v.field("count", x.count, "Messages; 0: until the connection ends.");
  v.field("depth", x.depth, "Messages in flight.", {.limits = {.min = 1}});
  v.field("start", x.start, "When, after the start of the emulator.");
  v.field("remote_addr", x.remote_addr, "Where WRITE and READ go, if the peer's private data does not tell.");
  v.field("rkey", x.rkey, "The key for it.");
}
template <class V>
void describe(V& v, ghost::PersonalityOptions& x) {
  v.about({.name = "personality",
           .doc = "What a ghost does above verbs: a name, or a name with options.",
           .bare_names = true});
  v.choice(x, {}, alternative<ghost::PerftestOptions>("perftest", "Server of the perftest programs."),
           alternative<ghost::PingpongOptions>("pingpong", "Server of ibv_{rc,uc,ud}_pingpong."),
           alternative<ghost::RpingOptions>("rping", "rping, server or client."),
           alternative<ghost::RcopsOptions>("rcops", "Every verb, verified."),
           alternative<ghost::EchoOptions>("echo", "Sends messages back."),
           alternative<ghost::SinkOptions>("sink", "Takes everything."),
           alternative<ghost::SourceOptions>("source", "Sends."));
}

template <class V>
void describe(V& v, Ghost& x) {
  v.about({.name = "ghost", .doc = "A node that does not exist."});
  v.field("name", x.name, "Its name; with a count, the start of the names g0, g1, …", {.required = true});
  v.field("port", x.port, "The port that it is behind.", {.fallback = "the only port"});
  v.field("count", x.count, "So many ghosts; names, MAC and IP addresses count up.",
          {.limits = {.min = 1, .max = 65536}, .fallback = "one ghost"});
  v.field("mac", x.mac, "Its MAC address.", {.fallback = "a locally administered one"});
  v.field("addresses", x.addresses, "Its addresses with prefix lengths; the link-local IPv6 address is implied.",
          {.required = true, .one_or_many = true});
  v.field("vlan", x.vlan, "VLAN of its frames; 0: untagged.", {.limits = {.max = 4094}});
  v.field("dscp", x.dscp, "DSCP of packets that it originates.", {.limits = {.max = 63}});
  v.field("ecn", x.ecn, "ECN field of packets that it originates.");
  v.field("nic", x.nic, "The NIC that it pretends to have: a shipped one, or a file.", {.fallback = "`ib-spec`"});
  v.field("qp_defaults", x.qp_defaults, "For queue pairs that do not say it themselves.");
  v.field("personalities", x.personalities, "What it does above verbs.", {.one_or_many = true});
  v.field("memory", x.memory, "Its memory regions, beside those of its personalities.");
  v.field("qps", x.qps, "Queue pairs that are connected from the start.");
  v.field("listen", x.listen, "Services that accept every connection.");
}

template <>
struct Words<DcqcnPreset> {
  using enum DcqcnPreset;
  static constexpr auto& presets = cc::dcqcn_presets;
  static constexpr auto table = words<DcqcnPreset>({{presets[0].name, mlx5},
                                                    {presets[1].name, paper},
                                                    {presets[2].name, validation},
                                                    {presets[3].name, hpcc_production},
                                                    {presets[4].name, otg_default}});
};
template <class V>
void describe(V& v, Dcqcn& x) {
  v.about({.name = "dcqcn",
           .doc = "How a ghost's queue pair reacts to congestion notifications; names and units are mlx5's.",
           .shorthand = "preset"});
  v.field("preset", x.preset, "Where the values come from that are not given.");
  x.params = cc::dcqcn_presets[static_cast<std::size_t>(x.preset)].params;
  v.field("rp_clamp_tgt_rate", x.params.rp_clamp_tgt_rate, "Whether every cut sets the target rate to the current one.",
          {.fallback = "the preset's"});
  v.field("rp_clamp_tgt_rate_ati", x.params.rp_clamp_tgt_rate_ati,
          "Whether the first cut after an increase by the timer does.", {.fallback = "the preset's"});
  v.field("rp_time_reset", x.params.rp_time_reset, "Microseconds between increases by the timer.",
          {.limits = {.min = 1}, .fallback = "the preset's"});
  v.field("rp_byte_reset", x.params.rp_byte_reset, "Bytes between increases by the byte counter; 0: off.",
          {.fallback = "the preset's"});
  v.field("rp_threshold", x.params.rp_threshold, "Increases of fast recovery (F).",
          {.limits = {.min = 1}, .fallback = "the preset's"});
  v.field("rp_ai_rate", x.params.rp_ai_rate, "Additive increase, Mb/s.", {.fallback = "the preset's"});
  v.field("rp_hai_rate", x.params.rp_hai_rate, "Hyper increase, Mb/s.", {.fallback = "the preset's"});
  v.field("rp_max_rate", x.params.rp_max_rate, "Highest rate, Mb/s; 0: `line_rate`.", {.fallback = "the preset's"});
  v.field("rp_gd", x.params.rp_gd, "A cut takes alpha / 2^(rp_gd - 10) of the rate.",
          {.limits = {.max = 20}, .fallback = "the preset's"});
  v.field("rp_min_dec_fac", x.params.rp_min_dec_fac, "Per cent of the rate that a cut leaves at least.",
          {.limits = {.max = 100}, .fallback = "the preset's"});
  v.field("rp_min_rate", x.params.rp_min_rate, "Lowest rate, Mb/s.",
          {.limits = {.min = 1}, .fallback = "the preset's"});
  v.field("rp_rate_to_set_on_first_cnp", x.params.rp_rate_to_set_on_first_cnp,
          "Rate after the first notification, Mb/s; 0: a cut like the others.", {.fallback = "the preset's"});
  v.field("rp_dce_tcp_g", x.params.rp_dce_tcp_g, "What alpha keeps at an update, of 1024.",
          {.limits = {.max = 1024}, .fallback = "the preset's"});
  v.field("rp_dce_tcp_rtt", x.params.rp_dce_tcp_rtt, "Microseconds between updates of alpha.",
          {.limits = {.min = 1}, .fallback = "the preset's"});
  v.field("rp_rate_reduce_monitor_period", x.params.rp_rate_reduce_monitor_period, "Microseconds between cuts.",
          {.fallback = "the preset's"});
  v.field("rp_initial_alpha_value", x.params.rp_initial_alpha_value, "Alpha at the start, of 1024.",
          {.limits = {.max = 1024}, .fallback = "the preset's"});
}
template <class V>
void describe(V& v, Transport& x) {
  v.about({.name = "transport", .doc = "Of every ghost."});
  v.field("cnp", x.cnp, "Whether ghosts answer CE marks with congestion notifications.");
  v.field("cnp_interval", x.cnp_interval, "Least time between two notifications (mlx5: min_time_between_cnps).");
  v.field("cnp_scope", x.cnp_scope, "What has an interval of its own: a queue pair, a peer's address or the port.");
  v.field("cnp_dscp", x.cnp_dscp, "DSCP of congestion notifications.", {.limits = {.max = 63}});
  v.field("line_rate", x.line_rate, "At which a ghost's queue pair sends, packets evenly spaced.",
          {.fallback = "not limited"});
  v.field("dcqcn", x.dcqcn, "Queue pairs slow down below `line_rate` after congestion notifications.",
          {.fallback = "they do not"});
}
template <class V>
void describe(V& v, rdma::CmConfig& x) {
  v.about({.name = "cm", .doc = "Communication management of every ghost."});
  v.field("response_timeout", x.response_timeout, "As a code: 4.096 us * 2^code.", {.limits = {.max = 31}});
  v.field("max_retries", x.max_retries, "Times that a message is sent again.", {.limits = {.max = 15}});
}
template <class V>
void describe(V& v, Capture& x) {
  v.about({.name = "capture", .doc = "A capture that begins with the run.", .shorthand = "file"});
  v.field("file", x.file, "pcapng file; with `per_port`, the port's name goes before the suffix.", {.required = true});
  v.field("filter", x.filter, "Which frames, in the syntax of tcpdump: pcap-filter(7).", {.fallback = "every one"});
  v.field("snaplen", as<SnapLength>(x.snaplen), "Bytes kept of each frame, at least 64.");
  v.field("per_port", x.per_port, "Whether each port has a file of its own.");
  v.field("rotate_size", x.rotate_size, "Size at which a new file begins; 0: never.");
  v.field("files_max", x.files_max, "Files kept; 0: all.");
}
template <class V>
void describe(V& v, Recorder& x) {
  v.about(
      {.name = "recorder",
       .doc = "A flight recorder: the last frames of every port in memory, written to a file when something happens.",
       .shorthand = "file"});
  v.field("file", x.file, "pcapng files; the number of the dump goes before the suffix.", {.required = true});
  v.field("size", x.size, "Memory for the frames of each port.", {.limits = {.min = 1U << 20U}});
  v.field("before", x.before, "How long before the trigger a dump begins at the earliest.",
          {.fallback = "as long as `size` holds"});
  v.field("after", x.after, "How long after the trigger it ends, or when half of `size` is filled since.");
  v.field("triggers", x.triggers, "What a dump is written for, beside `nbx capture trigger`.",
          {.one_or_many = true, .fallback = "`timeout`, `qp_error`, `pfc_storm`"});
  v.field("apart", x.apart, "Least time between two triggers.");
  v.field("dumps_max", x.dumps_max, "Dumps of a run; further triggers are counted.", {.limits = {.min = 1}});
  v.field("snaplen", as<SnapLength>(x.snaplen), "Bytes kept of each frame, at least 64.");
  v.field("filter", x.filter, "Which frames, in the syntax of tcpdump: pcap-filter(7).", {.fallback = "every one"});
}
struct ControlKeys {
  std::string& socket;
};
template <class V>
void describe(V& v, ControlKeys& x) {
  v.about({.name = "control", .doc = "How commands reach the emulator.", .shorthand = "socket"});
  v.field(
      "socket", x.socket, "Path of the socket.",
      {.fallback = "`$XDG_RUNTIME_DIR/nbxd.sock`; without it `/run/nbxd.sock` for root, `/tmp/nbxd-UID.sock` else"});
}
template <class V>
void describe(V& v, Memory& x) {
  v.about({.name = "memory", .doc = "For frames, of all ports together."});
  v.field("hugepages", x.hugepages, "`auto` takes them when there are any.");
  v.field("size", x.size, "How much.", {.limits = {.min = 16U << 20U}});
}
struct ReportKeys {
  std::string& file;
};
template <class V>
void describe(V& v, ReportKeys& x) {
  v.about({.name = "report", .doc = "Asked and achieved, at the end of the run.", .shorthand = "file"});
  v.field("file", x.file, "JSON file.", {.required = true});
}

template <class V>
void describe(V& v, nccl::Straggler& x) {
  v.about({.name = "straggler", .doc = "A ghost rank that comes late to collectives."});
  v.field("rank", x.rank, "Which.", {.required = true});
  v.field("delay", x.delay, "By how much.", {.required = true});
  v.field("every", x.every, "To every so-manieth collective of a communicator.", {.limits = {.min = 1}});
  v.field("first", x.first, "From this collective on, counted from 0.");
}
template <class V>
void describe(V& v, nccl::Skew& x) {
  v.about({.name = "skew",
           .doc = "How long after the real rank a ghost rank calls the same collective.",
           .shorthand = "mean"});
  v.field("mean", x.mean, "Its mean.", {.required = true});
  v.field("shape", x.shape, "Its distribution; `uniform` is from 0 to twice the mean.");
}
template <class V>
void describe(V& v, nccl::HopRow& x) {
  v.about({.name = "hop time", .doc = "One row of a table of times by message size."});
  v.field("bytes", as<ByteCount>(x.bytes), "Size of the message.", {.required = true});
  v.field("time", x.time, "From one ghost's send to the next ghost's.", {.required = true});
}
template <class V>
void describe(V& v, nccl::Hop& x) {
  v.about({.name = "hop", .doc = "The way of a message from one ghost rank to the next."});
  v.field("latency", x.latency, "Of the network between two ghosts.");
  v.field("rate", x.rate, "Of the network between two ghosts.", {.fallback = "not limited"});
  v.field("per_message", x.per_message, "What a rank needs for a message of any size.");
  v.field("reduce_rate", x.reduce_rate, "At which a rank reduces.", {.fallback = "reducing takes no time"});
}
template <class V>
void describe(V& v, nccl::Split& x) {
  v.about({.name = "split", .doc = "The color that a ghost rank gives to ncclCommSplit.", .shorthand = "rule"});
  v.field("rule", x.rule, "`all`: 0; `block`: rank / size, so that neighbours are together; `stride`: rank % size.",
          {.required = true});
  v.field("size", x.size, "See the rule.", {.limits = {.min = 1}});
}
template <class V>
void describe(V& v, Nccl& x) {
  v.about({.name = "nccl", .doc = "The ghosts' ranks of NCCL communicators; see the how-to on NCCL."});
  v.field("ghosts", x.ghosts, "The ghosts that hold ranks: a name, or the common name of several with a count.",
          {.required = true});
  v.field("ranks", x.ranks, "Size of the world.",
          {.limits = {.min = 2, .max = 1U << 20U}, .fallback = "as the program says"});
  v.field("real", x.real, "The real ranks of the world.",
          {.one_or_many = true, .fallback = "those that have announced themselves when `settle` is over"});
  v.field("ranks_per_node", x.ranks_per_node, "Of a ghost node.", {.limits = {.min = 1, .max = 8}});
  v.field("announce_port", x.options.announce_port, "TCP port, at every ghost, for the library on the real nodes.",
          {.limits = {.min = 1}});
  v.field("port_base", x.options.port_base, "First of 64 TCP ports, at every ghost, for NCCL's own connections.",
          {.limits = {.min = 1, .max = 65472}});
  v.field("compute_capability", x.options.compute_capability, "Of the ghosts' GPUs, times 10: that of the real ones.");
  v.field("untested_versions", x.options.allow_untested, "Whether NCCL versions that were never tried are taken.");
  v.field("timeout", x.options.timeout, "The ghosts' NCCL_IB_TIMEOUT.", {.limits = {.max = 31}});
  v.field("retry_cnt", x.options.retry_cnt, "The ghosts' NCCL_IB_RETRY_CNT.", {.limits = {.max = 7}});
  v.field("settle", x.options.settle, "How long after the last announcement a communicator is complete.");
  v.field("patience", x.options.patience, "A collective without progress for so long ends the job.");
  v.field("contribution", x.options.contribution, "What ghosts add to a reduction.");
  v.field("filling", x.options.filling, "What ghosts send in all-gather, broadcast and send.");
  v.field("file", x.file, "The bytes for `filling: file`, repeated.", {.fallback = "none"});
  v.field("splits", x.options.splits,
          "Colors of the ghosts' ranks, one rule per ncclCommSplit of a communicator; the last one repeats.");
  v.field("hop", x.options.delay.hop, "Time from ghost to ghost.");
  v.field("hop_table", x.options.delay.table, "Time from ghost to ghost by size, instead of `hop`.");
  v.field("skew", x.options.delay.skew, "Ghost ranks' lateness.");
  v.field("skew_trace", x.options.delay.trace,
          "Lateness of one collective after the other, repeated; added to `skew`.");
  v.field("stragglers", x.options.delay.stragglers, "Ghost ranks that are later than others.");
  v.field("delay_library", x.library, "A shared library with a delay model of your own, instead of all of these.",
          {.fallback = "none"});
}

template <class V>
void describe(V& v, ClusterConfig& x) {
  v.about({.name = "cluster", .doc = "Which nodes exist, which of them are real, and the ports between them."});
  v.field("cluster", x.name, "Name of the cluster.", {.required = true});
  v.field("seed", x.seed, "Seed of every random choice: same seed and input, same output.");
  v.field("ports", x.ports, "The emulator's ports.", {.required = true});
  v.field("one_worker", x.one_worker,
          "Whether one thread serves all ports, where cores are scarce; else each port has one.",
          {.fallback = "`false`; `true` with a network over several ports"});
  v.field("nodes", x.nodes, "Real nodes.");
  v.field("ghosts", x.ghosts, "Nodes that do not exist.");
  v.field("transport", x.transport, "RDMA transport of the ghosts.");
  v.field("cm", x.cm, "Communication management of the ghosts.");
  v.field("nccl", x.nccl, "NCCL ranks of the ghosts.", {.fallback = "none"});
  v.field("network", x.network, "Switches between ports and ghosts.", {.fallback = "none"});
  v.field("traffic", x.traffic, "Background traffic in the network.", {.fallback = "none"});
  v.field("capture", x.capture, "Capture from the start.", {.fallback = "none"});
  v.field("recorder", x.recorder, "Flight recorder.", {.fallback = "none"});
  ControlKeys control{x.control_socket};
  v.field("control", control, "Control socket.");
  v.field("memory", x.memory, "Memory for frames.");
  ReportKeys report{x.report_file};
  v.field("report", report, "Report at the end.", {.fallback = "none"});
}

}  // namespace nbx::config
