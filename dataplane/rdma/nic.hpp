// What NICs do differently where the standard leaves a choice or is not followed: the NIC that a ghost pretends to
// have. The defaults are the standard's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/units.hpp"
#include "cc/params.hpp"

namespace nbx::rdma {

/// Timeouts that follow a list of ranges instead of the queue pair's one: the ROCE_ACCL register's adaptive
/// retransmission profile, in its words. A timeout is time_base * 2^exponent.
struct AdaptiveTimer {
  struct Range {
    std::uint8_t low_bound = 0;
    std::uint8_t size = 0;  // the last exponent is low_bound + size
    std::uint16_t timeout_retry_num = 1;

    [[nodiscard]] std::uint32_t high_bound() const { return std::uint32_t{low_bound} + size; }
  };
  static constexpr std::size_t ranges_max = 4;

  Duration time_base = std::chrono::microseconds{4};
  std::uint8_t init_low_bound = 0;
  std::uint8_t init_range_size = 1;  // the first exponent is one of so many
  std::uint8_t start_range_index = 0;
  std::array<Range, ranges_max> ranges{};
  std::uint8_t range_num = 0;
  std::optional<std::uint8_t> total_timeout;  // an exponent; none: timeout * retry_cnt of the queue pair
};

/// How packets that were lost are made up for.
enum class Recovery : std::uint8_t {
  go_back_n,         // what comes behind a gap is discarded, and everything from the gap on sent again
  selective_repeat,  // it is kept, and what is missing sent again
};

/// IRN's timeouts (Mittal et al., SIGCOMM 2018, 3.1): a short one for tails, which no NAK tells of.
struct RtoTimer {
  Duration low = std::chrono::microseconds{100};
  Duration high = std::chrono::microseconds{320};
  std::uint32_t low_packets = 3;  // with so many in flight, or fewer, the low one holds
};

struct Nic {
  std::uint8_t timeout_factor = 1;  // of T = 4.096 us * 2^timeout; 9.7.6.1.3 allows 1 to 4
  std::optional<AdaptiveTimer> adaptive;
  std::optional<RtoTimer> rto;
  Recovery recovery = Recovery::go_back_n;
  std::uint32_t out_of_order_packets = 256;  // selective repeat: kept by the responder of a queue pair
  std::uint32_t bdp_cap = 0;                 // request packets in flight (IRN, 3.2); 0: the queue pair's window alone
  Duration nak_latency{};                    // from a packet ahead of its turn to the NAK
  Duration retransmission_latency{};         // from a NAK, or an implied one, to the first packet sent again
  std::uint32_t ack_request_every = 0;       // request packets; 0: twice per window
  std::uint32_t ack_every = 0;               // request packets, AckReq or not; 0: only AckReq
  bool mig_req = true;
  bool cnp_on_nak = false;
  // None: as the transport.
  std::optional<bool> send_cnp;
  std::optional<Duration> cnp_interval;
  std::optional<cc::CnpScope> cnp_scope;

  [[nodiscard]] bool selective() const noexcept { return recovery == Recovery::selective_repeat; }
};

/// Where in its ranges the adaptive timer of one queue pair is. What the register's description leaves open: progress
/// sets the timeout to the lower bound of its range, and from there to that of the range before.
class AdaptiveTimeout {
 public:
  /// `choice` takes the place of chance, so that a run can be repeated.
  void start(const AdaptiveTimer& timer, std::uint32_t choice) noexcept {
    exponent_ = static_cast<std::uint8_t>(timer.init_low_bound + choice % timer.init_range_size);
    range_ = initial;
    used_ = 0;
  }
  [[nodiscard]] Duration current(const AdaptiveTimer& timer) const noexcept {
    return timer.time_base * (std::int64_t{1} << exponent_);
  }

  void on_timeout(const AdaptiveTimer& timer) noexcept {
    if (range_ == initial) {  // used once; goes on in the range that it lies in
      range_ = 0;
      while (range_ < timer.range_num &&
             (exponent_ < timer.ranges[range_].low_bound || exponent_ > timer.ranges[range_].high_bound())) {
        ++range_;
      }
      if (range_ == timer.range_num) {
        enter(timer, timer.start_range_index);
        return;
      }
    } else if (++used_ < timer.ranges[range_].timeout_retry_num) {
      return;
    }
    used_ = 0;
    if (exponent_ < timer.ranges[range_].high_bound()) {
      ++exponent_;
    } else if (range_ + 1 < timer.range_num) {
      enter(timer, static_cast<std::uint8_t>(range_ + 1));
    }
  }

  void on_progress(const AdaptiveTimer& timer) noexcept {
    if (range_ == initial) {
      return;
    }
    const bool lowest = exponent_ == timer.ranges[range_].low_bound;
    enter(timer, static_cast<std::uint8_t>(lowest && range_ != 0 ? range_ - 1 : range_));
  }

 private:
  void enter(const AdaptiveTimer& timer, std::uint8_t range) noexcept {
    range_ = range;
    exponent_ = timer.ranges[range].low_bound;
    used_ = 0;
  }

  static constexpr std::uint8_t initial = 0xff;
  std::uint8_t exponent_ = 0;
  std::uint8_t range_ = initial;
  std::uint16_t used_ = 0;  // timeouts with this exponent
};

}  // namespace nbx::rdma
