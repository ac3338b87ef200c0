#include "report/network_json.hpp"

namespace nbx::report {
namespace {

using nlohmann::ordered_json;

double microseconds(Duration duration) { return static_cast<double>(duration.count()) / 1e6; }

/// `port`: empty when there is only one.
ordered_json row_of(const std::string& port) {
  return port.empty() ? ordered_json::object() : ordered_json{{"port", port}};
}

void add_pauses(ordered_json& rows, const std::string& port, const char* direction,
                const switching::PauseTracks& tracks) {
  const auto add = [&](const std::string& frame, const switching::PauseTrack& track) {
    if (track.seen()) {
      rows.push_back(row_of(port));
      rows.back().update({{"direction", direction},
                          {"frame", frame},
                          {"pauses", track.pauses()},
                          {"resumes", track.resumes()},
                          {"paused_us", microseconds(track.total())},
                          {"longest_us", microseconds(track.longest())},
                          {"gaps", track.gaps()},
                          {"longest_gap_us", microseconds(track.longest_gap())}});
    }
  };
  for (std::size_t p = 0; p < tracks.pfc.size(); ++p) {
    add("PFC " + std::to_string(p), tracks.pfc[p]);
  }
  add("PAUSE", tracks.plain);
}

void add_rows(ordered_json& doc, const char* key, ordered_json rows) {
  if (!rows.empty()) {
    doc[key] = std::move(rows);
  }
}

}  // namespace

ordered_json network_json(const pipeline::NetworkReport& report) {
  ordered_json doc;
  doc["deadlock"] = report.deadlock.empty() ? "none" : report.deadlock;
  doc["xoffs"] = report.xoffs;
  ordered_json pauses = ordered_json::array();
  for (const pipeline::NetworkReport::Node& node : report.nodes) {
    const std::string port = report.nodes.size() > 1 ? node.port : std::string();
    add_pauses(pauses, port, "from_node", node.from_node);
    add_pauses(pauses, port, "to_node", node.to_node);
  }
  add_rows(doc, "pauses", std::move(pauses));
  ordered_json watchdogs = ordered_json::array();
  for (const pipeline::NetworkReport::Watchdog& w : report.watchdogs) {
    watchdogs.push_back({{"watchdog", w.at}, {"storms", w.detected}, {"restored", w.restored}});
  }
  add_rows(doc, "watchdogs", std::move(watchdogs));
  ordered_json receivers = ordered_json::array();
  for (const pipeline::NetworkReport::Receiver& r : report.receivers) {
    receivers.push_back({{"receiver", r.at},
                         {"drained_frames", r.counters.drained_packets},
                         {"drained_bytes", r.counters.drained_bytes},
                         {"full", r.counters.refused_packets},
                         {"peak_bytes", r.counters.peak_bytes},
                         {"pauses", r.pauses},
                         {"idle_us", microseconds(r.counters.idle)}});
  }
  add_rows(doc, "slow_receivers", std::move(receivers));
  ordered_json classes = ordered_json::array();
  for (const pipeline::NetworkReport::Node& node : report.nodes) {
    for (const pipeline::NetworkReport::ClassDifference& c : node.classes) {
      classes.push_back(row_of(report.nodes.size() > 1 ? node.port : std::string()));
      classes.back().update({{"frames", c.frames},
                             {"direction", c.from_node ? "from_node" : "to_node"},
                             {"network_priority", c.network},
                             {c.of_node ? "node_priority" : "ghost_priority", c.other}});
    }
  }
  add_rows(doc, "class_disagreements", std::move(classes));
  ordered_json queues = ordered_json::array();
  for (const pipeline::NetworkReport::Queues& q : report.queues) {
    queues.push_back({{"priority", q.priority},
                      {"frames", q.admitted},
                      {"marked", q.marked},
                      {"dropped", q.dropped},
                      {"peak_bytes", q.peak_bytes},
                      {"peak_at", q.peak_at},
                      {"pauses_obeyed", q.pauses},
                      {"paused_us", microseconds(q.paused)}});
  }
  add_rows(doc, "queues", std::move(queues));
  return doc;
}

}  // namespace nbx::report
