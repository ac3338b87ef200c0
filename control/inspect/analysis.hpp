// Everything `nbx inspect` says about a capture, gathered packet by packet.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "capture/reader.hpp"
#include "inspect/flow.hpp"
#include "stats/counters.hpp"
#include "switching/pause_track.hpp"
#include "wire/mad.hpp"
#include "wire/parse.hpp"

namespace nbx::analysis {

/// The frames that went one way at one interface.
struct DirectionReport {
  static constexpr unsigned delay_bits = 16;  // delays are exact up to 131 us, beyond to one part in 131072

  std::uint64_t frames = 0;
  std::uint64_t bytes = 0;
  TreatmentCounts treatment;
  std::map<std::string_view, std::uint64_t> dropped;  // by reason; "other": none of this version's
  Quantiles delay_asked{delay_bits};
  Quantiles delay_late{delay_bits};  // achieved minus asked, of frames that say so
  switching::PauseTracks pauses;
};

struct InterfaceReport {
  std::array<DirectionReport, 3> directions;  // by capture::Direction
  std::uint64_t other_link_type = 0;          // frames that are not Ethernet: counted, not looked at
};

inline constexpr std::size_t frame_kinds = static_cast<std::size_t>(wire::FrameKind::ether_other) + 1;

class Analysis {
 public:
  /// `link`: what pauses are timed with; zero: they are not.
  explicit Analysis(BitRate link = {}) : link_(link) {}

  void add(const capture::Record& record, const capture::Reader::Interface& interface);

  [[nodiscard]] std::uint64_t frames() const noexcept { return frames_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] BitRate link() const noexcept { return link_; }
  [[nodiscard]] std::int64_t first_ns() const noexcept { return first_ns_; }
  [[nodiscard]] std::int64_t last_ns() const noexcept { return last_ns_; }
  /// Frames that the capture cut: their ICRC is unknown.
  [[nodiscard]] std::uint64_t cut() const noexcept { return cut_; }
  [[nodiscard]] const std::array<std::uint64_t, frame_kinds>& kinds() const noexcept { return kinds_; }
  [[nodiscard]] const std::map<Drop, std::uint64_t>& malformed() const noexcept { return malformed_; }
  [[nodiscard]] const std::map<wire::CmAttribute, std::uint64_t>& cm_messages() const noexcept { return cm_; }
  [[nodiscard]] const std::vector<InterfaceReport>& interfaces() const noexcept { return interfaces_; }
  [[nodiscard]] const std::map<FlowKey, Flow>& flows() const noexcept { return flows_.flows(); }

 private:
  void add_roce(const capture::Record& record, ConstBytes frame, const wire::Parsed& parsed, IcrcVerdict icrc,
                const capture::Comment* comment);
  void add_pause(switching::PauseTracks& tracks, std::int64_t time_ns, ConstBytes frame,
                 const wire::Parsed& parsed) const;
  ConstBytes whole(const capture::Record& record);

  BitRate link_;
  std::int64_t origin_ns_ = 0;  // of the first frame in the file
  std::uint64_t frames_ = 0;
  std::uint64_t bytes_ = 0;
  std::int64_t first_ns_ = 0;
  std::int64_t last_ns_ = 0;
  std::uint64_t cut_ = 0;
  std::array<std::uint64_t, frame_kinds> kinds_{};
  std::map<Drop, std::uint64_t> malformed_;
  std::map<wire::CmAttribute, std::uint64_t> cm_;
  std::vector<InterfaceReport> interfaces_;
  FlowTable flows_;
  std::vector<std::byte> padded_;  // a cut frame, zeros in place of what is missing
};

}  // namespace nbx::analysis
