#include "capture/tap.hpp"

#include <algorithm>
#include <optional>

#include "capture/comment.hpp"

namespace nbx::capture {

bool Tap::start(std::uint32_t snaplen, Filter* filter) noexcept {
  if (running()) {
    return false;
  }
  ring_.clear();  // a straggler of the capture before
  filter_ = filter;
  snaplen_.store(snaplen, std::memory_order_release);
  return true;
}

void Tap::record(const Frame& frame, Direction direction, Instant now, std::uint32_t snaplen) noexcept {
  // A frame held back to be reordered has no due time.
  const bool has_left = direction == Direction::outbound && frame.treatment.dropped == Drop::none;
  const std::optional<Duration> late =
      has_left && !frame.treatment.reordered ? std::optional(now - frame.due) : std::nullopt;
  CommentBuffer buffer;
  PacketRecord record{
      .timestamp_ns = epoch_ns_ + static_cast<std::uint64_t>(now.ps / 1000),
      .direction = direction,
      .captured = {},
      .original_size = frame.size,
      .comment = format_comment(buffer, frame.treatment, late),
  };
  if (snaplen != 0) {
    record.captured = frame.bytes().first(std::min(frame.size, snaplen));
    capture(frame, record);
  }
  if (recorder_ != nullptr) {
    record.captured = frame.bytes().first(std::min(frame.size, recorder_->snaplen()));
    recorder_->record(frame.bytes(), record);
  }
}

void Tap::capture(const Frame& frame, const PacketRecord& record) noexcept {
  if (filter_ != nullptr && !filter_->matches(frame.bytes())) {
    counters_.count(Counter::capture_filtered);
    return;
  }
  const bool taken = ring_.push([&record](MutableBytes out) noexcept { return format_epb(out, record); });
  counters_.count(taken ? Counter::captured : Counter::capture_lost);
}

}  // namespace nbx::capture
