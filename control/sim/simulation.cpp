#include "sim/simulation.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>

#include "pipeline/shard_group.hpp"
#include "plan/plan.hpp"
#include "report/network_json.hpp"
#include "report/to_json.hpp"
#include "sim/ranks.hpp"
#include "sim/sites.hpp"
#include "sim/timeline.hpp"

namespace nbx::sim {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint32_t frames_at_ends = 16'384;  // made by ghosts, not yet in the network
constexpr std::uint64_t turns_max = 10'000'000;   // at one instant

double us(Duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

/// Ethernet, IP, UDP, BTH, ICRC.
std::uint32_t packet_headers(const ghost::Identity& ghost) {
  const bool tagged = ghost.vlan_tci != 0;
  const bool ipv6 = !ghost.addresses.front().ip.is_v4();
  return 14 + (tagged ? 4 : 0) + (ipv6 ? 40 : 20) + 8 + 12 + 4;
}

/// What a shard's ranks get their context by.
class Seat final : public ghost::Personality {
 public:
  Seat(Ranks& ranks, std::uint32_t first, std::uint32_t n, const ghost::Context& context) {
    ranks.seat(first, n, context);
  }
  void start(Instant) override {}
  [[nodiscard]] std::string status() const override { return "simulated rank"; }
};

class Simulation {
 public:
  Simulation(const config::ClusterConfig& cluster, const config::Job& job,
             const std::vector<pipeline::ShardPlan>& plans, const Options& options)
      : cluster_(cluster),
        job_(job),
        sites_(make_sites(cluster, plans)),
        network_plan_(sites_.front()->port_plan.network ? &*sites_.front()->port_plan.network : nullptr),
        path_mtu_(smallest_path_mtu(sites_)),
        ranks_(job, config::ranks_of(cluster), path_mtu_, closed_form(), options.on_message),
        frames_(frames_at_ends + (network_plan_ != nullptr ? network_plan_->packets : frames_at_ends),
                largest_mtu(sites_) + 64U) {
    if (sites_.size() > 1) {
      network_ = std::make_unique<pipeline::SharedNetwork>(*network_plan_, Rng{cluster.seed}.fork("network"));
    }
    group_ = pipeline::ShardGroup(network_.get());
  }
  ~Simulation() {
    for (const auto& site : sites_) {  // before the frames, the ranks and the network of all
      site->node.reset();
      site->port.reset();
    }
  }
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;
  Simulation(Simulation&&) = delete;
  Simulation& operator=(Simulation&&) = delete;

  /// Before it runs.
  std::optional<Error> capture(const std::vector<Options::Pcap>& pcaps) {
    for (const Options::Pcap& pcap : pcaps) {
      capture::Tap** const tap = tap_of(pcap.port);
      if (tap == nullptr) {
        return Error{"there is no port '" + pcap.port + "' of the emulator, the real node or a ghost" +
                     config::did_you_mean(pcap.port, names())};
      }
      auto opened = PortCapture::open(pcap.port, pcap.file, cluster_.network ? cluster_.network->host_rate : BitRate{});
      if (!opened) {
        return opened.error();
      }
      *tap = &(*opened)->tap();
      captures_.push_back(std::move(*opened));
    }
    return std::nullopt;
  }

  /// Why it did not come to its end.
  std::optional<Error> run(const Options& options, const Progress& progress) {
    using Clock = std::chrono::steady_clock;
    const auto began = Clock::now();
    auto told = began;
    start_sites();
    ranks_.start(now_);
    if (options.details) {
      timeline_.emplace(network() != nullptr ? &network()->network() : nullptr, ranks_.flows());
    }
    for (std::uint64_t turn = 0; !ranks_.done(); ++turn) {
      if (auto error = settle()) {
        return error;
      }
      for (const auto& capture : captures_) {
        capture->drain();
      }
      if (!ranks_.failure().empty()) {
        return Error{ranks_.failure()};
      }
      if (lost_to_a_full_network()) {
        return Error{network_full()};
      }
      if (ranks_.done()) {
        break;
      }
      const Instant next = next_deadline();
      if (next == Instant::never() || next > Instant{} + options.limit) {
        return Error{(next == Instant::never() ? "nothing will happen any more, and ranks wait:"
                                               : "the limit of virtual time is over, and ranks wait:") +
                     ranks_.waiting()};
      }
      now_ = std::max(now_, next);
      if (timeline_) {
        timeline_->until(now_);
      }
      constexpr std::uint64_t turns_between_looks = 4096;
      if (turn % turns_between_looks == 0 && Clock::now() - told > std::chrono::milliseconds{500}) {
        told = Clock::now();
        progress(ranks_.share_done(), now_);
      }
    }
    wall_ = Clock::now() - began;
    for (const auto& capture : captures_) {
      if (auto error = capture->close()) {
        return error;
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] Json report() const;
  [[nodiscard]] Json otg() const { return otg_metrics(job_.name, ranks_.flows(), names(), now_ - Instant{}); }
  /// That a rank has received.
  [[nodiscard]] std::uint64_t packets() const {
    std::uint64_t sum = 0;
    for (const auto& site : sites_) {
      sum += site->port_counters.get(Counter::rx_roce_packets) + site->node_counters.get(Counter::rx_roce_packets);
    }
    return sum;
  }
  [[nodiscard]] std::size_t queue_pairs() const { return ranks_.queue_pairs(); }
  [[nodiscard]] double wall() const { return wall_.count(); }

 private:
  /// A shard whose ghosts are the ranks from `first` on.
  std::unique_ptr<pipeline::Shard> make(const pipeline::ShardPlan& plan, Counters& counters, std::uint32_t first,
                                        pipeline::ShardEnvironment environment) {
    const auto n = static_cast<std::uint32_t>(plan.ghosts.size());
    environment.frames = &frames_;
    environment.counters = &counters;
    environment.ensemble = [this, first, n](const ghost::Context& context) {
      return std::make_unique<Seat>(ranks_, first, n, context);
    };
    return std::make_unique<pipeline::Shard>(plan, environment);
  }

  void start_sites() {
    for (const auto& site : sites_) {
      site->port = make(site->port_plan, site->port_counters, site->first_rank + 1,
                        {.tap = site->port_tap, .ghost_taps = site->ghost_taps, .network = network_.get()});
      site->node = make(site->node_plan, site->node_counters, site->first_rank, {.tap = site->node_tap});
      group_.add(*site->port, site->port_plan.port, static_cast<std::uint32_t>(sites_.size()));
    }
    group_.start(now_);
    for (const auto& site : sites_) {
      site->node->start(now_);
    }
  }
  [[nodiscard]] const pipeline::EmulatedNetwork* network() const { return sites_.front()->port->network(); }
  [[nodiscard]] Instant next_deadline() const {
    Instant next = group_.next_deadline();
    for (const auto& site : sites_) {
      next = std::min(next, site->node->next_deadline());
    }
    return next;
  }
  [[nodiscard]] bool lost_to_a_full_network() const {
    return std::any_of(sites_.begin(), sites_.end(),
                       [](const auto& site) { return site->port_counters.get(Drop::network_full) != 0; });
  }

  /// Of the ranks.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& site : sites_) {
      names.push_back(site->node_plan.ghosts.front().identity.name);
      for (const pipeline::GhostPlan& ghost : site->port_plan.ghosts) {
        names.push_back(ghost.identity.name);
      }
    }
    return names;
  }
  /// Where frames of a port, a real node or a ghost are recorded; nullptr: nobody is called so.
  capture::Tap** tap_of(const std::string& name) {
    for (const auto& site : sites_) {
      if (site->port_plan.port_name == name) {
        return &site->port_tap;
      }
      if (site->node_plan.ghosts.front().identity.name == name) {
        return &site->node_tap;
      }
      site->ghost_taps.resize(site->port_plan.ghosts.size());
      for (std::size_t i = 0; i < site->ghost_taps.size(); ++i) {
        if (site->port_plan.ghosts[i].identity.name == name) {
          return &site->ghost_taps[i];
        }
      }
    }
    return nullptr;
  }

  [[nodiscard]] std::optional<ClosedForm> closed_form() const {
    if (network_plan_ == nullptr || job_.closed_form.empty()) {
      return std::nullopt;
    }
    const auto& given = sites_.front()->port_plan.transport.rate_limit;
    return ClosedForm(*network_plan_, given ? given->line : cluster_.network->host_rate, path_mtu_,
                      packet_headers(model().identity));
  }

  /// Everything that happens at this instant.
  std::optional<Error> settle() {
    for (std::uint64_t turn = 0; turn < turns_max; ++turn) {
      bool more = group_.progress(now_);
      for (const auto& site : sites_) {
        more = site->node->progress(now_) || more;
        more = hand_over(*site->port, *site->node) || more;
        more = hand_over(*site->node, *site->port) || more;
      }
      if (!more) {
        return std::nullopt;
      }
    }
    return Error{"time stands still: ranks send without end at one instant; is there a rate?" + ranks_.waiting()};
  }
  bool hand_over(pipeline::Shard& from, pipeline::Shard& to) {
    while (Frame* frame = from.to_kernel().pop_front()) {
      from.release(*frame);
    }
    if (from.to_port().empty()) {
      return false;
    }
    FrameList burst;
    burst.splice_back(from.to_port());
    to.receive(burst, now_);
    return true;
  }

  /// A loss that no network has is no result.
  [[nodiscard]] std::string network_full() const {
    const std::uint64_t connections = ranks_.queue_pairs() / 2;
    const pipeline::GhostPlan& ghost = model();
    const std::uint32_t own = ghost.defaults.qp_attr().max_outstanding_packets;
    const std::uint64_t window = ghost.nic.bdp_cap == 0 ? own : std::min(own, ghost.nic.bdp_cap);
    const std::uint64_t frames = network_plan_->packets;
    return "more frames are under way at " + std::to_string(us(now_ - Instant{})) + " us than the " +
           std::to_string(frames) + " of the network's `frames`: " + std::to_string(connections) + " connections of " +
           std::to_string(window) + " packets in flight may have " + std::to_string(connections * window) +
           "; write `frames: " + std::to_string(std::bit_ceil(std::max(connections * window, frames + 1))) +
           "` under `network:` of the cluster file, or give ghosts a NIC with a lower `bdp_cap`";
  }

  /// As all ghosts are.
  [[nodiscard]] const pipeline::GhostPlan& model() const { return sites_.front()->node_plan.ghosts.front(); }

  [[nodiscard]] Json operation_report(std::size_t i) const;
  [[nodiscard]] Json step_report(std::size_t step) const;
  [[nodiscard]] Json traffic_report() const;
  /// On the cable of a host that has so many bytes of payload to send; zero: no rate is known.
  [[nodiscard]] Duration on_cable(std::uint64_t payload) const;

  const config::ClusterConfig& cluster_;
  const config::Job& job_;
  std::vector<std::unique_ptr<Site>> sites_;   // by port
  const pipeline::NetworkPlan* network_plan_;  // null: a single ghost needs none
  std::uint32_t path_mtu_;
  Ranks ranks_;
  SlabSource frames_;
  std::unique_ptr<pipeline::SharedNetwork> network_;  // of several ports
  pipeline::ShardGroup group_;
  std::vector<std::unique_ptr<PortCapture>> captures_;
  std::optional<Timeline> timeline_;
  Instant now_{};
  std::chrono::duration<double> wall_{};
};

double rounded(double x) { return std::round(x * 1e4) / 1e4; }

/// Smallest, median and largest.
void add_times(Json& row, const std::vector<Span>& spans) {
  std::vector<Duration> times;
  for (const Span& span : spans) {
    times.push_back(span.length());
  }
  std::sort(times.begin(), times.end());
  row["min_us"] = us(times.front());
  row["median_us"] = us(times[times.size() / 2]);
  row["max_us"] = us(times.back());
}

Duration Simulation::on_cable(std::uint64_t payload) const {
  const std::uint32_t headers = packet_headers(model().identity);
  const std::uint64_t packets = (payload + path_mtu_ - 1) / path_mtu_;
  return cluster_.network
             ? serialize_time_ceil(payload + packets * (headers + ethernet_overhead_bytes), cluster_.network->host_rate)
             : Duration::zero();
}

Json Simulation::operation_report(std::size_t i) const {
  const config::JobOperation& operation = *job_.each_step[i];
  std::vector<Span> spans;
  for (const auto& step : ranks_.spans()) {
    spans.push_back(step[i]);
  }
  Json row{{"operation", name_of(operation)}, {"bytes", bytes_of(operation)}};
  add_times(row, spans);
  const std::uint64_t busiest = busiest_bytes(operation, config::ranks_of(cluster_));
  const Duration ideal = on_cable(busiest);
  const double median_us = row["median_us"].get<double>();
  row["ideal_us"] = us(ideal);
  row["times_ideal"] = ideal == Duration::zero() ? 0 : rounded(median_us / us(ideal));
  row["busbw_gbps"] = median_us == 0 ? 0 : rounded(static_cast<double>(busiest) * 8 / median_us * 1e-3);
  return row;
}

/// Enough of them to draw the distribution; in microseconds.
Json completion_report(const Histogram& ns) {
  Json row{{"messages", ns.count()}};
  Json cdf = Json::array();
  constexpr double shares[] = {0,   0.01, 0.05, 0.1,  0.2,  0.3,   0.4,    0.5, 0.6,
                               0.7, 0.8,  0.9,  0.95, 0.99, 0.999, 0.9999, 1};
  for (const double share : shares) {
    cdf.push_back({static_cast<double>(ns.quantile(share)) * 1e-3, share});
  }
  row["median_us"] = static_cast<double>(ns.quantile(0.5)) * 1e-3;
  row["p99_us"] = static_cast<double>(ns.quantile(0.99)) * 1e-3;
  row["max_us"] = static_cast<double>(ns.quantile(1)) * 1e-3;
  row["cdf"] = std::move(cdf);
  return row;
}

Json Simulation::step_report(std::size_t step) const {
  Json row{{"step", step},
           {"start_us", us(ranks_.steps()[step].first_start - Instant{})},
           {"us", us(ranks_.steps()[step].length())}};
  Json spans = Json::array();
  for (const Span& span : ranks_.spans()[step]) {
    spans.push_back({{"start_us", us(span.first_start - Instant{})}, {"us", us(span.length())}});
  }
  row["operations"] = std::move(spans);
  const StepParts& parts = ranks_.parts().steps()[step];
  std::uint64_t bytes = 0;
  for (const auto& operation : job_.each_step) {
    bytes += rank_bytes(*operation, parts.rank, config::ranks_of(cluster_));
  }
  // What is neither computing, waiting nor sent again is the cable's for as long as it needs; the rest is queues and
  // latency.
  const Duration transfer = std::min(parts.communication, on_cable(bytes));
  row["parts"] = {{"last_rank", parts.rank},
                  {"late_start_us", us(parts.late_start)},
                  {"compute_us", us(parts.compute)},
                  {"waiting_us", us(parts.waiting)},
                  {"retransmission_us", us(parts.resent)},
                  {"transfer_us", us(transfer)},
                  {"queueing_us", us(parts.communication - transfer)}};
  if (parts.waiting != Duration::zero()) {
    row["parts"]["waited_for_rank"] = parts.waited_for;
  }
  return row;
}

Json Simulation::traffic_report() const {
  Json rows = Json::array();
  const traffic::Engine* engine = sites_.front()->port->traffic();
  for (std::size_t i = 0; engine != nullptr && i < engine->size(); ++i) {
    rows.push_back(report::traffic_json(engine->spec(i), engine->stats(i), engine->active(i, now_)));
  }
  return rows;
}

/// Adds the numbers of each table of `more` to those in `sum`.
void add_up(Json& sum, const Json& more) {
  for (const auto& [kind, rows] : more.items()) {
    sum[kind].update(Json::object());
    for (const auto& [name, n] : rows.items()) {
      sum[kind][name] = sum[kind].value(name, std::uint64_t{0}) + n.get<std::uint64_t>();
    }
  }
}

Json Simulation::report() const {
  Json doc{
      {"job", job_.name}, {"cluster", cluster_.name}, {"ranks", config::ranks_of(cluster_)}, {"seed", cluster_.seed}};
  doc["virtual_time_us"] = us(now_ - Instant{});
  Json steps{{"count", job_.steps}};
  add_times(steps, ranks_.steps());
  doc["steps"] = std::move(steps);
  Json operations = Json::array();
  for (std::size_t i = 0; i < job_.each_step.size(); ++i) {
    operations.push_back(operation_report(i));
  }
  doc["operations"] = std::move(operations);
  if (timeline_) {
    Json each = Json::array();
    for (std::size_t step = 0; step < job_.steps; ++step) {
      each.push_back(step_report(step));
    }
    doc["each_step"] = std::move(each);
    Json completions = Json::array();
    for (std::size_t i = 0; i < job_.each_step.size(); ++i) {
      if (const Histogram& ns = ranks_.parts().completion_ns(i); ns.count() != 0) {
        Json row{{"operation", name_of(*job_.each_step[i])}};
        row.update(completion_report(ns));
        completions.push_back(std::move(row));
      }
    }
    doc["completion_times"] = std::move(completions);
    doc["timeline"] = timeline_->report();
  }
  if (network() != nullptr) {
    doc["network"] = report::network_json(network()->report(now_));
  }
  if (Json rows = traffic_report(); !rows.empty()) {
    doc["traffic"] = std::move(rows);
  }
  const auto shard_json = [](const Counters& counters) {
    return Json{{"counters", report::counters_json(counters)}, {"drops", report::drops_json(counters)}};
  };
  for (const auto& site : sites_) {
    Json ghosts = shard_json(site->port_counters);
    Json node = shard_json(site->node_counters);
    if (sites_.size() > 1) {
      doc["ports"].push_back({{"port", site->port_plan.port_name}, {"ghosts", ghosts}, {"node", node}});
    }
    add_up(doc["ghosts"], ghosts);
    add_up(doc["node"], node);
  }
  return doc;
}

}  // namespace

std::optional<Error> unfit(const config::ClusterConfig& cluster) {
  if (cluster.ports.size() != 1 && !cluster.network) {
    return Error{"a simulation has one port, or several with a network between them; the cluster has " +
                 std::to_string(cluster.ports.size()) + " and no network"};
  }
  if (cluster.ghosts.empty()) {
    return Error{"the cluster has no ghosts: rank 0 would be alone"};
  }
  if (!cluster.network && cluster.ghosts.size() > 1) {
    return Error{"without 'network:' in the cluster file nothing is between ghosts; a job of " +
                 std::to_string(config::ranks_of(cluster)) + " ranks needs one"};
  }
  return std::nullopt;
}

Result<Outcome> simulate(const config::ClusterConfig& cluster, const config::Job& job, const Options& options,
                         const Progress& progress) {
  if (auto error = unfit(cluster)) {
    return *error;
  }
  const std::vector<pipeline::ShardPlan> plans = plan::make_plans(cluster);
  Simulation simulation(cluster, job, plans, options);
  if (auto error = simulation.capture(options.pcaps)) {
    return *error;
  }
  if (auto error = simulation.run(options, progress)) {
    return *error;
  }
  return Outcome{simulation.report(), options.otg ? simulation.otg() : Json(), simulation.packets(),
                 simulation.queue_pairs(), simulation.wall()};
}

}  // namespace nbx::sim
