// The vocabulary of every report: counters, drops, delays and queue pairs as JSON, under the names of the field
// (mlx5's counters, libibverbs' statuses, the Open Traffic Generator's per-QP statistics), and any report as text.
#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "cc/dcqcn.hpp"
#include "fabric/impairment.hpp"
#include "rdma/transport.hpp"
#include "stats/counters.hpp"
#include "traffic/engine.hpp"

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
/// How late delayed frames were: [nanoseconds, frames], of all and of those due while the worker did not run.
[[nodiscard]] nlohmann::ordered_json lateness_json(const fabric::DelayStats& stats);
/// A packet that an event took; `ghost` is empty for transit.
[[nodiscard]] nlohmann::ordered_json firing_json(const events::Firing& firing, const std::string& event,
                                                 const std::string& ghost);
/// One step of a reaction point.
[[nodiscard]] nlohmann::ordered_json rate_step_json(const cc::DcqcnStep& step, const std::string& ghost,
                                                    std::uint32_t qpn);
/// Rows of rate_step_json() as comma-separated values; the first line names the columns.
[[nodiscard]] std::string_view rate_csv_header();
void print_rate_csv(std::ostream& out, const nlohmann::ordered_json& steps);
/// Asked and achieved, and how long flows took, of traffic that has been at work for `active`.
[[nodiscard]] nlohmann::ordered_json traffic_json(const traffic::Spec& spec, const traffic::Stats& stats,
                                                  Duration active);
[[nodiscard]] nlohmann::ordered_json qp_json(const rdma::Qp& qp, const std::string& ghost);

/// `doc` for people: objects indented, arrays of objects as tables.
void print_text(std::ostream& out, const nlohmann::ordered_json& doc);

}  // namespace nbx::report
