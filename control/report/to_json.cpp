#include "report/to_json.hpp"

#include <algorithm>
#include <ostream>
#include <vector>

#include "cc/dcqcn.hpp"
#include "report/nccl_tables.hpp"

namespace nbx::report {

using nlohmann::ordered_json;

std::string_view name(rdma::WrOpcode opcode) {
  switch (opcode) {
    case rdma::WrOpcode::rdma_write:
      return "rdma_write";
    case rdma::WrOpcode::rdma_write_with_imm:
      return "rdma_write_with_imm";
    case rdma::WrOpcode::send:
      return "send";
    case rdma::WrOpcode::send_with_imm:
      return "send_with_imm";
    case rdma::WrOpcode::rdma_read:
      return "rdma_read";
    case rdma::WrOpcode::atomic_cmp_and_swp:
      return "atomic_cmp_and_swp";
    case rdma::WrOpcode::atomic_fetch_and_add:
      return "atomic_fetch_and_add";
    case rdma::WrOpcode::send_with_inv:
      return "send_with_inv";
  }
  return "?";
}

std::string_view name(rdma::WcOpcode opcode) {
  switch (opcode) {
    case rdma::WcOpcode::send:
      return "send";
    case rdma::WcOpcode::rdma_write:
      return "rdma_write";
    case rdma::WcOpcode::rdma_read:
      return "rdma_read";
    case rdma::WcOpcode::comp_swap:
      return "comp_swap";
    case rdma::WcOpcode::fetch_add:
      return "fetch_add";
    case rdma::WcOpcode::recv:
      return "recv";
    case rdma::WcOpcode::recv_rdma_with_imm:
      return "recv_rdma_with_imm";
  }
  return "?";
}

std::string_view name(rdma::WcStatus status) {
  switch (status) {
    case rdma::WcStatus::success:
      return "success";
    case rdma::WcStatus::loc_len_err:
      return "loc_len_err";
    case rdma::WcStatus::loc_qp_op_err:
      return "loc_qp_op_err";
    case rdma::WcStatus::loc_prot_err:
      return "loc_prot_err";
    case rdma::WcStatus::wr_flush_err:
      return "wr_flush_err";
    case rdma::WcStatus::bad_resp_err:
      return "bad_resp_err";
    case rdma::WcStatus::loc_access_err:
      return "loc_access_err";
    case rdma::WcStatus::rem_inv_req_err:
      return "rem_inv_req_err";
    case rdma::WcStatus::rem_access_err:
      return "rem_access_err";
    case rdma::WcStatus::rem_op_err:
      return "rem_op_err";
    case rdma::WcStatus::retry_exc_err:
      return "retry_exc_err";
    case rdma::WcStatus::rnr_retry_exc_err:
      return "rnr_retry_exc_err";
    case rdma::WcStatus::rem_abort_err:
      return "rem_abort_err";
    case rdma::WcStatus::fatal_err:
      return "fatal_err";
  }
  return "?";
}

std::string_view name(rdma::QpType type) {
  switch (type) {
    case rdma::QpType::rc:
      return "rc";
    case rdma::QpType::uc:
      return "uc";
    case rdma::QpType::ud:
      return "ud";
  }
  return "?";
}

std::string_view name(rdma::QpState state) {
  switch (state) {
    case rdma::QpState::reset:
      return "reset";
    case rdma::QpState::init:
      return "init";
    case rdma::QpState::rtr:
      return "rtr";
    case rdma::QpState::rts:
      return "rts";
    case rdma::QpState::sqe:
      return "sqe";
    case rdma::QpState::error:
      return "error";
  }
  return "?";
}

std::string_view name(Direction direction) { return direction == Direction::from_node ? "from_node" : "to_node"; }

ordered_json counters_json(const Counters& counters) {
  ordered_json doc = ordered_json::object();
  for (std::size_t i = 0; i < counter_info.size(); ++i) {
    if (const std::uint64_t n = counters.get(static_cast<Counter>(i)); n != 0) {
      doc[std::string{counter_info[i].name}] = n;
    }
  }
  return doc;
}

ordered_json drops_json(const Counters& counters) {
  ordered_json doc = ordered_json::object();
  for (std::size_t i = 1; i < drop_info.size(); ++i) {
    if (const std::uint64_t n = counters.get(static_cast<Drop>(i)); n != 0) {
      doc[std::string{drop_info[i].name}] = n;
    }
  }
  return doc;
}

ordered_json delay_json(const fabric::DelayStats& stats) {
  const auto ns = [](Duration d) { return static_cast<double>(d.count()) / 1000.0; };
  return {{"frames", stats.frames},
          {"asked_min_ns", ns(stats.asked_min)},
          {"asked_mean_ns", stats.asked_mean_ps / 1000.0},
          {"asked_max_ns", ns(stats.asked_max)},
          {"late_frames", stats.undisturbed.late_frames},
          {"late_median_ns", ns(stats.undisturbed.median)},
          {"late_p99_ns", ns(stats.undisturbed.p99)},
          {"late_max_ns", ns(stats.undisturbed.max)},
          {"interrupted_frames", stats.interrupted.frames},
          {"interrupted_median_ns", ns(stats.interrupted.median)},
          {"interrupted_max_ns", ns(stats.interrupted.max)}};
}

ordered_json lateness_json(const fabric::DelayStats& stats) {
  return {{"undisturbed_ns", stats.undisturbed.histogram_ns}, {"interrupted_ns", stats.interrupted.histogram_ns}};
}

ordered_json firing_json(const events::Firing& firing, const std::string& event, const std::string& ghost) {
  ordered_json out{{"event", event}, {"at_s", static_cast<double>(firing.at.ps) * 1e-12}};
  if (!ghost.empty()) {
    out["ghost"] = ghost;
  }
  if (firing.roce) {
    out["opcode"] = wire::traits(firing.opcode).name;
    out["dest_qpn"] = firing.dest_qpn.value;
    out["psn"] = firing.psn.value;
    if (firing.transmission != 0) {
      out["transmission"] = firing.transmission;
    }
  }
  return out;
}

ordered_json rate_step_json(const cc::DcqcnStep& step, const std::string& ghost, std::uint32_t qpn) {
  return {{"time_ps", step.time.ps},
          {"ghost", ghost},
          {"qpn", qpn},
          {"cause", cc::name(step.cause)},
          {"stage", cc::name(step.stage)},
          {"alpha", static_cast<double>(step.alpha) / cc::alpha_one},
          {"target_bps", step.target.bits_per_second},
          {"current_bps", step.current.bits_per_second}};
}

std::string_view rate_csv_header() { return "time_ps,ghost,qpn,cause,stage,alpha,target_bps,current_bps"; }

void print_rate_csv(std::ostream& out, const ordered_json& steps) {
  for (const ordered_json& step : steps) {
    const char* separator = "";
    for (const ordered_json& value : step) {
      out << separator << (value.is_string() ? value.get<std::string>() : value.dump());
      separator = ",";
    }
    out << '\n';
  }
}

namespace {

/// Of a pattern: an incast has no flow from its receiver to itself.
double senders(const traffic::Spec& spec) {
  auto count = static_cast<double>(spec.from.size());
  if (spec.pattern == traffic::Pattern::incast) {
    for (const switching::HostId to : spec.to) {
      const bool sends = std::find(spec.from.begin(), spec.from.end(), to) != spec.from.end();
      count -= sends ? 1.0 / static_cast<double>(spec.to.size()) : 0;
    }
  }
  return count;
}

}  // namespace

ordered_json traffic_json(const traffic::Spec& spec, const traffic::Stats& stats, Duration active) {
  const double seconds = std::chrono::duration<double>(active).count();
  const auto mbps = [&](std::uint64_t bytes) {
    return seconds > 0 ? static_cast<double>(bytes) * 8e-6 / seconds : 0.0;
  };
  const auto us = [](double ps) { return ps * 1e-6; };
  const double mean = stats.completed == 0
                          ? 0
                          : static_cast<double>(stats.completion_sum.count()) / static_cast<double>(stats.completed);
  return {{"name", spec.name},
          {"asked_mbit_per_s", senders(spec) * static_cast<double>(spec.rate.bits_per_second) * 1e-6},
          {"offered_mbit_per_s", mbps(stats.offered_bytes)},
          {"achieved_mbit_per_s", mbps(stats.delivered_bytes)},
          {"flows", stats.flows},
          {"completed", stats.completed},
          {"damaged", stats.damaged},
          {"refused", stats.refused},
          {"packets_sent", stats.packets_sent},
          {"packets_delivered", stats.packets_delivered},
          {"packets_dropped", stats.packets_dropped},
          {"packets_marked", stats.packets_marked},
          {"cnps", stats.cnps},
          {"fct_mean_us", us(mean)},
          {"fct_median_us", static_cast<double>(stats.completion_ns.quantile(0.5)) * 1e-3},
          {"fct_p99_us", static_cast<double>(stats.completion_ns.quantile(0.99)) * 1e-3},
          {"fct_max_us", us(static_cast<double>(stats.completion_max.count()))}};
}

ordered_json qp_json(const rdma::Qp& qp, const std::string& ghost) {
  const rdma::QpStats& s = qp.stats();
  ordered_json out{{"ghost", ghost},
                   {"qpn", qp.qpn().value},
                   {"number", qp.number()},
                   {"type", name(qp.attr().type)},
                   {"state", name(qp.state())},
                   {"dest_qpn", qp.attr().dest_qpn.value},
                   {"peer", to_string(qp.attr().path.destination_ip)},
                   {"path_mtu", qp.attr().path_mtu},
                   {"data_frames_tx", s.data_frames_tx},
                   {"data_frames_rx", s.data_frames_rx},
                   {"payload_bytes_tx", s.payload_bytes_tx},
                   {"payload_bytes_rx", s.payload_bytes_rx},
                   {"data_frames_retransmitted", s.data_frames_retransmitted},
                   {"frame_sequence_error", s.frame_sequence_error},
                   {"message_tx", s.message_tx},
                   {"message_complete_rx", s.message_complete_rx},
                   {"message_fail", s.message_fail},
                   {"ack_tx", s.ack_tx},
                   {"ack_rx", s.ack_rx},
                   {"nak_tx", s.nak_tx},
                   {"nak_rx", s.nak_rx},
                   {"rnr_nak_tx", s.rnr_nak_tx},
                   {"rnr_nak_rx", s.rnr_nak_rx},
                   {"cnp_tx", s.cnp_tx},
                   {"cnp_rx", s.cnp_rx},
                   {"ecn_ce_rx", s.ecn_ce_rx},
                   {"timeouts", s.timeouts}};
  if (const auto& edge = qp.attr().edge) {
    out["nccl"] = std::to_string(edge->from) + "->" + std::to_string(edge->to) +
                  (edge->send_recv ? " send/recv " : " channel ") + std::to_string(edge->channel);
  }
  if (!s.rate.unlimited()) {
    out["rate_bps"] = s.rate.bits_per_second;
    out["dcqcn_alpha"] = static_cast<double>(s.alpha) / cc::alpha_one;
  }
  return out;
}

namespace {

std::string plain(const ordered_json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

void print_table(std::ostream& out, const ordered_json& rows, const std::string& indent) {
  std::vector<std::string> columns;
  for (const ordered_json& row : rows) {
    for (const auto& [key, value] : row.items()) {
      if (std::find(columns.begin(), columns.end(), key) == columns.end()) {
        columns.push_back(key);
      }
    }
  }
  std::vector<std::size_t> widths;
  for (const std::string& column : columns) {
    std::size_t width = column.size();
    for (const ordered_json& row : rows) {
      width = std::max(width, row.contains(column) ? plain(row[column]).size() : 1);
    }
    widths.push_back(width);
  }
  const auto line = [&](auto&& cell) {
    out << indent;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const std::string text = cell(columns[i]);
      out << text << std::string(i + 1 < columns.size() ? widths[i] - text.size() + 2 : 0, ' ');
    }
    out << '\n';
  };
  line([](const std::string& column) { return column; });
  for (const ordered_json& row : rows) {
    line([&](const std::string& column) { return row.contains(column) ? plain(row[column]) : std::string{"-"}; });
  }
}

void print_value(std::ostream& out, const std::string& key, const ordered_json& value, const std::string& indent) {
  if (value.is_object()) {
    out << indent << key << ":\n";
    for (const auto& [inner_key, inner] : value.items()) {
      print_value(out, inner_key, inner, indent + "  ");
    }
  } else if (value.is_array() && !value.empty() && value.front().is_object()) {
    out << indent << key << ":\n";
    print_table(out, value, indent + "  ");
  } else {
    out << indent << key << ": " << plain(value) << '\n';
  }
}

}  // namespace

void print_text(std::ostream& out, const ordered_json& doc) {
  const bool nccl_alone = doc.contains("communicators");
  const ordered_json tables = nccl_alone ? nccl_tables(doc) : doc;
  for (const auto& [key, value] : tables.items()) {
    if (key == "lateness") {
      continue;  // a thousand numbers are for programs
    }
    print_value(out, key, key == "nccl" ? nccl_tables(value) : value, "");
  }
}

}  // namespace nbx::report
