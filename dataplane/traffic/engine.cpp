// Arrivals, and flows on their way. Every time is the timer's own, so that a late driver changes nothing.
#include "traffic/engine.hpp"

#include <algorithm>
#include <numbers>

#include "base/logarithm.hpp"

namespace nbx::traffic {
namespace {

constexpr std::uint32_t cnp_bytes = header_bytes + 16;  // A17.9.3: 16 bytes of zeros

/// To one other each, and from one other each: a random cycle (Sattolo).
std::vector<switching::HostId> one_cycle(const std::vector<switching::HostId>& hosts, Rng& rng) {
  std::vector<switching::HostId> partner = hosts;
  for (std::size_t i = partner.size(); i-- > 1;) {
    std::swap(partner[i], partner[rng.below(i)]);
  }
  return partner;
}

}  // namespace

double mean_line_bytes(const Sizes& sizes, std::uint32_t packet_bytes) {
  constexpr std::uint32_t quantiles = 100'000;
  double sum = 0;
  for (std::uint32_t i = 0; i < quantiles; ++i) {
    sum += static_cast<double>(line_bytes(size_at(sizes, (i + 0.5) / quantiles), packet_bytes));
  }
  return sum / quantiles;
}

Engine::Engine(std::vector<Spec> specs, Wheel& wheel, Carrier& carrier, const Rng& rng)
    : wheel_(wheel), carrier_(carrier), rng_(rng) {
  for (Spec& spec : specs) {
    make(std::move(spec));
  }
  make_room();
}

Engine::Generator& Engine::make(Spec spec) {
  Rng own = rng_.fork(spec.name);
  auto& generator = *generators_.emplace_back(std::make_unique<Generator>(std::move(spec), own));
  const Spec& s = generator.spec;
  generator.mean_gap_ps = mean_line_bytes(s.sizes, s.packet_bytes) * 8e12 / static_cast<double>(s.rate.bits_per_second);
  if (s.pattern == Pattern::permutation) {
    generator.partner = one_cycle(s.from, generator.rng);
  }
  generator.arrivals = std::vector<Arrival>(s.pattern == Pattern::incast ? 1 : s.from.size());
  for (std::size_t i = 0; i < generator.arrivals.size(); ++i) {
    generator.arrivals[i].of = &generator;
    generator.arrivals[i].sender = i;
    generator.arrivals[i].client = &arrival_timer_;
  }
  return generator;
}

void Engine::make_room() {
  std::size_t needed = 0;
  for (const auto& generator : generators_) {
    needed += generator->stopped ? generator->under_way : generator->spec.flows_max;
  }
  while (flows_.size() < needed) {
    Flow& flow = flows_.emplace_back();
    flow.client = &flow_timer_;
    flow.index = static_cast<std::uint32_t>(flows_.size() - 1);
    free_.push_back(flow.index);
  }
}

Engine::~Engine() {
  for (Flow& flow : flows_) {
    wheel_.cancel(flow);
  }
  for (const auto& generator : generators_) {
    for (Arrival& arrival : generator->arrivals) {
      wheel_.cancel(arrival);
    }
  }
}

void Engine::start(Instant now) {
  for (const auto& generator : generators_) {
    begin(*generator, now);
  }
}

void Engine::begin(Generator& generator, Instant now) {
  generator.begins = now + generator.spec.start;
  generator.ends =
      generator.spec.lasts == Duration::zero() ? Instant::never() : generator.begins + generator.spec.lasts;
  for (Arrival& arrival : generator.arrivals) {
    plan_next(arrival, generator.begins);
  }
}

bool Engine::add(Spec spec, Instant now) {
  std::erase_if(generators_,
                [&](const auto& g) { return g->spec.name == spec.name && now >= g->ends && g->under_way == 0; });
  const auto same = [&](const auto& g) { return g->spec.name == spec.name && now < g->ends; };
  if (generators_.size() == generators_max || std::any_of(generators_.begin(), generators_.end(), same)) {
    return false;
  }
  Generator& generator = make(std::move(spec));
  make_room();
  begin(generator, now);
  return true;
}

bool Engine::stop(std::string_view name, Instant now) noexcept {
  const auto runs = [&](const auto& g) { return g->spec.name == name && !g->stopped && now < g->ends; };
  const auto found = std::find_if(generators_.begin(), generators_.end(), runs);
  if (found == generators_.end()) {
    return false;
  }
  Generator& generator = **found;
  generator.stopped = true;
  generator.ends = now;
  for (Arrival& arrival : generator.arrivals) {
    wheel_.cancel(arrival);
  }
  return true;
}

Duration Engine::active(std::size_t generator, Instant now) const noexcept {
  const Generator& g = *generators_[generator];
  return std::max(Duration::zero(), std::min(now, g.ends) - g.begins);
}

// ---- arrivals

void Engine::plan_next(Arrival& arrival, Instant after) noexcept {
  constexpr double never_ps = 1e18;  // eleven days
  const double gap = -arrival.of->mean_gap_ps * std::numbers::ln2 * log2_portable(1 - arrival.of->rng.unit());
  if (!(gap < never_ps)) {
    return;
  }
  const Instant at = after + Duration{static_cast<std::int64_t>(gap + 0.5)};
  if (at < arrival.of->ends) {
    wheel_.arm(arrival, at);
  }
}

void Engine::on_arrival(Arrival& arrival) noexcept {
  Generator& generator = *arrival.of;
  const Spec& spec = generator.spec;
  const Instant now = arrival.due;
  if (spec.pattern == Pattern::incast) {
    const switching::HostId to = spec.to[generator.turn++ % spec.to.size()];
    for (const switching::HostId from : spec.from) {
      if (from != to) {
        begin_flow(generator, from, to, now);
      }
    }
  } else {
    begin_flow(generator, spec.from[arrival.sender], choose_receiver(generator, arrival.sender), now);
  }
  plan_next(arrival, now);
}

switching::HostId Engine::choose_receiver(Generator& generator, std::size_t sender) noexcept {
  const Spec& spec = generator.spec;
  if (spec.pattern == Pattern::permutation) {
    return generator.partner[sender];
  }
  if (spec.pattern == Pattern::one_to_one) {
    return spec.to[sender];
  }
  const auto itself = std::find(spec.to.begin(), spec.to.end(), spec.from[sender]);
  const std::size_t others = spec.to.size() - (itself == spec.to.end() ? 0 : 1);
  const std::size_t chosen = generator.rng.below(others);
  return spec.to[chosen + (itself <= spec.to.begin() + static_cast<std::ptrdiff_t>(chosen) ? 1 : 0)];
}

void Engine::begin_flow(Generator& generator, switching::HostId from, switching::HostId to, Instant now) noexcept {
  const Spec& spec = generator.spec;
  const std::uint64_t bytes = size_at(spec.sizes, generator.rng.unit());
  const auto hash = static_cast<std::uint32_t>(generator.rng.next());
  if (generator.under_way == spec.flows_max) {
    ++generator.stats.refused;
    return;
  }
  Flow& flow = flows_[free_.back()];
  free_.pop_back();
  ++generator.under_way;
  flow.of = &generator;
  flow.from = from;
  flow.to = to;
  flow.hash = hash;
  flow.bytes_left = bytes;
  flow.lost = false;
  flow.begun = now;
  flow.next_notification = now;
  flow.reaction.reset();
  if (spec.dcqcn) {
    flow.reaction.emplace(*spec.dcqcn, carrier_.port_rate(from));
    flow.pacer.emplace(flow.reaction->current_rate());
  }
  ++generator.stats.flows;
  generator.stats.offered_bytes += line_bytes(bytes, spec.packet_bytes);
  try_send(flow, now);
}

// ---- flows

/// One packet of a flow is in the port at a time, so that flows of one port take turns, and what a pause holds back
/// stays here.
void Engine::try_send(Flow& flow, Instant now) noexcept {
  if (flow.in_port || flow.bytes_left == 0) {
    return;
  }
  if (flow.reaction) {
    flow.reaction->advance(now);
    flow.pacer->set_rate(flow.reaction->current_rate(), now);
    if (!flow.pacer->ready(now)) {
      wheel_.arm(flow, flow.pacer->ready_at());
      return;
    }
  }
  const Spec& spec = flow.of->spec;
  const auto payload = static_cast<std::uint32_t>(std::min<std::uint64_t>(flow.bytes_left, spec.packet_bytes));
  const std::uint32_t on_line = payload + header_bytes + ethernet_overhead_bytes;
  flow.in_port = true;  // before the port, which may answer at once
  if (!carrier_.carry({.from = flow.from,
                       .to = flow.to,
                       .size = payload + header_bytes,
                       .hash = flow.hash,
                       .priority = spec.priority,
                       .ecn = spec.ecn,
                       .reference = reference_to(flow, false)},
                      now)) {
    flow.in_port = false;
    wheel_.arm(flow, now + serialize_time_ceil(on_line, carrier_.port_rate(flow.from)));
    return;
  }
  flow.bytes_left -= payload;
  ++flow.outstanding;
  ++flow.of->stats.packets_sent;
  flow.of->stats.sent_bytes += on_line;
  if (flow.reaction) {
    flow.pacer->sent(on_line, now);
    flow.reaction->on_sent(on_line, now);
  }
}

void Engine::on_departed(const Reference& reference, Instant now) noexcept {
  if (reference.notification) {
    return;
  }
  Flow& flow = flows_[reference.flow];
  flow.in_port = false;
  try_send(flow, now);
}

void Engine::on_arrived(const Reference& reference, std::uint32_t size, bool congested, Instant now) noexcept {
  Flow& flow = flows_[reference.flow];
  if (reference.notification) {
    if (flow.generation == reference.generation && flow.reaction) {
      ++flow.of->stats.cnps;
      flow.reaction->on_cnp(now);
      try_send(flow, now);
    }
    return;
  }
  Stats& stats = flow.of->stats;
  ++stats.packets_delivered;
  stats.packets_marked += congested ? 1U : 0U;
  stats.delivered_bytes += size + ethernet_overhead_bytes;
  if (congested && flow.reaction) {
    notify(flow, now);
  }
  --flow.outstanding;
  end_if_over(flow, now);
}

void Engine::on_dropped(const Reference& reference, Instant now) noexcept {
  if (reference.notification) {
    return;
  }
  Flow& flow = flows_[reference.flow];
  ++flow.of->stats.packets_dropped;
  flow.lost = true;
  --flow.outstanding;
  end_if_over(flow, now);
}

/// The notification point of A17.9: one CNP per interval and flow.
void Engine::notify(Flow& flow, Instant now) noexcept {
  const cc::DcqcnParams& params = *flow.of->spec.dcqcn;
  if (now < flow.next_notification) {
    return;
  }
  flow.next_notification = now + Duration{std::int64_t{params.np_min_time_between_cnps} * 1'000'000};
  (void)carrier_.carry({.from = flow.to,  // without room it is lost, as any may be
                        .to = flow.from,
                        .size = cnp_bytes,
                        .hash = flow.hash,
                        .priority = static_cast<std::uint8_t>(params.np_cnp_prio),
                        .reference = reference_to(flow, true)},
                       now);
}

void Engine::end_if_over(Flow& flow, Instant now) noexcept {
  if (flow.bytes_left != 0 || flow.outstanding != 0) {
    return;
  }
  Generator& generator = *flow.of;
  Stats& stats = generator.stats;
  if (flow.lost) {
    ++stats.damaged;
  } else {
    const Duration took = now - flow.begun;
    ++stats.completed;
    stats.completion_sum += took;
    stats.completion_max = std::max(stats.completion_max, took);
    stats.completion_ns.record(static_cast<std::uint64_t>(took.count() / 1000));
  }
  wheel_.cancel(flow);
  ++flow.generation;
  --generator.under_way;
  free_.push_back(flow.index);
}

Reference Engine::reference_to(const Flow& flow, bool notification) const noexcept {
  return {flow.index, flow.generation, notification};
}

}  // namespace nbx::traffic
