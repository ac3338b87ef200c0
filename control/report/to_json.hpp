// The vocabulary of every report: counters, drops, delays and queue pairs as JSON, under the names of the field
// (mlx5's counters, libibverbs' statuses, the Open Traffic Generator's per-QP statistics), and any report as text.
#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "fabric/impairment.hpp"
#include "rdma/transport.hpp"
#include "stats/counters.hpp"

namespace nbx::report {

[[nodiscard]] std::string_view name(rdma::WrOpcode opcode);
[[nodiscard]] std::string_view name(rdma::WcOpcode opcode);
[[nodiscard]] std::string_view name(rdma::WcStatus status);
[[nodiscard]] std::string_view name(rdma::QpType type);
[[nodiscard]] std::string_view name(rdma::QpState state);
[[nodiscard]] std::string_view name(Direction direction);

/// Those that are not zero, in the order of counters.def.
[[nodiscard]] nlohmann::ordered_json counters_json(const Counters& counters);
[[nodiscard]] nlohmann::ordered_json drops_json(const Counters& counters);
[[nodiscard]] nlohmann::ordered_json delay_json(const fabric::DelayStats& stats);
/// A packet that an event took; `ghost` is empty for transit.
[[nodiscard]] nlohmann::ordered_json firing_json(const events::Firing& firing, const std::string& event,
                                                 const std::string& ghost);
[[nodiscard]] nlohmann::ordered_json qp_json(const rdma::Qp& qp, const std::string& ghost);

/// `doc` for people: objects indented, arrays of objects as tables.
void print_text(std::ostream& out, const nlohmann::ordered_json& doc);

}  // namespace nbx::report
