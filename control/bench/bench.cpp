#include "bench/bench.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <ostream>
#include <stdexcept>
#include <thread>

#include "bench/meter.hpp"
#include "bench/testpmd.hpp"

namespace nbx::bench {
namespace {

constexpr Group groups[] = {
    {"wire", wire_cases},       {"path", rdma_cases},       {"profile", profile_cases},
    {"network", network_cases}, {"capture", capture_cases},
};
constexpr const char* yardstick = "5tswap";
constexpr unsigned yardstick_bytes = 4096;
constexpr double ethernet_overhead = 24;  // preamble, FCS and gap

/// Ticks a nanosecond.
double tick_rate() {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const std::uint64_t from = ticks();
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  const std::uint64_t to = ticks();
  const std::chrono::duration<double, std::nano> passed = Clock::now() - begin;
  return static_cast<double>(to - from) / passed.count();
}

/// The middle and the inner half of some samples: a machine that others use has wild outer ones.
struct Spread {
  double low = 0;
  double median = 0;
  double high = 0;
};

Spread spread_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&samples](std::size_t quarter) { return samples[(samples.size() - 1) * quarter / 4]; };
  return {at(1), at(2), at(3)};
}

struct Row {
  std::string group;
  Label label;
  Spread cycles;  // per packet
  std::uint64_t checksum = 0;
};

std::string full_name(const char* group, const Label& label) {
  std::string name(group);
  for (const std::string& part : {label.stage, label.variant}) {
    name += part.empty() || part == group ? "" : "/" + part;
  }
  return name;
}

class Table {
 public:
  Table(const Options& options, std::ostream& out, const Progress& progress)
      : options_(options), out_(out), progress_(progress), tick_rate_(tick_rate()) {}

  void measure() {
    for (const Group& group : groups) {
      measure(group);
    }
  }

  std::optional<Error> measure_yardstick() {
    for (const char* mode : {"io", yardstick}) {
      progress_("testpmd " + std::string(mode));
      auto rate = testpmd_rate(mode, yardstick_bytes);
      if (!rate) {
        return rate.error();
      }
      const double cycles = 1e9 / *rate * tick_rate_;
      rows_.push_back({.group = "testpmd",
                       .label = {.stage = mode,
                                 .variant = "net_null",
                                 .bytes = yardstick_bytes,
                                 .wire_bytes = yardstick_bytes + static_cast<unsigned>(ethernet_overhead)},
                       .cycles = {cycles, cycles, cycles}});
      yardstick_cycles_ = cycles;  // of the last mode
    }
    return std::nullopt;
  }

  [[nodiscard]] bool empty() const { return rows_.empty(); }

  void print_text() const {
    char line[200];
    std::snprintf(line, sizeof line, "%.3f GHz time-stamp counter; medians of %u rounds, and their inner half\n\n",
                  tick_rate_, options_.rounds);
    out_ << line;
    std::snprintf(line, sizeof line, "%-44s %5s %6s %7s %9s %17s %8s %9s %7s\n", "stage", "burst", "bytes", "QPs",
                  "ns/packet", "", "cycles", "Gb/s/core", yardstick_cycles_ != 0 ? "x5tswap" : "");
    out_ << line;
    for (const Row& row : rows_) {
      print(row);
    }
  }

  void print_json() const {
    nlohmann::json document;
    document["tsc_ghz"] = tick_rate_;
    document["rounds"] = options_.rounds;
    document["figures"] = nlohmann::json::array();
    for (const Row& row : rows_) {
      nlohmann::json figure{{"group", row.group},
                            {"stage", row.label.stage},
                            {"variant", row.label.variant},
                            {"burst", row.label.burst},
                            {"qps", row.label.qps},
                            {"cycles", row.cycles.median},
                            {"cycles_quartiles", {row.cycles.low, row.cycles.high}},
                            {"ns", ns(row.cycles.median)},
                            {"checksum", row.checksum}};
      if (row.label.bytes != 0) {
        figure["bytes"] = row.label.bytes;
      }
      if (row.label.wire_bytes != 0) {
        figure["gbps_per_core"] = gbps(row);
      }
      if (yardstick_cycles_ != 0) {
        figure["times_5tswap"] = row.cycles.median / yardstick_cycles_;
      }
      document["figures"].push_back(std::move(figure));
    }
    out_ << document.dump(2) << '\n';
  }

 private:
  void measure(const Group& group) {
    Cases cases = group.make();
    std::erase_if(cases, [&](const auto& c) {
      return full_name(group.name, c->label()).find(options_.only) == std::string::npos;
    });
    std::vector<std::vector<double>> samples(cases.size());
    for (unsigned round = 0; round <= options_.rounds; ++round) {
      for (std::size_t i = 0; i < cases.size(); ++i) {
        Stopwatch watch;
        const std::uint64_t packets = cases[i]->round(watch);
        if (packets != 0 && round != 0) {  // the first one warms up
          samples[i].push_back(static_cast<double>(watch.total()) / static_cast<double>(packets));
        }
      }
      progress_(std::string(group.name) + ", round " + std::to_string(round) + " of " +
                std::to_string(options_.rounds));
    }
    for (std::size_t i = 0; i < cases.size(); ++i) {
      if (samples[i].empty()) {
        throw std::runtime_error(full_name(group.name, cases[i]->label()) + " passed no packet");
      }
      rows_.push_back({group.name, cases[i]->label(), spread_of(std::move(samples[i])), cases[i]->checksum()});
    }
  }

  [[nodiscard]] double ns(double cycles) const { return cycles / tick_rate_; }
  [[nodiscard]] double gbps(const Row& row) const { return row.label.wire_bytes * 8 / ns(row.cycles.median); }

  void print(const Row& row) const {
    char line[200];
    const std::string name = full_name(row.group.c_str(), row.label);
    std::snprintf(line, sizeof line, "%-44s %5u ", name.c_str(), row.label.burst);
    out_ << line;
    std::snprintf(line, sizeof line, "%6u", row.label.bytes);
    out_ << (row.label.bytes != 0 ? line : "     -");
    std::snprintf(line, sizeof line, " %7u %9.1f %7.1f … %-7.1f %8.0f ", row.label.qps, ns(row.cycles.median),
                  ns(row.cycles.low), ns(row.cycles.high), row.cycles.median);
    out_ << line;
    std::snprintf(line, sizeof line, "%9.1f", row.label.wire_bytes != 0 ? gbps(row) : 0.0);
    out_ << (row.label.wire_bytes != 0 ? line : "        -");
    if (yardstick_cycles_ != 0) {
      std::snprintf(line, sizeof line, " %7.2f", row.cycles.median / yardstick_cycles_);
      out_ << line;
    }
    out_ << '\n';
  }

  const Options& options_;
  std::ostream& out_;
  const Progress& progress_;
  double tick_rate_;
  double yardstick_cycles_ = 0;  // 0: not measured
  std::vector<Row> rows_;
};

}  // namespace

std::optional<Error> run(const Options& options, std::ostream& out, const Progress& progress) {
  Table table(options, out, progress);
  if (options.testpmd) {
    if (auto error = table.measure_yardstick()) {
      return Error{error->message + "\n--no-testpmd does without the yardstick"};
    }
  }
  try {
    table.measure();
  } catch (const std::runtime_error& e) {
    return Error{e.what()};
  }
  if (table.empty()) {
    return Error{"no stage's name contains '" + options.only + "'"};
  }
  options.json ? table.print_json() : table.print_text();
  return std::nullopt;
}

}  // namespace nbx::bench
