#include "capture/recorder.hpp"

#include <algorithm>
#include <utility>

namespace nbx::capture {
namespace {

std::uint64_t count_of(const Counters& counters, Trigger trigger) noexcept {
  switch (trigger) {
    case Trigger::command:
    case Trigger::elsewhere:
      return 0;
    case Trigger::nak:
      return counters.get(Counter::naks_sent) + counters.get(Counter::packet_seq_err) +
             counters.get(Counter::req_remote_access_errors) + counters.get(Counter::req_remote_invalid_request);
    case Trigger::rnr_nak:
      return counters.get(Counter::rnr_naks_sent) + counters.get(Counter::rnr_naks_received);
    case Trigger::timeout:
      return counters.get(Counter::local_ack_timeout_err) + counters.get(Counter::retries_exceeded);
    case Trigger::qp_error:
      return counters.get(Counter::qp_errors);
    case Trigger::event:
      return counters.get(Counter::events_fired);
    case Trigger::pfc_storm:
      return counters.get(Drop::network_pfc_watchdog);
  }
  return 0;
}

}  // namespace

std::string_view name(Trigger trigger) noexcept {
  constexpr std::array<std::string_view, trigger_count> names{"command", "elsewhere", "nak",   "rnr_nak",
                                                              "timeout", "qp_error",  "event", "pfc_storm"};
  return names[static_cast<std::size_t>(trigger)];
}

Recorder::Recorder(RecorderOptions options, Counters& counters)
    : options_(std::move(options)),
      counters_(counters),
      ring_(options_.ring_bytes / RecordRing::alignment * RecordRing::alignment) {
  NBX_CHECK(options_.snaplen != 0);
}

void Recorder::record(ConstBytes frame, const PacketRecord& record) noexcept {
  if (options_.filter != nullptr && !options_.filter->matches(frame)) {
    counters_.count(Counter::recorder_filtered);
    return;
  }
  const auto format = [&record](MutableBytes out) noexcept { return format_epb(out, record); };
  const bool taken =
      state_.load(std::memory_order_acquire) == State::frozen ? ring_.push(format) : ring_.push_over(format);
  if (!taken) {
    counters_.count(Counter::recorder_lost);
  }
}

void Recorder::look(Instant now) noexcept {
  const std::optional<Trigger> event = seen();
  const std::uint8_t asked = asked_.load(std::memory_order_relaxed);
  const State state = state_.load(std::memory_order_acquire);
  if (asked != 0) {
    asked_.store(0, std::memory_order_relaxed);
    if (state == State::recording) {
      begin(static_cast<Trigger>(asked - 1), now);
      return;
    }
  }
  if (event) {
    if (state == State::recording && armed_.load(std::memory_order_relaxed) && now >= armed_from_) {
      begin(*event, now);
      return;
    }
    counters_.count(Counter::recorder_passed_over);
  }
  if (state == State::triggered && (now >= until_ || ring_.written() >= end_at_most_)) {
    end_ = ring_.written();
    dump_.lost = counters_.get(Counter::recorder_lost) - lost_before_;
    dump_.passed_over = counters_.get(Counter::recorder_passed_over) - passed_over_before_;
    lost_before_ += dump_.lost;
    passed_over_before_ += dump_.passed_over;
    state_.store(State::frozen, std::memory_order_release);
  }
}

/// The first of the triggers, as the options order them, whose counters have moved.
std::optional<Trigger> Recorder::seen() noexcept {
  std::optional<Trigger> first;
  for (const Trigger trigger : options_.triggers) {
    std::uint64_t& before = counts_[static_cast<std::size_t>(trigger)];
    const std::uint64_t count = count_of(counters_, trigger);
    if (count != before && !first) {
      first = trigger;
    }
    before = count;
  }
  return first;
}

void Recorder::begin(Trigger why, Instant now) noexcept {
  counters_.count(Counter::recorder_triggers);
  const auto since_epoch = [this](Instant t) {
    return options_.epoch_ns + static_cast<std::uint64_t>(std::max<std::int64_t>(t.ps, 0) / 1000);
  };
  dump_ = {.why = why, .time_ns = since_epoch(now)};
  oldest_ns_ = options_.before == Duration::zero() ? 0 : since_epoch(now - options_.before);
  until_ = now + options_.after;
  armed_from_ = now + options_.apart;
  end_at_most_ = ring_.written() + options_.ring_bytes / 2;
  state_.store(State::triggered, std::memory_order_release);
}

std::optional<Recorder::Dump> Recorder::frozen() const noexcept {
  return state_.load(std::memory_order_acquire) == State::frozen ? std::optional(dump_) : std::nullopt;
}

MutableBytes Recorder::front() noexcept {
  for (;;) {
    const MutableBytes record = ring_.front();
    if (record.empty() || ring_.read() >= end_) {
      return {};
    }
    if (epb_time(record) >= oldest_ns_) {
      return record;
    }
    ring_.pop(record);
  }
}

void Recorder::release(bool armed) noexcept {
  armed_.store(armed, std::memory_order_relaxed);
  state_.store(State::recording, std::memory_order_release);
}

}  // namespace nbx::capture
