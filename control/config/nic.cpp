#include "config/nic.hpp"

#include <bit>

#include "config/nic_keys.hpp"
#include "config/reader.hpp"

namespace nbx::config {
namespace {

/// The longest local ACK timeout, code 31 (9.7.6.1.3): an adaptive one is never longer.
constexpr Duration longest_timeout = std::chrono::nanoseconds{4096LL << 31U};

bool fits(const AdaptiveTimer& timer, std::uint32_t exponent) {
  return exponent < 63 && timer.time_base->count() <= longest_timeout.count() >> exponent;
}

void check(const AdaptiveTimer& timer, const SourcePos& pos, Diagnostics& out) {
  constexpr std::int64_t us = Duration{std::chrono::microseconds{1}}.count();
  const std::int64_t base = timer.time_base->count();
  if (base < 4 * us || base % us != 0 || !std::has_single_bit(static_cast<std::uint64_t>(base / us))) {
    out.push_back({timer.time_base.pos, "the time base is a power of two of microseconds, 4 at least"});
  }
  if (timer.ranges.empty() || timer.ranges.size() > rdma::AdaptiveTimer::ranges_max) {
    out.push_back({pos, "one to four ranges, not " + std::to_string(timer.ranges.size())});
  }
  const Located<rdma::AdaptiveTimer::Range>* before = nullptr;
  for (const auto& range : timer.ranges) {
    if (before != nullptr && range->low_bound <= before->value.high_bound()) {
      out.push_back({range.pos, "the ranges must rise", {{before->pos, "the one before is here"}}});
    }
    if (!fits(timer, range->high_bound())) {
      out.push_back({range.pos, "longer than 4.096 us * 2^31, which no timeout is"});
    }
    before = &range;
  }
  if (!timer.ranges.empty() && *timer.start_range_index >= timer.ranges.size()) {
    out.push_back({timer.start_range_index.pos, "there is no such range"});
  }
  if (!fits(timer, timer.init_low_bound + std::uint32_t{*timer.init_range_size} - 1)) {
    out.push_back({timer.init_range_size.given() ? timer.init_range_size.pos : pos,
                   "longer than 4.096 us * 2^31, which no timeout is"});
  }
  if (timer.total_timeout && !fits(timer, **timer.total_timeout)) {
    out.push_back({timer.total_timeout->pos, "longer than 4.096 us * 2^31, which no timeout is"});
  }
}

void check(const Nic& nic, Diagnostics& out) {
  if (nic.adaptive) {
    check(**nic.adaptive, nic.adaptive->pos, out);
  }
  if (nic.rto && nic.adaptive) {
    out.push_back({nic.rto->pos, "either 'rto' or 'adaptive'", {{nic.adaptive->pos, "'adaptive' is here"}}});
  }
  if (nic.rto && ((*nic.rto)->low == Duration::zero() || (*nic.rto)->low > (*nic.rto)->high)) {
    out.push_back({nic.rto->pos, "'rto_low' is more than 0, and not more than 'rto_high'"});
  }
  if (nic.out_of_order_packets && !nic.behaviour.selective()) {
    out.push_back({nic.out_of_order_packets->pos, "nothing is kept without 'recovery: selective_repeat'"});
  }
}

rdma::AdaptiveTimer behaviour(const AdaptiveTimer& timer) {
  rdma::AdaptiveTimer out;
  out.time_base = *timer.time_base;
  out.init_low_bound = timer.init_low_bound;
  out.init_range_size = *timer.init_range_size;
  out.start_range_index = *timer.start_range_index;
  for (const auto& range : timer.ranges) {
    out.ranges[out.range_num++] = *range;
  }
  if (timer.total_timeout) {
    out.total_timeout = **timer.total_timeout;
  }
  return out;
}

}  // namespace

LoadedNic load_nic(const std::string& path) {
  LoadedNic loaded;
  const std::optional<Value> document = read_document(path, loaded.diagnostics);
  if (document) {
    read(*document, loaded.nic, {}, loaded.diagnostics);
  }
  Nic& nic = loaded.nic;
  if (loaded.ok()) {
    check(nic, loaded.diagnostics);
  }
  if (loaded.ok()) {
    rdma::Nic& out = nic.behaviour;
    if (nic.adaptive) {
      out.adaptive = behaviour(**nic.adaptive);
    }
    if (nic.rto) {
      out.rto = **nic.rto;
    }
    if (nic.out_of_order_packets) {
      out.out_of_order_packets = **nic.out_of_order_packets;
    }
  }
  sort(loaded.diagnostics);
  return loaded;
}

}  // namespace nbx::config
