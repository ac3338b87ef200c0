#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <numeric>

#include "inspect/report.hpp"

namespace nbx::analysis {
namespace {

std::string number(std::uint64_t n) { return std::to_string(n); }

template <class... Args>
std::string formatted(const char* format, Args... args) {
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), format, args...);
  return text.data();
}

std::string seconds(std::int64_t ns) {
  return formatted("%lld.%09lld", static_cast<long long>(ns / 1'000'000'000),
                   static_cast<long long>(ns % 1'000'000'000));
}

std::string utc(std::int64_t ns) {
  const std::time_t t = ns / 1'000'000'000;
  std::tm parts{};
  std::array<char, 32> date{};
  if (ns < 0 || gmtime_r(&t, &parts) == nullptr || std::strftime(date.data(), date.size(), "%F %T", &parts) == 0) {
    return seconds(ns);
  }
  return formatted("%s.%09lld UTC", date.data(), static_cast<long long>(ns % 1'000'000'000));
}

std::string rate(double bps) {
  constexpr std::array<const char*, 4> units{"b/s", "kb/s", "Mb/s", "Gb/s"};
  std::size_t unit = 0;
  while (bps >= 1000 && unit + 1 < units.size()) {
    bps /= 1000;
    ++unit;
  }
  return formatted("%.3g %s", bps, units[unit]);
}

/// "name count, name count": the rows with a count.
class Tally {
 public:
  Tally& add(std::string_view what, std::uint64_t n) {
    if (n != 0) {
      text_ += (text_.empty() ? "" : ", ") + std::string(what) + " " + number(n);
    }
    return *this;
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void print_line(std::ostream& out, std::string_view label, const std::string& text) {
  if (!text.empty()) {
    out << label << ": " << text << "\n";
  }
}

std::string treatment(const TreatmentCounts& t) {
  return Tally()
      .add("dropped", t.dropped)
      .add("delayed", t.delayed)
      .add("duplicated", t.duplicated)
      .add("corrupted", t.corrupted)
      .add("reordered", t.reordered)
      .add("ecn-marked", t.marked)
      .text();
}

std::string microseconds(std::int64_t ns) { return formatted("%.3f", static_cast<double>(ns) / 1000); }

std::string latency(const Quantiles& h) {
  return h.count() == 0
             ? ""
             : "min " + microseconds(h.min()) + ", median " + microseconds(h.median()) + ", p99 " +
                   microseconds(h.quantile(99)) + ", max " + microseconds(h.max()) + " us (" + number(h.count()) + ")";
}

std::string nanoseconds(const Quantiles& h) {
  return h.count() == 0 ? ""
                        : "min " + std::to_string(h.min()) + ", median " + std::to_string(h.median()) + ", p99 " +
                              std::to_string(h.quantile(99)) + ", worst " + std::to_string(h.max()) + " ns (" +
                              number(h.count()) + " frames)";
}

std::string pauses(const switching::PauseTrack& track, BitRate link) {
  std::string text = "pauses " + number(track.pauses()) + ", resumes " + number(track.resumes()) + ", quanta " +
                     number(track.quanta());
  if (!link.unlimited()) {
    text += ", gaps " + number(track.gaps());
    if (track.gaps() != 0) {
      text += " (longest " + microseconds(track.longest_gap().count() / 1000) + " us)";
    }
    text += ", paused " + microseconds(track.total().count() / 1000) + " us, longest " +
            microseconds(track.longest().count() / 1000) + " us";
  }
  return text;
}

void print_pauses(const switching::PauseTracks& report, BitRate link, std::ostream& out) {
  for (std::size_t p = 0; p < report.pfc.size(); ++p) {
    if (report.pfc[p].seen()) {
      out << "    PFC priority " << p << ": " << pauses(report.pfc[p], link) << "\n";
    }
  }
  if (report.plain.seen()) {
    out << "    PAUSE: " << pauses(report.plain, link) << "\n";
  }
}

void print_direction(capture::Direction direction, const DirectionReport& report, BitRate link, std::ostream& out) {
  if (report.frames == 0) {
    return;
  }
  out << "  " << name_of(direction) << ": " << report.frames << " frames, " << report.bytes << " bytes\n";
  print_line(out, "    by the emulator", treatment(report.treatment));
  Tally dropped;
  for (const auto& [reason, n] : report.dropped) {
    dropped.add(reason, n);
  }
  print_line(out, "    dropped", dropped.text());
  print_line(out, "    delay asked", nanoseconds(report.delay_asked));
  print_line(out, "    delay achieved minus asked", nanoseconds(report.delay_late));
  print_pauses(report.pauses, link, out);
}

void print_interfaces(const Report& report, std::ostream& out) {
  for (std::size_t i = 0; i < report.interfaces.size(); ++i) {
    const capture::Reader::Interface& interface = report.interfaces[i];
    out << "interface " << i << (interface.name.empty() ? "" : " " + interface.name)
        << (interface.description.empty() ? "" : " (" + interface.description + ")") << "\n";
    if (i < report.analysis.interfaces().size()) {
      const InterfaceReport& seen = report.analysis.interfaces()[i];
      for (std::size_t d = 0; d < seen.directions.size(); ++d) {
        print_direction(static_cast<capture::Direction>(d), seen.directions[d], report.analysis.link(), out);
      }
      print_line(out, "  not Ethernet", Tally().add("frames", seen.other_link_type).text());
    }
    if (interface.dropped) {
      out << "  lost by the capture: " << *interface.dropped
          << (interface.received ? " of " + number(*interface.received) : "") << " frames\n";
    }
  }
}

void print_totals(const Analysis& analysis, std::ostream& out) {
  Tally kinds;
  for (std::size_t i = 0; i < analysis.kinds().size(); ++i) {
    kinds.add(name_of(static_cast<wire::FrameKind>(i)), analysis.kinds()[i]);
  }
  print_line(out, "frames", kinds.text());
  Tally malformed;
  for (const auto& [reason, n] : analysis.malformed()) {
    malformed.add(name(reason), n);
  }
  print_line(out, "malformed", malformed.text());
  Tally cm;
  for (const auto& [attribute, n] : analysis.cm_messages()) {
    cm.add(wire::name(attribute), n);
  }
  print_line(out, "CM messages", cm.text());
  print_line(out, "cut by the capture, ICRC unknown", Tally().add("frames", analysis.cut()).text());
}

using Row = std::vector<std::string>;

/// The first `text_columns` to the left, numbers to the right.
void print_table(const std::vector<Row>& rows, std::size_t text_columns, std::ostream& out) {
  Row::size_type columns = rows.front().size();
  std::vector<std::size_t> widths(columns);
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < columns; ++c) {
      widths[c] = std::max(widths[c], row[c].size());
    }
  }
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < columns; ++c) {
      const std::string gap(widths[c] - row[c].size(), ' ');
      out << (c == 0 ? "" : "  ") << (c < text_columns ? row[c] + gap : gap + row[c]);
    }
    out << "\n";
  }
}

std::uint64_t nak_count(const Flow& flow) {
  return std::accumulate(flow.naks.begin(), flow.naks.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const auto& nak) { return sum + nak.second; });
}

void print_flow_table(const std::vector<const Flow*>& flows, std::ostream& out) {
  std::vector<Row> rows{{"if", "source", "destination", "to QP", "packets", "bytes", "payload", "goodput", "retrans",
                         "out-of-order", "NAK", "RNR", "ACK", "CNP", "CE", "bad ICRC"}};
  for (const Flow* f : flows) {
    rows.push_back({number(f->key.interface), to_string(f->key.source), to_string(f->key.destination),
                    formatted("0x%06x", f->key.dest_qpn.value), number(f->packets), number(f->bytes),
                    number(f->payload_bytes), rate(goodput_bps(*f)),
                    number(f->retransmissions + f->response_retransmissions), number(f->out_of_order),
                    number(nak_count(*f)), number(f->rnr_naks), number(f->acks), number(f->cnps), number(f->ce_marks),
                    number(f->icrc_bad)});
  }
  constexpr std::size_t text_columns = 4;
  print_table(rows, text_columns, out);
}

void print_flow(const Flow& flow, std::ostream& out) {
  out << "\n"
      << to_string(flow.key.source) << " > " << to_string(flow.key.destination) << " QP "
      << formatted("0x%06x", flow.key.dest_qpn.value) << " at interface " << flow.key.interface << "\n";
  Tally opcodes;
  for (const auto& [opcode, n] : flow.opcodes) {
    opcodes.add(wire::traits(opcode).name, n);
  }
  print_line(out, "  opcodes", opcodes.text());
  Tally naks;
  for (const auto& [syndrome, n] : flow.naks) {
    naks.add(nak_name(syndrome), n);
  }
  print_line(out, "  NAKs", naks.text());
  print_line(out, "  retransmissions",
             Tally().add("requests", flow.retransmissions).add("responses", flow.response_retransmissions).text());
  print_line(out, "  PSN restarts", Tally().add("seen", flow.restarts).text());
  print_line(out, "  request to answer", latency(flow.ack_latency));
  print_line(out, "  READ to last response", latency(flow.read_latency));
  print_line(out, "  ICRC", Tally().add("good", flow.icrc_good).add("bad", flow.icrc_bad).text());
  print_line(out, "  by the emulator", treatment(flow.treatment));
}

}  // namespace

void print_text(const Report& report, std::ostream& out) {
  const Analysis& analysis = report.analysis;
  out << report.file << ": " << analysis.frames() << " frames, " << analysis.bytes() << " bytes";
  if (analysis.frames() != 0) {
    out << ", " << seconds(analysis.last_ns() - analysis.first_ns()) << " s from " << utc(analysis.first_ns());
  }
  out << "\n";
  print_interfaces(report, out);
  print_totals(analysis, out);
  const std::vector<const Flow*> flows = report.flows();
  if (flows.empty()) {
    return;
  }
  out << "\n";
  print_flow_table(flows, out);
  for (const Flow* flow : flows) {
    print_flow(*flow, out);
  }
  if (flows.size() < analysis.flows().size()) {
    out << "\n" << analysis.flows().size() - flows.size() << " more flows, with fewer bytes\n";
  }
}

}  // namespace nbx::analysis
