#include "daemon/report.hpp"

#include <cstdio>

#include "base/overloaded.hpp"
#include "daemon/queries.hpp"
#include "report/network_json.hpp"
#include "report/to_json.hpp"

namespace nbx::daemon {
namespace {

using fabric::Direction;

/// What the worker owns of a report.
struct Outcome {
  fabric::ProfileSpec profile;
  fabric::Tally from_node;
  fabric::Tally to_node;
  fabric::DelayStats from_node_delay;
  fabric::DelayStats to_node_delay;
  std::optional<pipeline::NetworkReport> network;
};

Outcome outcome_of(const pipeline::Shard& shard, Instant now) {
  return {shard.profile(),
          shard.tally(Direction::from_node),
          shard.tally(Direction::to_node),
          shard.delay_stats(Direction::from_node),
          shard.delay_stats(Direction::to_node),
          shard.network() != nullptr ? std::optional(shard.network()->report(now)) : std::nullopt};
}

/// The share of the frames it matches that a selector takes in the long run; nullopt for a list.
std::optional<double> share(const fabric::Selector& selector) {
  return std::visit(Overloaded{[](const fabric::Bernoulli& b) { return std::optional(b.probability); },
                               [](const fabric::GilbertElliott& g) {
                                 const double bad = g.p + g.r > 0 ? g.p / (g.p + g.r) : 0;
                                 return std::optional(bad * g.loss_in_bad + (1 - bad) * g.loss_in_good);
                               },
                               [](const fabric::EveryNth& e) { return std::optional(1.0 / static_cast<double>(e.n)); },
                               [](const fabric::Listed&) { return std::optional<double>(); }},
                    selector);
}

bool matches_all(const fabric::Match& match) {
  return match.ghosts.empty() && !match.dest_qpn && match.classes == fabric::Match::all_classes && !match.psn_first &&
         match.nth.empty();
}

std::string percent(double part) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g %%", 100 * part);
  return text.data();
}

/// "none", "1 %", or how many rules there are when their sum depends on the traffic.
template <class Rule>
std::string asked(const std::vector<Rule>& rules) {
  if (rules.empty()) {
    return "none";
  }
  const std::optional<double> part = share(rules.front().select);
  if (rules.size() == 1 && part) {
    return percent(*part) + (matches_all(rules.front().match) ? "" : " of what matches");
  }
  return rules.size() == 1 ? "a list" : std::to_string(rules.size()) + " rules";
}

std::string achieved(std::uint64_t frames, std::uint64_t all) {
  return std::to_string(frames) + " (" +
         percent(all == 0 ? 0 : static_cast<double>(frames) / static_cast<double>(all)) + ")";
}

std::string asked(const fabric::RateSpec& rate) {
  return rate.rate.unlimited() ? "none" : std::to_string(rate.rate.bits_per_second) + " bit/s";
}

Json with_place(const EmulatedPort& port, const char* direction, const Json& rest) {
  Json row = {{"port", *port.config.name}, {"direction", direction}};
  row.update(rest);
  return row;
}

/// One row per effect that was asked for or happened.
void add_effects(Json& rows, const EmulatedPort& port, const char* direction, const fabric::DirectionSpec& spec,
                 const fabric::Tally& tally) {
  const auto add = [&](const char* effect, const std::string& wish, std::uint64_t frames) {
    if (wish != "none" || frames != 0) {
      rows.push_back(with_place(port, direction,
                                {{"effect", effect},
                                 {"asked", wish},
                                 {"achieved", achieved(frames, tally.frames)},
                                 {"frames", frames},
                                 {"of", tally.frames}}));
    }
  };
  add("loss", asked(spec.loss), tally.lost);
  add("duplicate", asked(spec.duplicate), tally.duplicates);
  add("corrupt", asked(spec.corrupt), tally.corrupted);
  add("ecn", asked(spec.ecn), tally.ecn_marked);
  add("reorder", asked(spec.reorder), tally.reordered);
  add("no room at rate", asked(spec.rate), tally.no_room);
}

double megabits_per_second(std::uint64_t bytes, Duration time) {
  return static_cast<double>(bytes) * 8e-6 / std::chrono::duration<double>(time).count();
}

void add_port(Json& doc, Emulator& emulator, EmulatedPort& port) {
  const auto outcome = emulator.ask_at(port, outcome_of);
  const std::string& name = *port.config.name;
  const Duration time = emulator.uptime();
  doc["ports"].push_back({{"name", name},
                          {"profile", outcome ? outcome->profile.name : "its worker does not answer"},
                          {"rx_mbit_per_s", megabits_per_second(port.counters.get(Counter::rx_bytes_phy), time)},
                          {"tx_mbit_per_s", megabits_per_second(port.counters.get(Counter::tx_bytes_phy), time)},
                          {"captured", port.counters.get(Counter::captured)},
                          {"capture_filtered", port.counters.get(Counter::capture_filtered)},
                          {"capture_lost", port.tap->lost()}});
  if (outcome) {
    const fabric::ProfileSpec& profile = outcome->profile;
    add_effects(doc["effects"], port, "from_node", profile.from_node, outcome->from_node);
    add_effects(doc["effects"], port, "to_node", profile.to_node, outcome->to_node);
    doc["delays"].push_back(with_place(port, "from_node", report::delay_json(outcome->from_node_delay)));
    doc["delays"].push_back(with_place(port, "to_node", report::delay_json(outcome->to_node_delay)));
    doc["lateness"].push_back(with_place(port, "from_node", report::lateness_json(outcome->from_node_delay)));
    doc["lateness"].push_back(with_place(port, "to_node", report::lateness_json(outcome->to_node_delay)));
    if (outcome->network) {  // the one of all ports
      doc["network"] = report::network_json(*outcome->network);
    }
  }
  doc["counters"][name] = report::counters_json(port.counters);
  doc["drops"][name] = report::drops_json(port.counters);
}

}  // namespace

Json report_json(Emulator& emulator) {
  Json doc = {{"cluster", emulator.config().name},
              {"duration_s", std::chrono::duration<double>(emulator.uptime()).count()},
              {"ports", Json::array()},
              {"effects", Json::array()},
              {"delays", Json::array()},
              {"lateness", Json::array()},
              {"counters", Json::object()},
              {"drops", Json::object()}};
  for (const auto& port : emulator.ports()) {
    add_port(doc, emulator, *port);
  }
  if (emulator.recorder() != nullptr) {
    doc["recorder"] = recorder_json(*emulator.recorder());
  }
  if (Json events = events_json(emulator); !events["events"].empty()) {
    doc.update(events);
  }
  if (!emulator.config().traffic.empty()) {
    doc.update(traffic_json(emulator));
  }
  if (emulator.config().nccl) {
    doc["nccl"] = nccl_json(emulator);
  }
  return doc;
}

}  // namespace nbx::daemon
