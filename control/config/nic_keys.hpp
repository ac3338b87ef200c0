// Every key of the file of a NIC: see keys.hpp.
#pragma once

#include "config/keys.hpp"
#include "config/nic.hpp"

namespace nbx::config {

template <>
struct Words<cc::CnpScope> {
  using enum cc::CnpScope;
  static constexpr auto table = words<cc::CnpScope>({{"qp", qp}, {"ip", ip}, {"port", port}});
};

template <>
struct Words<rdma::Recovery> {
  using enum rdma::Recovery;
  static constexpr auto table =
      words<rdma::Recovery>({{"go_back_n", go_back_n}, {"selective_repeat", selective_repeat}});
};

template <class V>
void describe(V& v, rdma::RtoTimer& x) {
  v.about({.name = "retransmission timeouts",
           .doc = "IRN's pair (Mittal et al., SIGCOMM 2018, 3.1), in place of the local ACK timeout. Retries end when "
                  "the queue pair's `timeout` times its `retry_cnt` have passed without progress."});
  v.field("rto_low", x.low, "With few packets in flight, when no NAK may come.");
  v.field("rto_high", x.high, "With more.");
  v.field("low_packets", x.low_packets, "So many packets are few.");
}

template <class V>
void describe(V& v, rdma::AdaptiveTimer::Range& x) {
  v.about({.name = "timeout range", .doc = "Timeouts that double from one bound to the other."});
  v.field("range_low_bound", x.low_bound, "Exponent of the shortest.", {.required = true, .limits = {.max = 31}});
  v.field("range_size", x.size, "The exponent of the longest is so much more.", {.limits = {.max = 31}});
  v.field("timeout_retry_num", x.timeout_retry_num, "Timeouts of each length.", {.limits = {.min = 1, .max = 1023}});
}
template <class V>
void describe(V& v, AdaptiveTimer& x) {
  v.about({.name = "adaptive timer",
           .doc = "Retransmission timeouts of ConnectX's adaptive retransmission; names and meanings are those of the "
                  "ROCE_ACCL register's profile. A timeout is `time_base` * 2^exponent, never longer than the queue "
                  "pair's own."});
  v.field("time_base", x.time_base, "A power of two of microseconds, 4 at least.");
  v.field("timeout_init_low_bound", x.init_low_bound, "Exponent of the first timeout.",
          {.required = true, .limits = {.max = 31}});
  v.field("timeout_init_range_size", x.init_range_size,
          "The first timeout has one of so many exponents, by queue pair number.", {.limits = {.min = 1, .max = 31}});
  v.field("start_range_index", x.start_range_index,
          "The range that follows a first timeout which lies in none, from 0.", {.limits = {.max = 3}});
  v.field("timeout_range", x.ranges, "One to four, rising.", {.required = true, .one_or_many = true});
  v.field("retx_total_timeout", x.total_timeout, "Exponent of the time without progress that ends the queue pair.",
          {.limits = {.max = 31}, .fallback = "the queue pair's `timeout` times its `retry_cnt`"});
}

template <class V>
void describe(V& v, Nic& x) {
  rdma::Nic& nic = x.behaviour;
  v.about({.name = "nic", .doc = "How ghosts with this NIC behave where NICs differ."});
  v.field("nic", x.name, "Its name.", {.required = true});
  v.field("description", x.description, "What it is.");
  v.field("timeout_factor", nic.timeout_factor,
          "The local ACK timeout is so many times 4.096 us * 2^`timeout` (IBTA 9.7.6.1.3).",
          {.limits = {.min = 1, .max = 4}});
  v.field("adaptive", x.adaptive, "Timeouts that follow ranges of their own instead.", {.fallback = "none"});
  v.field("rto", x.rto, "Two timeouts, by what is in flight.", {.fallback = "none"});
  v.field(
      "recovery", nic.recovery,
      "What becomes of packets behind one that was lost. `go_back_n`: the responder discards them, and all are sent "
      "again. `selective_repeat`: it keeps them, and what is missing is sent again; see "
      "[transport](transport.md#selective-repeat).");
  v.field("out_of_order_packets", x.out_of_order_packets,
          "With `selective_repeat`: request packets that the responder of a queue pair keeps. The default is a "
          "bandwidth-delay product of 100 Gb/s and 20 us in packets of 1 KiB, and a whole default window.",
          {.limits = {.min = 1, .max = 1U << 16U}, .fallback = "256"});
  v.field("bdp_cap", nic.bdp_cap,
          "Request packets in flight, at most (IRN 3.2: a bandwidth-delay product); 0: as many as the queue pair may.");
  v.field("nak_latency", nic.nak_latency, "From a packet ahead of its turn to the NAK.");
  v.field("retransmission_latency", nic.retransmission_latency,
          "From a sequence NAK, or a READ response that implies one, to the first packet sent again.");
  v.field("ack_request_every", nic.ack_request_every,
          "Request packets from one AckReq to the next within a message; 0: twice per window.");
  v.field("ack_every", nic.ack_every, "Request packets that are acknowledged together, asked or not; 0: when asked.");
  v.field("mig_req", nic.mig_req, "MigReq bit of the packets that it sends.");
  v.field("cnp", nic.send_cnp, "Whether CE marks are answered with congestion notifications.",
          {.fallback = "`transport` says it"});
  v.field("cnp_interval", nic.cnp_interval, "Least time between two notifications.",
          {.fallback = "`transport` says it"});
  v.field("cnp_scope", nic.cnp_scope, "What has an interval of its own: a queue pair, a peer's address or the port.",
          {.fallback = "`transport` says it"});
  v.field("cnp_on_nak", nic.cnp_on_nak, "Whether a notification goes with every sequence NAK, within the interval.");
}

}  // namespace nbx::config
