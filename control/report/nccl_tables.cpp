#include "report/nccl_tables.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace nbx::report {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t rows_max = 16;  // of a table

std::string milliseconds(const ordered_json& value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3f", value.get<double>());
  return text.data();
}

void add_times(ordered_json& row, const ordered_json& of) {
  row["time"] = milliseconds(of.at("time_ms"));
  if (of.contains("in_operations_ms")) {
    row["calling"] = milliseconds(of.at("in_operations_ms"));
  } else {
    row["behind"] = milliseconds(of.at("behind_ms"));
  }
  for (const auto& [key, value] : of.at("explained").items()) {
    row[key.substr(0, key.size() - 3)] = milliseconds(value);  // without _ms
  }
  row["latest"] = of.contains("latest_ghost_rank") ? "rank " + std::to_string(of.at("latest_ghost_rank").get<int>()) +
                                                         " +" + milliseconds(of.at("latest_by_ms"))
                                                   : std::string{"-"};
}

ordered_json operation_row(const ordered_json& operation) {
  ordered_json row = {
      {"number", operation.at("number")}, {"operation", operation.at("operation")}, {"bytes", operation.at("bytes")}};
  row["how"] = operation.contains("algorithm")
                   ? operation.at("algorithm").get<std::string>() + " " + operation.at("protocol").get<std::string>() +
                         " x" + std::to_string(operation.at("channels").get<int>())
                   : std::string{"-"};
  row["done"] = operation.at("done");
  if (operation.contains("explained")) {
    add_times(row, operation);
  }
  return row;
}

ordered_json step_row(const ordered_json& step) {
  ordered_json row = {{"step", step.at("step")}, {"operations", step.at("operations")}, {"bytes", step.at("bytes")}};
  add_times(row, step);
  return row;
}

ordered_json fault_row(const ordered_json& operation, const ordered_json& fault) {
  ordered_json row = {{"number", operation.at("number")},
                      {"operation", operation.at("operation")},
                      {"direction", fault.at("direction")},
                      {"effect", fault.at("effect")}};
  row["rule"] = fault.contains("rule") ? std::to_string(fault.at("rule").get<int>()) : std::string{"-"};
  row["frames"] = fault.at("frames");
  row["cost"] = milliseconds(fault.at("cost_ms"));
  if (fault.contains("first")) {
    const ordered_json& first = fault.at("first");
    row["first"] = first.at("opcode").get<std::string>() + " to qp " + std::to_string(first.at("dest_qpn").get<int>()) +
                   " psn " + std::to_string(first.at("psn").get<int>());
  }
  return row;
}

/// The last of `rows`, each with the place of its communicator in the list in front.
ordered_json latest(const std::vector<std::pair<std::size_t, ordered_json>>& rows) {
  ordered_json table = ordered_json::array();
  for (std::size_t i = rows.size() - std::min(rows.size(), rows_max); i < rows.size(); ++i) {
    ordered_json row = {{"comm", rows[i].first}};
    row.update(rows[i].second);
    table.push_back(std::move(row));
  }
  return table;
}

}  // namespace

ordered_json nccl_tables(const ordered_json& nccl) {
  ordered_json out = {{"communicators", ordered_json::array()}};
  std::map<std::uint64_t, std::size_t> place;
  for (const ordered_json& communicator : nccl.at("communicators")) {
    const std::size_t number = place.size();
    place[communicator.at("comm").get<std::uint64_t>()] = number;
    ordered_json row = communicator;
    row["comm"] = number;
    out["communicators"].push_back(std::move(row));
  }
  const auto comm = [&](const ordered_json& row) { return place[row.at("comm").get<std::uint64_t>()]; };
  std::vector<std::pair<std::size_t, ordered_json>> operations;
  std::vector<std::pair<std::size_t, ordered_json>> faults;
  std::vector<std::pair<std::size_t, ordered_json>> steps;
  for (const ordered_json& operation : nccl.at("operations")) {
    operations.emplace_back(comm(operation), operation_row(operation));
    for (const ordered_json& fault : operation.value("faults", ordered_json::array())) {
      faults.emplace_back(comm(operation), fault_row(operation, fault));
    }
  }
  for (const ordered_json& step : nccl.at("steps")) {
    steps.emplace_back(comm(step), step_row(step));
  }
  out["operations"] = latest(operations);
  out["faults"] = latest(faults);
  out["steps"] = latest(steps);
  return out;
}

}  // namespace nbx::report
