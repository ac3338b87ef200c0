// The tap of one shard: every frame that enters or leaves the port becomes a finished pcapng block in a ring that a
// FileSink drains. A frame that finds the ring full is counted as lost; the worker never waits.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/units.hpp"
#include "capture/filter.hpp"
#include "capture/pcapng_writer.hpp"
#include "capture/recorder.hpp"
#include "capture/ring.hpp"
#include "frame/frame.hpp"
#include "stats/counters.hpp"

namespace nbx::capture {

struct TapOptions {
  std::size_t ring_bytes = 16U << 20U;
  std::uint64_t epoch_ns = 0;  // nanoseconds since 1970-01-01 UTC at Instant{0}
};

class Tap {
 public:
  Tap(const TapOptions& options, Counters& counters)
      : ring_(options.ring_bytes), epoch_ns_(options.epoch_ns), counters_(counters) {}

  /// The worker's, for each frame: inbound when its treatment is decided, outbound when the port takes it. Costs two
  /// loads while nothing is captured. `now` is when the frame passed the port and must not go backwards; an outbound
  /// frame that was delayed gets `late=`, the time since `frame.due`.
  void record(const Frame& frame, Direction direction, Instant now) noexcept {
    const std::uint32_t snaplen = snaplen_.load(std::memory_order_acquire);
    if (snaplen != 0 || recorder_ != nullptr) [[unlikely]] {
      record(frame, direction, now, snaplen);
    }
  }

  /// The worker's, at the end of each turn.
  void look(Instant now) noexcept {
    if (recorder_ != nullptr) {
      recorder_->look(now);
    }
  }

  /// Before the worker starts. The recorder outlives it.
  void attach(Recorder& recorder) noexcept { recorder_ = &recorder; }

  // The rest is the writer's side.

  /// Starts a capture of up to `snaplen` bytes of each frame that `filter` takes; without one, of every frame. False
  /// when one runs already.
  [[nodiscard]] bool start(std::uint32_t snaplen, Filter* filter = nullptr) noexcept;
  /// Ends the capture. The worker may still be in the filter, or writing a record, until its next turn.
  void stop() noexcept { snaplen_.store(0, std::memory_order_release); }
  [[nodiscard]] bool running() const noexcept { return snaplen_.load(std::memory_order_relaxed) != 0; }

  [[nodiscard]] RecordRing& ring() noexcept { return ring_; }
  [[nodiscard]] std::uint64_t lost() const noexcept { return counters_.get(Counter::capture_lost); }

 private:
  void record(const Frame& frame, Direction direction, Instant now, std::uint32_t snaplen) noexcept;
  void capture(const Frame& frame, const PacketRecord& record) noexcept;

  std::atomic<std::uint32_t> snaplen_{0};  // 0: no capture
  Filter* filter_ = nullptr;               // set before snaplen_ is
  Recorder* recorder_ = nullptr;
  RecordRing ring_;
  std::uint64_t epoch_ns_;
  Counters& counters_;
};

}  // namespace nbx::capture
