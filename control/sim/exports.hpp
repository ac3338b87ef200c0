// What a simulation writes in other tools' words, besides its report.
#pragma once

#include <iosfwd>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "capture/file_sink.hpp"
#include "sim/timeline.hpp"

namespace nbx::sim {

/// A message of an operation, from the sender's wish until it is acknowledged.
struct Message {
  std::uint64_t step = 0;
  std::size_t operation = 0;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t bytes = 0;
  Instant since;
  Instant until;
  bool resent = false;  // packets of the connection were, meanwhile
};
void write_flow_header(std::ostream& csv);
void write_flow(std::ostream& csv, const Message& message, const std::string& operation);

/// Open Traffic Generator's metrics_response with `rocev2_flow_per_qp_metrics`: a row for each connection, named by its
/// ranks. Latencies are those of messages, in ns, where the model has frames'; timestamps are left out.
[[nodiscard]] nlohmann::ordered_json otg_metrics(const std::string& job, const std::vector<Flow>& flows,
                                                 const std::vector<std::string>& names, Duration length);

/// The frames of one port as pcapng: what comes to it and what leaves it, in virtual time since 1970.
class PortCapture {
 public:
  static Result<std::unique_ptr<PortCapture>> open(const std::string& port, const std::string& file, BitRate speed);

  [[nodiscard]] capture::Tap& tap() noexcept { return tap_; }
  /// To be called at each instant: the ring is bounded.
  void drain() {
    while (sink_->drain()) {
    }
  }
  /// Why the file is not whole.
  [[nodiscard]] std::optional<Error> close();

 private:
  PortCapture() : tap_({}, counters_) {}

  Counters counters_;
  capture::Tap tap_;
  std::unique_ptr<capture::FileSink> sink_;
  std::string file_;
};

}  // namespace nbx::sim
