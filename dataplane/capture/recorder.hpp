// The flight recorder of one shard: the last frames in memory, the oldest overwritten block by block. A trigger lets
// some time pass; then the ring is frozen until a thread that may block has written it to a file. While it is frozen,
// frames that find no room are lost and counted: the worker never waits, and never takes away what is being written.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "capture/filter.hpp"
#include "capture/pcapng_writer.hpp"
#include "capture/ring.hpp"
#include "stats/counters.hpp"

namespace nbx::capture {

/// What happened. All but the first two are seen in the shard's counters.
enum class Trigger : std::uint8_t {
  command,    // nbx capture trigger
  elsewhere,  // at another port
  nak,        // sent or received, RNR excepted
  rnr_nak,
  timeout,    // of a transport timer, or retries that are exhausted
  qp_error,   // a queue pair went to the error state
  event,      // of the profile: it took a packet
  pfc_storm,  // the watchdog of an emulated switch took a packet
};
inline constexpr std::size_t trigger_count = 8;
[[nodiscard]] std::string_view name(Trigger trigger) noexcept;

struct RecorderOptions {
  std::size_t ring_bytes = 64U << 20U;
  std::uint64_t epoch_ns = 0;      // nanoseconds since 1970-01-01 UTC at Instant{0}
  std::uint32_t snaplen = 0;       // bytes of each frame, not 0
  std::unique_ptr<Filter> filter;  // of this worker; null: every frame
  Duration before{};               // older frames are left out of a dump; zero: none is too old
  Duration after{};                // from the trigger to the end, or less: half of the ring is for what was before
  Duration apart{};                // from one trigger to the next, other than by command
  std::vector<Trigger> triggers;
};

class Recorder {
 public:
  struct Dump {  // what a frozen recorder holds
    Trigger why = Trigger::command;
    std::uint64_t time_ns = 0;      // of the trigger, since 1970-01-01 UTC
    std::uint64_t lost = 0;         // records since the dump before
    std::uint64_t passed_over = 0;  // triggers, likewise
  };

  Recorder(RecorderOptions options, Counters& counters);

  // The worker's.

  [[nodiscard]] std::uint32_t snaplen() const noexcept { return options_.snaplen; }
  /// `frame` is whole; the record may hold less of it.
  void record(ConstBytes frame, const PacketRecord& record) noexcept;
  /// At the end of a turn, whose frames were recorded with the same `now`: looks for triggers.
  void look(Instant now) noexcept;

  // Control's, from one thread.

  /// Triggers at the worker's next turn. Does nothing while a dump is due.
  void trigger(Trigger why) noexcept { asked_.store(static_cast<std::uint8_t>(why) + 1, std::memory_order_relaxed); }
  /// Whether a trigger was taken and release() not yet called.
  [[nodiscard]] bool due() const noexcept { return state_.load(std::memory_order_acquire) != State::recording; }
  /// Nullopt until the time after the trigger is over. The records stand in front() until release().
  [[nodiscard]] std::optional<Dump> frozen() const noexcept;
  /// The oldest record of the dump, empty at its end. pop() takes it.
  [[nodiscard]] MutableBytes front() noexcept;
  void pop(ConstBytes record) noexcept { ring_.pop(record); }
  /// Records again. `armed` false: without triggers, for good.
  void release(bool armed) noexcept;

 private:
  enum class State : std::uint8_t { recording, triggered, frozen };

  [[nodiscard]] std::optional<Trigger> seen() noexcept;
  void begin(Trigger why, Instant now) noexcept;

  RecorderOptions options_;
  Counters& counters_;
  RecordRing ring_;
  std::atomic<State> state_{State::recording};
  std::atomic<std::uint8_t> asked_{0};  // a Trigger, from 1; 0: none
  std::atomic<bool> armed_{true};

  // The worker's; control reads `dump_`, `end_` and `oldest_ns_` while it is frozen.
  std::array<std::uint64_t, trigger_count> counts_{};  // by Trigger, at the last look
  Dump dump_;
  std::uint64_t end_ = 0;        // of the dump: a position of the ring
  std::uint64_t oldest_ns_ = 0;  // that goes into the dump
  std::uint64_t end_at_most_ = 0;
  Instant until_{};
  Instant armed_from_{};
  std::uint64_t lost_before_ = 0;
  std::uint64_t passed_over_before_ = 0;
};

}  // namespace nbx::capture
