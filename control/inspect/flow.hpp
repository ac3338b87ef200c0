// One direction of one queue pair as a capture shows it: what goes from one address to a queue pair of another, at one
// interface. Requests and responses in it have PSNs of their own. Memory per flow is bounded.
//
// A response names the requester's queue pair, not the responder's, so which request flow it answers is inferred: the
// one flow of the opposite addresses that has sent this PSN and is not paired yet; when there are several, the one
// with the same UDP source port. While that leaves a doubt, there are no latencies.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/ids.hpp"
#include "base/net.hpp"
#include "capture/comment.hpp"
#include "inspect/psn_window.hpp"
#include "inspect/quantiles.hpp"
#include "wire/parse.hpp"

namespace nbx::analysis {

struct FlowKey {
  std::uint32_t interface = 0;
  IpAddress source;
  IpAddress destination;
  Qpn dest_qpn;
  friend auto operator<=>(const FlowKey&, const FlowKey&) = default;
};

/// What the emulator says it did, from comments.
struct TreatmentCounts {
  std::uint64_t dropped = 0;
  std::uint64_t delayed = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t corrupted = 0;
  std::uint64_t reordered = 0;
  std::uint64_t marked = 0;

  void count(const capture::Comment& comment) noexcept;
  [[nodiscard]] bool any() const noexcept {
    return (dropped | delayed | duplicated | corrupted | reordered | marked) != 0;
  }
};

/// Whether the ICRC was right; not known when the capture cut the frame.
enum class IcrcVerdict : std::uint8_t { good, bad, unknown };

/// A packet of a flow, understood.
struct FlowPacket {
  std::int64_t time_ns = 0;
  std::uint32_t size = 0;  // of the whole frame on the wire
  const wire::Parsed* parsed = nullptr;
  const wire::Reth* reth = nullptr;  // when the opcode has one
  IcrcVerdict icrc = IcrcVerdict::unknown;
  const capture::Comment* comment = nullptr;  // when the emulator wrote one

  /// It did its work at its destination, for all that this capture tells.
  [[nodiscard]] bool arrived() const noexcept {
    return icrc != IcrcVerdict::bad && (comment == nullptr || (comment->dropped.empty() && !comment->corrupted));
  }
  [[nodiscard]] bool is_copy() const noexcept { return comment != nullptr && comment->duplicate; }
};

struct Flow {
  static constexpr unsigned latency_bits = 7;  // 0.4 %
  static constexpr std::size_t outstanding_max = 1024;

  /// A request whose answer is awaited. Only whole messages: their last packet, or the only one.
  struct Outstanding {
    Psn psn;
    std::int64_t sent_ns = 0;  // the first time
    std::optional<wire::Reth> read;
  };

  explicit Flow(const FlowKey& k) : key(k) {}

  void count(const FlowPacket& packet);
  /// A request packet of a connected transport, seen for the first time or again.
  void request(const FlowPacket& packet);
  /// A READ response or atomic response packet.
  void response(const FlowPacket& packet);
  /// This flow's requests up to `psn` are answered; `read`: by the last response of a READ.
  void answered(Psn psn, std::int64_t now_ns, bool read);

  FlowKey key;
  std::uint64_t packets = 0;
  std::uint64_t bytes = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t goodput_bytes = 0;  // payload, each PSN once, without what was lost or corrupt
  std::int64_t first_ns = 0;
  std::int64_t last_ns = 0;
  std::map<std::uint8_t, std::uint64_t> opcodes;
  std::uint64_t retransmissions = 0;
  std::uint64_t response_retransmissions = 0;
  std::uint64_t out_of_order = 0;
  std::uint64_t restarts = 0;
  std::uint64_t acks = 0;
  std::map<std::uint8_t, std::uint64_t> naks;  // by syndrome, RNR excepted
  std::uint64_t rnr_naks = 0;
  std::uint64_t cnps = 0;
  std::uint64_t ce_marks = 0;
  std::uint64_t icrc_good = 0;
  std::uint64_t icrc_bad = 0;
  TreatmentCounts treatment;
  Quantiles ack_latency{latency_bits};   // of this flow's requests other than READ
  Quantiles read_latency{latency_bits};  // READ request to the last response

  // Between packets.
  std::uint16_t udp_source_port = 0;
  bool answers_known = false;   // some flow's `requests_of` is this one
  Flow* requests_of = nullptr;  // where the requests are that this flow's responses answer
  std::unique_ptr<PsnWindow> requests;
  std::unique_ptr<PsnWindow> responses;
  std::deque<Outstanding> outstanding;

 private:
  PsnWindow::Verdict see(std::unique_ptr<PsnWindow>& window, const FlowPacket& packet, std::uint64_t& again);
};

class FlowTable {
 public:
  void add(const FlowKey& key, const FlowPacket& packet);

  [[nodiscard]] const std::map<FlowKey, Flow>& flows() const noexcept { return flows_; }

 private:
  void acknowledge(Flow& flow, const FlowPacket& packet);
  void respond(Flow& flow, const FlowPacket& packet);
  Flow* requester_of(Flow& flow, Psn psn);

  std::map<FlowKey, Flow> flows_;
};

}  // namespace nbx::analysis
