#include "inspect/report.hpp"

#include <algorithm>
#include <array>

#include "wire/roce.hpp"

namespace nbx::analysis {

std::vector<const Flow*> Report::flows() const {
  std::vector<const Flow*> chosen;
  chosen.reserve(analysis.flows().size());
  for (const auto& [key, flow] : analysis.flows()) {
    chosen.push_back(&flow);
  }
  std::stable_sort(chosen.begin(), chosen.end(), [](const Flow* a, const Flow* b) { return a->bytes > b->bytes; });
  if (flows_max != 0 && chosen.size() > flows_max) {
    chosen.resize(flows_max);
  }
  return chosen;
}

double goodput_bps(const Flow& flow) {
  const std::int64_t time_ns = flow.last_ns - flow.first_ns;
  return time_ns <= 0 ? 0 : static_cast<double>(flow.goodput_bytes) * 8e9 / static_cast<double>(time_ns);
}

std::string_view name_of(wire::FrameKind kind) {
  constexpr std::array<std::string_view, frame_kinds> names{"unparsed",  "roce_v2",    "roce_v1",    "arp",
                                                            "icmp_echo", "nd_solicit", "nd_advert",  "pfc",
                                                            "pause",     "ip_other",   "ether_other"};
  return names[static_cast<std::size_t>(kind)];
}

std::string_view name_of(capture::Direction direction) {
  constexpr std::array<std::string_view, 3> names{"undirected", "inbound", "outbound"};
  return names[static_cast<std::size_t>(direction)];
}

std::string nak_name(std::uint8_t syndrome) {
  switch (syndrome) {
    case wire::syndrome::nak_psn_sequence_error:
      return "psn_sequence_error";
    case wire::syndrome::nak_invalid_request:
      return "invalid_request";
    case wire::syndrome::nak_remote_access_error:
      return "remote_access_error";
    case wire::syndrome::nak_remote_operational_error:
      return "remote_operational_error";
    case wire::syndrome::nak_invalid_rd_request:
      return "invalid_rd_request";
    default:
      return "syndrome_" + std::to_string(syndrome);
  }
}

}  // namespace nbx::analysis
