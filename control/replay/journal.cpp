#include "replay/journal.hpp"

#include <nlohmann/json.hpp>

#include "report/to_json.hpp"

namespace nbx::replay {

using nlohmann::ordered_json;

void Journal::on_delivery(const rdma::Delivery& delivery, Instant now) noexcept {
  deliveries_.push_back({delivery, now});
}

void Journal::on_completion(GhostId ghost, Qpn qpn, const rdma::Completion& completion, Instant now) noexcept {
  completions_.push_back({ghost, qpn, completion, now});
}

ordered_json Journal::report(pipeline::Shard& shard, const Counters& counters) const {
  ordered_json doc;
  doc["port"] = plan_.port_name;
  doc["profile"] = plan_.profile.name;
  doc["input"] = {{"frames", input.frames}, {"from_ghosts", input.from_ghosts}, {"truncated", input.truncated}};
  doc["sent"] = sent;
  doc["counters"] = report::counters_json(counters);
  doc["drops"] = report::drops_json(counters);
  doc["delay"] = {{"from_node", report::delay_json(shard.delay_stats(fabric::Direction::from_node))},
                  {"to_node", report::delay_json(shard.delay_stats(fabric::Direction::to_node))}};
  ordered_json qps = ordered_json::array();
  shard.transport().for_each_qp([&](rdma::Qp& qp) { qps.push_back(report::qp_json(qp, ghost_name(qp.ghost()))); });
  doc["qps"] = std::move(qps);
  ordered_json deliveries = ordered_json::array();
  for (const auto& [d, at] : deliveries_) {
    ordered_json row = {{"time_ns", at.ps / 1000}, {"ghost", ghost_name(d.ghost)},
                        {"qpn", d.qpn.value},      {"opcode", report::name(d.opcode)},
                        {"length", d.length},      {"payload_crc32", d.payload_crc32}};
    if (d.has_imm) {
      row["imm_data"] = d.imm_data;
    }
    deliveries.push_back(std::move(row));
  }
  doc["deliveries"] = std::move(deliveries);
  ordered_json completions = ordered_json::array();
  for (const auto& [ghost, qpn, c, at] : completions_) {
    ordered_json row = {
        {"time_ns", at.ps / 1000}, {"ghost", ghost_name(ghost)},       {"qpn", qpn.value},
        {"wr_id", c.wr_id},        {"opcode", report::name(c.opcode)}, {"status", report::name(c.status)},
        {"byte_len", c.byte_len}};
    if (c.has_imm || c.invalidated) {
      row[c.has_imm ? "imm_data" : "invalidated_rkey"] = c.imm_data;
    }
    completions.push_back(std::move(row));
  }
  doc["completions"] = std::move(completions);
  return doc;
}

}  // namespace nbx::replay
