#include "scenario/measure.hpp"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "stats/counters.hpp"

namespace nbx::scenario {
namespace {

using config::Metric;
using Json = nlohmann::ordered_json;
using Number = std::optional<double>;

/// A report of nbxd has ports, one of `nbx sim` none.
bool is_live(const Json& report) { return report.contains("ports"); }
/// The job came to no end: all that is known is why.
bool failed(const Json& report) { return report.contains("failure"); }

Number at(const Json& report, const char* pointer, double scale = 1) {
  const Json::json_pointer where(pointer);
  return report.contains(where) && report[where].is_number() ? Number(report[where].get<double>() * scale)
                                                             : std::nullopt;
}

/// Of all ports of a run, or of the ghosts and the simulated node. Reports leave out zeros.
Number counter(const Json& report, const std::string& name) {
  if (failed(report) || (!report.contains("counters") && !report.contains("ghosts"))) {
    return std::nullopt;
  }
  double sum = 0;
  const auto add = [&](const Json& counters) { sum += counters.value(name, 0.0); };
  for (const char* kind : {"counters", "drops"}) {
    if (is_live(report)) {
      for (const Json& port : report.at(kind)) {
        add(port);
      }
    } else {
      add(report.at("ghosts").at(kind));
      add(report.at("node").at(kind));
    }
  }
  return sum;
}

Number share(const Json& report, const char* part, const char* whole) {
  const Number all = counter(report, whole);
  return !all ? std::nullopt : Number(*all == 0 ? 0 : *counter(report, part) / *all);
}

Number drops(const Json& report) {
  constexpr const char* ours[] = {"loss",       "event",           "silent",       "link_down",
                                  "queue_full", "delay_line_full", "port_tx_full", "frame_pool_empty"};
  Number sum = counter(report, "loss");
  for (std::size_t i = 1; sum && i < drop_info.size(); ++i) {
    const std::string_view name = drop_info[i].name;
    const bool counts =
        name.starts_with("network_") || std::find(std::begin(ours) + 1, std::end(ours), name) != std::end(ours);
    *sum += counts ? *counter(report, std::string(name)) : 0;
  }
  return sum;
}

/// Of the rows that have `key`, put together by `combine`; `none` without rows.
Number over(const Json& report, const char* table, const char* key, double scale, Number none,
            const std::function<double(double, double)>& combine) {
  Number value;
  for (const Json& row : report.value(Json::json_pointer(table), Json::array())) {
    if (row.contains(key)) {
      const double here = row[key].get<double>() * scale;
      value = value ? combine(*value, here) : here;
    }
  }
  return value ? value : none;
}

const std::function<double(double, double)> largest = [](double a, double b) { return std::max(a, b); };
const std::function<double(double, double)> smallest = [](double a, double b) { return std::min(a, b); };
const std::function<double(double, double)> total = std::plus<>{};

Number in_network(const Json& report, const char* table, const char* key, double scale,
                  const std::function<double(double, double)>& combine) {
  return report.contains("network") ? over(report, table, key, scale, 0.0, combine) : std::nullopt;
}

/// Median and longest step, in seconds: live ones are those of NCCL's ghosts.
Number step_time(const Json& report, double quantile) {
  if (!is_live(report)) {
    return at(report, quantile < 1 ? "/steps/median_us" : "/steps/max_us", 1e-6);
  }
  std::vector<double> times;
  for (const Json& step : report.value(Json::json_pointer("/nccl/steps"), Json::array())) {
    times.push_back(step.at("time_ms").get<double>() * 1e-3);
  }
  if (times.empty()) {
    return std::nullopt;
  }
  std::sort(times.begin(), times.end());
  return times[std::min(times.size() - 1, static_cast<std::size_t>(static_cast<double>(times.size()) * quantile))];
}

/// In virtual time, or of the program that ran instead of the job.
Number job_time(const Json& report) {
  return at(report, is_live(report) ? "/program/time_us" : "/virtual_time_us", 1e-6);
}

Number part(const Json& report, const char* key) {
  if (!report.contains("each_step")) {
    return std::nullopt;
  }
  double sum = 0;
  for (const Json& step : report.at("each_step")) {
    sum += step.at("parts").at(key).get<double>() * 1e-6;
  }
  return sum;
}

/// A row of the operation that takes longest: what the job waits for.
Number slowest(const Json& report, const char* key, double scale) {
  return over(report, "/completion_times", key, scale, std::nullopt, largest);
}

Number ratio(const Number& value, const Number& baseline) {
  return value && baseline && *baseline != 0 ? Number(*value / *baseline) : std::nullopt;
}

/// See metrics.def.
Number recovery(const Reports& reports) {
  constexpr double tolerance = 1.05;
  const Number usual = step_time(reports.baseline, 0.5);
  if (!usual || !reports.first_failure || !reports.run.contains("each_step")) {
    return std::nullopt;
  }
  const double failure = std::chrono::duration<double>(*reports.first_failure).count();
  double recovered = failure;
  for (const Json& step : reports.run.at("each_step")) {
    const double length = step.at("us").get<double>() * 1e-6;
    const double end = step.at("start_us").get<double>() * 1e-6 + length;
    recovered = end > failure && length > tolerance * *usual ? std::max(recovered, end) : recovered;
  }
  return recovered - failure;
}

Number qp_errors(const Json& report) { return failed(report) ? Number(1) : counter(report, "qp_errors"); }

Number cnp_rate(const Json& report) {
  const Number time = is_live(report) ? at(report, "/duration_s") : at(report, "/virtual_time_us", 1e-6);
  return ratio(counter(report, "rp_cnp_handled"), time);
}

Number deadlocks(const Json& report) {
  const Json::json_pointer where("/network/deadlock");
  return report.contains(where) ? Number(report[where] == "none" ? 0 : 1) : std::nullopt;
}

Number background(const Json& report, const char* key) {
  return over(report, "/traffic", key, 1e6, std::nullopt, total);
}

}  // namespace

std::optional<double> measure(const config::Assertion& assertion, const Reports& reports) {
  const Json& run = reports.run;
  switch (assertion.metric) {
    case Metric::counter:
      return counter(run, assertion.counter);
    case Metric::jct:
      return job_time(run);
    case Metric::jct_ratio:
      return ratio(job_time(run), job_time(reports.baseline));
    case Metric::step_time:
      return step_time(run, 0.5);
    case Metric::step_time_max:
      return step_time(run, 1);
    case Metric::step_time_ratio:
      return ratio(step_time(run, 0.5), step_time(reports.baseline, 0.5));
    case Metric::recovery:
      return recovery(reports);
    case Metric::times_ideal:
      return over(run, "/operations", "times_ideal", 1, std::nullopt, largest);
    case Metric::busbw: {
      Json moving{{"operations", Json::array()}};
      for (const Json& operation : run.value(Json::json_pointer("/operations"), Json::array())) {
        if (operation.at("bytes") != 0) {
          moving["operations"].push_back(operation);
        }
      }
      return over(moving, "/operations", "busbw_gbps", 1e9, std::nullopt, smallest);
    }
    case Metric::compute:
      return part(run, "compute_us");
    case Metric::waiting:
      return part(run, "waiting_us");
    case Metric::queueing:
      return part(run, "queueing_us");
    case Metric::retransmission:
      return part(run, "retransmission_us");
    case Metric::fct_median:
      return slowest(run, "median_us", 1e-6);
    case Metric::fct_p99:
      return slowest(run, "p99_us", 1e-6);
    case Metric::fct_max:
      return slowest(run, "max_us", 1e-6);
    case Metric::qp_errors:
      return qp_errors(run);
    case Metric::drops:
      return drops(run);
    case Metric::retransmissions:
      return counter(run, "retransmitted_packets");
    case Metric::retransmission_share:
      return share(run, "retransmitted_packets", "tx_roce_packets");
    case Metric::timeouts:
      return counter(run, "local_ack_timeout_err");
    case Metric::rnr_naks:
      return counter(run, "rnr_naks_sent");
    case Metric::marks:
      return counter(run, "np_ecn_marked_roce_packets");
    case Metric::mark_share:
      return share(run, "np_ecn_marked_roce_packets", "rx_roce_packets");
    case Metric::cnps:
      return counter(run, "rp_cnp_handled");
    case Metric::cnp_rate:
      return cnp_rate(run);
    case Metric::xoffs:
      return at(run, "/network/xoffs");
    case Metric::pauses:
      return in_network(run, "/network/pauses", "pauses", 1, total);
    case Metric::paused:
      return in_network(run, "/network/pauses", "paused_us", 1e-6, total);
    case Metric::storms:
      return in_network(run, "/network/watchdogs", "storms", 1, total);
    case Metric::deadlocks:
      return deadlocks(run);
    case Metric::queue_peak:
      return in_network(run, "/network/queues", "peak_bytes", 1, largest);
    case Metric::background_rate:
      return background(run, "achieved_mbit_per_s");
    case Metric::background_share:
      return ratio(background(run, "achieved_mbit_per_s"), background(run, "asked_mbit_per_s"));
  }
  return std::nullopt;
}

}  // namespace nbx::scenario
