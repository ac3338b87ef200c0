#include "report/network_json.hpp"

namespace nbx::report {
namespace {

using nlohmann::ordered_json;

double microseconds(Duration duration) { return static_cast<double>(duration.count()) / 1e6; }

ordered_json pause_row(const char* direction, const switching::PauseTrack& track) {
  return {{"direction", direction},
          {"frame", "PAUSE"},
          {"pauses", track.pauses()},
          {"resumes", track.resumes()},
          {"paused_us", microseconds(track.total())},
          {"longest_us", microseconds(track.longest())},
          {"gaps", track.gaps()},
          {"longest_gap_us", microseconds(track.longest_gap())}};
}

void add_pauses(ordered_json& rows, const char* direction, const switching::PauseTracks& tracks) {
  for (std::size_t p = 0; p < tracks.pfc.size(); ++p) {
    if (tracks.pfc[p].seen()) {
      rows.push_back(pause_row(direction, tracks.pfc[p]));
      rows.back()["frame"] = "PFC " + std::to_string(p);
    }
  }
  if (tracks.plain.seen()) {
    rows.push_back(pause_row(direction, tracks.plain));
  }
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
  add_pauses(pauses, "from_node", report.from_node);
  add_pauses(pauses, "to_node", report.to_node);
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
  for (const pipeline::NetworkReport::ClassDifference& c : report.classes) {
    classes.push_back({{"frames", c.frames},
                       {"direction", c.from_node ? "from_node" : "to_node"},
                       {"network_priority", c.network},
                       {c.of_node ? "node_priority" : "ghost_priority", c.other}});
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
