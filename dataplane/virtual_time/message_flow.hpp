// One message from host to host that arrives whole: with go-back-N, as RC queue pairs do (IBTA 9.7.5, 9.9), or with
// selective repeat (IRN: Mittal et al., "Revisiting Network Support for RDMA", SIGCOMM 2018). A model of the recovery,
// at line rate and without the transport's other rules.
#pragma once

#include <cstdint>
#include <vector>

#include "virtual_time/flow.hpp"

namespace nbx::virtual_time {

enum class Recovery : std::uint8_t {
  go_back_n,         // a gap is answered with one NAK, and everything behind it is sent again
  selective_repeat,  // what is out of order is kept; what is missing below a packet that came is sent again, once
};

struct RecoverySpec {
  Recovery recovery = Recovery::go_back_n;
  std::uint32_t window_packets = 0;  // not acknowledged at one time (IRN: the bandwidth-delay product); 0: no limit
  Duration timeout{};                // without progress, until the oldest is sent again
  std::uint8_t ack_priority = 6;
};

/// FlowSpec::packets is the length of the message.
class MessageFlow final : public Flow {
 public:
  MessageFlow(World& world, const FlowSpec& spec, const RecoverySpec& recovery);

  [[nodiscard]] bool completed() const noexcept { return completed_at_ != Instant::never(); }
  /// From the start to the last packet in order at the destination.
  [[nodiscard]] Duration completion_time() const noexcept { return completed_at_ - spec().start; }
  [[nodiscard]] std::uint64_t timeouts() const noexcept { return timeouts_; }

 private:
  static constexpr std::uint32_t ack_bytes = 14 + 20 + 8 + 12 + 4 + 4;  // Ethernet, IPv4, UDP, BTH, AETH, ICRC

  void on_timer(TimerNode& node, Instant now) noexcept override;
  void on_departed(Instant now) noexcept override;
  void on_data(SimPacket& packet, Instant now) noexcept override;
  void on_answer(SimPacket& packet, Instant now) noexcept override;
  void try_send(Instant now) noexcept;
  [[nodiscard]] std::uint32_t lost_one() noexcept;

  RecoverySpec recovery_;
  std::uint32_t length_;
  bool started_ = false;
  bool in_port_ = false;
  std::uint64_t timeouts_ = 0;
  // Sender.
  std::uint32_t next_ = 0;          // first that was never sent, or, go-back-N, has to be sent again
  std::uint32_t acknowledged_ = 0;  // all before
  std::uint32_t repair_next_ = 0;   // selective repeat: where to look for the next that is missing
  std::uint32_t repair_end_ = 0;    // and where to stop
  std::uint32_t repair_until_ = 0;  // this recovery ends when all before are acknowledged
  std::vector<bool> seen_;          // by the destination, as it has told
  // Destination.
  std::uint32_t expected_ = 0;
  bool gap_reported_ = false;
  std::vector<bool> kept_;
  Instant completed_at_ = Instant::never();
};

}  // namespace nbx::virtual_time
