// The trace of DCQCN flows to one port in virtual time, as `nbx trace` would write it: for tools/plot-rates.
//   dcqcn_trace PRESET GBPS FLOWS APART_US TIME_US
// All flows start at line rate, each so long after the one before.
#include <algorithm>
#include <iostream>
#include <string>

#include "report/to_json.hpp"
#include "support/dcqcn_incast.hpp"

namespace {

using namespace nbx;

struct Recorder final : cc::DcqcnTrace {
  void on_step(const cc::DcqcnStep& step) noexcept override { steps.push_back(step); }
  std::vector<cc::DcqcnStep> steps;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6 || cc::dcqcn_preset(argv[1]) == nullptr) {
    std::cerr << "usage: dcqcn_trace PRESET GBPS FLOWS APART_US TIME_US\n";
    return 2;
  }
  const auto flows = static_cast<unsigned>(std::stoul(argv[3]));
  virtual_time::Incast incast{argv[1], std::stoul(argv[2]), flows, std::chrono::microseconds{std::stol(argv[4])}};
  std::vector<Recorder> traces(flows);
  for (unsigned i = 0; i < flows; ++i) {
    incast.flow(i).reaction_point().set_trace(&traces[i]);
  }
  incast.world().run(Instant{} + std::chrono::microseconds{std::stol(argv[5])});
  struct Row {
    cc::DcqcnStep step;
    unsigned flow;
  };
  std::vector<Row> rows;
  for (unsigned i = 0; i < flows; ++i) {
    for (const cc::DcqcnStep& step : traces[i].steps) {
      rows.push_back({step, i});
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.step.time < b.step.time; });
  auto steps = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    steps.push_back(report::rate_step_json(row.step, "host" + std::to_string(row.flow), row.flow + 1));
  }
  std::cout << report::rate_csv_header() << '\n';
  report::print_rate_csv(std::cout, steps);
}
