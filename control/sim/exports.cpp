#include "sim/exports.hpp"

#include <cmath>
#include <ostream>

#include "base/net.hpp"

namespace nbx::sim {
namespace {

std::int64_t ns(Duration d) { return d.count() / 1000; }

/// As RFC 4180 has it.
std::string field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c == '"' ? "\"\"" : std::string(1, c);
  }
  return quoted + '"';
}

}  // namespace

void write_flow_header(std::ostream& csv) { csv << "step,operation,from,to,bytes,start_ns,end_ns,fct_ns,resent\n"; }

void write_flow(std::ostream& csv, const Message& m, const std::string& operation) {
  csv << m.step << ',' << field(operation) << ',' << m.from << ',' << m.to << ',' << m.bytes << ','
      << ns(m.since - Instant{}) << ',' << ns(m.until - Instant{}) << ',' << ns(m.until - m.since) << ','
      << (m.resent ? 1 : 0) << '\n';
}

nlohmann::ordered_json otg_metrics(const std::string& job, const std::vector<Flow>& flows,
                                   const std::vector<std::string>& names, Duration length) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  const double seconds = std::chrono::duration<double>(length).count();
  // The model has whole Gb/s.
  const auto gbps = [&](std::uint64_t bytes) {
    return seconds == 0 ? 0 : std::llround(static_cast<double>(bytes) * 8e-9 / seconds);
  };
  for (const Flow& flow : flows) {
    const rdma::QpStats& tx = flow.qp->stats();
    const rdma::QpStats& rx = flow.peer->stats();
    const rdma::QpAttr& attr = flow.qp->attr();
    const char* const family = attr.path.destination_ip.is_v4() ? "ipv4" : "ipv6";
    nlohmann::ordered_json row{
        {"flow_name", names[flow.from] + " to " + names[flow.to] + " lane " + std::to_string(flow.lane)},
        {"traffic_item", job},
        {"port_tx", names[flow.from]},
        {"port_rx", names[flow.to]},
        {"src_qp", flow.qp->qpn().value},
        {"dest_qp", flow.peer->qpn().value}};
    row[std::string("src_") + family] = to_string(attr.path.source_ip);
    row[std::string("dest_") + family] = to_string(attr.path.destination_ip);
    row.update({{"data_frames_tx", tx.data_frames_tx},
                {"data_frames_rx", rx.data_frames_rx},
                {"frame_delta", tx.data_frames_tx - rx.data_frames_rx},
                {"data_frames_retransmitted", tx.data_frames_retransmitted},
                {"frame_sequence_error", rx.frame_sequence_error},
                {"tx_bytes", tx.payload_bytes_tx},
                {"rx_bytes", rx.payload_bytes_rx},
                {"data_tx_rate", gbps(tx.payload_bytes_tx)},
                {"data_rx_rate", gbps(rx.payload_bytes_rx)},
                {"message_tx", tx.message_tx},
                {"message_complete_rx", rx.message_complete_rx},
                {"message_fail", tx.message_fail}});
    if (const Latencies& of = flow.latencies; of.messages != 0) {
      const Duration mean = of.sum / static_cast<std::int64_t>(of.messages);
      row.update({{"avg_latency", ns(mean)}, {"min_latency", ns(of.min)}, {"max_latency", ns(of.max)}});
    }
    row.update({{"ecn_ce_rx", rx.ecn_ce_rx},
                {"cnp_tx", rx.cnp_tx},
                {"cnp_rx", tx.cnp_rx},
                {"ack_tx", rx.ack_tx},
                {"ack_rx", tx.ack_rx},
                {"nak_tx", rx.nak_tx},
                {"nak_rx", tx.nak_rx}});
    rows.push_back(std::move(row));
  }
  return {{"choice", "rocev2_flow_per_qp_metrics"}, {"rocev2_flow_per_qp_metrics", std::move(rows)}};
}

Result<std::unique_ptr<PortCapture>> PortCapture::open(const std::string& port, const std::string& file,
                                                       BitRate speed) {
  std::unique_ptr<PortCapture> capture(new PortCapture);
  capture->file_ = file;
  capture::FileSinkOptions options;
  options.path = file;
  options.interfaces = {{.name = port, .description = "simulated port", .speed = speed}};
  options.sources = {{.tap = &capture->tap_, .interface = 0}};
  auto sink = capture::FileSink::open(std::move(options));
  if (!sink) {
    return sink.error();
  }
  capture->sink_ = std::move(*sink);
  return capture;
}

std::optional<Error> PortCapture::close() {
  sink_->close();
  if (sink_->error()) {
    return sink_->error();
  }
  return tap_.lost() == 0 ? std::nullopt
                          : std::optional(Error{"'" + file_ + "': " + std::to_string(tap_.lost()) +
                                                " frames of one instant had no room"});
}

}  // namespace nbx::sim
