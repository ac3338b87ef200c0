#include <nlohmann/json.hpp>

#include "inspect/report.hpp"

namespace nbx::analysis {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const TreatmentCounts& t) {
  return {{"dropped", t.dropped},     {"delayed", t.delayed},     {"duplicated", t.duplicated},
          {"corrupted", t.corrupted}, {"reordered", t.reordered}, {"ecn_marked", t.marked}};
}

void put(Json& object, const char* key, const Quantiles& h) {
  if (h.count() != 0) {
    object[key] = {
        {"count", h.count()}, {"min", h.min()}, {"median", h.median()}, {"p99", h.quantile(99)}, {"max", h.max()}};
  }
}

Json json_of(const switching::PauseTrack& track, BitRate link) {
  Json j = {{"pauses", track.pauses()}, {"resumes", track.resumes()}, {"quanta", track.quanta()}};
  if (!link.unlimited()) {
    j["gaps"] = track.gaps();
    j["longest_gap_ns"] = track.longest_gap().count() / 1000;
    j["paused_ns"] = track.total().count() / 1000;
    j["longest_pause_ns"] = track.longest().count() / 1000;
  }
  return j;
}

void put(Json& object, const switching::PauseTracks& report, BitRate link) {
  for (std::size_t p = 0; p < report.pfc.size(); ++p) {
    if (report.pfc[p].seen()) {
      object["pfc"][std::to_string(p)] = json_of(report.pfc[p], link);
    }
  }
  if (report.plain.seen()) {
    object["pause"] = json_of(report.plain, link);
  }
}

Json json_of(const DirectionReport& report, BitRate link) {
  Json j = {{"frames", report.frames}, {"bytes", report.bytes}, {"treatment", json_of(report.treatment)}};
  j["dropped_by_reason"] = Json::object();
  for (const auto& [reason, n] : report.dropped) {
    j["dropped_by_reason"][std::string(reason)] = n;
  }
  put(j, "delay_asked_ns", report.delay_asked);
  put(j, "delay_late_ns", report.delay_late);
  put(j, report.pauses, link);
  return j;
}

Json json_of(const Report& report, std::size_t index) {
  const capture::Reader::Interface& interface = report.interfaces[index];
  Json j = {{"name", interface.name}, {"description", interface.description}};
  if (index < report.analysis.interfaces().size()) {
    const InterfaceReport& seen = report.analysis.interfaces()[index];
    for (std::size_t d = 0; d < seen.directions.size(); ++d) {
      if (seen.directions[d].frames != 0) {
        j[std::string(name_of(static_cast<capture::Direction>(d)))] =
            json_of(seen.directions[d], report.analysis.link());
      }
    }
    j["not_ethernet"] = seen.other_link_type;
  }
  if (interface.received) {
    j["capture_received"] = *interface.received;
  }
  if (interface.dropped) {
    j["capture_lost"] = *interface.dropped;
  }
  return j;
}

Json json_of(const Flow& flow) {
  Json j = {{"interface", flow.key.interface},
            {"source", to_string(flow.key.source)},
            {"destination", to_string(flow.key.destination)},
            {"dest_qpn", flow.key.dest_qpn.value},
            {"packets", flow.packets},
            {"bytes", flow.bytes},
            {"payload_bytes", flow.payload_bytes},
            {"goodput_bytes", flow.goodput_bytes},
            {"goodput_bps", goodput_bps(flow)},
            {"first_ns", flow.first_ns},
            {"last_ns", flow.last_ns},
            {"retransmissions", flow.retransmissions},
            {"response_retransmissions", flow.response_retransmissions},
            {"out_of_order", flow.out_of_order},
            {"psn_restarts", flow.restarts},
            {"acks", flow.acks},
            {"rnr_naks", flow.rnr_naks},
            {"cnps", flow.cnps},
            {"ce_marks", flow.ce_marks},
            {"icrc_good", flow.icrc_good},
            {"icrc_bad", flow.icrc_bad},
            {"treatment", json_of(flow.treatment)}};
  j["naks"] = Json::object();
  for (const auto& [syndrome, n] : flow.naks) {
    j["naks"][nak_name(syndrome)] = n;
  }
  j["opcodes"] = Json::object();
  for (const auto& [opcode, n] : flow.opcodes) {
    j["opcodes"][std::string(wire::traits(opcode).name)] = n;
  }
  put(j, "ack_latency_ns", flow.ack_latency);
  put(j, "read_latency_ns", flow.read_latency);
  return j;
}

}  // namespace

void print_json(const Report& report, std::ostream& out) {
  const Analysis& analysis = report.analysis;
  Json j = {{"file", report.file}, {"frames", analysis.frames()}, {"bytes", analysis.bytes()}};
  if (analysis.frames() != 0) {
    j["first_ns"] = analysis.first_ns();
    j["last_ns"] = analysis.last_ns();
  }
  j["cut"] = analysis.cut();
  j["interfaces"] = Json::array();
  for (std::size_t i = 0; i < report.interfaces.size(); ++i) {
    j["interfaces"].push_back(json_of(report, i));
  }
  j["kinds"] = Json::object();
  for (std::size_t i = 0; i < analysis.kinds().size(); ++i) {
    if (analysis.kinds()[i] != 0) {
      j["kinds"][std::string(name_of(static_cast<wire::FrameKind>(i)))] = analysis.kinds()[i];
    }
  }
  j["malformed"] = Json::object();
  for (const auto& [reason, n] : analysis.malformed()) {
    j["malformed"][std::string(name(reason))] = n;
  }
  j["cm_messages"] = Json::object();
  for (const auto& [attribute, n] : analysis.cm_messages()) {
    j["cm_messages"][std::string(wire::name(attribute))] = n;
  }
  j["flows"] = Json::array();
  for (const Flow* flow : report.flows()) {
    j["flows"].push_back(json_of(*flow));
  }
  // Names come from files: what is not UTF-8 is replaced.
  out << j.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
}

}  // namespace nbx::analysis
