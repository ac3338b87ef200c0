#include "inspect/analysis.hpp"

#include <algorithm>
#include <limits>

#include "wire/mac_control.hpp"

namespace nbx::analysis {
namespace {

constexpr std::size_t frame_size_max = 65'535;  // what offsets of a Parsed can name

std::string_view known_reason(std::string_view reason) {
  const auto* known = std::find_if(drop_info.begin(), drop_info.end(),
                                   [reason](const CounterInfo& drop) { return drop.name == reason; });
  return known == drop_info.end() ? "other" : known->name;
}

void count(DirectionReport& report, const capture::Record& record, const capture::Comment* comment) {
  ++report.frames;
  report.bytes += record.original_size;
  if (comment == nullptr) {
    return;
  }
  report.treatment.count(*comment);
  if (!comment->dropped.empty()) {
    ++report.dropped[known_reason(comment->dropped)];
  }
  if (comment->delay_ns) {
    report.delay_asked.add(*comment->delay_ns);
  }
  if (comment->late_ns) {
    report.delay_late.add(*comment->late_ns);
  }
}

}  // namespace

void Analysis::add(const capture::Record& record, const capture::Reader::Interface& interface) {
  if (frames_ == 0) {
    origin_ns_ = first_ns_ = last_ns_ = record.timestamp_ns;
  }
  first_ns_ = std::min(first_ns_, record.timestamp_ns);
  last_ns_ = std::max(last_ns_, record.timestamp_ns);
  ++frames_;
  bytes_ += record.original_size;

  if (record.interface >= interfaces_.size()) {
    interfaces_.resize(record.interface + std::size_t{1});
  }
  InterfaceReport& report = interfaces_[record.interface];
  const auto comment = capture::parse_comment(record.comment);
  const capture::Comment* said = comment ? &*comment : nullptr;
  DirectionReport& direction = report.directions[static_cast<std::size_t>(record.direction)];
  count(direction, record, said);
  if (interface.link_type != capture::linktype_ethernet) {
    ++report.other_link_type;
    return;
  }

  const bool cut = record.captured.size() < record.original_size;
  cut_ += cut ? 1 : 0;
  const ConstBytes frame = cut ? whole(record) : record.captured;
  if (frame.size() > frame_size_max) {
    ++kinds_[static_cast<std::size_t>(wire::FrameKind::unparsed)];
    return;
  }
  const wire::ParsePolicy policy{.verify_icrc = !cut, .verify_ipv4_checksum = !cut, .verify_udp_checksum = !cut};
  wire::Parsed parsed;
  const Drop drop = wire::parse(frame, policy, parsed);
  ++kinds_[static_cast<std::size_t>(parsed.kind)];
  if (drop != Drop::none && parsed.kind != wire::FrameKind::roce_v1) {
    ++malformed_[drop];
  }
  if (parsed.kind == wire::FrameKind::roce_v2 && (drop == Drop::none || drop == Drop::icrc_mismatch)) {
    const IcrcVerdict icrc = cut ? IcrcVerdict::unknown : drop == Drop::none ? IcrcVerdict::good : IcrcVerdict::bad;
    add_roce(record, frame, parsed, icrc, said);
  } else if (drop == Drop::none && (parsed.kind == wire::FrameKind::pfc || parsed.kind == wire::FrameKind::pause)) {
    add_pause(direction.pauses, record.timestamp_ns, frame, parsed);
  }
}

void Analysis::add_pause(switching::PauseTracks& tracks, std::int64_t time_ns, ConstBytes frame,
                         const wire::Parsed& parsed) const {
  // Picoseconds reach 106 days; the times of a file may be anything.
  constexpr std::int64_t limit_ns = std::numeric_limits<std::int64_t>::max() / 4000;
  const auto since_ns =
      static_cast<std::int64_t>(static_cast<std::uint64_t>(time_ns) - static_cast<std::uint64_t>(origin_ns_));
  const Instant now{std::clamp(since_ns, -limit_ns, limit_ns) * 1000};
  const ConstBytes control = frame.subspan(parsed.l3_offset);
  if (parsed.kind == wire::FrameKind::pause) {
    tracks.plain.on_frame(overlay<wire::PauseControl>(control)->quanta.value(), link_, now);
    return;
  }
  const auto* pfc = overlay<wire::PfcControl>(control);
  for (unsigned p = 0; p < wire::priorities; ++p) {
    if (pfc->enabled(p)) {
      tracks.pfc[p].on_frame(pfc->quanta[p].value(), link_, now);
    }
  }
}

void Analysis::add_roce(const capture::Record& record, ConstBytes frame, const wire::Parsed& parsed, IcrcVerdict icrc,
                        const capture::Comment* comment) {
  const FlowKey key{record.interface, wire::source_ip(frame, parsed), wire::destination_ip(frame, parsed),
                    parsed.dest_qpn};
  const FlowPacket packet{
      .time_ns = record.timestamp_ns,
      .size = record.original_size,
      .parsed = &parsed,
      .reth = parsed.op().has(wire::ext::reth) ? &wire::extension<wire::Reth>(frame, parsed, wire::ext::reth) : nullptr,
      .icrc = icrc,
      .comment = comment};
  flows_.add(key, packet);
  if (parsed.op_class == wire::OpcodeClass::cm) {
    if (const auto message = wire::decode_cm_header(wire::payload(frame, parsed))) {
      ++cm_[message->attribute];
    }
  }
}

ConstBytes Analysis::whole(const capture::Record& record) {
  padded_.assign(std::min<std::size_t>(record.original_size, frame_size_max + 1), std::byte{0});
  const ConstBytes head = record.captured.first(std::min(record.captured.size(), padded_.size()));
  std::copy(head.begin(), head.end(), padded_.begin());
  return padded_;
}

}  // namespace nbx::analysis
